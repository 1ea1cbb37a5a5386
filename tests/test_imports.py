"""Who may import whom: every contract is a sentence, held against the source, and shown to be breakable."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("designer", "engine", "kernels")

# Bottom to top; neighbours on one level do not see each other.
LAYERS = (
    ("format",),
    ("costs",),
    ("generators",),
    ("splits", "simulate"),
    ("memory", "topology"),
    ("explain", "difference"),
    ("design",),
    ("search", "interchange", "export", "lessons"),
    ("editing", "comparison", "playback", "journal"),
    ("tui",),
    ("cli",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


class Import(NamedTuple):
    """`name` as far down as the statement spells it; `deferred` where only a call or a type checker runs it."""

    name: str
    line: int
    deferred: bool


def imports(module: str, source: str, *, is_package: bool = False) -> Iterator[Import]:
    """Every import in a module's source, relative ones resolved; `from a import b` counts as `a.b`."""
    package = module.split(".") if is_package else module.split(".")[:-1]

    def visit(node: ast.AST, deferred: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, deferred)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(f"{origin}.{alias.name}", node.lineno, deferred)
        inside = deferred or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside or (isinstance(node, ast.If) and for_types(node, child)))

    yield from visit(ast.parse(source), False)


def for_types(node: ast.If, child: ast.AST) -> bool:
    """Whether a child of an `if` is read by type checkers alone."""
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" and child in node.body


def within(name: str, *packages: str) -> bool:
    """Whether a dotted name is one of the packages or something below it."""
    return any(name == package or name.startswith(package + ".") for package in packages)


def layer(name: str) -> str | None:
    """The layer of a dotted name in the designer, or None."""
    parts = name.split(".")
    return (
        parts[2] if len(parts) > 2 and parts[:2] == ["contraflow", "designer"] and parts[2] in LEVEL else None
    )


# A rule answers whether this module may have this import.


def goes_downwards(module: str, target: Import) -> bool:
    if not within(module, "contraflow.designer") or not within(target.name, "contraflow.designer"):
        return True
    here, there = layer(module), layer(target.name)
    return here is not None and there is not None and (here == there or LEVEL[there] < LEVEL[here])


def format_is_plain_python(module: str, target: Import) -> bool:
    return (
        not within(module, "contraflow.designer.format")
        or target.name.split(".")[0] in sys.stdlib_module_names
        or within(target.name, "contraflow.designer.format")
    )


def engine_sees_format_and_kernels(module: str, target: Import) -> bool:
    return (
        not within(module, "contraflow.engine")
        or not within(target.name, "contraflow", *FOLDERS)
        or within(target.name, "contraflow.designer.format", "contraflow.engine", "contraflow.kernels")
    )


def kernels_see_kernels(module: str, target: Import) -> bool:
    return (
        not within(module, "contraflow.kernels")
        or not within(target.name, "contraflow", *FOLDERS)
        or within(target.name, "contraflow.kernels")
    )


def terminal_stays_out_of_engine(module: str, target: Import) -> bool:
    return not within(module, "contraflow.engine", "contraflow.kernels") or not within(
        target.name, "textual", "plotly", "rich", "typer"
    )


def textual_is_for_tui(module: str, target: Import) -> bool:
    return within(module, "contraflow.designer.tui") or not within(target.name, "textual")


def cli_knows_the_engine(module: str, target: Import) -> bool:
    return (
        not within(module, "contraflow.designer")
        or not within(target.name, "contraflow.engine", "contraflow.kernels")
        or within(module, "contraflow.designer.cli")
    )


def cli_defers(module: str, target: Import) -> bool:
    heavy = within(target.name, "contraflow.engine", "contraflow.kernels", "contraflow.designer.tui")
    return not within(module, "contraflow.designer.cli") or not heavy or target.deferred


def designer_loads_no_torch(module: str, target: Import) -> bool:
    return not within(module, "contraflow.designer") or not within(target.name, "torch") or target.deferred


class Contract(NamedTuple):
    allows: Callable[[str, Import], bool]
    broken_by: list[tuple[str, str]]
    kept_by: list[tuple[str, str]]


CONTRACTS = {
    "designer imports only go down the layers": Contract(
        goes_downwards,
        [
            ("contraflow.designer.costs.unit", "from contraflow.designer.generators import GENERATORS"),
            ("contraflow.designer.simulate", "from contraflow.designer import splits"),
            ("contraflow.designer.memory", "def late():\n    from .cli import main"),
            ("contraflow.designer.format.check", "from ..costs.unit import price"),
            ("contraflow.designer.odds", "import contraflow.designer.format.schedule"),
            ("contraflow.designer.cli", "from contraflow import designer"),
        ],
        [
            ("contraflow.designer.simulate", "from contraflow.designer.format.graph import Graph"),
            ("contraflow.designer.cli", "from .tui.app import App"),
            ("contraflow.designer.generators.gpipe", "from .shape import Shape"),
        ],
    ),
    "designer.format imports nothing but the standard library": Contract(
        format_is_plain_python,
        [
            ("contraflow.designer.format.graph", "import numpy as np"),
            ("contraflow.designer.format.file", "def late():\n    from contraflow.designer import costs"),
        ],
        [("contraflow.designer.format.file", "import json\nfrom .schedule import Schedule")],
    ),
    "the engine sees of ours designer.format and the kernels alone": Contract(
        engine_sees_format_and_kernels,
        [
            ("contraflow.engine.executor", "from contraflow.designer.simulate import simulate"),
            ("contraflow.engine.executor", "from contraflow import designer"),
            ("contraflow.engine.executor", "import designer.format"),
        ],
        [
            (
                "contraflow.engine.executor",
                "from contraflow.designer.format import lowering\nfrom . import lanes",
            )
        ],
    ),
    "the kernels see nothing of ours": Contract(
        kernels_see_kernels,
        [("contraflow.kernels.attention", "from contraflow.designer.format.model import ModelShape")],
        [("contraflow.kernels.attention", "import torch\nfrom contraflow.kernels import reference")],
    ),
    "engine and kernels import no textual, plotly, rich or typer": Contract(
        terminal_stays_out_of_engine,
        [
            ("contraflow.engine.train", "def late():\n    from rich.table import Table"),
            ("contraflow.kernels.attention", "import typer"),
        ],
        [("contraflow.engine.train", "import torch.distributed as dist")],
    ),
    "only the terminal UI imports textual": Contract(
        textual_is_for_tui,
        [("contraflow.designer.cli", "def design():\n    from textual.app import App")],
        [("contraflow.designer.tui.app", "from textual.app import App")],
    ),
    "of the designer only cli knows the engine": Contract(
        cli_knows_the_engine,
        [("contraflow.designer.design", "def late():\n    from contraflow.engine.verify import verify")],
        [("contraflow.designer.cli", "def verify():\n    from contraflow.engine.verify import verify")],
    ),
    "cli imports engine and terminal UI inside its commands": Contract(
        cli_defers,
        [
            ("contraflow.designer.cli", "from contraflow.engine.train import train"),
            (
                "contraflow.designer.cli",
                "try:\n    from .tui.app import App\nexcept ImportError:\n    App = None",
            ),
            (
                "contraflow.designer.cli",
                "if TYPE_CHECKING:\n    pass\nelse:\n    from contraflow.engine.train import train",
            ),
        ],
        [
            ("contraflow.designer.cli", "def design():\n    from .tui.app import App"),
            (
                "contraflow.designer.cli",
                "if TYPE_CHECKING:\n    from contraflow.engine.train import StepReport",
            ),
        ],
    ),
    "importing the designer imports no torch": Contract(
        designer_loads_no_torch,
        [
            ("contraflow.designer.costs.model", "import torch.nn"),
            ("contraflow.designer.cli", "class Device:\n    import torch"),
        ],
        [("contraflow.designer.cli", "def doctor():\n    import torch")],
    ),
}


def faults(contract: Contract, module: str, source: str, *, is_package: bool = False) -> list[str]:
    """Every import of a module that a contract does not allow."""
    return [
        f"{module}, line {target.line}: {target.name}"
        for target in imports(module, source, is_package=is_package)
        if not contract.allows(module, target)
    ]


def our_modules() -> Iterator[tuple[str, Path]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(("contraflow", *parts)).removesuffix(".__init__"), path


@pytest.mark.parametrize("sentence", CONTRACTS)
def test_contract_holds(sentence: str) -> None:
    found = [
        fault
        for module, path in our_modules()
        for fault in faults(
            CONTRACTS[sentence],
            module,
            path.read_text(encoding="utf-8"),
            is_package=path.name == "__init__.py",
        )
    ]
    assert not found, f"{sentence}, but:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("sentence", "module", "source"),
    [(sentence, *planted) for sentence, contract in CONTRACTS.items() for planted in contract.broken_by],
)
def test_contract_can_break(sentence: str, module: str, source: str) -> None:
    assert faults(CONTRACTS[sentence], module, source)


@pytest.mark.parametrize(
    ("sentence", "module", "source"),
    [(sentence, *planted) for sentence, contract in CONTRACTS.items() for planted in contract.kept_by],
)
def test_contract_allows_what_it_should(sentence: str, module: str, source: str) -> None:
    assert not faults(CONTRACTS[sentence], module, source)


def test_every_designer_module_has_a_layer() -> None:
    without = [
        module
        for module, _ in our_modules()
        if within(module, "contraflow.designer") and module != "contraflow.designer" and layer(module) is None
    ]
    assert not without, "give them a place in LAYERS"


def test_the_walk_reaches_every_folder() -> None:
    assert {f"contraflow.{folder}" for folder in FOLDERS} <= {module for module, _ in our_modules()}


def python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter with `cwd` on its path: `-c` puts it there, unless told not to."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, timeout=60
    )


def test_help_loads_neither_torch_nor_textual(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from contraflow.designer.cli import main\n"
        "sys.argv = ['contraflow', '--help']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as stop:\n"
        "    assert not stop.code, stop.code\n"
        "print('loaded:', *sorted({'torch', 'textual'} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout
    assert done.stderr.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize("folder", FOLDERS)
def test_bare_name_is_refused_in_one_line(folder: str) -> None:
    done = python(f"import {folder}", ROOT)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"ImportError: import contraflow.{folder}, ")
