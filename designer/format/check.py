"""Validity as a table of small rules. Each fault names device, position, token and reason.

`RULES` is the table. A rule sees the schedule and its graph and yields faults; every rule runs, whatever the others
found, so that one pass reports everything. `load` is the one way from a file to a schedule that may be trusted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations, islice, pairwise
from pathlib import Path

from . import file
from .fault import MAX_FAULTS_PER_RULE, Fault, InvalidScheduleError, not_listed
from .graph import NONE, Graph, build, shortest_cycle
from .schedule import UNREADABLE, Action, Layout, Schedule

Rule = Callable[[Schedule, Graph], Iterator[Fault]]
HeaderRule = Callable[[Schedule], Iterator[Fault]]


def load(path: str | Path) -> Schedule:
    """The schedule in a file. Raises NotAScheduleError, or InvalidScheduleError with every fault."""
    schedule, faults = examine(file.read_bytes(path), str(path))
    if faults or schedule is None:
        raise InvalidScheduleError(str(path), faults)
    return schedule


def examine(text: bytes | str, name: str = "the file") -> tuple[Schedule | None, list[Fault]]:
    """Read and check: the schedule (None where its header leaves nothing to build on), and every fault."""
    schedule, faults = file.parse(text, name)
    if schedule is not None:
        faults += check(schedule)
    return schedule, faults


def check(schedule: Schedule, graph: Graph | None = None) -> list[Fault]:
    """Every fault of a schedule, rule by rule; [] for a valid one. `graph` spares building it twice."""
    faults = [fault for rule in HEADER_RULES for fault in _listed(rule(schedule))]
    oversized = next(_size(schedule), None)
    if oversized is not None:
        return [*faults, oversized]
    if graph is None:
        graph = build(schedule)
    return faults + [fault for rule in RULES for fault in _listed(rule(schedule, graph))]


def _listed(faults: Iterator[Fault]) -> list[Fault]:
    found = list(islice(faults, MAX_FAULTS_PER_RULE))
    return found if next(faults, None) is None else [*found, not_listed(found[0].rule)]


# The header: everything but the program.


def _devices(schedule: Schedule) -> Iterator[Fault]:
    layout, program = schedule.layout, schedule.program
    if len(program) != layout.num_devices:
        yield Fault("program", "$.program", f"has {len(program)} entries for {layout.num_devices} devices")
    if layout.num_devices > sum(len(direction.placement) for direction in layout.directions):
        yield Fault(
            "placement", "$.devices", f"{layout.num_devices} devices are more than there are stages to place"
        )
        return
    held = {device for direction in layout.directions for device in direction.placement}
    for device in range(layout.num_devices):
        if device not in held:
            yield Fault("placement", "$.directions", f"no direction places a stage on device {device}")


def _placement(schedule: Schedule) -> Iterator[Fault]:
    num_devices = schedule.layout.num_devices
    for number, direction in enumerate(schedule.layout.directions):
        for stage, device in enumerate(direction.placement):
            if device >= num_devices:
                where = f"$.directions[{number}].placement[{stage}]"
                yield Fault("placement", where, f"names device {device} of 0..{num_devices - 1}")


def _splits(schedule: Schedule) -> Iterator[Fault]:
    layout = schedule.layout
    for microbatch in range(1 if layout.alike else layout.num_microbatches):
        length, total = layout.sequences[microbatch], sum(layout.splits[microbatch])
        if total != length:
            where = "$.splits" if layout.alike else f"$.splits[{microbatch}]"
            yield Fault("splits", where, f"adds up to {total}, the sequence has {length} tokens")


def _partition(schedule: Schedule) -> Iterator[Fault]:
    count = schedule.layout.num_microbatches
    seen: dict[int, str] = {}
    for number, direction in enumerate(schedule.layout.directions):
        for index, microbatch in enumerate(direction.microbatches):
            where = f"$.directions[{number}].microbatches[{index}]"
            if microbatch >= count:
                yield Fault("partition", where, f"names microbatch {microbatch} of 0..{count - 1}")
            elif microbatch in seen:
                yield Fault(
                    "partition", where, f"microbatch {microbatch} already stands in {seen[microbatch]}"
                )
            else:
                seen[microbatch] = where
    missing = count - len(seen)
    if missing:
        first = next(microbatch for microbatch in range(count) if microbatch not in seen)
        others = f" (and {missing - 1} more)" if missing > 1 else ""
        yield Fault("partition", "$.directions", f"microbatch {first}{others} stands in no direction")


def _layers(schedule: Schedule) -> Iterator[Fault]:
    layers = schedule.layout.layers
    if layers is not None and len(layers) != schedule.layout.num_stages:
        yield Fault(
            "layers", "$.layers", f"has {len(layers)} entries for {schedule.layout.num_stages} stages"
        )


def _ranks(schedule: Schedule) -> Iterator[Fault]:
    ranks, count = schedule.layout.ranks, schedule.layout.num_devices
    if ranks is not None and (len(ranks) != count or set(ranks) != set(range(count))):
        yield Fault("ranks", "$.ranks", f"is not a permutation of 0..{count - 1}")


HEADER_RULES: tuple[HeaderRule, ...] = (_devices, _placement, _splits, _partition, _layers, _ranks)


def _size(schedule: Schedule) -> Iterator[Fault]:
    """Spares the other rules tables for a header that promises far more than the program holds."""
    needed, held = 2 * schedule.layout.num_slots, schedule.num_actions
    if needed > 100_000 and needed > 3 * held:
        yield Fault(
            "missing", "$.program", f"holds {held} actions, where the header asks for at least {needed}"
        )


# The program.


def _place(graph: Graph, node: int) -> str:
    device = graph.device[node]
    return f"device {device}, action {node - graph.first[device]}"


def _at(rule: str, graph: Graph, node: int, message: str) -> Fault:
    token = str(graph.actions[node])
    return Fault(rule, _place(graph, node), f"{token} {message}", token)


def _known(schedule: Schedule, graph: Graph) -> Iterator[Fault]:
    layout = schedule.layout
    for node, where in enumerate(graph.slot):
        if where != NONE or graph.actions[node] == UNREADABLE:
            continue
        stage, _, microbatch, subsequence = graph.actions[node]
        if stage >= layout.num_stages:
            yield _at("range", graph, node, f"names stage {stage} of 0..{layout.num_stages - 1}")
        elif microbatch is not None and microbatch >= layout.num_microbatches:
            yield _at(
                "range", graph, node, f"names microbatch {microbatch} of 0..{layout.num_microbatches - 1}"
            )
        elif microbatch is not None and subsequence is not None:
            last = len(layout.splits[microbatch]) - 1
            yield _at(
                "range",
                graph,
                node,
                f"names subsequence {subsequence} of 0..{last} of microbatch {microbatch}",
            )


def _suffix(schedule: Schedule, graph: Graph) -> Iterator[Fault]:
    cut = [len(split) > 1 for split in schedule.layout.splits]
    for node, (_, _, microbatch, subsequence) in enumerate(graph.actions):
        if microbatch is None or graph.slot[node] == NONE or cut[microbatch] == (subsequence is not None):
            continue
        if cut[microbatch]:
            count = len(schedule.layout.splits[microbatch])
            reason = f"needs a suffix .0 to .{count - 1}: microbatch {microbatch} has {count} subsequences"
        else:
            reason = f"has a suffix, but microbatch {microbatch} travels whole"
        yield _at("suffix", graph, node, reason)


def _device(schedule: Schedule, graph: Graph) -> Iterator[Fault]:
    layout = schedule.layout
    homes = [layout.directions[number].placement if number >= 0 else None for number in layout.direction_of]
    for node, (stage, kind, microbatch, _) in enumerate(graph.actions):
        if kind == "REDUCE_GRAD":
            if stage < layout.num_stages and graph.device[node] not in layout.copies[stage]:
                held = " and ".join(map(str, layout.copies[stage]))
                yield _at(
                    "device", graph, node, f"stands where stage {stage} is not held: it is on device {held}"
                )
            continue
        if graph.slot[node] == NONE or microbatch is None:
            continue
        home = homes[microbatch]
        if home is not None and home[stage] != graph.device[node]:
            direction = layout.directions[layout.direction_of[microbatch]].name
            reason = f"belongs on device {home[stage]}, where direction {direction!r} places stage {stage}"
            yield _at("device", graph, node, reason)


def _duplicate(schedule: Schedule, graph: Graph) -> Iterator[Fault]:
    kept = (graph.forward, graph.backward, graph.weight)
    tables = {"F": 0, "B": 1, "I": 1, "W": 2}
    reduced: dict[tuple[int, int], int] = {}
    for node, action in enumerate(graph.actions):
        if action.kind == "REDUCE_GRAD":
            first = reduced.setdefault((graph.device[node], action.stage), node)
        elif graph.slot[node] == NONE:
            continue
        else:
            first = kept[tables[action.kind]][graph.slot[node]]
        if first == node:
            continue
        other = graph.actions[first]
        if other.kind == action.kind:
            reason = f"stands twice: already {_place(graph, first)}"
        else:
            reason = f"stands beside {other} ({_place(graph, first)}): a backward is either B, or I and W"
        yield _at("duplicate", graph, node, reason)


def _missing(schedule: Schedule, graph: Graph) -> Iterator[Fault]:
    layout = schedule.layout
    kinds = [action.kind for action in graph.actions]
    backwards = Counter(kinds)
    wanted = "B" if backwards["B"] >= backwards["I"] else "I"
    where = 0
    for stage in range(layout.num_stages):
        for microbatch, split in enumerate(layout.splits):
            for subsequence in range(len(split)):
                forward, backward, weight = graph.forward[where], graph.backward[where], graph.weight[where]
                where += 1
                lacking: list[tuple[str, str]] = []
                if forward == NONE:
                    lacking.append(("F", ""))
                if backward == NONE:
                    if weight != NONE:
                        lacking.append(("I", f", though {graph.actions[weight]} stands without its I"))
                    else:
                        lacking += [(kind, "") for kind in ("B" if wanted == "B" else "IW")]
                elif kinds[backward] == "I" and weight == NONE:
                    lacking.append(("W", f", though {graph.actions[backward]} stands without its W"))
                elif kinds[backward] == "B" and weight != NONE:
                    extra, reason = (
                        graph.actions[weight],
                        f"is too much beside {graph.actions[backward]}, a full B",
                    )
                    yield Fault("pairing", _place(graph, weight), f"{extra} {reason}", str(extra))
                for kind, reason in lacking:
                    rule = "pairing" if reason else "missing"
                    yield _lack(layout, Action(stage, kind, microbatch, subsequence), rule, reason)  # type: ignore[arg-type]


def _lack(layout: Layout, lack: Action, rule: str, reason: str) -> Fault:
    assert lack.microbatch is not None
    assert lack.subsequence is not None
    token = str(layout.action(lack.stage, lack.kind, lack.microbatch, lack.subsequence))
    if layout.direction_of[lack.microbatch] < 0:
        return Fault(rule, "$.program", f"{token} is missing{reason}", token)
    device = layout.device_of(lack.stage, lack.microbatch)
    return Fault(rule, f"device {device}", f"{token} is missing{reason}", token)


def _reductions(schedule: Schedule, graph: Graph) -> Iterator[Fault]:
    layout = schedule.layout
    sequences: list[dict[int, int]] = []
    for position, program in enumerate(schedule.program):
        low = graph.first[position]
        nodes = [low + index for index, action in enumerate(program) if action.kind == "REDUCE_GRAD"]
        sequences.append({graph.actions[node].stage: node for node in reversed(nodes)})
    sharing: set[tuple[int, int]] = set()
    for stage, copies in enumerate(layout.copies):
        present = [device for device in copies if device < len(sequences) and stage in sequences[device]]
        for device in copies:
            if present and device not in present:
                token = f"{stage}REDUCE_GRAD"
                reason = f"{token} is missing, though device {present[0]} has it: on all copies or on none"
                yield Fault("reductions", f"device {device}", reason, token)
        sharing.update(combinations(present, 2))
    for device, other in sorted(sharing):
        here, there = sequences[device], sequences[other]
        shared = sorted((stage for stage in here if stage in there), key=here.__getitem__)
        for first, second in pairwise(shared):
            if there[first] > there[second]:
                reason = (
                    f"comes before {graph.actions[here[second]]} here and behind it on device {other} "
                    f"({_place(graph, there[first])}): devices name the stages they share in one order"
                )
                yield _at("reductions", graph, here[first], reason)


def _executable(schedule: Schedule, graph: Graph) -> Iterator[Fault]:
    if len(graph.order) == len(graph.actions):
        return
    links = shortest_cycle(graph)
    if links:
        node = links[0][0]
        yield Fault("cycle", _place(graph, node), _describe(graph, links), str(graph.actions[node]))


def _describe(graph: Graph, links: list[tuple[int, int]]) -> str:
    words = []
    for (node, target), (following, _) in zip(links, [*links[1:], links[0]], strict=True):
        behind = "" if target == following else f", which comes after {graph.actions[following]} there"
        words.append(
            f"{graph.actions[node]} waits for {graph.actions[target]} ({_place(graph, target)}){behind}"
        )
    return "no order can run this: " + "; ".join(words)


RULES: tuple[Rule, ...] = (_known, _suffix, _device, _duplicate, _missing, _reductions, _executable)
