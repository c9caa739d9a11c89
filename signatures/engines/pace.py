"""Rate limits of a model: after its service asks to slow down, all calls of the process wait (H4).

`signatures` decides how often one call is tried, and `classify` decides which errors ask to slow down.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Final
from weakref import WeakKeyDictionary

from ...core import Clock, SystemClock
from ...core.errors import ModelRateLimited

MAX_DELAY_SECONDS: Final = 60.0  # seconds between two tries if the service does not name a time


class RateLimitWait(ModelRateLimited):
    """A call waited as long as it could, and was not made."""


class RateLimiter:
    """Delays the calls of one model after a refusal.

    No call is made before the time that the service names, or before a growing delay if it names none. Then one call
    goes first, and the others follow after it succeeds.

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
                wait = f"wait {seconds:.3g} seconds" if seconds else "wait"
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
            retry_after if retry_after is not None else min(MAX_DELAY_SECONDS, backoff * 2.0 ** (self._refusals - 1))
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

__all__ = ["RATE_LIMITERS", "RateLimitWait", "RateLimiter"]
