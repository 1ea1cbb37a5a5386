"""Schedule <-> the CSV of PyTorch's pipeline runtime (torch.distributed.pipelining.schedules, 2.13).

A row is a rank, counted from 0, without a header; a cell is one action, and an empty one idles: `0F0`, `1I2`, `1W2`.
PyTorch has no subsequences, and its parser drops a suffix without a word, so subsequence q of k of microbatch m goes by
the microbatch id m * k + q. What the cells leave out stands in a side-car, in the notation of the schedule file:

    format         "contraflow.torch-csv/1"
    name, microbatches, layers, directions, ranks, design
                   as in a schedule file
    sequence       tokens, the same for every microbatch
    subsequences   k, all equally long
    reductions     optional: the REDUCE_GRAD of the program, each as [device, position, stage]; behind the
                   last action where there are fewer
    torch          for those who set up PyTorch's runtime; not read back

PyTorch writes two variants, told apart by what is in them: compute alone, and compute with sends, receives, unsharding
and reductions.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from contraflow.designer.format import file
from contraflow.designer.format.check import check
from contraflow.designer.format.document import Reader, read
from contraflow.designer.format.fault import Fault, InvalidScheduleError, NotAScheduleError
from contraflow.designer.format.schedule import Action, Schedule

from . import InexpressibleError
from .torch_cells import Table, read_table

FORMAT = "contraflow.torch-csv/1"
SEQUENCE = 1024
"""Tokens of a sequence where nothing tells."""

_REQUIRED = ("format", "name", "microbatches", "sequence", "subsequences", "directions")
_OPTIONAL = ("layers", "ranks", "design", "reductions", "torch")

# Writing.


def dumps(schedule: Schedule) -> tuple[str, str]:
    """The CSV of a valid schedule, which PyTorch loads as `compute_only`, and its side-car.

    Raises InexpressibleError for two copies of a stage, for subsequences or microbatches that differ in length, and for
    a last stage that runs its forwards in another order than that of their ids.
    """
    layout = schedule.layout
    _expressible(schedule)
    k = len(layout.splits[0])
    ranks = layout.ranks or tuple(range(layout.num_devices))
    rows: list[str] = [""] * layout.num_devices
    reductions = []
    for device, program in enumerate(schedule.program):
        cells = []
        for position, (stage, kind, microbatch, subsequence) in enumerate(program):
            if microbatch is None:
                # The loader refuses these in a CSV of compute alone, and places its own.
                reductions.append([device, position, stage])
            else:
                cells.append(f"{stage}{kind}{microbatch * k + (subsequence or 0)}")
        rows[ranks[device]] = ",".join(cells)
    return "".join(f"{row}\n" for row in rows), _side_car(schedule, ranks, k, reductions)


def _expressible(schedule: Schedule) -> None:
    layout = schedule.layout
    for stage, copies in enumerate(layout.copies):
        if len(copies) > 1:
            raise InexpressibleError(
                f"a torch CSV cannot say two copies of a stage: stage {stage} is on devices "
                f"{' and '.join(map(str, copies))}; PyTorch runs each stage on one rank, "
                "so only a schedule with one copy of the model can go there"
            )
    if len(set(layout.sequences)) > 1:
        raise InexpressibleError(
            f"a torch CSV cannot say unequal lengths: microbatches have {min(layout.sequences)} to "
            f"{max(layout.sequences)} tokens, and PyTorch's stages take microbatches of one shape"
        )
    lengths = {length for split in layout.splits for length in split}
    if len(lengths) > 1:
        sequence, k = layout.sequences[0], max(map(len, layout.splits))
        nearest = max(round(sequence / k), 1) * k
        raise InexpressibleError(
            f"a torch CSV cannot say unequal lengths: subsequences have {min(lengths)} to {max(lengths)} tokens, and "
            f"PyTorch's stages take microbatches of one shape; use --split even and a sequence that {k} "
            f"divides, such as {nearest}"
        )
    last = layout.num_stages - 1
    lead = (-1, -1)
    for action in schedule.program[layout.copies[last][0]]:
        if action.stage == last and action.kind == "F":
            here = (action.microbatch or 0, action.subsequence or 0)
            if here < lead:
                before = layout.action(last, "F", *lead)
                raise InexpressibleError(
                    f"PyTorch would train on the wrong losses: it numbers them as the last stage's forwards come, and "
                    f"{before} comes before {action}; let stage {last} run its forwards in ascending order"
                )
            lead = here


def _side_car(schedule: Schedule, ranks: Sequence[int], k: int, reductions: list[list[int]]) -> str:
    layout = schedule.layout
    rank_of = [ranks[device] for (device,) in layout.copies]
    stages: dict[int, list[int]] = defaultdict(list)
    for stage, rank in enumerate(rank_of):
        stages[rank].append(stage)
    values: dict[str, Any] = {
        "format": FORMAT,
        "name": schedule.name,
        "microbatches": layout.num_microbatches,
        "sequence": layout.sequences[0],
        "subsequences": k,
        "layers": layout.layers,
        "directions": [
            {"name": entry.name, "placement": entry.placement, "microbatches": entry.microbatches}
            for entry in layout.directions
        ],
        "ranks": layout.ranks,
        "design": None if schedule.design is None else dict(schedule.design),
        "reductions": reductions or None,
        "torch": {
            "n_microbatches": layout.num_microbatches * k,
            "microbatch_index": f"microbatch * {k} + subsequence" if k > 1 else "microbatch",
            "stage_index_to_group_rank": rank_of,
            "stages_of_rank": [stages[rank] for rank in range(layout.num_devices)],
        },
    }
    lines = [
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}"
        for key, value in values.items()
        if value is not None
    ]
    return "{\n  " + ",\n  ".join(lines) + "\n}\n"


# Reading.


@dataclass(frozen=True, slots=True)
class Imported:
    """A schedule that has passed every rule, and what was done to the CSV's words to get it: a line for each."""

    schedule: Schedule
    notes: tuple[str, ...]


Header = dict[str, Any]
"""The fields of a schedule file but its program, and `subsequences` and `reductions` of the side-car."""


def loads(
    text: bytes | str,
    meta: bytes | str | None = None,
    *,
    sequence: int = SEQUENCE,
    name: str = "the file",
    meta_name: str = "the side-car",
) -> Imported:
    """The schedule in a CSV of either variant, with what its side-car `meta` says.

    Without a side-car microbatches travel whole, each has `sequence` tokens, and a stage is where the rows run it.
    Sends, receives and unsharding are dropped: the lowering makes its own. So are reductions, where each directly
    follows the last backward of its stage, as PyTorch places them. A pair that PyTorch overlaps becomes F, then B.

    Raises NotAScheduleError for what is no such CSV, and InvalidScheduleError with every fault: first those of single
    cells and of the side-car, and where there are none those of the whole, by rank and column, both counted from 0.
    """
    table, faults = read_table(text, name)
    header, more = _derived(table, sequence, name) if meta is None else _header(table, meta, meta_name)
    faults += more
    told = f"{name}, ranks and columns counted from 0"
    if faults or header is None:
        raise InvalidScheduleError(told, faults)
    notes = _notes(table)
    k, reductions = header.pop("subsequences"), header.pop("reductions")
    rank_of = _rank_of(table, header)
    program = [_program(table.actions[rank], k) for rank in rank_of]
    columns = [list(table.columns[rank]) for rank in rank_of]
    for device, position, stage in reductions:
        here = min(position, len(program[device]))
        program[device].insert(here, Action(stage, "REDUCE_GRAD"))
        columns[device].insert(here, columns[device][max(here - 1, 0)])
    document = {
        **header,
        "format": file.FORMAT,
        "devices": len(program),
        "splits": [header["sequence"] // k] * k,
        "program": [[" ".join(map(str, actions))] for actions in program],
    }
    schedule, faults = file.parse(json.dumps(document), meta_name)
    if schedule is not None:
        faults += check(schedule)
    if faults or schedule is None:
        raise InvalidScheduleError(told, [_in_cells(fault, rank_of, columns, meta_name) for fault in faults])
    return Imported(schedule, tuple(notes))


def _derived(table: Table, sequence: int, name: str) -> tuple[Header | None, list[Fault]]:
    """What the rows themselves tell of stages and microbatches, or the faults because of which they do not."""
    reader = Reader()
    home: dict[int, int] = {}
    elsewhere: set[tuple[int, int]] = set()
    ids: set[int] = set()
    for rank, actions in enumerate(table.actions):
        for index, (stage, _, microbatch, _) in enumerate(actions):
            first = home.setdefault(stage, rank)
            if first != rank and (stage, rank) not in elsewhere:
                elsewhere.add((stage, rank))
                where = f"rank {rank}, column {table.columns[rank][index]}"
                message = (
                    f"{actions[index]} runs stage {stage}, which rank {first} runs: a stage is on one rank"
                )
                reader.fault("stage", where, message, str(actions[index]))
            if microbatch is not None:
                ids.add(microbatch)
    for word, numbers in (("stage", set(home)), ("microbatch", ids)):
        missing = max(numbers, default=-1) + 1 - len(numbers)
        if missing and not table.num_unreadable:  # a cell that cannot be read may be what is missing
            first = next(number for number in count() if number not in numbers)
            others = f" (and {missing - 1} more)" if missing > 1 else ""
            message = (
                f"{word} {first}{others} is missing: {word} numbers run from 0 to {max(numbers)} without gaps"
            )
            reader.fault("gap", "the rows", message)
    if reader.faults or table.num_unreadable:
        return None, reader.faults
    direction = {
        "name": "down",
        "placement": [home[stage] for stage in range(len(home))],
        "microbatches": list(range(len(ids))),
    }
    return {
        "name": Path(name).stem.encode(errors="replace").decode(),
        "microbatches": len(ids),
        "sequence": sequence,
        "directions": [direction],
        "subsequences": 1,
        "reductions": [],
    }, []


def _header(table: Table, meta: bytes | str, name: str) -> tuple[Header | None, list[Fault]]:
    """What a side-car says, as far as `file.parse` does not judge it. Raises NotAScheduleError for no JSON object."""
    try:
        document, reader = read(meta, name)
    except NotAScheduleError:
        raise NotAScheduleError(f"{name} is no side-car of a torch CSV: it holds no JSON object") from None
    reader.fields("$", document, _REQUIRED, _OPTIONAL)
    if document.get("format", FORMAT) != FORMAT:
        reader.fault("version", "$.format", f"{json.dumps(document['format'])[:60]} is not {FORMAT}")
    length = reader.integer("$.sequence", document.get("sequence", 1), 1)
    k = reader.integer("$.subsequences", document.get("subsequences", 1), 1)
    if k is not None and k > sum(map(len, table.actions)):
        reader.fault("range", "$.subsequences", f"is {k}, more than the rows have actions")
    elif k is not None and length is not None and length % k:
        reader.fault(
            "splits", "$.subsequences", f"is {k}, which does not divide the sequence of {length} tokens"
        )
    if "ranks" in document:
        reader.integers("$.ranks", document["ranks"], 0)
    reductions = _reductions(table, document.get("reductions", []), reader)
    header = {key: value for key, value in document.items() if key not in ("format", "torch")}
    faults = [replace(fault, where=f"{name}, {fault.where}") for fault in reader.faults]
    return {**header, "subsequences": k, "reductions": reductions}, faults


def _reductions(table: Table, value: Any, reader: Reader) -> list[tuple[int, ...]]:
    if not isinstance(value, list):
        reader.wrong_type("$.reductions", value, "a list of [device, position, stage]")
        return []
    found: list[tuple[int, ...]] = []
    for index, entry in enumerate(value):
        where = f"$.reductions[{index}]"
        numbers = reader.integers(where, entry, 0)
        if numbers is None:
            continue
        if len(numbers) != 3:
            reader.fault(
                "reductions", where, f"has {len(numbers)} numbers, where [device, position, stage] belongs"
            )
        elif numbers[0] >= len(table.actions):
            reader.fault("reductions", where, f"names device {numbers[0]} of 0..{len(table.actions) - 1}")
        else:
            found.append(numbers)
    return found


def _rank_of(table: Table, header: Header) -> list[int]:
    """The row of each device; where `ranks` is no permutation, which is a fault later on, in their order."""
    natural = list(range(len(table.actions)))
    ranks = header.get("ranks", natural)
    return ranks if len(ranks) == len(natural) and set(ranks) == set(natural) else natural


def _program(actions: Sequence[Action], k: int) -> list[Action]:
    """With subsequences, where PyTorch counts them as microbatches."""
    if k == 1:
        return list(actions)
    return [
        Action(stage, kind) if number is None else Action(stage, kind, *divmod(number, k))
        for stage, kind, number, _ in actions
    ]


def _notes(table: Table) -> Iterator[str]:
    if table.num_messages:
        yield f"{table.num_messages} sends and receives are left out: the engine makes its own"
    if table.num_shardings:
        yield f"{table.num_shardings} UNSHARD and RESHARD are left out: this format does not shard parameters"
    if table.num_pairs:
        yield f"{table.num_pairs} overlapped pairs are written one action after the other: the format has no pairs yet"


_PLACE = re.compile("device ([0-9]+), action ([0-9]+)")
_DEVICE = re.compile("device ([0-9]+)")


def _in_cells(
    fault: Fault, rank_of: Sequence[int], columns: Sequence[Sequence[int]], meta_name: str
) -> Fault:
    """A fault of the schedule, in the coordinates of the CSV."""

    def cell(match: re.Match[str]) -> str:
        device, position = map(int, match.groups())
        return f"rank {rank_of[device]}, column {columns[device][position]}"

    def row(match: re.Match[str]) -> str:
        device = int(match[1])
        return (
            f"rank {rank_of[device]}" if device < len(rank_of) else match[0]
        )  # a side-car may place beyond the rows

    where = _PLACE.sub(cell, fault.where)
    where = _DEVICE.sub(row, where)
    if where == "$.program":
        where = "the rows"
    elif where.startswith("$"):
        where = f"{meta_name}, {where}"
    return replace(fault, where=where, message=_PLACE.sub(cell, fault.message))
