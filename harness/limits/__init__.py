"""How long, how often and how much: what a call and all below it may use. Who asks for it is in `_pipeline`."""

from ._budget import Budget, TurnLimitReached
from ._limits import AT_ONCE, CHOSEN, DEPTH, Limits, Spent
from ._retry import Retry
from ._time import PATIENCE, in_time, tried
from ._usage import USAGE, Usage, Use

__all__ = [
    "AT_ONCE",
    "CHOSEN",
    "DEPTH",
    "PATIENCE",
    "USAGE",
    "Budget",
    "Limits",
    "Retry",
    "Spent",
    "TurnLimitReached",
    "Usage",
    "Use",
    "in_time",
    "tried",
]
