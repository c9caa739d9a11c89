"""A workspace of a home, read and changed in its database without an agent, and so without a model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeAlias, Union

from ...agent.memory import WorkspaceMemory
from ...agent.runtime.pending import PendingMessage, in_order, new_order, row_of, shown
from ...agent.stores import Stores
from ...agent.threads import Branching, ThreadFilters, ThreadRegister, ThreadState, ThreadStatus
from ...agent.threads.handing import Shown, check_handing, hand
from ...core import Clock, Scope, check_id
from ...core.pauses import Pause
from ...memory import Message, thread_key
from ...memory.examples import Feedback
from ...memory.workers import WorkerRow, worker_lease
from ...storage import Storage

if TYPE_CHECKING:
    from ...agent import Thread, WorldAgent
    from ...members.society import Society


@dataclass(frozen=True)
class HomeWorkspace:
    """One workspace of a home. Operations that need no model take it in place of an open agent.

    Attributes:
        stores: The stores of the home.
        workspace: The workspace.
    """

    stores: Stores
    workspace: str

    @property
    def clock(self) -> Clock:
        """The source of time."""
        return self.stores.clock

    @property
    def memory(self) -> WorkspaceMemory:
        """The memory entries of the workspace."""
        return WorkspaceMemory(self.stores.entries, self.workspace)

    @cached_property
    def society(self) -> Society:
        """The members of the workspace. Its policy and templates are not known here."""
        from ...agent import Settings
        from ...members.data.workspace import WorkspaceConfig
        from ...members.mail.wakeups import wakeups_of
        from ...members.society import Society

        wakeups = wakeups_of(self.stores.database, Settings().nats_url)
        config, threads = WorkspaceConfig(id=self.workspace, owner="user"), ThreadRegister(self.stores)
        return Society(config, self.stores.database, self.clock, wakeups=wakeups, threads=threads)

    async def aclose(self) -> None:
        """Close what it has opened, without its stores."""
        if "society" in vars(self):
            await self.society.aclose()

    def thread(self, thread_id: str, *, account: str | None = None, channel: str | None = None) -> HomeThread:
        """As `WorldAgent.thread`."""
        thread = check_id("thread", thread_id)
        return HomeThread(self.stores, Scope(workspace=self.workspace, account=account, channel=channel, thread=thread))

    async def threads(self, **filters: Any) -> tuple[ThreadState, ...]:
        """As `WorldAgent.threads`, with the same arguments."""
        return await ThreadRegister(self.stores).list(self.workspace, ThreadFilters.of(**filters))

    async def with_pauses(self) -> tuple[Sequence[ThreadState], Sequence[ThreadStatus]]:
        """As `ThreadRegister.with_pauses`."""
        return await ThreadRegister(self.stores).with_pauses(self.workspace)

    async def turn(self, turn_id: str) -> ThreadState | None:
        """As `WorldAgent.turn`."""
        return await ThreadRegister(self.stores).of_turn(self.workspace, turn_id)


@dataclass(frozen=True)
class HomeThread:
    """One thread of a home. Its methods do what those of `agent.Thread` do.

    Attributes:
        stores: The stores of the home.
        scope: Workspace, account, channel and thread.
    """

    stores: Stores
    scope: Scope

    async def state(self) -> ThreadState | None:
        """As `Thread.state`."""
        return await ThreadRegister(self.stores).find(self.scope)

    async def pauses(self) -> tuple[Pause, ...]:
        """As `Thread.pauses`."""
        return await ThreadRegister(self.stores).pauses(self.scope)

    async def answered(self) -> frozenset[str]:
        """The ids of the pauses of its turn that have an answer."""
        return await ThreadRegister(self.stores).answered(self.scope)

    async def cancel(self) -> bool:
        """As `Thread.cancel`."""
        return await ThreadRegister(self.stores).cancel(self.scope)

    async def rename(self, title: str | None) -> str | None:
        """As `Thread.rename`."""
        return await ThreadRegister(self.stores).rename(self.scope, title)

    async def archive(self, archived: bool = True) -> None:
        """As `Thread.archive`."""
        await ThreadRegister(self.stores).archive(self.scope, archived)

    async def hand_over(self, member: str, *, messages: Shown = "none") -> None:
        """As `Thread.hand_over`. The next process that opens begins what waits."""
        from ...members.life.members import check_speaks

        check_handing(self.scope, messages)
        workspace = self.scope.workspace
        async with aclosing(HomeWorkspace(self.stores, workspace)) as home:
            check_speaks(await home.society.members.member(workspace, member))
        await hand(self.stores, self.scope, member, messages)

    async def hand_back(self) -> None:
        """As `Thread.hand_back`. The next process that opens begins what waits."""
        await hand(self.stores, self.scope, None)

    async def history(self, *, before: str | None = None, limit: int = 50) -> tuple[Message, ...]:
        """As `Thread.history`."""
        return await self.stores.log.history(await self._head(), before=before, limit=limit)

    async def queued(self) -> tuple[PendingMessage, ...]:
        """As `Thread.queued`. A message that was queued under a role waits for it here: a home has no such role."""
        rows = await self.stores.inbox.unread(thread_key(self.scope))
        return tuple(shown(row, has_role=row.role is None) for row in in_order(rows))

    async def pending(self, message_id: str) -> PendingMessage:
        """As `Thread.pending`."""
        row = await row_of(self.stores.inbox, self.scope, message_id)
        return shown(row, has_role=row.role is None)

    async def withdraw(self, message_id: str) -> bool:
        """As `Thread.withdraw`. The next process that opens begins what waited behind it."""
        return await self.stores.inbox.withdraw(message_id, thread_key(self.scope))

    async def reorder(self, message_ids: Sequence[str]) -> None:
        """As `Thread.reorder`."""
        await self.stores.inbox.reorder(thread_key(self.scope), new_order(message_ids))

    async def feedback(self, turn_id: str, feedback: Feedback, *, note: str | None = None) -> None:
        """As `Thread.feedback`."""
        from ...members.life.outcomes import Outcomes

        await self.stores.examples.rate(thread_key(self.scope), turn_id, feedback, note)
        outcomes = Outcomes(self.stores.database, self.scope.workspace, self.stores.clock)
        await outcomes.rate_turn(turn_id, feedback)

    async def fork(self, *, at: str | None = None, to: str | None = None) -> Self:
        """As `Thread.fork`."""
        return replace(self, scope=await Branching(self.stores).fork(self.scope, at=at, to=to))

    async def _head(self) -> str | None:
        """The id of the newest message."""
        key, state = thread_key(self.scope), await self.state()
        if state is not None and state.status == "forked":  # it has no turn
            branch = await self.stores.branches.get(key)
            return None if branch is None else branch.head
        newest = await self.stores.log.of_turn(key, state.turn_id, limit=1) if state is not None else ()
        if newest:
            return newest[0].id
        # A turn that has failed early has no message.
        return (await self.stores.position(key)).head


OneThread: TypeAlias = Union["Thread", HomeThread]
Workspace: TypeAlias = Union["WorldAgent", HomeWorkspace]
"""What operations are about: an open agent or, for those that need no model, a workspace of a home."""


def clock_of(workspace: Workspace) -> Clock:
    """The source of time of what an operation is about."""
    from ...agent.runtime.inside import inside

    return workspace.clock if isinstance(workspace, HomeWorkspace) else inside(workspace).clock


def stores_of(workspace: Workspace) -> Stores:
    """The stores of what an operation is about."""
    from ...agent.runtime.inside import inside

    return workspace.stores if isinstance(workspace, HomeWorkspace) else inside(workspace).stores


@asynccontextmanager
async def open_home(storage: Storage, workspace: str) -> AsyncGenerator[HomeWorkspace]:
    """Open a workspace of a home without an agent. A database that is missing is made.

    Raises:
        InvalidArgument: The id of the workspace is invalid, or the home is a file.
        StorageUnavailable, StorageInvalid, SchemaTooNew: The database cannot be used.
    """
    check_id("workspace", workspace)
    async with aclosing(await Stores.open(storage)) as stores, aclosing(HomeWorkspace(stores, workspace)) as home:
        yield home


@asynccontextmanager
async def open_threads(storage: Storage, workspace: str) -> AsyncGenerator[HomeWorkspace | None]:
    """As `open_home`, but yields None if the home has no database; none is made."""
    check_id("workspace", workspace)
    if not storage.begun():
        yield None
        return
    async with open_home(storage, workspace) as home:
        yield home


async def running_workers(storage: Storage) -> Sequence[tuple[WorkerRow, bool]]:
    """The workers of submitted turns, and whether each is alive. One that has died is listed until it is taken over.

    Raises:
        InvalidArgument, StorageUnavailable, StorageInvalid, SchemaTooNew: As for `open_threads`.
    """
    if not storage.begun():
        return ()
    async with aclosing(await Stores.open(storage)) as stores:
        rows = await stores.workers.list()
        alive = await stores.leases.owned(worker_lease(row.workspace, row.id) for row in rows)
        return [(row, worker_lease(row.workspace, row.id) in alive) for row in rows]


async def running_turns(storage: Storage) -> Sequence[tuple[str, ThreadState]]:
    """The running and interrupted turns of all workspaces of a home, each with its workspace.

    Raises:
        InvalidArgument, StorageUnavailable, StorageInvalid, SchemaTooNew: As for `open_threads`.
    """
    if not storage.begun():
        return ()
    async with aclosing(await Stores.open(storage)) as stores:
        return await ThreadRegister(stores).running()
