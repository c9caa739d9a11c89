"""The stores of a home's database, as turns and maintenance share them, and the rows of its checkpoints.

Opening them needs no engine and no model, and loads neither dspy nor langgraph.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from ..core import Clock, SystemClock
from ..harness.journal import JOURNAL, Journal
from ..harness.limits import USAGE
from ..harness.places import PLACES, Places
from ..harness.trace.index import TraceIndex
from ..memory import CONVERSATION, TURNS, ConversationLog, TurnRegister
from ..memory.attachments import LIMIT, Attachments
from ..memory.attachments.objects import pieces_of
from ..memory.branches import Branches
from ..memory.conversation import KeptMessages
from ..memory.entries import ENTRIES, Entries
from ..memory.examples import EXAMPLES, Examples
from ..memory.inbox import Inbox
from ..memory.members import SOCIETY
from ..memory.owned import OWNED
from ..memory.reports import BackgroundTasks
from ..memory.schedules import SCHEDULES, ScheduleRows
from ..memory.titles import ThreadTitles
from ..memory.turn_log import EVENTS, TurnLog
from ..memory.workers import WORKERS, WorkerRows
from ..storage import EPOCHS, Database, Leases, PostgresAddress, Schema, Storage, Transaction

if TYPE_CHECKING:
    from ..graphs.checkpoints.saver import Heads, Position

SCHEMAS: Final[tuple[Schema, ...]] = (
    EPOCHS,
    CONVERSATION,
    TURNS,
    JOURNAL,
    USAGE,
    EVENTS,
    EXAMPLES,
    SCHEDULES,
    ENTRIES,
    WORKERS,
    SOCIETY,
    OWNED,
    PLACES,
)
"""Every opening of the database uses all of them. Code that copies, checks or scans it takes its tables from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """A database opened with all tables, and its stores.

    Attributes:
        storage: The storage place.
        database: The database.
        clock: Source of time.
        leases: The owners of threads.
        turns: The records of turns.
        journal: The calls and pauses of turns.
        places: The marks of what functions write.
        events: The events of recorded turns.
        branches: The branches of threads.
        log: The conversation log.
        kept: The marks of messages that stay word for word.
        inbox: The messages that came beside turns.
        background: The background tasks of conversations.
        titles: The titles of threads.
        examples: Model steps that were agreed to, and feedback on turns.
        schedules: Schedules and their runs.
        workers: The workers of submitted turns.
        entries: Memory entries.
        attachments: Images and files.
        heads: The newest message of each conversation; None opens the checkpoints when one is needed.
        wait: How many seconds a cancelled turn can take to end.
        removed: Is called for each removed thread, with its id and that of its newest turn.
        flush: Waits until the traces of everything so far are written.
    """

    storage: Storage
    database: Database
    clock: Clock
    leases: Leases
    turns: TurnRegister
    journal: Journal
    places: Places
    events: TurnLog
    branches: Branches
    log: ConversationLog
    kept: KeptMessages
    inbox: Inbox
    background: BackgroundTasks
    titles: ThreadTitles
    examples: Examples
    schedules: ScheduleRows
    workers: WorkerRows
    entries: Entries
    attachments: Attachments
    heads: Heads | None = None
    wait: float = 30.0
    removed: Callable[[str, str], None] = lambda thread, turn: None
    flush: Callable[[], Awaitable[None]] | None = None

    @staticmethod
    async def open(
        storage: Storage,
        clock: Clock | None = None,
        *,
        limit: int = LIMIT,
        wait: float = 30.0,
        schemas: Sequence[Schema] = (),
    ) -> Stores:
        """Open the database of a home, for an agent or for a command. Use `aclosing`, or call `aclose` at the end.

        Args:
            storage: The storage place.
            clock: Source of time.
            limit: The maximum size of an attachment in bytes.
            wait: How many seconds a cancelled turn can take to end.
            schemas: The tables of capabilities.

        Raises:
            StorageUnavailable, StorageInvalid, SchemaTooNew: The database cannot be used.
            InvalidArgument, MissingExtra: There is no filesystem for the url of the attachments.
        """
        clock, pieces = clock or SystemClock(), await asyncio.to_thread(pieces_of, storage)
        database = await Database.open(storage.place, schemas=(*SCHEMAS, *schemas))
        inbox = Inbox(database, clock)
        return Stores(
            storage=storage,
            database=database,
            clock=clock,
            leases=Leases(database, storage.locks, used=Branches.is_taken),
            turns=TurnRegister(database, clock),
            journal=Journal(database),
            places=Places(database),
            events=TurnLog(database, clock),
            branches=Branches(database, clock),
            log=ConversationLog(database, clock),
            kept=KeptMessages(database, clock),
            inbox=inbox,
            background=BackgroundTasks(database, inbox),
            titles=ThreadTitles(database),
            examples=Examples(database),
            schedules=ScheduleRows(database),
            workers=WorkerRows(database),
            attachments=Attachments(pieces, database, limit=limit),
            entries=Entries(database, clock),
            wait=wait,
        )

    async def aclose(self) -> None:
        """Close the database."""
        await self.database.aclose()

    async def find_heads(self) -> Heads:
        """Return the newest message of each conversation; the first call of a command opens the checkpoints."""
        if self.heads is not None:
            return self.heads
        from ..graphs.checkpoints.saver import Heads  # it loads langgraph

        return await Heads.open(self.database, self.branches)

    async def position(self, thread: str) -> Position:
        """Return the position of a thread: its newest message and turn.

        Args:
            thread: The thread's key.
        """
        return await (await self.find_heads()).position(thread)

    @asynccontextmanager
    async def traces(self) -> AsyncGenerator[TraceIndex]:
        """Yield the traces of the home, including everything so far."""
        if self.flush is not None:
            await self.flush()
        async with aclosing(TraceIndex(self.storage.traces)) as index:
            yield index

    @property
    def checkpoints(self) -> CheckpointRows:
        """The tables of checkpoints."""
        return CheckpointRows(isinstance(self.storage.place, PostgresAddress))


_MAIN: Final = "SELECT checkpoint_id FROM checkpoints WHERE thread_id=? AND checkpoint_ns=''"
_BEYOND: Final = f"{_MAIN} ORDER BY checkpoint_id DESC LIMIT 1 OFFSET ?"
_OLD: Final = f"""{_MAIN} AND checkpoint_id < ? AND checkpoint_id < (
                    SELECT MAX(checkpoint_id) FROM checkpoints WHERE thread_id=? AND checkpoint_ns='')
                  ORDER BY checkpoint_id DESC LIMIT 1"""
_DROP: Final = "DELETE FROM {} WHERE thread_id=? AND checkpoint_ns='' AND checkpoint_id <= ?"
# Channel versions grow, so rows older than the version in the oldest remaining checkpoint are unused.
_DROP_BLOBS: Final = """DELETE FROM checkpoint_blobs AS b USING (
                          SELECT checkpoint -> 'channel_versions' AS kept FROM checkpoints
                          WHERE thread_id=? AND checkpoint_ns='' ORDER BY checkpoint_id LIMIT 1) AS oldest
                        WHERE b.thread_id=? AND b.checkpoint_ns=''
                          AND b.version COLLATE "C" < (oldest.kept ->> b.channel) COLLATE "C" """
# The first checkpoint of a turn holds the values of the turn before it.
_HELD: Final = """SELECT checkpoint_id, {} FROM checkpoints
                  WHERE thread_id=? AND checkpoint_ns='' AND checkpoint_id < ? ORDER BY checkpoint_id DESC LIMIT 100"""
_IN_FILE: Final = _HELD.format("CAST(checkpoint AS BLOB)")
_ON_SERVER: Final = _HELD.format("convert_to(checkpoint ->> 'channel_values', 'UTF8')")
_GREGORIAN: Final = 0x01B21DD213814000  # tenths of microseconds from the start of the Gregorian calendar to 1970


@dataclass(frozen=True, slots=True)
class CheckpointRows:
    """The tables of checkpoints on one database engine.

    Attributes:
        postgres: Whether the engine is Postgres.
    """

    postgres: bool

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables; that of the checkpoints themselves comes first."""
        return ("checkpoints", "checkpoint_writes", "checkpoint_blobs") if self.postgres else ("checkpoints", "writes")

    def made(self, transaction: Transaction) -> bool:
        """Whether the tables exist: an agent creates them, and other code that opens the database does not."""
        if self.postgres:
            [(found,)] = transaction.execute("SELECT to_regclass('checkpoints')")
            return found is not None
        return bool(transaction.execute("SELECT 1 FROM sqlite_master WHERE type='table' AND name='checkpoints'"))

    def remove(self, transaction: Transaction, thread: str) -> int:
        """Delete all checkpoints of a thread and of its workers; returns how many."""
        if not self.made(transaction):
            return 0
        count = 0
        for key in (thread, *self._workers(transaction, f"{thread}#")):
            count += self._drop_all(transaction, key)
        return count

    def forget(self, transaction: Transaction, thread: str, turns: Collection[str]) -> int:
        """Delete the checkpoints of turns that a thread no longer continues from; returns how many.

        Earlier ones are deleted too. The newest one is kept whatever its turn, since the thread continues from it.

        Args:
            transaction: The transaction.
            thread: The thread's key.
            turns: The ids of the turns. None of them is open.
        """
        if not self.made(transaction):
            return 0
        count = 0
        for key in (key for turn in turns for key in self._workers(transaction, f"{thread}#{turn}/")):
            count += self._drop_all(transaction, key)
        last = self._last_of(transaction, thread, [turn.encode() for turn in turns])
        return count if last is None else count + self._drop_until(transaction, thread, last)

    def prune(
        self, transaction: Transaction, thread: str, *, keep: int | None, before: datetime | None, slack: int = 0
    ) -> int:
        """Delete checkpoints of a thread that no turn continues from; returns how many.

        Args:
            transaction: The transaction.
            thread: The thread's key. No turn of it is open.
            keep: How many of the newest to keep; None sets no count.
            before: Delete those from before this time; None sets no time. The newest one is kept.
            slack: How many more than `keep` can exist before any of them is deleted.
        """
        if keep is not None and slack and not transaction.execute(_BEYOND, (thread, keep + slack)):
            keep = None
        last = self._last_to_go(transaction, thread, keep, before)
        return 0 if last is None else self._drop_until(transaction, thread, last)

    def _drop_until(self, transaction: Transaction, thread: str, last: str) -> int:
        """Delete a thread's checkpoints up to `last`, and those of workers that had ended by then."""
        [(count,)] = transaction.execute(
            "SELECT COUNT(*) FROM checkpoints WHERE thread_id=? AND checkpoint_ns='' AND checkpoint_id <= ?",
            (thread, last),
        )
        transaction.execute(_DROP.format(self.tables[0]), (thread, last))
        transaction.execute(_DROP.format(self.tables[1]), (thread, last))
        if self.postgres:
            transaction.execute(_DROP_BLOBS, (thread, thread))
        for worker in self._workers(transaction, f"{thread}#", ended_by=last):
            count += self._drop_all(transaction, worker)
        return int(count)

    def _last_of(self, transaction: Transaction, thread: str, turns: Collection[bytes]) -> str | None:
        """Return the newest checkpoint that names one of the turns and is not the thread's newest."""
        statement = _ON_SERVER if self.postgres else _IN_FILE
        newest = transaction.execute(f"{_MAIN} ORDER BY checkpoint_id DESC LIMIT 1", (thread,))
        before = newest[0][0] if newest else ""
        while rows := transaction.execute(statement, (thread, before)):
            for found, held in rows:
                if any(turn in bytes(held) for turn in turns):
                    return str(found)
            before = rows[-1][0]
        return None

    def _last_to_go(
        self, transaction: Transaction, thread: str, keep: int | None, before: datetime | None
    ) -> str | None:
        found: list[str] = []
        if keep is not None:
            found += [row[0] for row in transaction.execute(_BEYOND, (thread, keep))]
        if before is not None:
            found += [row[0] for row in transaction.execute(_OLD, (thread, first_id(before), thread))]
        return max(found, default=None)

    def _workers(self, transaction: Transaction, begins: str, *, ended_by: str | None = None) -> list[str]:
        """Return the keys of workers with this prefix, or of those whose newest checkpoint is not after `ended_by`."""
        # On Postgres these tables sort text by the server's locale, while the package's own index sorts by bytes.
        above, below = ("~>=~", "~<~") if self.postgres else (">=", "<")
        statement = f"""SELECT thread_id FROM checkpoints WHERE thread_id {above} ? AND thread_id {below} ?
                        GROUP BY thread_id HAVING CAST(? AS TEXT) IS NULL OR MAX(checkpoint_id) <= ?"""
        given = (begins, f"{begins[:-1]}{chr(ord(begins[-1]) + 1)}", ended_by, ended_by)
        return [row[0] for row in transaction.execute(statement, given)]

    def _drop_all(self, transaction: Transaction, key: str) -> int:
        [(count,)] = transaction.execute("SELECT COUNT(*) FROM checkpoints WHERE thread_id=?", (key,))
        for table in self.tables:
            transaction.execute(f"DELETE FROM {table} WHERE thread_id=?", (key,))
        return int(count)


def first_id(at: datetime) -> str:
    """Return the lowest id of a checkpoint made at this time or later; ids are UUIDs of version 6."""
    ticks = max(0, int(at.timestamp() * 1e7) + _GREGORIAN) & ((1 << 60) - 1)
    digits = f"{ticks:015x}"
    return f"{digits[:8]}-{digits[8:12]}-6{digits[12:]}"
