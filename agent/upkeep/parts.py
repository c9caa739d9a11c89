"""What the upkeep of a database works with: values only."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...core import Clock, SystemClock
from ...harness.trace.index import TraceIndex
from ...memory import ConversationLog, TurnRegister
from ...memory.attachments import LIMIT, Attachments
from ...memory.branches import Branches
from ...storage import Database, Leases, Storage
from .checkpoints import CheckpointRows

if TYPE_CHECKING:
    from ...graphs.heads import Heads, Position


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepParts:
    """A database that was opened with all tables, and what belongs to it.

    Attributes:
        storage: Where it is.
        database: The database.
        leases: Who owns threads.
        turns: What became of their turns.
        attachments: Images and files.
        branches: The rows of branches.
        log: What was said.
        heads: Where conversations end; None opens the checkpoints when that is asked.
        clock: Tells the time.
        wait: How many seconds a turn that is cancelled may take to end.
        removed: Is told of each thread that is removed, by its id and that of its newest turn.
        flush: Waits until the traces of what happened so far are written.
    """

    storage: Storage
    database: Database
    leases: Leases
    turns: TurnRegister
    attachments: Attachments
    branches: Branches
    log: ConversationLog
    heads: Heads | None = None
    clock: Clock = field(default_factory=SystemClock)
    wait: float = 30.0
    removed: Callable[[str, str], None] = lambda thread, turn: None
    flush: Callable[[], Awaitable[None]] | None = None

    @staticmethod
    def of(storage: Storage, database: Database, clock: Clock | None = None, *, limit: int = LIMIT) -> UpkeepParts:
        """What an agent, or a command without one, works with; `limit` is how many bytes an attachment may have."""
        clock = clock or SystemClock()
        return UpkeepParts(
            storage=storage,
            database=database,
            leases=Leases(database, storage.locks),
            turns=TurnRegister(database, clock),
            attachments=Attachments(storage.attachments, database, limit=limit),
            branches=Branches(database, clock),
            log=ConversationLog(database, clock),
            clock=clock,
        )

    async def position(self, thread: str) -> Position:
        """Where a thread stands.

        Args:
            thread: Its key.
        """
        if self.heads is not None:
            return await self.heads.position(thread)
        from ...graphs.heads import Heads  # it loads langgraph

        return await (await Heads.open(self.database, self.branches)).position(thread)

    @asynccontextmanager
    async def traces(self) -> AsyncGenerator[TraceIndex]:
        """The traces of the home, with all that happened so far in them."""
        if self.flush is not None:
            await self.flush()
        index = TraceIndex(self.storage.traces)
        try:
            yield index
        finally:
            await index.aclose()

    @property
    def checkpoints(self) -> CheckpointRows:
        """The tables of checkpoints."""
        return CheckpointRows.at(self.storage.place)


__all__ = ["UpkeepParts"]
