"""DualPipeV (2412.19437, DeepSeek-V3): DualPipe's order on one V, each forward beside a backward of the other leg."""

from __future__ import annotations

from dataclasses import replace

from contraflow.designer.format.schedule import Schedule

from .fitting import Misfit, Shape, at_least, cut
from .request import Generator, Request
from .v_shaped import Phases, one_v, written_out


def make(request: Request) -> Schedule:
    """Idle (P-1)/2 per device; peak P + 1/2. What the paper overlaps is written F, then B.

    Raises Refusal for fewer than 2P microbatches, with which the phases do not close.
    """
    layout = one_v(request, "dualpipe-v", (_enough,), (cut("seq1f1b-zb"), _zb_v))
    num_devices, count = request.num_devices, request.num_microbatches
    return written_out(request, "dualpipe-v", layout, lambda device: phases(device, num_devices, count))


def _enough(shape: Shape) -> Misfit | None:
    return at_least(shape, 2 * shape.devices)


def _zb_v(shape: Shape) -> tuple[str, Shape]:
    return "zb-v", replace(shape, stages_per_device=2)


def phases(device: int, num_devices: int, num_microbatches: int) -> Phases:
    """The eight phases of a device of one V, or of one end of DualPipe: there leg 0 is what begins at that end."""
    past, to_go = device + 1, num_devices - 1 - device
    last = [f"{leg}" for _ in range(past) for leg in (1, 0)]
    # From the middle of the closing backwards on W is put off, and goes where the gradient of leg 0 is waited for.
    put_off = last[past:] + ["0"] * to_go
    return (
        (2 * to_go, "F0"),
        (past, "F0 F1"),
        (to_go, "I1 W1 F1"),
        (num_microbatches - 2 * num_devices + past, "F0 B1 F1 B0"),
        (to_go, "B1 F1 B0"),
        *((1, f"B{leg}") for leg in last[:past]),
        *((1, f"I{leg}") for leg in last[past:]),
        *((1, f"W{leg} I0") for leg in put_off[:to_go]),
        *((1, f"W{leg}") for leg in put_off[to_go:]),
    )


DUALPIPE_V = Generator(
    "dualpipe-v",
    "one V, a forward beside a backward of the other leg: zb-v's idle time and half a microbatch more; M >= 2P",
    "2412.19437",
    make,
    stages_per_device=2,
    fewest_microbatches=lambda num_devices: 2 * num_devices,
)
