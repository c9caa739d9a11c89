"""How often a function is retried after a transient failure (H4)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core.errors import FunctionInvalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a function is tried. The author of the function decides that it is safe to run it again.

    Attributes:
        attempts: The most attempts, including the first; 1 to 20.
        backoff: Seconds before the second attempt; doubles before each further one.
        longest: The most seconds between two attempts.
    """

    attempts: int = 1
    backoff: float = 0.5
    longest: float = 30.0

    def __post_init__(self) -> None:
        if not (isinstance(self.attempts, int) and not isinstance(self.attempts, bool) and 1 <= self.attempts <= 20):
            raise FunctionInvalid(
                f"`attempts` must be an integer from 1 to 20, got {self.attempts!r}",
                remedy="pass an integer in this range",
            )
        numbers = all(
            isinstance(each, int | float) and not isinstance(each, bool) and math.isfinite(each)
            for each in (self.backoff, self.longest)
        )
        if not (numbers and 0 <= self.backoff <= self.longest):
            raise FunctionInvalid(
                f"`backoff` must be a number of seconds from 0 to `longest`, got {self.backoff!r}",
                remedy="pass numbers with 0 <= backoff <= longest",
            )

    def delay(self, attempt: int) -> float:
        """Return the seconds before the attempt numbered `attempt`, counted from 1."""
        return min(self.longest, self.backoff * 2.0 ** (attempt - 2)) if attempt > 1 else 0.0


__all__ = ["Retry"]
