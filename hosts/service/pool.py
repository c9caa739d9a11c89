"""The agents of a server, one for each workspace. An agent is opened at the first call for its workspace.

While an agent with a society is open, its messages are delivered here.

An agent in use is never closed. When another workspace needs its place, the pool closes the idle agent that was last
used the longest ago. It prefers agents that do not hold a thread's role in memory.

`Databases` checks for `/ready` whether the databases of the agents can be reached.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import Context
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from ...agent import WorldAgent
from ...agent.runtime.inside import inside
from ...core.checks import check_limits
from ...core.errors import AgentClosed, WorldAgentError
from ...storage import Database, PostgresAddress, Storage
from .call import ANY, Grant, Refused
from .members import delivering

_log = logging.getLogger("worldagent.sidecar")

CHECK_VALID_SECONDS: Final = 1.0  # seconds for which the result of a check is valid
CHECK_WAIT_SECONDS: Final = 0.5  # seconds that a caller waits for checks; probes usually wait a second
CLOSE_SECONDS: Final = 1.0  # seconds that turns of members have to stop when their agent's place is needed
UNREACHABLE_SECONDS: Final = 10.0  # seconds after which a database that has not answered counts as unreachable
_NONE: Final = "turn_0"  # no turn has this id

Place: TypeAlias = Path | PostgresAddress
Turn: TypeAlias = tuple[str | None, object]  # the account of the calls that follow it, and its key

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a server does concurrently, and how long it waits for a slow reader.

    Attributes:
        turns: The most running turns in one workspace. What is queued, and reports, wait to begin more.
        workspaces: The most open agents.
        account_turns: The most running turns of one account in one workspace, in the same way.
        account_readers: The most calls of one account in one workspace that follow a turn or wait for changes over the
            web app. Calls without an account are not counted, here and for `account_turns`.
        account_refused: The most requests of one account in a minute that are refused for what they send. Its next
            ones are refused before they are read, until the minute is over.
        reader_lag: The most events that wait in memory for a client. Events of a recorded turn wait in the database.
        reader_stall: Seconds that a client can take to read one event.
        heartbeat: Seconds without an event after which a client that wants progress gets a heartbeat.

    Raises:
        InvalidArgument: A limit is not above 0.
    """

    turns: int = 1000
    workspaces: int = 64
    account_turns: int = 100
    account_readers: int = 100
    account_refused: int = 100
    reader_lag: int = 10_000
    reader_stall: float = 30.0
    heartbeat: float = 15.0

    def __post_init__(self) -> None:
        check_limits(self, *(each.name for each in fields(self)))


class Refusals:
    """Counts the requests of each account that were refused for what they send, within a minute.

    A refused request counts towards no other limit. Only grants of a single account are counted: a caller with another
    one is a person at the machine, or speaks for many accounts, which must not pay for one of them.

    Args:
        most: The most that are refused in a minute.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._minute = 0.0
        self._counts: Counter[Grant] = Counter()

    def check(self, grant: Grant) -> None:
        """Check before a request of this grant is read.

        Raises:
            Refused: Too many of its requests were refused within the minute.
        """
        if self._counts[grant] >= self._most and self._minute == time.monotonic() // 60:
            raise Refused(
                "too_many_turns",
                f"{self._most} requests of the account were refused within a minute, which is its limit",
                remedy="correct what the server refused, wait a minute, and call again",
            )

    def note(self, grant: Grant) -> None:
        """Count a request of this grant that was refused."""
        minute = time.monotonic() // 60
        if minute != self._minute:
            self._minute = minute
            self._counts.clear()
        if len(grant.accounts) == 1 and ANY not in grant.accounts:
            self._counts[grant] += 1


@dataclass(slots=True, eq=False, kw_only=True)
class _Place:
    """An agent that is opening, open or closing."""

    workspace: str
    opening: asyncio.Task[WorldAgent]
    delivery: AsyncExitStack
    users: int = 0
    turns: Counter[Turn] = field(default_factory=Counter)  # how many calls follow each turn
    used: float = field(default_factory=time.monotonic)
    roles_until: float = 0.0
    closing: asyncio.Task[None] | None = None

    @property
    def agent(self) -> WorldAgent | None:
        """The agent, once it is open."""
        task = self.opening
        return task.result() if task.done() and not task.cancelled() and task.exception() is None else None

    @property
    def begins(self) -> bool:
        """Whether the agent runs a turn that a message on one of its threads began."""
        return self.agent is not None and self.agent.is_open and inside(self.agent).pending.busy


class Agents:
    """Opens, keeps and closes the agents.

    Args:
        make: Makes the agent of a workspace, not yet open. It can return the same agent again after that was closed.
        limits: How many agents can be open, and how many turns each can run.

    Attributes:
        limits: The argument `limits`.
        refusals: Counts refused requests.
        draining: Whether it opens no agents any more.
    """

    def __init__(self, make: Callable[[str], WorldAgent], limits: Limits) -> None:
        self._make = make
        self.limits = limits
        self.refusals = Refusals(limits.account_refused)
        self._places: dict[str, _Place] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._readers: Counter[tuple[str, str]] = Counter()
        self.draining = False

    @property
    def open(self) -> int:
        """The number of agents."""
        return len(self._places)

    def opened(self) -> tuple[WorldAgent, ...]:
        """Return the agents that are open now, for inspection only. To work with one, enter `use`."""
        found = (place.agent for place in self._places.values() if place.closing is None)
        return tuple(agent for agent in found if agent is not None)

    @property
    def turns(self) -> int:
        """The number of running turns."""
        return sum(len(place.turns) for place in self._places.values())

    @asynccontextmanager
    async def use(self, workspace: str) -> AsyncGenerator[WorldAgent]:
        """Yield the agent of a workspace, and keep it open inside the block.

        Raises:
            Refused: The server is ending, or all places are in use.
            WorldAgentError: The agent cannot be made or opened. The next call tries again.
        """
        place = await self._place(workspace)
        place.users += 1
        try:
            yield await self._opened(place)
        finally:
            place.users -= 1
            place.used = time.monotonic()

    def too_many(self, workspace: str, turn: Turn) -> Refused | None:
        """Return the refusal of a turn if its workspace or its account has reached its limit.

        Any number of calls can follow a turn that is already counted.
        """
        turns, (account, _) = self._places[workspace].turns, turn
        if turn in turns:
            return None
        if len(turns) >= self.limits.turns:
            return _too_many(f"the workspace has {self.limits.turns} running turns")
        if account is not None and sum(each == account for each, _ in turns) >= self.limits.account_turns:
            return _too_many(f"the account has {self.limits.account_turns} running turns")
        return None

    @contextmanager
    def turn(self, workspace: str, turn: Turn) -> Generator[None]:
        """Count a turn inside the block. The agent must be in use.

        Args:
            workspace: The workspace of the turn.
            turn: The account that runs it, and a key. Calls with equal keys follow the same turn.

        Raises:
            Refused: The workspace or the account has reached its limit.
        """
        refusal = self.too_many(workspace, turn)
        if refusal is not None:
            raise refusal
        with _counted(self._places[workspace].turns, turn):
            yield

    def _room(self, workspace: str, account: str | None, key: object) -> AbstractContextManager[None] | None:
        """Count a turn that a message begins; None if its workspace or its account has reached its limit."""
        turn, place = (account, key), self._places.get(workspace)
        return None if place is None or self.too_many(workspace, turn) else _counted(place.turns, turn)

    @contextmanager
    def reader(self, workspace: str, account: str | None) -> Generator[None]:
        """Count a call inside the block that follows a turn or waits for changes.

        Raises:
            Refused: The account has reached its limit.
        """
        if account is None:
            yield
            return
        if self._readers[workspace, account] >= self.limits.account_readers:
            raise _too_many(f"the account has {self.limits.account_readers} calls that follow turns")
        with _counted(self._readers, (workspace, account)):
            yield

    def hold_role(self, workspace: str, seconds: float) -> None:
        """Record that the agent holds a role in memory for `seconds`. Closing the agent would lose the role."""
        place = self._places[workspace]
        place.roles_until = max(place.roles_until, time.monotonic() + seconds)

    def spawn(self, work: Coroutine[Any, Any, T], *, context: Context | None = None) -> asyncio.Task[T]:
        """Run a coroutine that can outlive its request. Cancelling the request does not cancel it.

        Args:
            work: The coroutine. A caller that awaits the task receives its error; otherwise the error is dropped.
            context: The context to run in; None means the request's context.
        """
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def refusal(self) -> Refused:
        """Return the refusal of a call that arrives while the server ends."""
        return Refused("draining", "the server is ending", remedy="call again, at the server that replaces it")

    async def drain(self, seconds: float) -> None:
        """Refuse new calls, stop the turns at their next step, and close the agents.

        Args:
            seconds: How long to wait. Turns that have not stopped by then are interrupted.
        """
        self.draining = True
        await asyncio.gather(*(self._drained(place, seconds) for place in list(self._places.values())))
        # Tasks of turns whose agents are closed end by themselves.
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)

    async def _place(self, workspace: str) -> _Place:
        while True:
            if self.draining:
                raise self.refusal()
            place = self._places.get(workspace) or self._new_place(workspace)
            if place is not None and place.closing is None:
                return place
            await self._free(workspace)

    def _new_place(self, workspace: str) -> _Place | None:
        if len(self._places) >= self.limits.workspaces:
            return None
        # Not in the context of the first request, because the agent serves all requests.
        delivery = AsyncExitStack()
        opening = self.spawn(self._open(workspace, delivery), context=Context())
        place = self._places[workspace] = _Place(workspace=workspace, opening=opening, delivery=delivery)
        # An agent that could not be opened is forgotten, so that the next call tries again.
        opening.add_done_callback(lambda _: self._forget(place) if place.agent is None else None)
        return place

    async def _free(self, workspace: str) -> None:
        """Wait until this workspace's own place or any other place is free."""
        closing = [place.closing for place in self._places.values() if place.closing is not None]
        own = self._places.get(workspace)
        if own is not None and own.closing is not None:
            closing = [own.closing]
        if not closing:
            idle = [place for place in self._places.values() if not place.users and not place.begins]
            if not idle:
                raise Refused(
                    "too_many_turns",
                    f"all {self.limits.workspaces} agents of the server are in use",
                    remedy="wait until an agent is idle, and call again",
                )
            now = time.monotonic()
            oldest = min(idle, key=lambda place: (place.roles_until > now, place.used))
            oldest.closing = self.spawn(self._close(oldest), context=Context())
            closing = [oldest.closing]
        await asyncio.wait(closing, return_when=asyncio.FIRST_COMPLETED)

    async def _open(self, workspace: str, delivery: AsyncExitStack) -> WorldAgent:
        agent = self._make(workspace)
        inside(agent).pending.room = partial(self._room, workspace)
        await agent.start()
        await delivery.enter_async_context(delivering(agent))
        return agent

    async def _opened(self, place: _Place) -> WorldAgent:
        await asyncio.wait({place.opening})  # unlike `await`, cancelling one waiter does not cancel the task for others
        if place.opening.cancelled():
            raise self.refusal()
        return place.opening.result()

    def _forget(self, place: _Place) -> None:
        if self._places.get(place.workspace) is place:
            del self._places[place.workspace]

    async def _close(self, place: _Place) -> None:
        await asyncio.wait({place.opening})
        # Drained, because members' turns can run while no call uses the agent: the next gateway continues them.
        await self._end(place, "closed", lambda agent: agent.drain(CLOSE_SECONDS))

    async def _drained(self, place: _Place, seconds: float) -> None:
        if place.closing is not None:
            await asyncio.wait({place.closing}, timeout=seconds)
            return
        await asyncio.wait({place.opening}, timeout=seconds)
        place.opening.cancel()
        await self._end(place, "drained", lambda agent: agent.drain(seconds))

    async def _end(self, place: _Place, what: str, end: Callable[[WorldAgent], Awaitable[None]]) -> None:
        try:
            if place.agent is not None:
                await place.delivery.aclose()  # first, so that no member's turn is refused by an agent that ends
                await end(place.agent)
        except Exception as error:  # of any type: an agent has custom parts, and other workspaces must not fail
            _log.error("an agent could not be %s: %s", what, type(error).__name__)
        finally:
            self._forget(place)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark it as retrieved, so that asyncio does not log it if no caller awaits the task


@contextmanager
def _counted(counter: Counter[T], key: T) -> Generator[None]:
    counter[key] += 1
    try:
        yield
    finally:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]


def _too_many(what: str) -> Refused:
    return Refused("too_many_turns", f"{what}, which is its limit", remedy="wait until some have ended, and call again")


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

    Every client can call `/ready`, at any rate and without a token. So each database has one check at a time, and at
    most one a second. A slow check does not count as a failure at first, since the database can be busy.

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
