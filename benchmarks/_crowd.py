"""The process that measures turns for `crowd.py`, concurrent or one by one, and counts their synced transactions.

Run as `python -m worldagent.benchmarks._crowd JOB`, where `JOB` is the JSON of a `Job`. It prints the JSON of `Turns`.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import median
from typing import Any
from unittest.mock import patch

from worldagent.benchmarks._measure import Stopwatch
from worldagent.benchmarks._peers import CheckedTurn, FirstPieces, Job, Measured, at_once, warmed
from worldagent.benchmarks._slow_disk import slow_syncs

PAUSE = 0.02
"""Seconds between two turns that run alone, so that none waits for pending work of the previous one."""
SETTLED = 0.3
"""Seconds after which traces are written. They are buffered for 0.1 s."""

_LEFT_ALONE = 20.0  # seconds in which the server must notice that its clients have disconnected
_OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE datname=current_database() AND pid<>pg_backend_pid()"
_NEXT_TRANSACTION = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
_WAL_SYNCS = "SELECT COALESCE(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object='wal'"
_WITH_WAL_SYNCS = 180_000  # the version of Postgres that counts syncs in this view


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns(Measured):
    """The cost of turns.

    Attributes:
        synced: Synced transactions a turn; None if nothing is stored.
        syncs: Syncs of the disk a turn; None if they cannot be counted.
    """

    synced: float | None = None
    syncs: float | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """Synced transactions and syncs of the disk so far."""

    synced: int
    syncs: int | None


# --- counting -------------------------------------------------------------------------------------------------------


class CountedConnection(sqlite3.Connection):
    """A connection that counts transactions that changed something and were synced at their commit."""

    synced = 0  # of all connections

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._full = True
        self._before = 0

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        cursor = super().execute(sql, parameters)
        if sql.startswith("BEGIN"):
            self._before = self.total_changes
        elif sql.startswith("PRAGMA synchronous="):
            self._full = sql.endswith("FULL")
        elif sql == "COMMIT" and self._full and self.total_changes > self._before:
            CountedConnection.synced += 1  # one connection writes, on one thread
        return cursor


def sqlite_counts() -> Counts:
    """Count the synced transactions of this process; `sqlite3.connect` must have made `CountedConnection`s."""
    return Counts(CountedConnection.synced, slow_syncs())


def postgres_counts(url: str) -> Counts:
    """Count the synced transactions of a server without other clients; each writing one gets the next number."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        known = connection.info.server_version >= _WITH_WAL_SYNCS
        return Counts(_number(connection, _NEXT_TRANSACTION), _number(connection, _WAL_SYNCS) if known else None)


def left(url: str) -> None:
    """Wait until the clients of a database have disconnected. Only then has the server counted all of their syncs."""
    import psycopg

    deadline = time.monotonic() + _LEFT_ALONE
    with psycopg.connect(url, autocommit=True) as connection:
        while _number(connection, _OTHERS) and time.monotonic() < deadline:
            time.sleep(0.01)


def _number(connection: Any, query: str) -> int:
    return int(connection.execute(query.encode()).fetchone()[0])


# --- measuring ------------------------------------------------------------------------------------------------------


async def measure(job: Job) -> Turns:
    """Run a job in this process.

    Raises:
        AssertionError: A turn that ran alone failed, or its answer differs from that of the service.
    """
    pieces = FirstPieces()
    counts = sqlite_counts if job.database is None else partial(postgres_counts, job.database)
    with patch.object(sqlite3, "connect", partial(sqlite3.connect, factory=CountedConnection)):
        async with warmed(job, pieces) as turn:
            await asyncio.sleep(SETTLED)
            before = counts()
            measured = await (at_once(job, turn, pieces) if job.concurrent else alone(job, turn, pieces))
            await asyncio.sleep(SETTLED)
            after = counts()
    if not job.stored:
        return Turns(**asdict(measured))
    if job.database is not None:
        left(job.database)
        after = replace(after, syncs=counts().syncs)
    syncs = None if after.syncs is None or before.syncs is None else (after.syncs - before.syncs) / job.turns
    return Turns(**asdict(measured), synced=(after.synced - before.synced) / job.turns, syncs=syncs)


async def alone(job: Job, turn: CheckedTurn, pieces: FirstPieces) -> Measured:
    """Run the turns of a job one by one, each in its own session."""
    firsts: list[float] = []
    walls: list[float] = []
    watch = Stopwatch()
    for number in range(job.turns):
        await asyncio.sleep(PAUSE)
        start = time.perf_counter()
        await turn(session := f"s{number}")
        walls.append(time.perf_counter() - start)
        firsts.append(pieces.since(start, session))
    return Measured(cpu=watch.read(job.turns).cpu, wall=median(walls), first=median(firsts))


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(measure(Job(**json.loads(sys.argv[1])))))))
