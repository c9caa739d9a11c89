"""Whether the databases of the agents can be reached, which `/ready` tells. What turns do then is not known here.

Anybody may ask `/ready`, as often as they like and without a token, so each database is looked at by one at a time and
at most once a second. A look that takes long says nothing yet, since the database may only have much to do.
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

_LASTS: Final = 1.0  # seconds for which a look counts
_PATIENCE: Final = 0.5  # seconds that who asks waits for looks; programs that watch others wait a second, as a rule
_LONGEST: Final = 10.0  # seconds after which a database that has not answered is taken to be gone
_NONE: Final = "turn_0"  # no turn has this id

Place: TypeAlias = Path | PostgresAddress


@dataclass(slots=True, eq=False)
class _Known:
    """What is known of one database."""

    reached: bool = True
    at: float = float("-inf")
    looking: asyncio.Task[None] | None = None
    since: float = 0.0

    def now(self) -> bool:
        """Whether it can be reached, as far as is known."""
        return self.reached and (self.looking is None or time.monotonic() - self.since < _LONGEST)


class Databases:
    """The databases of agents that are open; while none is, the one where they will be.

    Args:
        agents: The agents.
        storage: Where agents keep turns, as far as that is known before one is open. A file is made when it is needed,
            so it is not looked at.
    """

    def __init__(self, agents: Agents, storage: Storage | None) -> None:
        self._agents = agents
        self._storage = storage
        self._known: dict[Place, _Known] = {}

    async def unreached(self) -> tuple[int, int]:
        """How many databases there are, and how many of them cannot be reached now."""
        asking = self._asking()
        self._known = {place: self._known.get(place) or _Known() for place in asking}
        looks = {look for place, ask in asking.items() if (look := self._look(self._known[place], ask)) is not None}
        if looks:
            await asyncio.wait(looks, timeout=_PATIENCE)
        found = [known.now() for known in self._known.values()]
        return len(found), found.count(False)

    def _asking(self) -> dict[Place, Callable[[], Awaitable[object]]]:
        """How each database is asked."""
        agents: Iterable[WorldAgent] = self._agents.opened()
        found: dict[Place, Callable[[], Awaitable[object]]] = {
            agent.storage.place: partial(agent.turn, _NONE) for agent in agents
        }
        if not found and self._storage is not None and self._storage.url is not None:
            address = PostgresAddress(self._storage.url)
            found[address] = partial(_opened, address)
        return found

    def _look(self, known: _Known, ask: Callable[[], Awaitable[object]]) -> asyncio.Task[None] | None:
        """The look that is under way, which may begin now; None where one was made a moment ago."""
        if known.looking is None and time.monotonic() - known.at >= _LASTS:
            known.since = time.monotonic()
            known.looking = self._agents.spawn(_looked(known, ask), context=Context())
        return known.looking


async def _looked(known: _Known, ask: Callable[[], Awaitable[object]]) -> None:
    try:
        await ask()
        known.reached = True
    except AgentClosed:
        pass  # others needed its place
    except WorldAgentError:
        known.reached = False
    finally:
        known.at, known.looking = time.monotonic(), None


async def _opened(place: PostgresAddress) -> None:
    """Connect, and make nothing."""
    await (await Database.open(place, schemas=())).aclose()


__all__ = ["Databases"]
