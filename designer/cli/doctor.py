"""`contraflow doctor`: what works on this machine, and what would make more of it work."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from .arguments import Json
from .exit import Exit
from .output import draw, narrate, put_json

if TYPE_CHECKING:
    from rich.table import Table

LEAST_TORCH = (2, 11)

# Module: what it is for, and what brings it.
OPTIONAL = {
    "triton": ("fused kernels on GPUs", "contraflow[gpu]"),
    "flash_attn.flash_attn_interface": ("FlashAttention 2", "flash-attn, which needs nvcc"),
    "flash_attn.cute": ("FlashAttention 4", "contraflow[gpu]"),
    "ortools": ("exact search", "contraflow[search]"),
}


def doctor(json: Json = False) -> Exit:
    """What works on this machine, and what would make more of it work."""
    found = examine()
    if json:
        put_json(found)
    else:
        draw(table(found))
    if found["problem"] is not None:
        narrate(found["problem"])
        return Exit.MISSING
    return Exit.FINE


def examine() -> dict[str, Any]:
    """What is here, as JSON; `problem` says why the engine cannot run, or is None."""
    import platform
    import warnings

    with warnings.catch_warnings():
        # Of a driver that is too old, PyTorch warns; that it finds no CUDA device is said below.
        warnings.simplefilter("ignore")
        engine = examine_torch()
    return {
        "python": platform.python_version(),
        **engine,
        "packages": {module: is_there(module) for module in OPTIONAL},
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def examine_torch() -> dict[str, Any]:
    """The part that asks PyTorch, and asks nothing further of one that is absent, broken or too old."""
    nothing: dict[str, Any] = {"torch": None, "cuda": [], "distributed": [], "attention": {}, "problem": None}
    wanted = f"the engine needs torch {'.'.join(map(str, LEAST_TORCH))} or newer"
    try:
        import torch
    except ModuleNotFoundError:
        return nothing | {"problem": f"{wanted}, and none is installed; everything else works"}
    except (ImportError, OSError) as error:
        return nothing | {"problem": f"{wanted}, and the one installed does not load: {error}"}
    version = str(torch.__version__)
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < LEAST_TORCH:
        return nothing | {"torch": version, "problem": f"{wanted}, not {version}; everything else works"}
    from contraflow.kernels import attention

    distributed = {"nccl": torch.distributed.is_nccl_available, "gloo": torch.distributed.is_gloo_available}
    devices = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return {
        "torch": version,
        "cuda": [
            {
                "name": device.name,
                "memory_bytes": device.total_memory,
                "capability": f"{device.major}.{device.minor}",
            }
            for device in devices
        ],
        "distributed": [
            name for name, there in distributed.items() if torch.distributed.is_available() and there()
        ],
        "attention": attention.available(),
        "problem": None,
    }


def is_there(module: str) -> bool:
    """Whether a module can be found, without importing even its package: that of flash-attn is slow, and may fail."""
    from importlib.machinery import PathFinder
    from importlib.util import find_spec

    package, _, inner = module.partition(".")
    spec = find_spec(package)
    if spec is None or not inner:
        return spec is not None
    return PathFinder.find_spec(module, spec.submodule_search_locations) is not None


def table(found: dict[str, Any]) -> Table:
    """One row for each thing, in words."""
    from rich.table import Table

    rows = [("Python", found["python"]), ("torch", found["torch"] or "none that loads")]
    if found["problem"] is None:
        gpus = [
            f"{gpu['name']}, {_gib(gpu['memory_bytes'])}, sm {gpu['capability']}" for gpu in found["cuda"]
        ]
        rows.append(("GPUs", "\n".join(gpus) or "none: runs use CPU processes"))
        rows.append(
            ("messages", ", ".join(found["distributed"]) or "none: this torch has neither NCCL nor gloo")
        )
        backends = [f"{name}: {reason or 'works'}" for name, reason in found["attention"].items()]
        rows.append(("attention", "\n".join(backends)))
    for module, (purpose, source) in OPTIONAL.items():
        state = "found" if found["packages"][module] else f"not found; comes with {source}"
        rows.append((purpose, state))
    rows += [("CPU cores", str(found["cores"])), ("memory", _gib(found["memory_bytes"]))]
    shown = Table.grid(padding=(0, 3, 0, 0))
    for row in rows:
        shown.add_row(*row)
    return shown


def _gib(count: int) -> str:
    return f"{count / 2**30:.0f} GiB"
