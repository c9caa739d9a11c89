"""Limits on the time, the number and the cost of calls. `pipeline` applies them."""

from .budget import (
    DEFAULT_CHOSEN_CALLS,
    DEFAULT_CONCURRENCY,
    DEFAULT_DEPTH,
    LEAF_END_SECONDS,
    Budget,
    Limits,
    Retry,
    Spent,
    Stored,
    TurnLimitReached,
    retry_call,
    with_timeout,
)
from .usage import USAGE, Usage, Use

__all__ = [
    "DEFAULT_CHOSEN_CALLS",
    "DEFAULT_CONCURRENCY",
    "DEFAULT_DEPTH",
    "LEAF_END_SECONDS",
    "USAGE",
    "Budget",
    "Limits",
    "Retry",
    "Spent",
    "Stored",
    "TurnLimitReached",
    "Usage",
    "Use",
    "retry_call",
    "with_timeout",
]
