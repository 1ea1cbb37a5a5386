"""The cells of a torch CSV: what each one says, row by row, and a fault for each that says nothing."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field

from contraflow.designer.design import MAX_ACTIONS
from contraflow.designer.format.document import Reader
from contraflow.designer.format.fault import MAX_FAULTS_PER_RULE, Fault, NotAScheduleError
from contraflow.designer.format.schedule import Action, parse_token


@dataclass(slots=True)
class Table:
    """For each rank its actions, microbatches by PyTorch's ids, and the column of each; the rest is counted.

    It ends early where so many cells cannot be read that the faults of more would not be listed.
    """

    actions: list[list[Action]] = field(default_factory=list)
    columns: list[list[int]] = field(default_factory=list)
    num_messages: int = 0
    num_shardings: int = 0
    num_pairs: int = 0
    num_unreadable: int = 0


_NUMBER = "(?:0|[1-9][0-9]{0,8})"
_MESSAGE = re.compile(rf"{_NUMBER}(?:SEND|RECV)_[FB]{_NUMBER}")
_SHARDING = re.compile(rf"{_NUMBER}(?:UN|RE)SHARD")
_PAIR = re.compile(r"\(([^();]+(?:;[^();]+)*)\)OVERLAP_F_B")


def read_table(text: bytes | str, name: str) -> tuple[Table, list[Fault]]:
    """Every cell as what it says, and a fault for each that says nothing. Raises NotAScheduleError."""
    table, reader = Table(), Reader()
    num_actions = num_blank = 0
    rows = csv.reader(io.StringIO(_decoded(text, name), newline=""))
    try:
        for row in rows:
            if not any(map(str.strip, row)):
                num_blank += 1  # an idle rank, unless nothing follows
                continue
            if num_blank > MAX_FAULTS_PER_RULE:
                line = f"line {rows.line_num} follows on {num_blank} rows without an action"
                raise NotAScheduleError(f"{name} is no torch CSV: {line}")
            for _ in range(num_blank):
                _read_row(table, [], reader)
            num_blank = 0
            _read_row(table, row, reader)
            if table.num_unreadable > MAX_FAULTS_PER_RULE:
                break  # nothing further would be listed
            num_actions += len(table.actions[-1])
            if num_actions > MAX_ACTIONS:
                raise NotAScheduleError(f"{name} holds more actions than the {MAX_ACTIONS} that are read")
    except csv.Error as error:
        raise NotAScheduleError(f"{name} is no torch CSV: line {rows.line_num}: {error}") from None
    if not num_actions:
        raise NotAScheduleError(f"{name} is no torch CSV: its cells are not actions such as 0F0 or 1B2")
    _drop_usual_reductions(table)
    return table, reader.faults


def _decoded(text: bytes | str, name: str) -> str:
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeError:
            raise NotAScheduleError(f"{name} is no torch CSV: it is not UTF-8 text") from None
    if not text.strip():
        raise NotAScheduleError(f"{name} is empty")
    if text.lstrip().startswith("{"):
        raise NotAScheduleError(f"{name} is JSON, not a torch CSV; a schedule file needs no import")
    return text


def _read_row(table: Table, row: list[str], reader: Reader) -> None:
    actions: list[Action] = []
    columns: list[int] = []
    rank, num_unreadable = len(table.actions), table.num_unreadable
    for column, cell in enumerate(row):
        token = cell.strip()
        if not token:
            continue
        action = parse_token(token)
        if action is not None and action.subsequence is None:
            actions.append(action)
            columns.append(column)
        elif _MESSAGE.fullmatch(token):
            table.num_messages += 1
        elif _SHARDING.fullmatch(token):
            table.num_shardings += 1
        elif pair := _pair(token):
            table.num_pairs += 1
            actions += pair
            columns += [column] * len(pair)
        else:
            shown = token if len(token) <= 40 else token[:37] + "..."
            reader.fault("token", f"rank {rank}, column {column}", f"{shown!r} {_why_none(action)}", shown)
            table.num_unreadable += 1
            if table.num_unreadable > MAX_FAULTS_PER_RULE:
                break
    if not actions and table.num_unreadable == num_unreadable:
        message = "has no actions, but every rank runs a stage: fill the row or delete it"
        reader.fault("blank", f"rank {rank}", message)
    table.actions.append(actions)
    table.columns.append(columns)


def _pair(token: str) -> list[Action]:
    """The actions that run together in this cell, in the order in which it names them; [] if it is none such."""
    match = _PAIR.fullmatch(token)
    found = [parse_token(word.strip()) for word in match[1].split(";")] if match else []
    actions = [action for action in found if action is not None and action.microbatch is not None]
    whole = len(actions) == len(found) and all(action.subsequence is None for action in actions)
    return actions if whole else []


def _why_none(action: Action | None) -> str:
    if action is None:
        return (
            "is no action; one is written like 0F0, 1B2, 1I2, 1W2, 0SEND_F2, 1RECV_F2, 0UNSHARD, 0REDUCE_GRAD "
            "or (0F3;1B0)OVERLAP_F_B"
        )
    return (
        "has a suffix, which PyTorch would drop without a word: give each subsequence a microbatch id of its own, "
        "microbatch * k + subsequence, and say so in a side-car"
    )


def _drop_usual_reductions(table: Table) -> None:
    """Leaves out all REDUCE_GRAD if each directly follows its stage's last backward: there PyTorch adds them itself."""
    for actions, columns in zip(table.actions, table.columns, strict=True):
        pairs = list(zip(actions, columns, strict=True))
        last = {action.stage: column for action, column in pairs if action.kind in ("B", "W")}
        latest = None
        for action, column in pairs:
            if action.kind != "REDUCE_GRAD":
                latest = column
            elif last.get(action.stage, -1) != latest:
                return
    for rank, actions in enumerate(table.actions):
        kept = [index for index, action in enumerate(actions) if action.kind != "REDUCE_GRAD"]
        if len(kept) < len(actions):
            table.actions[rank] = [actions[index] for index in kept]
            table.columns[rank] = [table.columns[rank][index] for index in kept]
