"""A pipeline-parallel training schedule: who runs what, in which order.

Glossary (each word means one thing everywhere in Contraflow):

device       a position in the pipeline, numbered from 0
rank         the place along the mesh's pipeline axis that plays a device: a process or a tensor-parallel group
stage        a slice of the model's layers, numbered from 0 in the order of the forward pass
direction    one whole copy of the model with its placement: stage -> device
microbatch   the unit in which the batch travels; numbered over all directions
subsequence  a run of consecutive tokens of every sequence of a microbatch; causal order binds them
action       one stage's work on one subsequence: F, B, I or W; or REDUCE_GRAD of a stage
program      the actions of every device, in the order in which it runs them
layout       everything about a schedule but the order: devices, splits, directions, layers, ranks
slot         the number of a (stage, microbatch, subsequence) in tables: see Layout.slot
node         the number of an action in a program read device after device: see graph.py
lane         one directed edge between two devices that carries messages in one order
budget, cap  how much memory may be used;  peak: how much was
price        what an action or a message costs on a clock
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, cast

Kind = Literal["F", "B", "I", "W", "REDUCE_GRAD"]

_NUMBER = "(0|[1-9][0-9]{0,8})"
_TOKEN = re.compile(rf"{_NUMBER}(?:([FBIW]){_NUMBER}(?:\.{_NUMBER})?|(REDUCE_GRAD))")


class Action(NamedTuple):
    """One entry of a program. `subsequence` is None where the microbatch travels whole; `str()` gives the token."""

    stage: int
    kind: Kind
    microbatch: int | None = None
    subsequence: int | None = None

    def __str__(self) -> str:
        if self.microbatch is None:
            return f"{self.stage}{self.kind}"
        if self.subsequence is None:
            return f"{self.stage}{self.kind}{self.microbatch}"
        return f"{self.stage}{self.kind}{self.microbatch}.{self.subsequence}"


UNREADABLE = Action(-1, "W", -1)
"""Keeps the place of a token that names no action, so that what follows is numbered as in the file."""


def parse_token(token: str) -> Action | None:
    """The action that `token` names, matched whole; None where it names none."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    stage, kind, microbatch, subsequence, reduction = match.groups()
    if reduction:
        return Action(int(stage), "REDUCE_GRAD")
    return Action(
        int(stage), cast(Kind, kind), int(microbatch), None if subsequence is None else int(subsequence)
    )


@dataclass(frozen=True, slots=True)
class Direction:
    """One whole copy of the model: `placement[stage]` is a device, `microbatches` those that travel this way."""

    name: str
    placement: tuple[int, ...]
    microbatches: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Where every stage, microbatch and subsequence lives, without the order in which they run.

    `sequences[m]` is the length of microbatch m in tokens, `splits[m]` the lengths of its subsequences.
    Nothing here is checked: `check.py` holds the rules, and the properties below assume them.
    """

    num_devices: int
    sequences: tuple[int, ...]
    splits: tuple[tuple[int, ...], ...]
    directions: tuple[Direction, ...]
    layers: tuple[int, ...] | None = None
    ranks: tuple[int, ...] | None = None

    @property
    def num_microbatches(self) -> int:
        return len(self.sequences)

    @cached_property
    def num_stages(self) -> int:
        return len(self.directions[0].placement)

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest microbatch: what the unit clock calls N."""
        return max(self.sequences)

    @cached_property
    def first_slots(self) -> tuple[int, ...]:
        """Slot of (stage 0, microbatch m, subsequence 0), and behind the last microbatch the slots of one stage."""
        totals = [0]
        for split in self.splits:
            totals.append(totals[-1] + len(split))
        return tuple(totals)

    @property
    def slots_per_stage(self) -> int:
        return self.first_slots[-1]

    @property
    def num_slots(self) -> int:
        return self.num_stages * self.slots_per_stage

    def slot(self, stage: int, microbatch: int, subsequence: int) -> int:
        """Number of a (stage, microbatch, subsequence): stage-major, then in travelling order."""
        return stage * self.slots_per_stage + self.first_slots[microbatch] + subsequence

    @cached_property
    def direction_of(self) -> tuple[int, ...]:
        """Direction of each microbatch (the last that names it; -1 where none does)."""
        found = [-1] * self.num_microbatches
        for number, direction in enumerate(self.directions):
            for microbatch in direction.microbatches:
                if 0 <= microbatch < len(found):
                    found[microbatch] = number
        return tuple(found)

    def device_of(self, stage: int, microbatch: int) -> int:
        """Device that runs `stage` of `microbatch`."""
        return self.directions[self.direction_of[microbatch]].placement[stage]

    def action(self, stage: int, kind: Kind, microbatch: int, subsequence: int) -> Action:
        """An action in this layout's notation: with a suffix exactly where the microbatch is cut."""
        return Action(stage, kind, microbatch, subsequence if len(self.splits[microbatch]) > 1 else None)

    def borders(self, microbatch: int) -> list[tuple[int, int]]:
        """First token and the one behind the last, of each subsequence."""
        found, start = [], 0
        for length in self.splits[microbatch]:
            found.append((start, start + length))
            start += length
        return found

    @cached_property
    def alike(self) -> bool:
        """Whether all microbatches have the same length and are cut in the same way."""
        sequence, split = self.sequences[0], self.splits[0]
        return all(
            length == sequence and (other is split or other == split)
            for length, other in zip(self.sequences, self.splits, strict=True)
        )

    @cached_property
    def uncut(self) -> bool:
        """Whether every microbatch travels whole."""
        return all(len(split) == 1 for split in self.splits)

    @cached_property
    def even(self) -> bool:
        """Whether all subsequences of the file are equally long, but for one token."""
        lengths = [length for split in self.splits for length in split]
        return max(lengths) - min(lengths) <= 1

    @cached_property
    def copies(self) -> tuple[tuple[int, ...], ...]:
        """For each stage the sorted devices that hold it, each once."""
        return tuple(
            tuple(sorted({direction.placement[stage] for direction in self.directions}))
            for stage in range(self.num_stages)
        )

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """For each stage the device that holds its optimizer state: balanced over the copies."""
        return tuple(copies[stage % len(copies)] for stage, copies in enumerate(self.copies))

    def layer_ranges(self, num_layers: int) -> list[range]:
        """Global layer numbers of each stage of a model with `num_layers` layers.

        As the file lists them; without a list, evenly, the first stages one more.
        Raises ValueError where the list adds up to another number.
        """
        if self.layers is None:
            least, more = divmod(num_layers, self.num_stages)
            counts = [least + (stage < more) for stage in range(self.num_stages)]
        else:
            counts = list(self.layers)
            if sum(counts) != num_layers:
                raise ValueError(
                    f"the schedule's layers {counts} add up to {sum(counts)}, the model has {num_layers}"
                )
        ranges, start = [], 0
        for count in counts:
            ranges.append(range(start, start + count))
            start += count
        return ranges


@dataclass(frozen=True)
class Schedule:
    """A layout and an order: `program[d]` are the actions of device d. `design` is provenance only."""

    name: str
    layout: Layout
    program: tuple[tuple[Action, ...], ...]
    design: Mapping[str, Any] | None = field(default=None)

    @property
    def num_actions(self) -> int:
        return sum(map(len, self.program))
