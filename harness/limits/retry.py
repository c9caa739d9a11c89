"""How often a function is tried where it fails for a passing reason (H4)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core.errors import FunctionInvalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a function is tried. It is for the function's author to say that trying twice does no harm.

    Attributes:
        attempts: How often in all, 1 to 20.
        backoff: Seconds before the second try; it doubles with each further one.
        longest: Seconds between two tries at most.
    """

    attempts: int = 1
    backoff: float = 0.5
    longest: float = 30.0

    def __post_init__(self) -> None:
        if not (isinstance(self.attempts, int) and not isinstance(self.attempts, bool) and 1 <= self.attempts <= 20):
            raise FunctionInvalid(f"attempts {self.attempts!r} is no number of tries", remedy="give 1 to 20")
        numbers = all(
            isinstance(each, int | float) and not isinstance(each, bool) and math.isfinite(each)
            for each in (self.backoff, self.longest)
        )
        if not (numbers and 0 <= self.backoff <= self.longest):
            raise FunctionInvalid(
                f"a backoff of {self.backoff!r} s does not fit", remedy="give seconds, and no more than longest="
            )

    def delay(self, attempt: int) -> float:
        """Seconds before the try numbered `attempt`, counted from 1."""
        return min(self.longest, self.backoff * 2.0 ** (attempt - 2)) if attempt > 1 else 0.0


__all__ = ["Retry"]
