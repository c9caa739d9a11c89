"""The workers of a database, for people. Whether a worker is alive is decided by its lease, not by a row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from ..core import utc_text
from ..storage import Database, Row, Schema, Transaction, checked_row

WORKERS: Final = Schema(
    "workers",
    (
        (
            """CREATE TABLE wa_worker(
                 workspace TEXT NOT NULL,
                 id TEXT NOT NULL,
                 host TEXT NOT NULL,
                 pid BIGINT NOT NULL,
                 version TEXT NOT NULL,
                 since TEXT NOT NULL,
                 seen TEXT NOT NULL,
                 running BIGINT NOT NULL,
                 ended BIGINT NOT NULL,
                 failed BIGINT NOT NULL,
                 PRIMARY KEY(workspace, id))""",
        ),
    ),
)
_COLUMNS: Final = "workspace, id, host, pid, version, since, seen, running, ended, failed"
_ALL: Final = f"SELECT {_COLUMNS} FROM wa_worker ORDER BY workspace, since, id"
_SET: Final = f"""INSERT INTO wa_worker({_COLUMNS}) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                  ON CONFLICT(workspace, id) DO UPDATE SET seen=excluded.seen, running=excluded.running,
                  ended=excluded.ended, failed=excluded.failed"""
_REMOVE: Final = "DELETE FROM wa_worker WHERE workspace=? AND id=?"


class WorkerRow(Row):
    """What a worker last said about itself.

    Attributes:
        workspace: Its workspace.
        id: Its id.
        host: The name of its machine.
        pid: Its process.
        version: The version of this package.
        since: When it started.
        seen: When it said this.
        running: How many submitted turns it ran.
        ended: How many were over or waited for a person.
        failed: How many of those had failed.
    """

    workspace: str
    id: str
    host: str
    pid: int
    version: str
    since: datetime
    seen: datetime
    running: int = 0
    ended: int = 0
    failed: int = 0


class WorkerRows:
    """The workers in a database that was opened with the schema `WORKERS`.

    Args:
        database: The database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self) -> tuple[WorkerRow, ...]:
        """All workers of all workspaces, including those that have died and were not taken over yet.

        Raises:
            StorageInvalid: A row was changed by another program.
        """
        rows = await self._database.read(lambda tx: tx.execute(_ALL))
        return tuple(self._worker(row) for row in rows)

    def _worker(self, row: Sequence[Any]) -> WorkerRow:
        return checked_row(WorkerRow, row, what=f"the worker {row[1]!r}", database=self._database.name)


def write_worker(transaction: Transaction, worker: WorkerRow) -> None:
    """Store what a worker says about itself, under its lease."""
    transaction.execute(_SET, tuple(utc_text(v) if isinstance(v, datetime) else v for _, v in worker))


def remove_worker(transaction: Transaction, workspace: str, worker: str) -> None:
    """Remove a worker that ends, or that has died and was taken over, under its lease."""
    transaction.execute(_REMOVE, (workspace, worker))


def worker_lease(workspace: str, worker: str) -> str:
    """Return the key of a worker's lease."""
    return f"worker {workspace} {worker}"
