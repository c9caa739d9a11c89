"""How much a call and all below it may use (H4). What is left of it is `budget`'s."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final

from ...core.errors import FunctionInvalid

DEPTH: Final = 5
"""How deep calls may nest, where nothing else is said."""

CHOSEN: Final = 500
"""How many calls models may choose in one turn, where nothing else is said."""

AT_ONCE: Final = 32
"""How many model calls and leaves that models chose may run at once in one turn, where nothing else is said."""

_WHOLE: Final = ("calls", "tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a function or worker, and all that it calls, may use in one call of it; None is no limit of its own.

    Attributes:
        seconds: How long one run of it may take. The time while a person is asked does not count.
        calls: How many calls may be made below it.
        tokens: Tokens of models, sent and received.
        cost: US dollars, as far as the models' cost is known.
    """

    seconds: float | None = None
    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            given: object = getattr(self, name)
            kind = int if name in _WHOLE else int | float
            least = "above 0" if name == "seconds" else "0 or more"
            fits = given is None or (isinstance(given, kind) and not isinstance(given, bool) and 0 <= given < math.inf)
            if not fits or (name == "seconds" and given == 0):
                raise FunctionInvalid(
                    f"the limit {name}={given!r} is none", remedy=f"give a number, {least}, or leave it out"
                )

    @property
    def counted(self) -> bool:
        """Whether anything but time is limited."""
        return not (self.calls is None and self.tokens is None and self.cost is None)


@dataclass(slots=True)
class Spent:
    """What was used.

    Attributes:
        calls: Calls of functions, workers and shapes.
        tokens: Tokens of models, sent and received.
        cost: US dollars, as far as it is known.
    """

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0

    def add(self, other: Spent) -> None:
        """Count what another one has, too."""
        self.calls += other.calls
        self.tokens += other.tokens
        self.cost += other.cost

    def minus(self, other: Spent) -> Spent:
        """What this one has more than another."""
        return Spent(self.calls - other.calls, self.tokens - other.tokens, self.cost - other.cost)


__all__ = ["AT_ONCE", "CHOSEN", "DEPTH", "Limits", "Spent"]
