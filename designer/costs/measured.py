"""Prices from a profile: what this very machine took for each action, or would take by the law behind that."""

from __future__ import annotations

from functools import cache

from contraflow.designer.format.profile import Profile
from contraflow.designer.format.schedule import Layout

from . import fitted
from .error import CostError
from .parameters import Parameters, layer_counts
from .prices import CostModel, Link, Network, Prices, slot_borders
from .training import Training


def measured(profile: Profile, name: str) -> CostModel:
    """Each action at the time that was measured for its stage, device, kind and tokens; else at that of a fitted law.

    A stage measured on one device serves for the same stage on another. B stands in for I + W where only one of the
    two was measured. Raises CostError, naming stage and tokens, for an action that the profile has no time for: then
    it does not say of which model it is.
    """
    exact = {
        (time.kind, time.stage, time.start, time.stop, time.device): time.seconds for time in profile.actions
    }
    anywhere = {key[:4]: seconds for key, seconds in exact.items()}

    @cache
    def law() -> fitted.Law | None:
        return fitted.fit(profile)

    def price(layout: Layout) -> Prices:
        counts = None if profile.model is None else layer_counts(profile.model, layout, name)
        same = counts is None or counts == list(profile.layers)
        reductions = _reductions(profile, layout, counts, same, name)
        borders = slot_borders(layout)
        microbatch_of = [m for m, split in enumerate(layout.splits) for _ in split]
        last, num_fitted = layout.num_stages - 1, 0

        def known(kind: str, stage: int, index: int) -> float | None:
            key = (kind, stage, *borders[index])
            return exact.get((*key, layout.device_of(stage, microbatch_of[index])), anywhere.get(key))

        tables: dict[str, list[float]] = {"F": [], "B": [], "I": [], "W": []}
        for stage in range(layout.num_stages):
            for index, (start, stop) in enumerate(borders):
                found = {kind: known(kind, stage, index) if same else None for kind in "FBIW"}
                if None in found.values() and counts is not None and (fit := law()) is not None:
                    made = (counts[stage], stage == 0, stage == last, start, stop)
                    filled = {kind: fit.seconds(kind, *made) for kind, time in found.items() if time is None}
                    num_fitted += any(time is not None for time in filled.values())
                    found |= filled
                times = _completed(found)
                if times is None:
                    raise CostError(
                        f"{name} has no time for stage {stage} on tokens {start} to {stop}: "
                        "it was measured for another layout; measure this one"
                    )
                for kind, seconds in times.items():
                    tables[kind].append(seconds)
        lengths = [stop - start for start, stop in borders] * layout.num_stages
        return Prices(
            clock="seconds",
            costs=name,
            caption=_caption(profile, num_fitted, layout.num_slots, law() if num_fitted else None),
            forward=tables["F"],
            backward=tables["B"],
            backward_input=tables["I"],
            backward_weight=tables["W"],
            transfer=[profile.seconds_per_token * length for length in lengths],
            reduction=reductions,
            network=Network(Link(profile.latency, 1.0)),
            after_step=profile.after_step,
        )

    return CostModel(name, price, profile.model)


def _completed(times: dict[str, float | None]) -> dict[str, float] | None:
    """F, B, I and W out of those that there are; None where that cannot be."""
    forward, both, inputs, weights = (times[kind] for kind in "FBIW")
    if both is None and inputs is not None and weights is not None:
        both = inputs + weights
    if forward is None or both is None:
        return None
    # An unmeasured I takes all of its B: late, never optimistic, and the sum is right.
    inputs, weights = both if inputs is None else inputs, weights or 0.0
    return {"F": forward, "B": both, "I": inputs, "W": weights}


def _reductions(
    profile: Profile, layout: Layout, counts: list[int] | None, same: bool, name: str
) -> list[float]:
    """By stage: as measured, or as many parameters at the speed of messages. Raises CostError."""
    if same and len(profile.reductions) == layout.num_stages:
        return list(profile.reductions)
    if profile.model is not None and counts is not None:
        if all(len(copies) == 1 for copies in layout.copies):
            return [0.0] * layout.num_stages
        sizes = Parameters.of(profile.model, Training(), layout, counts).stages
        # A token's activation is as many elements as its hidden size, for each sequence.
        seconds = profile.seconds_per_token / (profile.batch_size * profile.model.hidden)
        return [size * seconds for size in sizes]
    if profile.reductions:
        raise CostError(
            f"{name} was measured with {len(profile.reductions)} stages, this layout has {layout.num_stages}: "
            "measure this one"
        )
    return [0.0] * layout.num_stages


def _caption(profile: Profile, num_fitted: int, num_slots: int, law: fitted.Law | None) -> str:
    rest = "before the run, messages and reductions included"
    if law is None:
        return f"seconds measured on {profile.machine} {rest}"
    whole = num_fitted == num_slots
    what = "fitted to" if whole else f"for {num_fitted} of {num_slots} subsequences of a stage fitted to"
    off = f"off by {100 * law.error:.1f} % on those on average"
    return f"seconds {what} measurements on {profile.machine} {rest}; {off}"
