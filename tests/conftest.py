"""Settings for every test."""

from hypothesis import settings

# A deadline per example measures what else the machine is doing; everything else stays as the surroundings set it.
settings.register_profile("no deadline", settings(), deadline=None)
settings.load_profile("no deadline")
