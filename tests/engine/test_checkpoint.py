"""Checkpoints in one process: complete or absent, refused where damaged or foreign, and never a way in."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from contraflow.engine import checkpoint
from contraflow.engine.checkpoint import (
    CheckpointError,
    Checkpoints,
    Progress,
    complete,
    examine,
    load,
    state_of,
)
from contraflow.engine.flat import FlatParameters

ABOUT = {"model": "a test's"}


def trained(seed: int, width: int = 5) -> tuple[list[FlatParameters], torch.optim.AdamW]:
    """Two groups of parameters after three steps of AdamW."""
    torch.manual_seed(seed)
    named = [("a.weight", nn.Parameter(torch.randn(7, width))), ("b.bias", nn.Parameter(torch.randn(3)))]
    groups = [FlatParameters.of(named[:1]), FlatParameters.of(named[1:])]
    optimizer = torch.optim.AdamW([p for group in groups for p in group.parameters], fused=True)
    for _ in range(3):
        for group in groups:
            group.grad.normal_()
        optimizer.step()
    return groups, optimizer


def saved(folder: Path, seed: int = 1, steps: tuple[int, ...] = (3,), keep: int = 2) -> dict[str, Tensor]:
    """Checkpoints of these steps, and what the last of them holds."""
    failures: list[str] = []
    checkpoints = Checkpoints(folder, keep, distributed=False, on_failure=failures.append)
    state = state_of(*trained(seed))
    for step in steps:
        checkpoints.save(state, Progress(step, {16: 4 * step}), ABOUT)
    checkpoints.close()
    assert failures == []
    return state


def restored(path: Path, width: int = 5) -> tuple[dict[str, Tensor], Progress]:
    groups, optimizer = trained(2, width)
    state = state_of(groups, optimizer)
    progress = load(path, examine(path), state, distributed=False)
    # What was filled is what the optimizer steps, not a copy of it.
    assert state_of(groups, optimizer)["a.weight"].data_ptr() == state["a.weight"].data_ptr()
    return state, progress


def test_there_and_back_to_the_bit(tmp_path: Path) -> None:
    state = saved(tmp_path)
    (path,) = complete(tmp_path)
    found, progress = restored(path)
    assert progress == Progress(3, {16: 12})
    assert (
        found.keys()
        == state.keys()
        == {
            f"{name}{moment}"
            for name in ("a.weight", "b.bias")
            for moment in ("", "/exp_avg", "/exp_avg_sq", "/step")
        }
    )
    assert all(torch.equal(found[name], state[name]) for name in state)
    assert examine(path)["about"] == ABOUT


def test_into_an_optimizer_that_has_not_stepped(tmp_path: Path) -> None:
    state = saved(tmp_path)
    fresh = FlatParameters.of([("b.bias", nn.Parameter(torch.zeros(3)))])
    optimizer = torch.optim.AdamW(fresh.parameters, fused=True)
    found = state_of([fresh], optimizer)
    (path,) = complete(tmp_path)
    load(path, examine(path), found, distributed=False)
    assert all(torch.equal(found[name], state[name]) for name in found)
    assert optimizer.state[fresh.parameters[0]]["step"] == 3


def test_what_is_copied_may_change_while_it_is_written(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 1, distributed=False, on_failure=pytest.fail)
    state = state_of(*trained(1))
    before = {name: value.clone() for name, value in state.items()}
    checkpoints.save(state, Progress(3, {}), ABOUT)
    for value in state.values():
        value.zero_()
    checkpoints.close()
    found, _ = restored(complete(tmp_path)[0])
    assert all(torch.equal(found[name], before[name]) for name in before)


def test_the_last_few_stay(tmp_path: Path) -> None:
    saved(tmp_path, steps=(1, 2, 3, 10, 200), keep=2)
    assert [path.name for path in complete(tmp_path)] == ["step-00000010", "step-00000200"]


def test_what_was_being_written_is_none_and_goes(tmp_path: Path) -> None:
    saved(tmp_path)
    shutil.copytree(tmp_path / "step-00000003", tmp_path / "step-00000004.partial")
    (tmp_path / "step-00000005").mkdir()
    assert [path.name for path in complete(tmp_path)] == ["step-00000003"]
    saved(tmp_path, steps=(6,))
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", "manifest.json"])
@pytest.mark.parametrize(
    "harm",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: bytes([*content[:90], content[90] ^ 1, *content[91:]]),
    ],
    ids=["cut short", "empty", "a bit flipped"],
)
def test_damage_is_found(tmp_path: Path, name: str, harm: Callable[[bytes], bytes]) -> None:
    saved(tmp_path)
    (path,) = complete(tmp_path)
    (path / name).write_bytes(harm((path / name).read_bytes()))
    with pytest.raises(CheckpointError) as caught:
        restored(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_model_is_refused_before_anything_is_filled(tmp_path: Path) -> None:
    saved(tmp_path)
    (path,) = complete(tmp_path)
    with pytest.raises(CheckpointError, match=r"another model: a\.weight is \[7, 5\] there, \[7, 6\] here"):
        restored(path, width=6)
    foreign = {"c.weight": torch.zeros(2)}
    with pytest.raises(CheckpointError, match=r"another model: it has no c\.weight"):
        load(path, examine(path), foreign, distributed=False)
    other = {"b.bias": torch.zeros(3, dtype=torch.float64)}
    with pytest.raises(CheckpointError, match=r"b\.bias is torch\.float32 there, torch\.float64 here"):
        load(path, examine(path), other, distributed=False)


def test_a_full_disk_loses_nothing_that_was_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = saved(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    failures: list[str] = []
    checkpoints = Checkpoints(tmp_path, 1, distributed=False, on_failure=failures.append)
    for where in ("_hashes", "_finish"):
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, where, full)
            checkpoints.save(state, Progress(4, {}), ABOUT)
            checkpoints.wait()
    monkeypatch.setattr("torch.distributed.checkpoint.filesystem._write_item", full)
    checkpoints.save(state, Progress(4, {}), ABOUT)
    checkpoints.close()
    assert len(failures) == 3
    assert all("No space left" in failure for failure in failures)
    (path,) = complete(tmp_path)
    assert not list(tmp_path.glob("*.partial"))
    assert restored(path)[1].step == 3


class Intruder:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('unpickled')",)


def test_nothing_is_unpickled_but_the_types_of_the_metadata(tmp_path: Path) -> None:
    saved(tmp_path)
    (path,) = complete(tmp_path)
    manifest = json.loads((path / "manifest.json").read_text())
    genuine = (path / ".metadata").read_bytes()
    metadata = pickle.loads(genuine)
    metadata.planner_data = Intruder()
    for forged in (pickle.dumps(Intruder()), pickle.dumps(metadata), pickle.dumps([1])):
        (path / ".metadata").write_bytes(forged)
        manifest["files"][".metadata"] = checkpoint._hash(path / ".metadata")
        (path / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(CheckpointError):
            restored(path)
