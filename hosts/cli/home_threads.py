"""The threads of a home, out of its database, without an agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ...agent.threads import SCHEMAS, Branching, ThreadRegister
from ...harness.journal import SqlJournal
from ...memory import ConversationLog, TurnRegister
from ...memory.branches import Branches
from ...memory.titles import ThreadSearch, ThreadTitles
from ...memory.turn_log import TurnLog
from ...storage import Database, Leases, Storage


@dataclass(frozen=True)
class OpenThreads:
    """A home's threads.

    Attributes:
        register: Where they stand.
        log: What was said on them.
        leases: Who owns them.
        branches: Which were branched off.
        database: The database.
    """

    register: ThreadRegister
    log: ConversationLog
    leases: Leases
    branches: Branches
    database: Database

    async def branching(self) -> Branching:
        """What branches threads off."""
        from ...graphs.heads import Heads  # its folder loads langgraph

        return Branching(self.leases, self.branches, await Heads.open(self.database, self.branches), self.log)


@asynccontextmanager
async def open_threads(storage: Storage) -> AsyncGenerator[OpenThreads | None]:
    """Open the threads of a home, without an agent; None where it has no database, and none is made.

    Raises:
        InvalidArgument: The home is a file.
        StorageUnavailable, StorageInvalid, SchemaTooNew: The database cannot be used.
    """
    if not storage.begun():
        yield None
        return
    database = await Database.open(storage.place, schemas=SCHEMAS)
    try:
        turns, leases, branches = TurnRegister(database), Leases(database, storage.locks), Branches(database)
        register = ThreadRegister(
            turns,
            SqlJournal(database),
            leases,
            branches,
            TurnLog(database),
            ThreadTitles(database),
            ThreadSearch(database),
        )
        yield OpenThreads(register, ConversationLog(database), leases, branches, database)
    finally:
        await database.aclose()
