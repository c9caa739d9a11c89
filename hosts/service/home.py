"""The threads of a home, read from its database without an agent."""

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
        register: Their states.
        log: Their messages.
        leases: Their owners.
        branches: The threads that were branched off.
        database: The database.
    """

    register: ThreadRegister
    log: ConversationLog
    leases: Leases
    branches: Branches
    database: Database

    async def branching(self) -> Branching:
        """The object that branches threads off."""
        from ...graphs.heads import Heads  # its folder loads langgraph

        return Branching(self.leases, self.branches, await Heads.open(self.database, self.branches), self.log)


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
