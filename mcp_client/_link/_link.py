"""One life of a connection, from connecting to its loss, owned by one task (D9).

A client of the MCP library can be closed only by the task that opened it, and is dead for good once its host is lost.
So a task of the link's own opens it, serves calls and closes it; callers await futures. It never reconnects: when a
link is over, `_connection` makes the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, TypeVar

import httpx2
from mcp import Client, MCPError
from mcp.client.session import ClientSession
from mcp.types import CONNECTION_CLOSED
from pydantic import ValidationError

from ...core import Clock
from .. import _failures as failures
from .._failures import SESSION_GONE, Failure
from .._hosts import Host, StdioHost
from .._quiet import quiet_context, quieten
from .._request import Request
from . import _meanings as meanings
from ._calls import Calls

T = TypeVar("T")


class Link(ABC):
    """A connection that lives once. Made inside the event loop that it belongs to.

    What is on the other side is a subclass's matter: how the client is made, what it is asked first, what a request is.

    Args:
        host: The host.
        delay: Seconds to wait before connecting.
        clock: What waits.
    """

    def __init__(self, host: Host, *, delay: float, clock: Clock) -> None:
        self.answered = False
        self._host = host
        self._delay = delay
        self._clock = clock
        self._session: ClientSession | None = None
        self._serving: asyncio.TaskGroup | None = None
        self._stop = asyncio.Event()
        self._why: Failure | None = None
        self._settled = asyncio.Event()
        self._over_since: float | None = None
        self._garbled = False
        self._silent_since: float | None = None
        self._failure: Failure | None = None
        self._context = quiet_context()
        self._calls = Calls(host, ask=self._ask, late=self._late, context=self._context)
        self.task = asyncio.get_running_loop().create_task(
            self._own(), name=f"role host {host.label}", context=self._context
        )

    @property
    def over(self) -> bool:
        """Whether it takes no call any more."""
        return self._stop.is_set() or (self._settled.is_set() and self._serving is None)

    @property
    def serving(self) -> bool:
        """Whether it takes calls."""
        return self._serving is not None and not self._stop.is_set()

    @property
    def over_since(self) -> float | None:
        """When it was over, by the clock."""
        return self._over_since

    async def ready(self) -> Failure | None:
        """Wait until calls can be made; what is in the way, if they cannot."""
        await self._settled.wait()
        return self._failure if self._serving is None else None

    @abstractmethod
    def _client(self) -> Client:
        """The client, not yet entered; `_lose` and `_noticed` are to be told of what its transport notices."""

    @abstractmethod
    async def _meet(self, client: Client) -> Failure | None:
        """Learn what the host offers; what is in the way, if it cannot be used."""

    @abstractmethod
    def _beside(self, client: Client) -> Coroutine[Any, Any, None]:
        """What runs for as long as calls are served."""

    @abstractmethod
    async def _send(self, session: ClientSession, request: Request[T]) -> T | Failure:
        """Send one request and read its answer; the library's errors are read by the caller."""

    async def call(self, request: Request[T], seconds: float | None = None) -> T | Failure:
        """Make one call, within `seconds`, or the host's own time. Cancelling it cancels it in the host."""
        if self._serving is None or self._stop.is_set():
            return failures.gone(self._host)
        quieten()
        return await self._calls.make(self._serving, request, seconds)

    def stop(self) -> None:
        """Begin to end it; `task` is done when all is released."""
        connecting = not self._settled.is_set() and not self._stop.is_set()
        self._end(failures.closed(self._host.label))
        if connecting:
            self.task.cancel()  # once: a second one would cut off the end of a child

    def _lose(self, why: Failure | None = None) -> None:
        unopened = failures.unreachable(self._host.label, "it ended at once")
        self._end(why or (failures.broken(self._host) if self._session else unopened))

    def _give_up(self) -> None:
        self._settle(failures.late_connecting(self._host))

    def _end(self, why: Failure) -> None:
        """Begin to end it. Callers are told now: the end of a child may take seconds."""
        self._why = self._why or why
        self._stop.set()
        if not self._settled.is_set():
            self._settle(self._why)
        self._mark_over()
        self._calls.settle(self._why)

    def _settle(self, failure: Failure) -> None:
        """Have done with connecting: this is what became of it."""
        self._failure = failure
        self._settled.set()
        self._mark_over()

    def _mark_over(self) -> None:
        if self._over_since is None:
            self._over_since = self._clock.monotonic()

    # --- the owner task ---------------------------------------------------------------------------------------------

    async def _own(self) -> None:
        failure: Failure | None = None
        try:
            if self._delay > 0:
                await self._clock.sleep(self._delay)
            failure = await self._live()
        except Exception as error:
            failure = self._failure_of(error)
        finally:
            failure = self._why or failure or failures.closed(self._host.label)
            self._settle(failure)
            self._calls.settle(failure)

    async def _live(self) -> Failure | None:
        async with contextlib.AsyncExitStack() as opened:
            limit = self._host.connect_timeout
            # Ending a child that is no host takes seconds more; nobody needs to wait for that.
            giving_up = asyncio.get_running_loop().call_later(limit, self._give_up)
            opened.callback(giving_up.cancel)
            async with asyncio.timeout(limit):
                client = await opened.enter_async_context(self._client())
                failure = await self._meet(client)
            giving_up.cancel()
            if self._failure is not None:  # it got ready in the moment when it was given up
                return self._failure
            if failure is not None:
                return failure
            await self._serve(client)
        return None

    async def _noticed(self, message: object) -> None:
        self._garbled = self._garbled or isinstance(message, Exception)

    async def _serve(self, client: Client) -> None:
        self._session = client.session
        async with asyncio.TaskGroup() as calls:
            beside = calls.create_task(self._beside(client))
            self._serving = calls
            self._settled.set()
            try:
                await self._stop.wait()
            finally:
                self._serving = None
                beside.cancel()
                self._calls.cancel()

    # --- one call ---------------------------------------------------------------------------------------------------

    async def _ask(self, request: Request[T]) -> T | Failure:
        session = self._session
        assert session is not None, "calls are made by a link that serves"
        try:
            return await self._send(session, request)
        except Exception as error:
            return self._failure_of(error)

    def _has_answered(self) -> None:
        """Note that the host answered a call."""
        self.answered = True
        self._heard()

    def _heard(self) -> None:
        """Note that the host answered: what it did before says nothing about its next silence."""
        self._garbled = False
        self._silent_since = None

    def _late(self, began: float, seconds: float) -> Failure:
        """What the caller is told whose call got no answer in time.

        A program that left this call and an earlier one without an answer is ended, so that the next call starts it
        again. Of calls made at the same time the first one counts; a service over HTTP is not ours to end.
        """
        loop = asyncio.get_running_loop()
        if self._silent_since is None:
            self._silent_since = loop.time()
        elif began >= self._silent_since and isinstance(self._host, StdioHost):
            loop.call_soon(self._lose, failures.silent(self._host))
        return failures.stray(self._host.label) if self._garbled else failures.late(self._host, seconds)

    def _failure_of(self, error: BaseException) -> Failure:
        """What an error of the library means, and what follows from it for the link."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        host = self._host
        match error:
            case MCPError():
                # What a host answers comes without its text, so one with a text was made on this side.
                return self._failure_of_error(error) if error.message else self._answered_error(error)
            case ValidationError():
                self._heard()
                return failures.invalid(host.label, "answered something that is no MCP message of its kind")
            case _ if self._session is not None:
                self._lose()
                return failures.broken(host)
            case TimeoutError() if self._garbled:
                return failures.stray(host.label)
            case TimeoutError():
                return failures.late_connecting(host)
            case httpx2.TimeoutException():
                return failures.late(host)
            case _:
                return meanings.of_connecting(host, error)

    def _answered_error(self, error: MCPError) -> Failure:
        """What an error means that the host answered: it is there, whatever the code."""
        self._heard()
        return self._why or meanings.of_code(self._host, error.code)

    def _failure_of_error(self, error: MCPError) -> Failure:
        """What an error means that the library or a transport made."""
        if error.code == SESSION_GONE:
            # No later call can use it either; soon, because the end tells the others something else than this one.
            asyncio.get_running_loop().call_soon(self._lose)
            return failures.gone(self._host)
        if error.code == CONNECTION_CLOSED:
            self._lose()
        else:
            self._heard()
        return self._why or meanings.of_status(self._host, error.code, error.data)


__all__ = ["Link"]
