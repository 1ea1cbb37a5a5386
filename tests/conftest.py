"""Settings for every test, and how to draw any valid schedule: `@given(...)` with an argument typed `Schedule`."""

import os
from random import Random

from hypothesis import settings
from hypothesis import strategies as st

from contraflow.designer.format.random_program import random_schedule
from contraflow.designer.format.schedule import Schedule

# The matrices of tests are too small to share; set before anything loads torch, and inherited by its processes.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A deadline per example measures what else the machine is doing; everything else stays as the surroundings set it.
settings.register_profile("no deadline", settings(), deadline=None)
settings.load_profile("no deadline")

# The largest sizes are drawn beside the seed, mostly in full, so that hypothesis can shrink them.
st.register_type_strategy(
    Schedule,
    st.builds(
        lambda seed, devices, stages, directions, microbatches, subsequences: random_schedule(
            Random(seed),
            max_devices=devices,
            max_stages=stages,
            max_directions=directions,
            max_microbatches=microbatches,
            max_subsequences=subsequences,
        ),
        st.integers(0, 2**32 - 1),
        *(st.sampled_from([*range(1, most), *[most] * 2 * most]) for most in (4, 6, 3, 4, 4)),
    ),
)
