"""All commands, what `contraflow --help` says of them, and how a command line becomes an exit code."""

from __future__ import annotations

from collections.abc import Sequence

from .exit import Complaint, Exit, complaint
from .output import narrate, put

# In the order in which they are listed. The function NAME in the module NAME runs a command (NAME_ where NAME is a
# word of Python's); typer, which reads the flags off that function, is loaded only then: the overview has no time.
COMMANDS = {
    "new": "write a schedule file: a generator's order for the knobs given",
    "design": "the terminal UI",
    "recover": "unsaved work that a crash of the terminal UI left behind",
    "show": "the Gantt chart and the memory as text, as wide as the terminal",
    "check": "every fault of a schedule file, at once, each with its place",
    "simulate": "makespan, idle time and peak memory, device by device",
    "compare": "schedules side by side on one clock",
    "diff": "actions added, removed and moved from one schedule to another",
    "search": "a better program under a memory cap, or a better design",
    "explain": "what an action waited for; idle time by its causes",
    "export": "a picture of a schedule (text, svg, html), or PyTorch's CSV of it",
    "import": "PyTorch's CSV of a schedule as a schedule file",
    "run": "train on a schedule, and hold the time it takes against the prediction",
    "verify": "whether a schedule's gradients are those of the same model in one process",
    "doctor": "what works on this machine",
}

OVERVIEW = """\
Usage: contraflow COMMAND ...
       contraflow COMMAND --help

Design pipeline-parallel training schedules in a terminal, and run exactly the
schedule you designed.

{commands}

Exit codes: 0 fine; 1 findings, such as faults in a file or a memory cap exceeded;
2 a slip in usage, or an unreadable file; 3 something is missing on this machine;
4 a run failed.
"""


def perform(arguments: Sequence[str]) -> int:
    """Run a command line; its exit code. What a person could have caused ends in words on stderr."""
    name = " ".join(["contraflow", *(word for word in arguments[:1] if word in COMMANDS)])
    try:
        return _dispatch(arguments)
    except Exception as error:
        said = complaint(error)
        if said is None:
            raise
        narrate(f"{name}: {said}")
        return said.code


def _dispatch(arguments: Sequence[str]) -> Exit:
    if not arguments:
        narrate(overview())
        return Exit.USAGE
    word, *rest = arguments
    if word in COMMANDS:
        return _run(word, rest)
    if word in ("-h", "--help"):
        put(overview())
    elif word == "--version":
        put(version())
    else:
        from difflib import get_close_matches

        near = get_close_matches(word, COMMANDS, 1, 0.0)[0]
        raise Complaint(f"no command {word!r}; did you mean {near!r}? See contraflow --help")
    return Exit.FINE


def _run(name: str, arguments: Sequence[str]) -> Exit:
    from importlib import import_module
    from keyword import iskeyword

    from . import command

    ours = f"{name}_" if iskeyword(name) else name
    return command.run(name, getattr(import_module(f".{ours}", __package__), ours), arguments)


def overview() -> str:
    """What `contraflow --help` says."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {summary}" for name, summary in COMMANDS.items()]
    return OVERVIEW.format(commands="\n".join(lines))


def version() -> str:
    """What `contraflow --version` says."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"contraflow {version('contraflow')}\n"
    except PackageNotFoundError:
        return "contraflow, from a checkout that is not installed\n"
