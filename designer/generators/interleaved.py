"""Interleaved 1F1B (2104.04473): several stages on each device, visited in turn by groups of P microbatches."""

from __future__ import annotations

from contraflow.designer.format.schedule import Schedule

from .request import Generator, Refusal, Request, in_turn, shape_name, straight, whole_microbatches


def make(request: Request) -> Schedule:
    """Warm-up of (V-1)P + 2(P-1-d) F on device d. Idle 3(P-1)/V; peak min(((V-1)P + 2(P-1) + 1)/V, M).

    Raises Refusal unless P divides M: the order is defined in groups of P microbatches.
    """
    whole_microbatches(request, "interleaved-1f1b", "seq1f1b")
    num_devices, num_stages_here, count = (
        request.num_devices,
        request.stages_per_device,
        request.num_microbatches,
    )
    if count % num_devices:
        below, above = count // num_devices * num_devices, -(-count // num_devices) * num_devices
        nearest = f"{below} or {above}" if below else f"{above}"
        raise Refusal(
            f"interleaved-1f1b needs the devices to divide the microbatches, and {num_devices} do not divide {count}: "
            f"use {nearest} microbatches, or 1f1b"
        )
    layout = request.layout([straight(request)])
    visits = [
        (chunk, group + index)
        for group in range(0, count, num_devices)
        for chunk in range(num_stages_here)
        for index in range(num_devices)
    ]
    program = tuple(
        in_turn(
            [layout.action(chunk * num_devices + device, "F", m, 0) for chunk, m in visits],
            [
                layout.action((num_stages_here - 1 - chunk) * num_devices + device, "B", m, 0)
                for chunk, m in visits
            ],
            warm_up=(num_stages_here - 1) * num_devices + 2 * (num_devices - 1 - device),
        )
        for device in range(num_devices)
    )
    return Schedule(shape_name("interleaved-1f1b", request), layout, program)


INTERLEAVED = Generator(
    "interleaved-1f1b",
    "V stages per device: a V-th of 1f1b's idle time, more memory and messages; P divides M",
    "2104.04473",
    make,
    stages_per_device=2,
)
