"""Checkpoints, by PyTorch's distributed checkpoint (DCP): keyed by names in the whole model, complete or absent.

A checkpoint is a folder `step-00000100`. Every parameter is in it once, with its optimizer state, written by the device
that owns it; so it loads into any other number of devices, stages and directions. Beside DCP's files lies a manifest
with what they hold and what they hash to. The folder gets its name last, so one that has it is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

from contraflow.engine.flat import FlatParameters

FORMAT = "contraflow.checkpoint/1"
MANIFEST = "manifest.json"
MOMENTS = ("exp_avg", "exp_avg_sq", "step")
"""What AdamW keeps of a parameter."""
_PARTIAL = ".partial"


class CheckpointError(ValueError):
    """A checkpoint that cannot be read or written, or does not fit; one line, which names the folder."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come."""

    step: int
    drawn: Mapping[int, int]
    """Of each length how many sequences were drawn from the data."""


def state_of(groups: list[FlatParameters], optimizer: torch.optim.Optimizer | None) -> dict[str, Tensor]:
    """The parameters of `groups` and their optimizer state, by name; state that is not there yet is made of zeros."""
    found: dict[str, Tensor] = {}
    for group in groups:
        for name, parameter in zip(group.names, group.parameters, strict=True):
            found[name] = parameter.detach()
            assert optimizer is not None
            kept = optimizer.state[parameter]
            if not kept:
                kept["step"] = torch.zeros((), device=parameter.device)
                kept["exp_avg"], kept["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            found |= {f"{name}/{moment}": kept[moment] for moment in MOMENTS}
    return found


class Checkpoints:
    """The checkpoints in a folder, of which the last `keep` stay. All processes make theirs at the same time.

    Writing goes on beside training, one checkpoint at a time; `on_failure` hears of one that could not be written.
    """

    def __init__(
        self, folder: str | Path, keep: int, *, distributed: bool, on_failure: Callable[[str], None]
    ) -> None:
        self._folder, self._keep, self._on_failure = Path(folder), keep, on_failure
        # Beside training other messages are on their way: these have a group, and a thread, of their own.
        self._group = dist.new_group(backend="gloo") if distributed else None
        self._rank = dist.get_rank() if distributed else 0
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None

    def save(self, state: Mapping[str, Tensor], progress: Progress, about: Mapping[str, Any]) -> None:
        """Copy the state, and write it beside what follows. `about` says what is trained, for whoever loads it."""
        self.wait()
        copied = {name: tensor.to("cpu", copy=True) for name, tensor in state.items()}
        self._writing = self._writer.submit(self._write, copied, progress, about)

    def wait(self) -> None:
        """Until the last checkpoint is written, or has failed."""
        if self._writing is not None:
            try:
                self._writing.result()
            except (OSError, RuntimeError, CheckpointError, CheckpointException) as error:
                self._on_failure(f"{self._folder}: a checkpoint could not be written: {_brief(error)}")
            self._writing = None

    def close(self) -> None:
        """Wait, and end the thread."""
        self.wait()
        self._writer.shutdown()

    def _write(self, state: dict[str, Tensor], progress: Progress, about: Mapping[str, Any]) -> None:
        final = self._folder / f"step-{progress.step:08}"
        partial = final.with_name(final.name + _PARTIAL)
        if self._rank == 0:
            partial.parent.mkdir(parents=True, exist_ok=True)
            for old in self._folder.glob(f"step-*{_PARTIAL}"):
                shutil.rmtree(old, ignore_errors=True)
        self._barrier()
        try:
            writer = FileSystemWriter(partial, overwrite=False)
            state_dict_saver.save(
                state, storage_writer=writer, process_group=self._group, no_dist=self._group is None
            )
            tensors = {name: [list(value.shape), str(value.dtype)] for name, value in state.items()}
            own = (tensors, _hashes(partial, f"__{self._rank}_*"))
            parts = [own]
            if self._group is not None:
                parts = [own] * dist.get_world_size(self._group)
                dist.all_gather_object(parts, own, self._group)
            if self._rank == 0:
                manifest = {
                    "format": FORMAT,
                    "progress": asdict(progress),
                    "about": dict(about),
                    "tensors": {name: entry for part in parts for name, entry in part[0].items()},
                    "files": {name: entry for part in parts for name, entry in part[1].items()}
                    | _hashes(partial, ".metadata"),
                }
                _finish(partial, final, manifest)
                for old in complete(self._folder)[: -self._keep]:
                    shutil.rmtree(old, ignore_errors=True)
        except BaseException:
            if self._rank == 0:
                shutil.rmtree(partial, ignore_errors=True)
            raise
        self._barrier()

    def _barrier(self) -> None:
        if self._group is not None:
            dist.barrier(self._group)


def complete(folder: str | Path) -> list[Path]:
    """The checkpoints in a folder, oldest first; those that were being written when a run ended are none."""
    found = Path(folder).glob("step-*[0-9]")
    return sorted(path for path in found if (path / MANIFEST).is_file())


def examine(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint whose files are what was written. Raises CheckpointError."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        if manifest["format"] != FORMAT:
            raise CheckpointError(f"{path}: {manifest['format']!r} is no format that is known")
        files = dict(manifest["files"])
        Progress(int(manifest["progress"]["step"]), dict(manifest["progress"]["drawn"]))
        dict(manifest["tensors"]), dict(manifest["about"])
    except OSError as error:
        raise CheckpointError(f"{path} is no checkpoint: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path}: its {MANIFEST} is damaged") from None
    for name, expected in files.items():
        if Path(name).name != name or _hash(path / name) != expected:
            raise CheckpointError(f"{path}: {name} is not as it was written (damaged, or cut short)")
    return dict(manifest)


def load(path: Path, manifest: Mapping[str, Any], state: dict[str, Tensor], *, distributed: bool) -> Progress:
    """Fill `state`, as `state_of` gives it, in place, from a checkpoint that was examined; all processes together.

    Raises CheckpointError, before anything is filled, where it holds another model.
    """
    held = manifest["tensors"]
    for name, tensor in state.items():
        if name not in held:
            raise CheckpointError(f"{path} is of another model: it has no {name}")
        shape, dtype = held[name]
        if shape != list(tensor.shape):
            raise CheckpointError(
                f"{path} is of another model: {name} is {shape} there, {list(tensor.shape)} here"
            )
        if dtype != str(tensor.dtype):
            raise CheckpointError(f"{path}: {name} is {dtype} there, {tensor.dtype} here; set dtype alike")
    try:
        state_dict_loader.load(state, storage_reader=_Reader(path), no_dist=not distributed)
    except (OSError, RuntimeError, ValueError, CheckpointException) as error:
        raise CheckpointError(f"{path} cannot be read: {_brief(error)}") from None
    progress = manifest["progress"]
    return Progress(
        int(progress["step"]), {int(length): int(count) for length, count in progress["drawn"].items()}
    )


class _Reader(FileSystemReader):
    """DCP's own, but for its metadata: a pickle, from which only what DCP puts there is taken."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with open(Path(self.path) / ".metadata", "rb") as file:
            metadata = _MetadataUnpickler(file).load()
        # DCP would unpickle anything that is no tensor.
        if not isinstance(metadata, Metadata) or not all(
            isinstance(entry, TensorStorageMetadata) for entry in metadata.state_dict_metadata.values()
        ):
            raise CheckpointError(f"{self.path}: it holds more than tensors")
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


class _MetadataUnpickler(pickle.Unpickler):
    """Makes the few plain types of DCP's metadata, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        plain = {
            ("torch", "Size"): torch.Size,
            ("torch", "device"): torch.device,
            ("pathlib", "PosixPath"): Path,
            ("pathlib._local", "PosixPath"): Path,
            ("torch.serialization", "_get_layout"): lambda layout: getattr(
                torch, layout.removeprefix("torch.")
            ),
        }
        if (module, name) in plain:
            return plain[module, name]
        if module == "torch" and isinstance(getattr(torch, name, None), (torch.dtype, torch.layout)):
            return getattr(torch, name)
        if module in ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem"):
            found = super().find_class(module, name)
            if name in _METADATA_TYPES:
                return found
        raise CheckpointError(
            f"a checkpoint's metadata asks for {module}.{name}, which has no business there"
        )


_METADATA_TYPES = (
    "Metadata",
    "MetadataIndex",
    "ChunkStorageMetadata",
    "TensorProperties",
    "TensorStorageMetadata",
    "BytesStorageMetadata",
    "StorageMeta",
    "_MEM_FORMAT_ENCODING",
    "_StorageInfo",
    "_StoragePrefix",
)


def _finish(partial: Path, final: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest, and give the folder its name, each only when what is before it is on disk."""
    with open(partial / MANIFEST, "w") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    _sync(partial)
    if final.exists():
        shutil.rmtree(final)
    partial.rename(final)
    _sync(final.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _hashes(folder: Path, pattern: str) -> dict[str, str]:
    return {path.name: _hash(path) for path in sorted(folder.glob(pattern))}


def _hash(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError:
        return "absent"


def _brief(error: BaseException) -> str:
    """The first line of the innermost cause."""
    if isinstance(error, CheckpointException):
        failures = [
            failure[0] if isinstance(failure, tuple) else failure for failure in error.failures.values()
        ]
        error = failures[0] if failures else error
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
