"""The objects that the maintenance of a database works with."""

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
    """A database opened with all tables, and its stores.

    Attributes:
        storage: The storage place.
        database: The database.
        leases: The owners of threads.
        turns: The records of turns.
        attachments: Images and files.
        branches: The branches of threads.
        log: The conversation log.
        heads: The newest message of each conversation; None opens the checkpoints when one is needed.
        clock: Source of time.
        wait: How many seconds a cancelled turn can take to end.
        removed: Is called for each removed thread, with its id and that of its newest turn.
        flush: Waits until the traces of everything so far are written.
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
        """Create the parts for an agent, or for a command; `limit` is the maximum size of an attachment in bytes."""
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
        """Return the position of a thread: its newest message and turn.

        Args:
            thread: The thread's key.
        """
        if self.heads is not None:
            return await self.heads.position(thread)
        from ...graphs.heads import Heads  # it loads langgraph

        return await (await Heads.open(self.database, self.branches)).position(thread)

    @asynccontextmanager
    async def traces(self) -> AsyncGenerator[TraceIndex]:
        """Yield the traces of the home, including everything so far."""
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
