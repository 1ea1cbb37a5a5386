"""Better programs and designs under a memory cap: rules, climbs and OR-tools' CP-SAT; see search.py and designs.py."""

from .apart import SearchLost, apart
from .designs import KNOBS, jointly
from .judge import Cap
from .search import NoStart, search
from .standing import Progress

__all__ = ["KNOBS", "Cap", "NoStart", "Progress", "SearchLost", "apart", "jointly", "search"]
