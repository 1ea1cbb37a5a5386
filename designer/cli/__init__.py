"""The `contraflow` command: one file for each command, and a line for it in `commands.py`.

stdout carries data, stderr narration. What is slow to import a command imports when it runs.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of the process; its exit code."""
    # The imports are inside so that Ctrl-C ends a command quietly from its first moment.
    try:
        import sys

        from .commands import perform

        return perform(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return 130  # what a shell reports of it
