"""How costs say no."""


class CostError(ValueError):
    """A cost model that is not known, cannot be read, or does not fit the layout; the message says what to do."""
