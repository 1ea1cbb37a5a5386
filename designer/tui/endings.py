"""Endings that nobody chose, a fault of ours or a signal: the terminal comes back, and so does the work."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from platformdirs import user_state_path

from .files import Files

SIGNALS = ("SIGTERM", "SIGHUP", "SIGINT")
PATIENCE = 3
"""Seconds that a terminal may take to be put back; one that is gone never answers."""

FAULT = 70
"""Exit code of a fault of ours, as sysexits.h has it."""


class Endings(Files):
    """Says, once the terminal is as it was, why the interface ended and how to go on."""

    last_words = ""

    def heed_signals(self) -> None:
        """End in order where a signal asks for it. Only the main thread hears signals."""
        loop = asyncio.get_running_loop()
        for name in SIGNALS:
            number = getattr(signal, name, None)
            if number is not None:
                try:
                    loop.add_signal_handler(number, self.end_by, number)
                except (NotImplementedError, RuntimeError, ValueError):
                    return

    def end_by(self, number: signal.Signals) -> None:
        """A signal ends the interface; the journal holds what is unsaved."""
        self.last_words = f"ended by {signal.Signals(number).name}{self.how_to_go_on()}"
        if hasattr(signal, "alarm"):
            signal.signal(signal.SIGALRM, self.give_up)
            signal.alarm(PATIENCE)
        self.exit(return_code=128 + number)

    def give_up(self, *_: object) -> None:
        """End at once: a terminal that is gone for good, or a thread that works on, would keep us."""
        self.speak()
        os._exit(self.return_code or FAULT)

    def speak(self) -> None:
        """The last words, to a terminal that is as it was, if there is one still."""
        if self.last_words:
            with suppress(OSError):
                print(f"contraflow design: {self.last_words}", file=sys.stderr, flush=True)

    def how_to_go_on(self) -> str:
        """What becomes of the work."""
        return "; what was not saved comes back with: contraflow recover" if self.session.dirty else ""

    def _fatal_error(self) -> None:
        # Textual would print the traceback, with every local, over the terminal of someone who can do nothing about it.
        log = log_fault()
        place = f"details are in {log}" if log else "and no log could be written"
        self.last_words = f"stopped by a fault of its own, {place}{self.how_to_go_on()}"
        self._return_code = FAULT
        self._close_messages_no_wait()


def log_fault() -> Path | None:
    """Write the exception that is being handled to the log; None where that cannot be."""
    path = user_state_path("contraflow", appauthor=False) / "design.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as log:
            log.write(f"{datetime.now().isoformat(timespec='seconds')} {' '.join(sys.argv)}\n")
            log.write(traceback.format_exc() + "\n")
    except OSError:
        return None
    return path
