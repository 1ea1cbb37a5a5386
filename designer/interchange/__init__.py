"""Other tools' formats, both directions in one file each: what they cannot say is refused with the reason."""

from __future__ import annotations

from contraflow.designer.design import DesignError


class InexpressibleError(DesignError):
    """A schedule that another tool's format has no words for; the one-line message says what, and what would do."""
