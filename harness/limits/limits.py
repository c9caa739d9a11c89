"""How much a call, and all calls below it, can use (H4). `budget` counts what remains."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final

from ...core.errors import FunctionInvalid

DEFAULT_DEPTH: Final = 5
"""How deep calls can nest by default."""

DEFAULT_CHOSEN_CALLS: Final = 500
"""How many calls models can choose in one turn by default."""

DEFAULT_CONCURRENCY: Final = 32
"""How many model calls, and leaves that models chose, can run concurrently in one turn by default."""

_INTEGER_LIMITS: Final = ("calls", "tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a function or worker, and everything that it calls, can use in one call of it; None sets no limit.

    Attributes:
        seconds: How long one run of it can take. The time that it waits for a person does not count.
        calls: How many calls can be made below it.
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
            kind = int if name in _INTEGER_LIMITS else int | float
            least = "above 0" if name == "seconds" else "of 0 or more"
            fits = given is None or (isinstance(given, kind) and not isinstance(given, bool) and 0 <= given < math.inf)
            if not fits or (name == "seconds" and given == 0):
                raise FunctionInvalid(
                    f"the limit `{name}` must be {'an integer' if kind is int else 'a number'} {least}, got {given!r}",
                    remedy="pass such a number, or omit it",
                )

    @property
    def counted(self) -> bool:
        """Whether anything other than time is limited."""
        return not (self.calls is None and self.tokens is None and self.cost is None)


@dataclass(slots=True)
class Spent:
    """Usage.

    Attributes:
        calls: Calls of functions, workers and shapes.
        tokens: Tokens of models, sent and received.
        cost: US dollars, as far as the cost is known.
    """

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0

    def add(self, other: Spent) -> None:
        """Add another usage to this one."""
        self.calls += other.calls
        self.tokens += other.tokens
        self.cost += other.cost

    def minus(self, other: Spent) -> Spent:
        """Return this usage less another one."""
        return Spent(self.calls - other.calls, self.tokens - other.tokens, self.cost - other.cost)


__all__ = ["DEFAULT_CHOSEN_CALLS", "DEFAULT_CONCURRENCY", "DEFAULT_DEPTH", "Limits", "Spent"]
