"""Tokens and cost of model calls, counted the same way for all services."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

ECHO_RUN: Final = 40
"""Characters in a row that count as repeating a role (R16), for the echo guard and the leak scanner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """Tokens and cost of model calls. A value that a service does not report is None, and so is any sum with it.

    Attributes:
        calls: How many model calls.
        input_tokens: Tokens sent, including those that the service had cached.
        output_tokens: Tokens received, including reasoning tokens.
        cached_tokens: Input tokens that the service read from its cache.
        reasoning_tokens: Output tokens that are reasoning, if the service counts them.
        cost: The cost in US dollars.
    """

    calls: int = 0
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = 0.0

    def __add__(self, other: ModelUsage) -> ModelUsage:
        return ModelUsage(
            calls=self.calls + other.calls,
            input_tokens=summed((self.input_tokens, other.input_tokens)),
            output_tokens=summed((self.output_tokens, other.output_tokens)),
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost=None if self.cost is None or other.cost is None else self.cost + other.cost,
        )


def summed(counts: Iterable[int | None]) -> int | None:
    """The sum; None if one of the counts is None."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
