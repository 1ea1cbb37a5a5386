"""Basic units of two opposing Vs, list-scheduled and concatenated within an activation budget.

A *basic unit* is u microbatches in each direction. A gate decides when the next unit may start on a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from contraflow.designer.costs.prices import NEAR, Prices
from contraflow.designer.format.schedule import Kind, Layout, Schedule

from .list_scheduling import Jobs, Listed
from .request import Refusal, Request, shape_name
from .urgency import Rule, ordered
from .v_shaped import opposing_vs


def least_budget(unit_microbatches: int) -> int:
    """Whole microbatches of activation with which basic units can be run at all."""
    return 2 * unit_microbatches


def default_budget(unit_microbatches: int) -> float:
    """Half a microbatch beyond the least: there the idle time has lost most of what it can."""
    return least_budget(unit_microbatches) + 0.5


SMALLER_BUDGETS = 2
"""How many smaller budgets are tried."""

ROUNDING = 1e-9


def concatenated(request: Request, name: str, sibling: str, *rules: Sequence[Rule]) -> Schedule:
    """The fastest of what these rules give for the request's prices; its peak is at most the budget, whatever k.

    Of every list of rules as many are tried as if there were no other. Raises Refusal for an odd number of devices,
    more than two stages per device in a direction, or a budget below 2u whole microbatches.
    """
    budget = _checked_budget(request, name, sibling)
    layout = request.layout(opposing_vs(request))
    unit = units(layout, request.unit_microbatches)
    planner = Planner(layout, request.costs(layout), unit, request.effort)
    least = least_budget(request.unit_microbatches)
    plans = [planner.fastest(alternatives, budget, least) for alternatives in rules]
    plan = min(plans, key=lambda plan: plan.listed.makespan)
    shape = f"{shape_name(name, request)} u{request.unit_microbatches} budget {budget:g}"
    return Schedule(shape, layout, planner.jobs(plan.way.rule.kinds).program(plan.listed))


@dataclass(frozen=True, slots=True)
class Way:
    """One way to plan: by a rule; and `free`, as if messages were, since short delays make devices choose badly."""

    rule: Rule
    free: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What a way comes to at the real prices, and the most activation of any device, in tokens through one stage."""

    way: Way
    listed: Listed
    peak: int


class Planner:
    """Plans a layout's program at given prices, in one way after another."""

    def __init__(self, layout: Layout, prices: Prices, unit: Sequence[int], effort: int):
        self.layout, self.prices, self.unit, self.effort = layout, prices, unit, effort
        self.jobs = cache(self._made)

    def _made(self, kinds: tuple[Kind, ...], mirrored: bool = False, free: bool = False) -> Jobs:
        """The layout's jobs, at other prices if need be."""
        prices = self.prices
        if mirrored:
            prices = replace(prices, forward=prices.backward, backward=prices.forward)
        if free:
            prices = replace(prices, transfer=[0.0] * self.layout.num_slots, network=NEAR)
        return Jobs(self.layout, prices, kinds)

    @cached_property
    def unit_from_the_end(self) -> list[int]:
        last = max(self.unit)
        return [last - number for number in self.unit]

    def fastest(self, rules: Sequence[Rule], budget: float, least: float) -> Plan:
        """The best of as many ways as the effort allows, which is fewer for large layouts.

        The makespan is not monotone in the budget: the best way is tried within less too, down to `least`. Of
        equals the plan that holds least is kept.
        """
        messages = (False,) if self.prices.free_messages else (False, True)
        ways = [Way(rule, free) for rule in rules for free in messages]
        tries = max(1, self.effort // (len(rules[0].kinds) * self.layout.num_slots))
        best = min((self.plan(way, budget) for way in ways[:tries]), key=lambda plan: plan.listed.makespan)
        for _ in range(SMALLER_BUDGETS):
            smaller = (best.peak - 1) / (2 * self.layout.longest)
            if smaller < least:
                break
            plan = self.plan(best.way, smaller)
            if plan.listed.makespan > best.listed.makespan * (1 + ROUNDING):
                break
            best = plan
        return best

    def plan(self, way: Way, budget: float) -> Plan:
        """What one way gives within a budget."""
        rule = way.rule
        unit = self.unit_from_the_end if rule.mirrored else self.unit
        jobs, gate = (
            self.jobs(rule.kinds, rule.mirrored, way.free),
            ConcatenationGate(self.layout, unit, budget),
        )
        listed = jobs.scheduled(ordered(rule, jobs, unit), gate)
        if rule.mirrored or way.free:
            started = listed.started
            if rule.mirrored:
                started = [[_exchanged(job, jobs.num_slots) for job in reversed(own)] for own in started]
            listed = self.jobs(rule.kinds).replayed(started)
        return Plan(way, listed, gate.peak)


def _exchanged(job: int, num_slots: int) -> int:
    """The F of a B and the B of an F."""
    return job + num_slots if job < num_slots else job - num_slots


def units(layout: Layout, unit_microbatches: int) -> list[int]:
    """The basic unit of each microbatch: u of every direction make one, in travelling order."""
    found = [0] * layout.num_microbatches
    for direction in layout.directions:
        for index, microbatch in enumerate(direction.microbatches):
            found[microbatch] = index // unit_microbatches
    return found


def _checked_budget(request: Request, name: str, sibling: str) -> float:
    if request.num_devices % 2:
        below, above = request.num_devices - 1, request.num_devices + 1
        nearest = f"{below} or {above}" if below else f"{above}"
        raise Refusal(
            f"{name} mirrors the devices in pairs and cannot use {request.num_devices}: use {nearest}, or {sibling}"
        )
    if request.stages_per_device != 2:
        raise Refusal(
            f"{name}'s Vs put 2 stages of each direction on a device, not {request.stages_per_device}: "
            "use --stages-per-device 2"
        )
    if request.unit_microbatches < 1:
        raise Refusal(
            f"a basic unit has at least 1 microbatch in each direction, not {request.unit_microbatches}"
        )
    least = least_budget(request.unit_microbatches)
    budget = default_budget(request.unit_microbatches) if request.budget is None else request.budget
    if not budget >= least:
        raise Refusal(
            f"a budget of {budget:g} microbatches is too small for units of {request.unit_microbatches}: "
            f"the least is {least}"
        )
    return budget


class ConcatenationGate:
    """Lets an F of a unit start only where room is left for what older units have yet to bring to its device.

    live + (forwards of older units not yet started there) + this forward <= 2 * budget, each as its tokens / N.
    Live is what F has opened and B or W has not closed. It can never strand an older unit, so it never blocks for
    good: a W waits for nothing but its I, so a device with nothing else to do runs it and makes room.
    """

    def __init__(self, layout: Layout, unit: Sequence[int], budget: float):
        tokens = [length for split in layout.splits for length in split]
        unit_of_split = [unit[m] for m, split in enumerate(layout.splits) for _ in split]
        self.tokens = tokens * layout.num_stages
        self.unit = unit_of_split * layout.num_stages
        self.limit = 2 * budget * layout.longest + 1e-6
        self.live, self.peak = [0] * layout.num_devices, 0
        self.to_come = [[0] * (max(unit) + 1) for _ in range(layout.num_devices)]
        for stage in range(layout.num_stages):
            for microbatch, length in enumerate(layout.sequences):
                self.to_come[layout.device_of(stage, microbatch)][unit[microbatch]] += length

    def admits(self, device: int, slot: int) -> bool:
        older = sum(self.to_come[device][: self.unit[slot]])
        return self.live[device] + older + self.tokens[slot] <= self.limit

    def opened(self, device: int, slot: int) -> None:
        self.live[device] += self.tokens[slot]
        self.peak = max(self.peak, self.live[device])
        self.to_come[device][self.unit[slot]] -= self.tokens[slot]

    def closed(self, device: int, slot: int) -> None:
        self.live[device] -= self.tokens[slot]
