"""What a person installs is what lies in the folders, and nothing committed belongs to one machine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("designer", "engine", "kernels")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def package_files() -> set[str]:
    """Every file in the folders, by its path in the wheel."""
    return {
        f"contraflow/{path.relative_to(ROOT).as_posix()}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_packages_are_the_folders_on_disk() -> None:
    on_disk = sorted(
        str(Path(name).parent).replace("/", ".") for name in package_files() if name.endswith("/__init__.py")
    )
    assert sorted(PYPROJECT["tool"]["setuptools"]["packages"]) == on_disk


def test_contraflow_is_a_namespace() -> None:
    assert not (ROOT / "contraflow").exists()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """A wheel built from a copy: leftovers in the checkout stay out of it, and it leaves none there."""
    copy = tmp_path_factory.mktemp("checkout")
    out = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    code = f"from setuptools.build_meta import build_wheel; build_wheel({str(out)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    [path] = out.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_wheel_holds_contraflow_alone(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"contraflow"}


def test_wheel_holds_every_file_of_the_folders(wheel: zipfile.ZipFile) -> None:
    assert {name for name in wheel.namelist() if name.startswith("contraflow/")} == package_files()


def test_wheel_carries_the_license_and_the_command(wheel: zipfile.ZipFile) -> None:
    [info] = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    assert wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert "contraflow = contraflow.designer.cli:main" in wheel.read(f"{info}/entry_points.txt").decode()


def test_command_is_there() -> None:
    module, name = PYPROJECT["project"]["scripts"]["contraflow"].split(":")
    assert callable(getattr(import_module(module), name))


def test_makefile_and_pyproject_ask_for_the_same_torch() -> None:
    [bound] = [need for need in PYPROJECT["project"]["dependencies"] if need.startswith("torch>=")]
    major, minor = bound.removeprefix("torch>=").split(".")
    assert f"< ({major}, {minor}))" in (ROOT / "Makefile").read_text(encoding="utf-8")


# Spelled so that these lines do not match themselves.
BELONGS_TO_ONE_MACHINE = re.compile(
    r"(?<![\w.~-])/(?:work|root|home|Users)/|pypi\.org|pythonhosted\.org|pytorch\.org/whl"
)


def committed_text() -> Iterator[tuple[str, str]]:
    """Each file that git holds or would take, with its text."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in sorted(filter(None, names.split("\0"))):
        path = ROOT / name
        data = path.read_bytes() if path.is_file() else b""
        if b"\0" not in data:
            yield name, data.decode(encoding="utf-8")


def test_no_file_names_a_path_or_registry_of_one_machine() -> None:
    found = [
        f"{name}, line {number}: {line.strip()}"
        for name, text in committed_text()
        for number, line in enumerate(text.splitlines(), start=1)
        if BELONGS_TO_ONE_MACHINE.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "parts", [("", "home", "me"), ("file:", "", "", "root", "x"), ("https:", "", "pypi" + ".org")]
)
def test_a_path_or_registry_of_one_machine_would_be_found(parts: tuple[str, ...]) -> None:
    assert BELONGS_TO_ONE_MACHINE.search("/".join(parts))
