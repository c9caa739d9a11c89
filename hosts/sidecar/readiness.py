"""Checks for `/ready` whether the databases of the agents can be reached.

Every client can call `/ready`, at any rate and without a token. So each database has one check at a time, and at most
one a second. A slow check does not count as a failure at first, since the database can be busy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from ...agent import WorldAgent
from ...core.errors import AgentClosed, WorldAgentError
from ...storage import Database, PostgresAddress, Storage
from .pool import Agents

CHECK_VALID_SECONDS: Final = 1.0  # seconds for which the result of a check is valid
CHECK_WAIT_SECONDS: Final = 0.5  # seconds that a caller waits for checks; probes usually wait a second
UNREACHABLE_SECONDS: Final = 10.0  # seconds after which a database that has not answered counts as unreachable
_NONE: Final = "turn_0"  # no turn has this id

Place: TypeAlias = Path | PostgresAddress


@dataclass(slots=True, eq=False)
class _Known:
    """The last known state of one database."""

    reached: bool = True
    at: float = float("-inf")
    check: asyncio.Task[None] | None = None
    since: float = 0.0

    def now(self) -> bool:
        """Whether it can be reached, by the last check."""
        return self.reached and (self.check is None or time.monotonic() - self.since < UNREACHABLE_SECONDS)


class Databases:
    """The databases of the open agents. While no agent is open, the configured database.

    Args:
        agents: The agents.
        storage: The configured storage, used while no agent is open. A file is created when it is needed, so it is not
            checked.
    """

    def __init__(self, agents: Agents, storage: Storage | None) -> None:
        self._agents = agents
        self._storage = storage
        self._known: dict[Place, _Known] = {}

    async def unreached(self) -> tuple[int, int]:
        """Return the number of databases, and how many of them cannot be reached now."""
        asking = self._checks()
        self._known = {place: self._known.get(place) or _Known() for place in asking}
        looks = {look for place, ask in asking.items() if (look := self._check(self._known[place], ask)) is not None}
        if looks:
            await asyncio.wait(looks, timeout=CHECK_WAIT_SECONDS)
        found = [known.now() for known in self._known.values()]
        return len(found), found.count(False)

    def _checks(self) -> dict[Place, Callable[[], Awaitable[object]]]:
        """Return a check for each database."""
        agents: Iterable[WorldAgent] = self._agents.opened()
        found: dict[Place, Callable[[], Awaitable[object]]] = {
            agent.storage.place: partial(agent.turn, _NONE) for agent in agents
        }
        if not found and self._storage is not None and self._storage.url is not None:
            address = PostgresAddress(self._storage.url)
            found[address] = partial(_opened, address)
        return found

    def _check(self, known: _Known, ask: Callable[[], Awaitable[object]]) -> asyncio.Task[None] | None:
        """Return the running check, after starting it if needed; None if a recent result is still valid."""
        if known.check is None and time.monotonic() - known.at >= CHECK_VALID_SECONDS:
            known.since = time.monotonic()
            known.check = self._agents.spawn(_run_check(known, ask), context=Context())
        return known.check


async def _run_check(known: _Known, ask: Callable[[], Awaitable[object]]) -> None:
    try:
        await ask()
        known.reached = True
    except AgentClosed:
        pass  # another workspace needed the agent's place; this says nothing about the database
    except WorldAgentError:
        known.reached = False
    finally:
        known.at, known.check = time.monotonic(), None


async def _opened(place: PostgresAddress) -> None:
    """Connect without creating tables."""
    await (await Database.open(place, schemas=())).aclose()


__all__ = ["Databases"]
