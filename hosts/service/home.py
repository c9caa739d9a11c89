"""The threads of a home, read from its database without an agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Self

from ...agent.stores import Stores
from ...agent.threads import Branching, ThreadFilters, ThreadRegister, ThreadState, ThreadStatus
from ...core import Scope, check_id
from ...core.pauses import Pause
from ...memory import Message, thread_key
from ...storage import Storage

MAX_SEARCHED_THREADS: Final = 1000  # threads of one status that are searched for pauses
STATUSES_WITH_PAUSES: Final[tuple[ThreadStatus, ...]] = ("paused", "running", "stopped", "failed", "cut_off")


@dataclass(frozen=True)
class OpenThreads:
    """A home's threads.

    Attributes:
        stores: The stores of the database.
    """

    stores: Stores

    @property
    def register(self) -> ThreadRegister:
        """The states of the threads."""
        return ThreadRegister(self.stores)

    def of(self, workspace: str) -> HomeThreads:
        """The threads of one workspace.

        Raises:
            InvalidArgument: The id is invalid.
        """
        return HomeThreads(self, check_id("workspace", workspace))


@dataclass(frozen=True)
class HomeThreads:
    """The threads of one workspace of a home.

    Attributes:
        home: The threads of all workspaces.
        workspace: The workspace.
    """

    home: OpenThreads
    workspace: str

    def thread(self, thread_id: str, *, account: str | None = None, channel: str | None = None) -> HomeThread:
        """As `WorldAgent.thread`."""
        thread = check_id("thread", thread_id)
        return HomeThread(self.home, Scope(workspace=self.workspace, account=account, channel=channel, thread=thread))

    async def threads(
        self,
        *,
        limit: int = 100,
        status: ThreadStatus | None = None,
        account: str | None = None,
        channel: str | None = None,
        query: str | None = None,
        before: datetime | str | None = None,
    ) -> tuple[ThreadState, ...]:
        """As `WorldAgent.threads`."""
        wanted = ThreadFilters.of(
            limit=limit, status=status, account=account, channel=channel, query=query, before=before
        )
        return await self.home.register.list(self.workspace, wanted)

    async def with_pauses(self) -> tuple[list[ThreadState], list[ThreadStatus]]:
        """The threads whose turns can wait for a person.

        Returns:
            Their states, and the statuses of which only the newest `MAX_SEARCHED_THREADS` threads were searched.
        """
        found: dict[str, ThreadState] = {}  # a thread can change its status in between
        cut: list[ThreadStatus] = []
        for status in STATUSES_WITH_PAUSES:
            listed = await self.threads(limit=MAX_SEARCHED_THREADS, status=status)
            found |= {state.thread: state for state in listed}
            if len(listed) == MAX_SEARCHED_THREADS:
                cut.append(status)
        return list(found.values()), cut

    async def turn(self, turn_id: str) -> ThreadState | None:
        """As `WorldAgent.turn`."""
        return await self.home.register.of_turn(self.workspace, turn_id)


@dataclass(frozen=True)
class HomeThread:
    """One thread of a home. Its methods do what those of `agent.Thread` do.

    Attributes:
        home: The threads of all workspaces.
        scope: Workspace, account, channel and thread.
    """

    home: OpenThreads
    scope: Scope

    async def state(self) -> ThreadState | None:
        """As `Thread.state`."""
        return await self.home.register.find(self.scope)

    async def pauses(self) -> tuple[Pause, ...]:
        """As `Thread.pauses`."""
        return await self.home.register.pauses(self.scope)

    async def answered(self) -> frozenset[str]:
        """The ids of the pauses of its turn that have an answer."""
        return await self.home.register.answered(self.scope)

    async def cancel(self) -> bool:
        """As `Thread.cancel`."""
        return await self.home.register.cancel(self.scope)

    async def rename(self, title: str | None) -> str | None:
        """As `Thread.rename`."""
        return await self.home.register.rename(self.scope, title)

    async def history(self, *, before: str | None = None, limit: int = 50) -> tuple[Message, ...]:
        """As `Thread.history`."""
        return await self.home.stores.log.history(await self._head(), before=before, limit=limit)

    async def fork(self, *, at: str | None = None, to: str | None = None) -> Self:
        """As `Thread.fork`."""
        return replace(self, scope=await Branching(self.home.stores).fork(self.scope, at=at, to=to))

    async def _head(self) -> str | None:
        """The id of the newest message."""
        key, state = thread_key(self.scope), await self.state()
        if state is not None and state.status == "forked":  # it has no turn
            branch = await self.home.stores.branches.get(key)
            return None if branch is None else branch.head
        newest = await self.home.stores.log.of_turn(key, state.turn_id, limit=1) if state is not None else ()
        if newest:
            return newest[0].id
        # A turn that has failed early has no message.
        return (await self.home.stores.position(key)).head


@asynccontextmanager
async def open_threads(storage: Storage) -> AsyncGenerator[OpenThreads | None]:
    """Open the threads of a home without an agent. Yields None if the home has no database; none is made.

    Raises:
        InvalidArgument: The home is a file.
        StorageUnavailable, StorageInvalid, SchemaTooNew: The database cannot be used.
    """
    if not storage.begun():
        yield None
        return
    async with aclosing(await Stores.open(storage)) as stores:
        yield OpenThreads(stores)
