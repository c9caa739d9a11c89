"""How fast a model may be called: once its service asks to slow down, all calls of the process wait together (H4).

Not here: how often one call is tried (`signatures`), and what counts as being asked to slow down (`classify`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Final
from weakref import WeakKeyDictionary

from ...core import Clock, SystemClock
from ...core.errors import ModelRateLimited

_LONGEST: Final = 60.0  # seconds between two tries where the service does not say


class HeldBack(ModelRateLimited):
    """A call that was held back for as long as it may be, and not made."""


class Pace:
    """Holds back the calls of one model after a refusal.

    Nobody calls before the time that the service names, or a growing one where it names none. Then one goes first, and
    the others follow once it went well.

    Args:
        clock: Tells the time.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._until: float | None = None  # None lets everybody through
        self._refusals = 0
        self._ahead = False
        self._change = asyncio.Event()

    @contextlib.asynccontextmanager
    async def place(
        self, patience: float, *, backoff: float, model: str, waiting: Callable[[float], None] = lambda seconds: None
    ) -> AsyncGenerator[None]:
        """Wait until the model may be called, and call it here.

        Args:
            patience: How many seconds to wait.
            backoff: Seconds before the second call where the service does not say; it doubles each time.
            model: The model's name, for the error.
            waiting: Called with the seconds before the call waits that long for the service.

        Raises:
            ModelRateLimited: It may not be called for longer than that; or the call raised it.
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
        """Wait for one's place; whether it is the first."""
        deadline, told = self._clock.monotonic() + patience, 0.0
        while self._until is not None:
            now = self._clock.monotonic()
            if now >= self._until and not self._ahead:
                self._ahead = True
                return True
            due = max(self._until, now)
            if due > deadline or now >= deadline:
                seconds = due - now
                wait = f"wait {seconds:.3g} seconds" if seconds else "wait"
                raise HeldBack(
                    f"the model {model!r} is rate limited, and its calls are held back",
                    remedy=f"{wait} and try again",
                    retry_after=seconds or None,
                )
            if self._until > max(now, told):  # not again where something else woke this call
                told = self._until
                waiting(told - now)
            await self._changed(self._until - now if now < self._until else deadline - now)
        return False

    def _refused(self, first: bool, retry_after: float | None, backoff: float) -> None:
        # Those that were under way when the first refusal came are refused for the same reason, and say nothing new.
        if first or self._until is None:
            self._refusals += 1
        seconds = retry_after if retry_after is not None else min(_LONGEST, backoff * 2.0 ** (self._refusals - 1))
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


class _Paces:
    """The paces of an event loop, by what leads to their models; they outlive the agents that call them."""

    def __init__(self) -> None:
        self._live: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[object, Pace]] = WeakKeyDictionary()
        self._of_objects: WeakKeyDictionary[object, Pace] = WeakKeyDictionary()

    def of_route(self, route: object) -> Pace:
        return self._live.setdefault(asyncio.get_running_loop(), {}).setdefault(route, Pace())

    def of_lm(self, lm: object) -> Pace:
        return self._of_objects.setdefault(lm, Pace())


PACES: Final = _Paces()  # those of this process, as the services' limits are
"""Which pace belongs to a model."""

__all__ = ["PACES", "HeldBack", "Pace"]
