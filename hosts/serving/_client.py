"""The client of one request over HTTP: whether it has gone, and how far it has read. No transport is known here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

from mcp.server.context import ServerRequestContext

STATE: Final = "worldagent.client"
"""Under which key of the request's state it stands."""

_AHEAD: Final = 8
"""Notices of a request that may be on their way. The library keeps 16, and at one more a session stands still."""


class ClientGone:
    """Whether the client of one request has gone before it had the answer."""

    def __init__(self) -> None:
        self._gone = False
        self._calls: list[Callable[[], object]] = []

    def is_set(self) -> bool:
        """Whether it has gone."""
        return self._gone

    def set(self) -> None:
        """Say that it has gone."""
        if not self._gone:
            self._gone = True
            for call in tuple(self._calls):
                call()

    @contextmanager
    def calling(self, call: Callable[[], object]) -> Generator[None, None, None]:
        """Have `call` called when it goes; at once where it has gone."""
        self._calls.append(call)
        if self.is_set():
            call()
        try:
            yield
        finally:
            self._calls.remove(call)


class Pace:
    """Lets a handler be as fast as its client reads, and no other request of the session slower."""

    def __init__(self) -> None:
        self._given = 0
        self._taken = 0
        self._moved = asyncio.Event()

    async def give(self) -> None:
        """Wait until a notice may be sent, and count it."""
        while self._given - self._taken >= _AHEAD:
            self._moved.clear()
            await self._moved.wait()
        self._given += 1

    def take(self) -> None:
        """Count a message that the connection has taken."""
        self._taken = min(self._taken + 1, self._given)  # there are others than notices
        self._moved.set()


class Client:
    """The client of one request.

    Attributes:
        gone: Whether it has gone.
        pace: How far it has read.
    """

    def __init__(self) -> None:
        self.gone = ClientGone()
        self.pace = Pace()


def client_of(ctx: ServerRequestContext[Any, Any]) -> Client | None:
    """The client of the request at hand; None where no transport tells of it, as over stdio."""
    scope = getattr(ctx.request, "scope", None)
    found = (scope.get("state") or {}).get(STATE) if isinstance(scope, dict) else None
    return found if isinstance(found, Client) else None


__all__ = ["STATE", "Client", "ClientGone", "client_of"]
