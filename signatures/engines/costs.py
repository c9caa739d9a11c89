"""The cost of a model call: from its service, else from dspy's bundled price list. It uses no network and no litellm.

A service at a custom address has its own prices. An unknown cost is None, never 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, Final
from weakref import WeakKeyDictionary

import dspy
from dspy.lm15 import Usage
from dspy.utils.usage_tracker import UsageTracker

from ...core import Clock, ModelUsage, SystemClock
from ...core.errors import ModelRateLimited
from .providers import known_provider

MAX_DELAY_SECONDS: Final = 60.0  # seconds between two tries if the service does not name a time

LONGEST_HOLD_SECONDS: Final = 300.0
"""How long calls are held back at most, however long a service names: then one call asks whether it still refuses."""


def duration(seconds: float) -> str:
    """A duration for a person: `90 seconds`, `5 minutes`, `1 hour`."""
    for size, unit in ((3600, "hour"), (60, "minute")):
        if seconds >= 2 * size or seconds == size:
            number = math.ceil(seconds / size)
            return f"{number} {unit}{'s' if number > 1 else ''}"
    return f"{seconds:.3g} second{'' if seconds == 1 else 's'}"


class RateLimitWait(ModelRateLimited):
    """A call waited as long as it could, and was not made."""


class RateLimiter:
    """Delays the calls of one model after a refusal.

    No call is made before the time that the service names, at most `LONGEST_HOLD_SECONDS`, or before a growing delay if
    it names none. Then one call goes first, and the others follow after it succeeds.

    Args:
        clock: Tells the time.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._until: float | None = None  # None lets all calls through
        self._refusals = 0
        self._ahead = False
        self._change = asyncio.Event()

    @contextlib.asynccontextmanager
    async def place(
        self, patience: float, *, backoff: float, model: str, waiting: Callable[[float], None] = lambda seconds: None
    ) -> AsyncGenerator[None]:
        """Wait until the model can be called, and make the call.

        Args:
            patience: How many seconds to wait at most.
            backoff: Seconds before the second call if the service does not name a time; it doubles each time.
            model: The model's name, for the error.
            waiting: Called with the number of seconds before the call waits for the service.

        Raises:
            ModelRateLimited: The wait would be longer than that; or the call raised it.
        """
        first = await self._admitted(patience, model, waiting)
        try:
            yield
            if first:
                self._until, self._refusals = None, 0
        except ModelRateLimited as error:
            self._refused(first, error.retry_after, backoff)
            raise
        finally:
            if first:
                self._ahead = False
                self._wake()

    async def _admitted(self, patience: float, model: str, waiting: Callable[[float], None]) -> bool:
        """Wait for permission to call; return whether this is the first call."""
        deadline, reported_until = self._clock.monotonic() + patience, 0.0
        while self._until is not None:
            now = self._clock.monotonic()
            if now >= self._until and not self._ahead:
                self._ahead = True
                return True
            due = max(self._until, now)
            if due > deadline or now >= deadline:
                seconds = due - now
                wait = f"wait {duration(seconds)}" if seconds else "wait"
                raise RateLimitWait(
                    f"the model {model!r} is rate limited, and its calls are held back",
                    remedy=f"{wait} and try again",
                    retry_after=seconds or None,
                )
            if self._until > max(now, reported_until):  # do not report it again if this call woke for another reason
                reported_until = self._until
                waiting(reported_until - now)
            await self._changed(self._until - now if now < self._until else deadline - now)
        return False

    def _refused(self, first: bool, retry_after: float | None, backoff: float) -> None:
        # Calls that were running at the first refusal are refused for the same reason, and add no information.
        if first or self._until is None:
            self._refusals += 1
        seconds = (
            min(MAX_DELAY_SECONDS, backoff * 2.0 ** (self._refusals - 1))
            if retry_after is None
            else min(LONGEST_HOLD_SECONDS, retry_after)
        )
        until = self._clock.monotonic() + seconds
        self._until = until if self._until is None else max(self._until, until)
        self._wake()

    def _wake(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def _changed(self, seconds: float) -> None:
        waits = [asyncio.ensure_future(each) for each in (self._change.wait(), self._clock.sleep(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


class _RateLimiters:
    """The rate limiters of an event loop, by the destination of their models. They outlive the agents that use them."""

    def __init__(self) -> None:
        self._live: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[object, RateLimiter]] = WeakKeyDictionary()
        self._of_objects: WeakKeyDictionary[object, RateLimiter] = WeakKeyDictionary()

    def of_route(self, route: object) -> RateLimiter:
        return self._live.setdefault(asyncio.get_running_loop(), {}).setdefault(route, RateLimiter())

    def of_lm(self, lm: object) -> RateLimiter:
        return self._of_objects.setdefault(lm, RateLimiter())


RATE_LIMITERS: Final = _RateLimiters()  # for the entire process, as the limits of services are
"""Finds the rate limiter of a model."""


def listed_models() -> dict[str, dict[str, Any]]:
    """The entries of the list, by its own model names; empty if dspy no longer has such a list."""
    try:
        packed = files("dspy.clients.model_metadata").joinpath("snapshot.json.gz").read_bytes()
        entries = json.loads(gzip.decompress(packed))
    except (ImportError, OSError, ValueError):
        return {}
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}


_USUAL: Final = (None, "default", "standard", "auto", "on_demand")  # the service tiers that the list's prices apply to
MAX_PLAUSIBLE: Final = 10**9  # the limit of plausible tokens, or dollars, of one call
LONG_PROMPT_TOKENS: Final = 128_000  # input tokens above which a model can have other prices


class CostTracker(UsageTracker):
    """dspy's tracker of tokens, with the reports of our own engines. dspy does not know how their services count."""

    def __init__(self) -> None:
        super().__init__()
        self._reported: list[ModelUsage] = []
        self._listed: tuple[str, Mapping[str, float]] | None = None

    def add(self, used: ModelUsage, *, provider: str = "", prices: Mapping[str, float] | None = None) -> None:
        """Add the usage of one request, and the listed prices of its model, if any."""
        self._reported.append(used)
        self._listed = None if prices is None else (provider, prices)

    def estimated(self, sent: int, received: int) -> float | None:
        """The approximate listed cost of the given tokens, for a service that does not report its usage."""
        if self._listed is None:
            return None
        provider, prices = self._listed
        return estimate(provider, Usage(input_tokens=sent, output_tokens=received), prices)

    def used(self) -> ModelUsage | None:
        """The usage of one call, over all its requests; None if nothing is reported."""
        usages = self._reported or [_of_entry(entry) for entries in self.usage_data.values() for entry in entries]
        return replace(sum(usages, ModelUsage()), calls=1) if usages else None


async def note_cost(
    provider: str, models: tuple[str | None, ...], usage: Usage | None, data: Any, *, own: bool
) -> None:
    """Report the usage and cost to the tracker of the running call, if there is one.

    Args:
        provider: lm15's name of the service.
        models: The model's names: first the one that answered, then the requested one.
        usage: Its tokens.
        data: Additional data of the service's answer.
        own: Whether the service is at a custom address.
    """
    tracker = dspy.settings.usage_tracker
    if not isinstance(tracker, CostTracker):
        return
    given = data if isinstance(data, Mapping) else {}
    usages = given.get("usage")
    cost = _amount(usages.get("cost")) if isinstance(usages, Mapping) else None
    prices: Mapping[str, float] | None = None
    used = _alike(provider, usage or Usage(), cost)
    if cost is None and not own and given.get("service_tier") in _USUAL:
        prices = await asyncio.to_thread(_prices_of, provider, models)  # the list may have to be read
        if usage is not None and prices is not None and used.input_tokens is not None:
            used = replace(used, cost=estimate(provider, usage, prices))
    tracker.add(used, provider=provider, prices=prices)


def estimate(provider: str, usage: Usage, prices: Mapping[str, float]) -> float | None:
    """The cost of tokens by a list, in US dollars; None if a required price is missing.

    Args:
        provider: lm15's name of the service, which determines how it counts.
        usage: The tokens as the service counts them.
        prices: Dollars per token by the list's names.
    """
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    if usage.input_audio_tokens or usage.output_audio_tokens:
        return None
    cached, written, thought = (
        usage.cache_read_tokens or 0,
        usage.cache_write_tokens or 0,
        usage.reasoning_tokens or 0,
    )
    inputs = usage.input_tokens if "anthropic" in provider else usage.input_tokens - cached - written
    outputs = usage.output_tokens if known_provider(provider).reasoning_apart else usage.output_tokens - thought
    if min(inputs, outputs) < 0 or (
        inputs + cached + written > LONG_PROMPT_TOKENS and any("_above_" in name for name in prices)
    ):
        return None
    price = prices.get
    parts = (
        (inputs, price("input_cost_per_token")),
        (outputs, price("output_cost_per_token")),
        (thought, price("output_cost_per_reasoning_token", price("output_cost_per_token"))),
        (cached, price("cache_read_input_token_cost")),
        (written, price("cache_creation_input_token_cost")),
    )
    if any(count and each is None for count, each in parts):
        return None
    return sum(count * each for count, each in parts if each is not None)


def _prices_of(provider: str, models: tuple[str | None, ...]) -> Mapping[str, float] | None:
    vendor = provider.removesuffix("-chat").removesuffix("-responses")
    for model in filter(None, models):
        own = _list().get(f"{vendor}/{model}") or _list().get(model)
        if own is not None and own[0] == vendor:
            return own[1]
    return None


@cache
def _list() -> dict[str, tuple[str, dict[str, float]]]:
    """The vendor and the prices of each model; empty if dspy no longer has such a list."""
    return {
        name: (
            str(entry.get("litellm_provider")),
            {key: float(value) for key, value in entry.items() if "_cost" in key and _amount(value) is not None},
        )
        for name, entry in listed_models().items()
    }


def _alike(provider: str, usage: Usage, cost: float | None) -> ModelUsage:
    """The usage that a service reports, converted to one way of counting.

    Services differ about cached and reasoning tokens.
    """
    sent, received = _tokens(usage.input_tokens), _tokens(usage.output_tokens)
    if sent is not None and "anthropic" in provider:
        sent += (_tokens(usage.cache_read_tokens) or 0) + (_tokens(usage.cache_write_tokens) or 0)
    if received is not None and known_provider(provider).reasoning_apart:
        received += _tokens(usage.reasoning_tokens) or 0
    return ModelUsage(
        input_tokens=sent or None,  # a stream without usage can report 0
        output_tokens=received,
        cached_tokens=_tokens(usage.cache_read_tokens) or 0,
        reasoning_tokens=_tokens(usage.reasoning_tokens) or 0,
        cost=cost,
    )


def _of_entry(entry: Mapping[str, Any]) -> ModelUsage:
    """The usage of a request that dspy reports."""
    return ModelUsage(
        input_tokens=_tokens(entry.get("prompt_tokens")) or None,
        output_tokens=_tokens(entry.get("completion_tokens")),
        cached_tokens=_tokens((entry.get("prompt_tokens_details") or {}).get("cached_tokens")) or 0,
        reasoning_tokens=_tokens((entry.get("completion_tokens_details") or {}).get("reasoning_tokens")) or 0,
        cost=_amount(entry.get("cost")),
    )


def _amount(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_PLAUSIBLE:
        return None
    return float(value)


def _tokens(value: int | None) -> int | None:
    """A number of tokens; None if no call could have used it."""
    return value if value is not None and 0 <= value <= MAX_PLAUSIBLE else None
