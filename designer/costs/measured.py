"""Prices from a profile: what this very machine took for each action."""

from __future__ import annotations

from contraflow.designer.format.profile import Profile
from contraflow.designer.format.schedule import Layout

from .error import CostError
from .prices import CostModel, Link, Network, Prices, slot_borders


def measured(profile: Profile, name: str) -> CostModel:
    """Each action at the time that was measured for its stage, device, kind and tokens.

    A stage measured on one device serves for the same stage on another. B stands in for I + W where only one of the
    two was measured. Raises CostError, naming stage and tokens, for an action that the profile has no time for.
    """
    exact = {
        (time.kind, time.stage, time.start, time.stop, time.device): time.seconds for time in profile.actions
    }
    anywhere = {key[:4]: seconds for key, seconds in exact.items()}

    def price(layout: Layout) -> Prices:
        if profile.reductions and len(profile.reductions) != layout.num_stages:
            raise CostError(
                f"{name} was measured with {len(profile.reductions)} stages, this layout has {layout.num_stages}: "
                "measure this one"
            )
        borders = slot_borders(layout)
        microbatch_of = [m for m, split in enumerate(layout.splits) for _ in split]

        def seconds(kind: str, stage: int, index: int) -> float | None:
            key = (kind, stage, *borders[index])
            return exact.get((*key, layout.device_of(stage, microbatch_of[index])), anywhere.get(key))

        tables: dict[str, list[float]] = {"F": [], "B": [], "I": [], "W": []}
        for stage in range(layout.num_stages):
            for index, (start, stop) in enumerate(borders):
                times = {kind: seconds(kind, stage, index) for kind in "FBIW"}
                if times["I"] is not None and times["W"] is not None and times["B"] is None:
                    times["B"] = times["I"] + times["W"]
                if times["F"] is None or times["B"] is None:
                    raise CostError(
                        f"{name} has no time for stage {stage} on tokens {start} to {stop}: "
                        "it was measured for another layout; measure this one"
                    )
                # An unmeasured I takes all of its B: late, never optimistic, and the sum is right.
                tables["F"].append(times["F"])
                tables["B"].append(times["B"])
                tables["I"].append(times["B"] if times["I"] is None else times["I"])
                tables["W"].append(0.0 if times["W"] is None else times["W"])
        lengths = [stop - start for start, stop in borders] * layout.num_stages
        return Prices(
            clock="seconds",
            costs=name,
            caption=f"seconds measured on {profile.machine} before the run, messages and reductions included",
            forward=tables["F"],
            backward=tables["B"],
            backward_input=tables["I"],
            backward_weight=tables["W"],
            transfer=[profile.seconds_per_token * length for length in lengths],
            reduction=profile.reductions or [0.0] * layout.num_stages,
            network=Network(Link(profile.latency, 1.0)),
            after_step=profile.after_step,
        )

    return CostModel(name, price)
