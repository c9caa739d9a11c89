"""Limits on the time, the number and the cost of calls. `pipeline` applies them."""

from .budget import Budget, TurnLimitReached
from .limits import AT_ONCE, CHOSEN, DEPTH, Limits, Spent
from .retry import Retry
from .time import PATIENCE, in_time, tried
from .usage import USAGE, Usage, Use

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
