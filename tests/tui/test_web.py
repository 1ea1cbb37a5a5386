"""The interface in a browser: served to pages of its own alone, and only to this machine unless told otherwise."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contraflow.designer.cli import main

pytest.importorskip("textual_serve")

from contraflow.designer.tui.web import allowed


def test_only_its_own_pages_may_talk_to_it() -> None:
    ours = {"Host": "127.0.0.1:8000"}
    assert allowed(ours, "127.0.0.1", 8000)
    assert allowed({"Host": "localhost:8000", "Origin": "http://localhost:8000"}, "127.0.0.1", 8000)
    for other in (
        {**ours, "Origin": "https://elsewhere.example"},
        {**ours, "Origin": "http://127.0.0.1:9000"},
        {"Host": "elsewhere.example:8000"},
        {},
    ):
        assert not allowed(other, "127.0.0.1", 8000)


def test_without_the_package_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "contraflow.designer.tui.web", raising=False)
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    assert main(["design", "--web"]) == 3
    assert "pip install 'textual-serve" in capsys.readouterr().err


@pytest.mark.processes
def test_a_page_shows_the_design(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "import sys; from contraflow.designer.cli import main; sys.exit(main())"
    server = subprocess.Popen(
        [sys.executable, "-c", code, "design", "--web", "--port", f"{port}"],
        cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
    )  # fmt: skip
    try:
        page = patiently(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10).read())
        assert b"Contraflow" in page
        foreign = urllib.request.Request(
            f"http://127.0.0.1:{port}/", headers={"Origin": "https://elsewhere.example"}
        )
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(foreign, timeout=10)
        assert b"makespan" in seen(port)
    finally:
        server.send_signal(signal.SIGINT)
        said, _ = server.communicate(timeout=60)
    assert server.returncode == 0
    assert f"http://127.0.0.1:{port}" in said.decode()


def patiently(ask: Callable[[], Any]) -> Any:
    """The answer, once there is one."""
    until = time.monotonic() + 60
    while True:
        try:
            return ask()
        except urllib.error.URLError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def seen(port: int) -> bytes:
    """What the interface writes to a page of 120x40 until the figures are there."""
    import asyncio

    import aiohttp

    async def look() -> bytes:
        found = b""
        async with aiohttp.ClientSession() as session:
            address = f"ws://127.0.0.1:{port}/ws?width=120&height=40"
            async with session.ws_connect(address, origin=f"http://127.0.0.1:{port}") as socket:
                await socket.send_str(json.dumps(["resize", {"width": 120, "height": 40}]))
                async with asyncio.timeout(60):
                    async for message in socket:
                        if message.type is aiohttp.WSMsgType.BINARY:
                            found += message.data
                        if b"makespan" in found:
                            break
        return found

    return asyncio.run(look())
