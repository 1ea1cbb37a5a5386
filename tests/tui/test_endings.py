"""The real command in a real terminal: signals, faults of ours and a terminal that goes all end in order."""

from __future__ import annotations

import fcntl
import os
import pty
import random
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contraflow.designer import journal
from contraflow.designer.design import Design, make

pytestmark = [pytest.mark.processes, pytest.mark.skipif(sys.platform == "win32", reason="needs a pty")]

ALTERNATE, BACK = b"\x1b[?1049h", b"\x1b[?1049l"
"""Take the whole screen; give it back."""
PATIENCE = 90
"""Seconds after which something hangs."""


class Terminal:
    """The interface in a pty, with a state folder of its own."""

    def __init__(
        self, folder: Path, code: str = "from contraflow.designer.cli import main; sys.exit(main())"
    ) -> None:
        self.master, slave = pty.openpty()
        self.resize(120, 40)
        self.before = termios.tcgetattr(slave)
        environment = {**os.environ, "XDG_STATE_HOME": str(folder), "TERM": "xterm-256color"}
        for name in ("NO_COLOR", "TEXTUAL_DRIVER", "COLUMNS", "LINES"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.argv = ['contraflow', 'design']; {code}"],
            stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=environment, start_new_session=True,
        )  # fmt: skip
        self.slave, self.seen = slave, b""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds: float) -> bytes:
        """What is written within so many seconds."""
        found = b""
        until = time.monotonic() + seconds
        while time.monotonic() < until and select.select([self.master], [], [], 0.05)[0]:
            try:
                found += os.read(self.master, 1 << 16)
            except OSError:
                break
        self.seen += found
        return found

    def wait_for(self, words: bytes) -> None:
        until = time.monotonic() + PATIENCE
        while words not in self.seen:
            assert time.monotonic() < until, self.seen[-2000:]
            self.read(0.2)

    def keys(self, text: str) -> None:
        os.write(self.master, text.encode())

    def end(self) -> int:
        """The exit code, once it has ended and everything it said is read."""
        until = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < until, "it hangs"
            self.read(0.1)
        self.read(0.3)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for descriptor in (self.master, self.slave):
            os.close(descriptor)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    found = Terminal(tmp_path)
    found.wait_for(b"bubble")
    yield found
    found.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_the_terminal_back_and_the_work_is_there(
    terminal: Terminal, number: signal.Signals, tmp_path: Path
) -> None:
    terminal.keys("\x1b[B+")
    terminal.wait_for(b"untitled*")
    terminal.process.send_signal(number)
    assert terminal.end() == 128 + number
    # What the knobs said is there again.
    [left] = journal.lost(tmp_path / "contraflow" / "journals")
    assert left.schedule() == make(Design(devices=5))
    assert terminal.seen.rindex(BACK) > terminal.seen.rindex(ALTERNATE)
    assert termios.tcgetattr(terminal.slave) == terminal.before
    words = terminal.seen[terminal.seen.rindex(BACK) :].decode()
    assert f"ended by {number.name}" in words
    assert "contraflow recover" in words
    assert "Traceback" not in words


def test_sizes_change_two_hundred_times_and_nothing_breaks(terminal: Terminal) -> None:
    draw = random.Random(0)
    terminal.keys("\x1bOR")  # F3: the chart
    for number in range(200):
        terminal.resize(draw.randint(1, 250), draw.randint(1, 70))
        if number % 20 == 0:
            terminal.keys(draw.choice([".", "z", "x", "\x1b[B", " "]))
        terminal.read(0.005)
    terminal.resize(100, 30)
    terminal.read(1.0)
    terminal.keys("\x11")
    assert terminal.end() == 0
    assert termios.tcgetattr(terminal.slave) == terminal.before


def test_a_fault_of_ours_gives_the_terminal_back_and_names_the_log(tmp_path: Path) -> None:
    code = (
        "from contraflow.designer.tui import app\n"
        "def fail(self): raise RuntimeError('forced here')\n"
        "app.Designer.action_pin = fail\n"
        "from contraflow.designer.cli import main\n"
        "sys.exit(main())"
    )
    terminal = Terminal(tmp_path, code)
    terminal.wait_for(b"bubble")
    terminal.keys("+")
    terminal.wait_for(b"untitled*")
    terminal.keys("\x1b[18~")  # F7
    assert terminal.end() == 70
    assert termios.tcgetattr(terminal.slave) == terminal.before
    words = terminal.seen[terminal.seen.rindex(BACK) :].decode()
    log = tmp_path / "contraflow" / "design.log"
    assert "design.log" in words
    assert "contraflow recover" in words
    assert "Traceback" not in words
    assert "forced here" in log.read_text()
    assert len(journal.lost(tmp_path / "contraflow" / "journals")) == 1
    terminal.close()


def test_a_terminal_that_goes_ends_the_process(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.wait_for(b"bubble")
    os.close(terminal.slave)
    os.close(terminal.master)
    os.killpg(terminal.process.pid, signal.SIGHUP)
    assert terminal.process.wait(PATIENCE) != 0
