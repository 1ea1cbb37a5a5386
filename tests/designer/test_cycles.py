"""Programs that no order can run: found always, and shown as the shortest chain of waits."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer.format.check import check
from contraflow.designer.format.graph import NONE, Graph, build, shortest_cycle, waits
from contraflow.designer.format.random_program import shuffled
from contraflow.designer.format.schedule import Action, Direction, Layout, Schedule, parse_token


def program(layout: Layout, *devices: str) -> Schedule:
    actions = [tuple(filter(None, map(parse_token, device.split()))) for device in devices]
    return Schedule("by hand", layout, tuple(actions))


STRAIGHT = Layout(2, (4, 4), ((4,), (4,)), (Direction("down", (0, 1), (0, 1)),))
CUT = Layout(2, (4,), ((2, 2),), (Direction("down", (0, 1), (0,)),))
RING = Layout(
    3,
    (4,) * 3,
    ((4,),) * 3,
    tuple(Direction(f"from {first}", (first, (first + 1) % 3), (first,)) for first in range(3)),
)


@pytest.mark.parametrize(
    ("schedule", "place", "chain"),
    [
        pytest.param(
            program(STRAIGHT, "0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"),
            "device 0, action 1",
            "0B0 waits for 1B0 (device 1, action 2), which comes after 1F1 there; "
            "1F1 waits for 0F1 (device 0, action 2), which comes after 0B0 there",
            id="two devices wait for one another",
        ),
        pytest.param(
            program(STRAIGHT, "0F0 0F1 0B0 0B1", "1F0 1F1 1B1 1B0"),
            None,
            None,
            id="a device that is late",
        ),
        pytest.param(
            program(CUT, "0F0.0 0F0.1 0B0.0 0B0.1", "1F0.0 1F0.1 1B0.1 1B0.0"),
            "device 0, action 2",
            "0B0.0 waits for 0B0.1 (device 0, action 3), which comes after 0B0.0 there",
            id="subsequences backward in the order of their forward",
        ),
        pytest.param(
            program(CUT, "0F0.0 0F0.1 0B0.1 0B0.0", "1F0.0 1I0.1 1F0.1 1I0.0 1W0.0 1W0.1"),
            "device 1, action 1",
            "1I0.1 waits for 1F0.1 (device 1, action 2), which comes after 1I0.1 there",
            id="an I in front of its F",
        ),
        pytest.param(
            program(RING, "1F2 0F0 1B2 0B0", "1F0 0F1 1B0 0B1", "1F1 0F2 1B1 0B2"),
            "device 0, action 0",
            "1F2 waits for 0F2 (device 2, action 1), which comes after 1F1 there; "
            "1F1 waits for 0F1 (device 1, action 1), which comes after 1F0 there; "
            "1F0 waits for 0F0 (device 0, action 1), which comes after 1F2 there",
            id="three devices in a ring",
        ),
        pytest.param(
            program(RING, "1F2 0F0 0B0 1B2", "1F0 0F1 0B1 1B0", "1F1 0F2 0B2 1B1"),
            "device 0, action 0",
            "1F2 waits for 0F2 (device 2, action 1), which comes after 1F1 there; "
            "1F1 waits for 0F1 (device 1, action 1), which comes after 1F0 there; "
            "1F0 waits for 0F0 (device 0, action 1), which comes after 1F2 there",
            id="of rings of one length the one that is met first",
        ),
        pytest.param(
            program(RING, "1F2 0F0 0B0 1B2", "0F1 1F0 1B0 0B1", "1F1 0F2 1B1 0B2"),
            None,
            None,
            id="a ring that one device opens",
        ),
    ],
)
def test_the_shortest_chain_is_shown(schedule: Schedule, place: str | None, chain: str | None) -> None:
    faults = check(schedule)
    if chain is None:
        assert faults == []
    else:
        assert [(fault.rule, fault.where) for fault in faults] == [("cycle", place)]
        assert faults[0].message == f"no order can run this: {chain}"


def runnable(graph: Graph) -> list[int]:
    """All that can run, by trying each device in turn until nothing moves."""
    heads, done = list(graph.first[:-1]), []
    moved = True
    while moved:
        moved = False
        for device, head in enumerate(heads):
            if head < graph.first[device + 1] and set(done).issuperset(waits(graph, head)):
                done.append(head)
                heads[device] += 1
                moved = True
    return done


def fewest_links(graph: Graph) -> int:
    """By following from every action, link by link, all that must have run before it."""
    best = len(graph.actions)
    for start in range(len(graph.actions)):
        home, reached = graph.device[start], {start}
        for links in range(1, best):
            before = {other for node in reached for other in range(graph.first[graph.device[node]], node + 1)}
            reached = {wait for node in before for wait in waits(graph, node)}
            if any(start <= node < graph.first[home + 1] for node in reached):
                best = links
                break
    return best


def mixed(schedule: Schedule, rng: Random) -> Schedule:
    """Each device runs its part of one or another valid program: an order of its own, and mostly no common one."""
    other = shuffled(schedule, rng)
    return replace(
        schedule, program=tuple(map(rng.choice, zip(schedule.program, other.program, strict=True)))
    )


def tangled(sizes: list[int], producer: list[int]) -> Graph:
    """Devices of so many actions, each of which waits for one of another device, or for none."""
    first = [0, *accumulate(sizes)]
    device = [number for number, size in enumerate(sizes) for _ in range(size)]
    nothing: list[int] = []
    graph = Graph(
        STRAIGHT, [Action(0, "F", 0)] * first[-1], first, device, nothing, nothing, nothing, nothing, producer,
        nothing, [()] * first[-1], nothing,
    )  # fmt: skip
    return replace(graph, order=runnable(graph))


def tangle(rng: Random) -> Graph:
    """All devices wait for one another in a ring, and behind that for anything: no pipeline is so tangled."""
    sizes = [rng.randint(1, 4) for _ in range(rng.randint(3, 6))]
    first = [0, *accumulate(sizes)]
    producer = []
    for number, size in enumerate(sizes):
        others = [node for node in range(first[-1]) if not first[number] <= node < first[number + 1]]
        producer += [first[(number + 1) % len(sizes)], *(rng.choice([NONE, *others]) for _ in range(1, size))]
    return tangled(sizes, producer)


@given(st.from_type(Schedule), st.integers(0, 2**32))
def test_no_shorter_chain_exists(schedule: Schedule, seed: int) -> None:
    graph = build(mixed(schedule, Random(seed)))
    assert sorted(graph.order) == sorted(runnable(graph))
    assert_shortest(graph)


@pytest.mark.parametrize("block", range(4))
def test_no_shorter_chain_exists_whatever_waits_for_what(block: int) -> None:
    for seed in range(250 * block, 250 * block + 250):
        assert_shortest(tangle(Random(seed)))


@pytest.mark.parametrize(
    ("sizes", "producer", "fewest"),
    [
        # The second action of each of the first two devices closes the short chain; what comes after waits for less.
        pytest.param(
            [4, 4, 1], [4, 7, 4, NONE, 8, 3, 0, NONE, 0], 2, id="the latest wait is not the farthest"
        ),
        # One device is reached by a short way at its head, and by a longer one far enough to go on.
        pytest.param(
            [2, 1, 3, 2], [2, 7, 3, 6, 1, 7, 0, 4], 3, id="the first way to a device is not the farthest"
        ),
    ],
)
def test_a_chain_may_start_behind_what_waits_for_less(
    sizes: list[int], producer: list[int], fewest: int
) -> None:
    graph = tangled(sizes, producer)
    assert len(shortest_cycle(graph)) == fewest
    assert_shortest(graph)


def assert_shortest(graph: Graph) -> None:
    links = shortest_cycle(graph)
    assert bool(links) is (len(graph.order) < len(graph.actions))
    if links:
        assert len(links) == fewest_links(graph)
        for (node, target), (following, _) in zip(links, [*links[1:], links[0]], strict=True):
            assert target in waits(graph, node)
            assert graph.device[following] == graph.device[target]
            assert following <= target


def test_a_large_program_is_told_as_exactly() -> None:
    # Every chain but one takes two links; that one, on the last device, takes one.
    microbatches = range(300)
    layout = Layout(4, (4,) * 300, ((2, 2),) * 300, (Direction("down", (0, 1, 2, 3), tuple(microbatches)),))
    programs = []
    for stage in range(4):
        order = microbatches if stage % 2 else microbatches[::-1]
        programs.append(" ".join(f"{stage}F{m}.0 {stage}F{m}.1 {stage}B{m}.1 {stage}B{m}.0" for m in order))
    programs[3] = programs[3].replace("3F299.0 3F299.1", "3F299.1 3F299.0")
    faults = check(program(layout, *programs))
    assert [fault.message for fault in faults] == [
        "no order can run this: "
        "3F299.1 waits for 3F299.0 (device 3, action 1197), which comes after 3F299.1 there"
    ]
