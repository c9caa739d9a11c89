"""What model calls used, counted alike for all services."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """Tokens and cost of model calls. What a service does not say is None, and so is a sum with it.

    Attributes:
        calls: How many model calls.
        input_tokens: Sent, with those that the service had cached.
        output_tokens: Received, with those of reasoning.
        cached_tokens: Those of the input that the service read from its cache.
        reasoning_tokens: Those of the output that are reasoning, where the service counts them.
        cost: US dollars.
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
    """The sum; None where one of them is not known."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


__all__ = ["ModelUsage", "summed"]
