"""The traces of a home: the records of `trace/1` in their own SQLite file, by turn and by thread.

Each process of the home adds to the file. It is in the home even if the agent's database is on a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from ...core.checks import check_texts
from ...core.errors import StorageInvalid, TraceInvalid
from ...core.validation import check_integer
from ...storage import Database, Schema, Transaction, portions
from .recorder import Recorder
from .records import Traced, TraceRecord, TurnTrace, read_record

T = TypeVar("T")

TRACES = Schema(
    "traces",
    (
        (
            """CREATE TABLE wa_trace(
                 turn TEXT PRIMARY KEY,
                 workspace TEXT NOT NULL,
                 thread TEXT NOT NULL,
                 began DOUBLE PRECISION NOT NULL,
                 about TEXT NOT NULL)""",
            "CREATE INDEX wa_trace_workspace ON wa_trace(workspace, began)",
            "CREATE INDEX wa_trace_thread ON wa_trace(workspace, thread, began)",
            "CREATE INDEX wa_trace_began ON wa_trace(began)",
            """CREATE TABLE wa_trace_record(
                 turn TEXT NOT NULL,
                 run DOUBLE PRECISION NOT NULL,
                 seq BIGINT NOT NULL,
                 kind TEXT NOT NULL,
                 line TEXT NOT NULL,
                 PRIMARY KEY(turn, run, seq, kind))""",
        ),
    ),
)
_PUT: Final = """INSERT INTO wa_trace_record(turn, run, seq, kind, line) VALUES{}
                 ON CONFLICT(turn, run, seq, kind) DO UPDATE SET line=excluded.line"""
_ROW: Final = "(?, ?, ?, ?, ?)"
_ROWS_AT_ONCE: Final = 50  # rows in one statement: each statement gives up the interpreter lock and waits for it again
_PUT_TURN: Final = """INSERT INTO wa_trace(turn, workspace, thread, began, about) VALUES(?, ?, ?, ?, ?)
                      ON CONFLICT(turn) DO UPDATE SET about=excluded.about"""
_RUNS: Final = "SELECT line FROM wa_trace_record WHERE turn=? AND kind='turn' ORDER BY run"
_ALL: Final = "SELECT line FROM wa_trace_record WHERE turn=? ORDER BY run, seq"
_LIST: Final = "SELECT turn FROM wa_trace WHERE {} ORDER BY began DESC LIMIT ?"
_REMOVE: Final = (
    "DELETE FROM wa_trace_record WHERE turn IN (SELECT turn FROM wa_trace WHERE {})",
    "DELETE FROM wa_trace WHERE {}",
)
_IN_WORKSPACE: Final = "workspace=?"
_OF_THREAD: Final = "workspace=? AND thread=?"
_BEFORE: Final = "began < ?"
_OLDEST: Final = "SELECT turn FROM wa_trace WHERE {} ORDER BY began LIMIT ?"
_COUNT: Final = "SELECT COUNT(*) FROM wa_trace WHERE {}"
_PRUNE_SECONDS: Final = 3600.0
_PRUNED_TURNS: Final = 100  # traces in one transaction
_MAX_LISTED: Final = 1000


class TraceIndex:
    """A sink that keeps traces in a SQLite file, mode 0600, and finds them again.

    Args:
        file: The file; it is created at the first write, and opened at the first use.
        age: After how many seconds a turn's trace is removed; None keeps it.
        clock: Returns the seconds since 1970.
    """

    def __init__(self, file: Path, *, age: float | None = None, clock: Callable[[], float] | None = None) -> None:
        self.file = file
        self._age = age
        self._clock = clock or (lambda: datetime.now(UTC).timestamp())
        self._recorder = Recorder()
        self._database: Database | None = None
        self._opening = asyncio.Lock()
        self._pruned = 0.0

    async def write(self, items: Sequence[Traced]) -> None:
        """Write the records of the items, in one transaction."""
        records = self._recorder.records(items)
        if not records:
            return
        database, now = await self._open(), self._clock()
        # Not synced: a power cut can lose the newest traces, but no turn is resumed from a trace.
        await database.transact(lambda tx: _write(tx, records), synced=False)
        if self._age is not None and now - self._pruned > _PRUNE_SECONDS:
            # One batch with each write, so that no write waits for many old traces.
            self._pruned = self._pruned if await self.prune(now - self._age) == _PRUNED_TURNS else now

    async def prune(self, before: float, workspace: str | None = None) -> int:
        """Remove the oldest traces of turns that began before a time, at most a batch of them. Returns how many.

        Args:
            before: Seconds since 1970.
            workspace: The workspace; None is all.
        """
        which, given = _old(before, workspace)

        def work(transaction: Transaction) -> int:
            turns = [turn for (turn,) in transaction.execute(_OLDEST.format(which), (*given, _PRUNED_TURNS))]
            for marks, some in portions(turns):
                for statement in _REMOVE:
                    transaction.execute(statement.format(f"turn IN ({marks})"), some)
            return len(turns)

        return await (await self._open()).transact(work, synced=False) if self.file.exists() else 0

    async def count(self, workspace: str, before: float) -> int:
        """Return how many traces of a workspace are of turns that began before a time."""
        which, given = _old(before, workspace)
        [(found,)] = await self._read(lambda tx: tx.execute(_COUNT.format(which), given)) or [(0,)]
        return int(found)

    async def aclose(self) -> None:
        """Close the file."""
        database, self._database = self._database, None
        if database is not None:
            await database.aclose()

    async def _open(self) -> Database:
        async with self._opening:
            if self._database is None:
                self._database = await Database.open(self.file, schemas=(TRACES,), expendable=True)
        return self._database

    async def _read(self, work: Callable[[Transaction], T]) -> T | None:
        return await (await self._open()).read(work) if self.file.exists() else None

    async def newest(self, workspace: str, *, thread: str | None, limit: int) -> tuple[TurnTrace, ...]:
        """Return the newest traces, without their records."""

        def work(transaction: Transaction) -> list[list[TraceRecord]]:
            which, given = (_IN_WORKSPACE, (workspace,)) if thread is None else (_OF_THREAD, (workspace, thread))
            turns = transaction.execute(_LIST.format(which), (*given, limit))
            return [self._records(transaction.execute(_RUNS, turn), turn[0]) for turn in turns]

        found = await self._read(work) or []
        return tuple(replace(TurnTrace.of(runs), records=()) for runs in found if runs)

    async def records(self, turn: str) -> list[TraceRecord]:
        """Return every record of a turn; empty if there is no such trace."""
        return self._records(await self._read(lambda tx: tx.execute(_ALL, (turn,))) or [], turn)

    async def forget(self, workspace: str, thread: str) -> None:
        """Remove the traces of a thread; `scrub` then removes what remains of them in the file."""
        if self.file.exists():
            database = await self._open()
            await database.transact(lambda tx: _remove(tx, _OF_THREAD, workspace, thread))

    async def scrub(self) -> None:
        """Erase removed traces from the file."""
        if self.file.exists():
            await (await self._open()).scrub()

    def _records(self, rows: Sequence[Sequence[Any]], turn: str) -> list[TraceRecord]:
        try:
            return [record for (line,) in rows if (record := read_record(line)) is not None]
        except TraceInvalid:
            pass
        raise StorageInvalid(
            f"the trace of the turn {turn!r} in {str(self.file)!r} cannot be read",
            remedy="restore the file from a copy, or move it away; a new file is then created",
        )


class Traces:
    """The traces that a home keeps of turns and calls: get it from `agent.traces`.

    Args:
        index: The index that has the traces.
        workspace: The workspace's id.
        flush: Waits until everything that happened so far is in the index.
    """

    def __init__(
        self, index: TraceIndex, workspace: str, *, flush: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._index = index
        self._workspace = workspace
        self._flush = flush

    async def list(self, *, thread: str | None = None, limit: int = 100) -> tuple[TurnTrace, ...]:
        """Return the newest traces of the workspace, without their records.

        Args:
            thread: Return only the traces of this thread.
            limit: The most traces to return, 1 to 1000.

        Raises:
            InvalidArgument: `limit` is out of range, or `thread` is not a text.
            StorageUnavailable, StorageInvalid: The file cannot be read.
        """
        if thread is not None:
            check_texts(thread=thread)
        check_integer("limit", limit, _MAX_LISTED, remedy="pass an integer in this range")
        await self._flushed()
        return await self._index.newest(self._workspace, thread=thread, limit=limit)

    async def get(self, turn_id: str) -> TurnTrace:
        """Return the trace of one turn, or of a call without a turn.

        Args:
            turn_id: The turn's id.

        Raises:
            TraceInvalid: The workspace has no trace with this id.
            InvalidArgument: `turn_id` is not a text.
            StorageUnavailable, StorageInvalid: The file cannot be read.
        """
        check_texts(turn_id=turn_id)
        await self._flushed()
        records = await self._index.records(turn_id)
        found = TurnTrace.of(records) if any(record.kind == "turn" for record in records) else None
        if found is None or found.workspace != self._workspace:
            raise TraceInvalid(
                f"there is no trace of a turn {turn_id[:200]!r}",
                remedy="see `worldagent trace list`; the settings trace and trace_age say which traces are kept",
            )
        return found

    async def _flushed(self) -> None:
        if self._flush is not None:
            await self._flush()


def _old(before: float, workspace: str | None) -> tuple[str, tuple[object, ...]]:
    return (_BEFORE, (before,)) if workspace is None else (f"{_IN_WORKSPACE} AND {_BEFORE}", (workspace, before))


def _write(transaction: Transaction, records: Sequence[TraceRecord]) -> None:
    rows: list[tuple[object, ...]] = []
    for record in records:
        run, seq, kind = record.key
        rows.append((record.turn, run.timestamp(), seq, kind, record.line()))
        if record.kind == "turn":
            began = record.start.timestamp()
            transaction.execute(_PUT_TURN, (record.turn, record.workspace, record.thread, began, record.status))
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[first : first + _ROWS_AT_ONCE]
        transaction.execute(_PUT.format(", ".join([_ROW] * len(some))), tuple(chain.from_iterable(some)))


def _remove(transaction: Transaction, which: str, *given: object) -> None:
    for statement in _REMOVE:
        transaction.execute(statement.format(which), given)
