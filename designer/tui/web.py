"""The terminal interface in a browser: one process of it for every page that is opened."""

from __future__ import annotations

import shlex
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web
from textual_serve.server import Server

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def allowed(headers: dict[str, str], host: str, port: int) -> bool:
    """Whether a request comes from a page of ours: no other page of a browser may drive what can write files."""
    names = LOOPBACK if host in LOOPBACK else (headers.get("Host", "").rsplit(":", 1)[0],)
    ours = {f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in names}
    origin = headers.get("Origin")
    return headers.get("Host") in ours and (origin is None or origin.split("://")[-1] in ours)


class Served(Server):
    """Quiet, and deaf to other pages."""

    async def _make_app(self) -> web.Application:
        app: web.Application = await super()._make_app()

        @web.middleware
        async def ours_alone(request: web.Request, handler: Handler) -> web.StreamResponse:
            if not allowed(dict(request.headers), self.host, self.port):
                raise web.HTTPForbidden(text=f"open {self.public_url} itself")
            return await handler(request)

        app.middlewares.append(ours_alone)
        return app

    async def on_startup(self, app: web.Application) -> None:
        print(f"open {self.public_url} in a browser; Ctrl-C ends it", file=sys.stderr, flush=True)


def serve(arguments: Sequence[str], host: str, port: int) -> None:
    """Serve `contraflow design ARGUMENTS` until Ctrl-C. Raises OSError where the address cannot be had."""
    command = shlex.join([sys.executable, "-m", "contraflow.designer.cli", "design", *arguments])
    # Pages find their way back by this name: one that stands for all addresses is none.
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    address = f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
    Served(command, host=host, port=port, title="Contraflow", public_url=address).serve()
