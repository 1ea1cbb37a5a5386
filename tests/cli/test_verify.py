"""`contraflow verify`: exactness, as a person and a script see it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contraflow.engine import verify
from contraflow.engine.verify import TOLERANCES, Comparison, Error

STEP = {"evaluated loss", "loss", "norm", "gradients"}
STEPS = STEP | {"losses of steps", "norms of steps", "weights", "optimizer state"}


@pytest.mark.parametrize(
    ("flags", "tolerance", "orders", "quantities"),
    [
        ("", 1e-12, 1, STEP),
        ("--random 2 --layers 6", 1e-12, 3, STEP),
        ("--model gpt --tied --kv-heads 1 --packed", 1e-12, 1, STEP),
        ("--steps 2 --accumulate 2 --clip 0.1", 1e-12, 1, STEPS),
        ("--dtype float32", 1e-5, 1, STEP),
    ],
)
def test_verify_in_json(
    contraflow: Callable[..., Any],
    seq: Path,
    flags: str,
    tolerance: float,
    orders: int,
    quantities: set[str],
) -> None:
    found = contraflow("verify", seq, "--json", *flags.split())
    assert found.code == 0
    answer = found.json
    assert answer.keys() == {"ok", "max_relative_error", "worst", "loss_error", "orders", "errors"}
    largest = answer["errors"]["weights" if "weights" in quantities else "gradients"]
    assert answer["max_relative_error"] == largest["error"]
    assert answer["worst"] == largest["worst"].split()[0]
    assert answer["loss_error"] <= tolerance
    assert answer["ok"] is True
    assert answer["orders"] == orders
    assert answer["errors"].keys() == quantities
    for error in answer["errors"].values():
        assert error["error"] <= error["tolerance"]
    gradients = answer["errors"]["gradients"]
    assert gradients["tolerance"] == tolerance
    assert gradients["error"] > 0
    assert gradients["worst"].split(".")[0] in ("embedding", "positions", "layers", "norm", "head")


def test_verify_in_words(contraflow: Callable[..., Any], seq: Path) -> None:
    said = contraflow("verify", seq, "--clip", 1)
    assert said.code == 0
    assert "1e-12" in said.out
    assert said.out.endswith(f"{seq}: exact\n")
    assert "32768 tokens are scaled down to 96" in said.err
    assert "--clip makes no difference" in said.err


def test_what_is_not_exact_is_a_finding(
    contraflow: Callable[..., Any], seq: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TOLERANCES, "float64", 1e-30)
    assert contraflow("verify", seq, "--json").json["ok"] is False
    said = contraflow("verify", seq)
    assert said.code == 1
    assert "NOT exact" in said.out


def test_gradients_that_are_no_numbers_stay_valid_json(
    contraflow: Callable[..., Any], seq: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Comparison({"gradients": Error(float("inf"), "head.weight", 1e-12)})
    monkeypatch.setattr(verify, "verify", lambda schedule, trial: wrong)
    found = contraflow("verify", seq, "--json")
    assert found.code == 1
    assert found.json["max_relative_error"] is None
    assert found.json["errors"]["gradients"] == {"error": None, "worst": "head.weight", "tolerance": 1e-12}


@pytest.mark.parametrize(("flags", "hint"), [("--layers 5", "add up to 8"), ("--kv-heads 3", "kv_heads")])
def test_a_model_that_does_not_fit(contraflow: Callable[..., Any], flags: str, hint: str) -> None:
    contraflow("new", "1f1b", "--layers", "1,3,3,1", "-o", "listed.json")
    said = contraflow("verify", "listed.json", *flags.split())
    assert (said.code, said.out) == (2, "")
    assert hint in said.err
    assert said.err.count("\n") == 1


def test_faults_end_a_verification(contraflow: Callable[..., Any], broken: Path) -> None:
    said = contraflow("verify", broken, "--json")
    assert (said.code, said.out) == (1, "")
    assert "3F1.0x" in said.err


@pytest.mark.processes
def test_real_processes_find_what_one_finds(contraflow: Callable[..., Any]) -> None:
    contraflow("new", "bsipipe", "--devices", 2, "--sequence", 64, "-o", "small.json")
    alone = contraflow("verify", "small.json", "--json").json
    together = contraflow("verify", "small.json", "--processes", "--json").json
    assert together == alone
