"""A write that fails in a turn: the disk is full, the connection is cut, or the answer to a commit is lost.

Whoever runs the turn is told, makes room, and goes on in the same process.
"""

from __future__ import annotations

from pathlib import Path

from support.databases import Engine
from support.kill_points import AFTER, Killer, Point
from worldagent.core.errors import StorageUnavailable
from worldagent.storage import Transaction

_UNBOUNDED = 1_000_000  # pages
_FILLER = 2_000_000  # bytes, more than is free in any page of a home of a test


class FailingWrites(Killer):
    """Has the write at one point fail; without a point it counts them.

    On SQLite the disk is full from then on, until `mend` makes room. On Postgres the server cuts the connection in the
    transaction, or the client loses it after the commit.

    Args:
        point: Where; within or after a transaction.
        home: The home of the turn.
        engine: Where the turn is kept.
        elsewhere: Whether another agent resumes the turn.
    """

    def __init__(self, point: Point | None, home: Path, engine: Engine, *, elsewhere: bool) -> None:
        super().__init__(point, home / "where")
        self._engine, self._elsewhere = engine, elsewhere
        self._failed = self._mended = self._full = False

    async def __call__(self, when: str, what: str) -> bool:
        """As `Killer` has it; after a commit its answer is lost here."""
        if when == AFTER and not self._failed and self.point == Point(AFTER, what, self._pass(when, what)):
            self._failed = True
            raise StorageUnavailable("the connection was lost", remedy="try again")
        return when != AFTER and await super().__call__(when, what)

    def within(self, what: str, transaction: Transaction) -> None:
        """As `Killer` has it; where the disk is full, nothing is written by anybody."""
        if self._full:
            self._write_too_much(transaction)
        super().within(what, transaction)

    def end(self, transaction: Transaction) -> None:
        """Fail the transaction; a group of which it is one runs it again alone, and the disk is still full then."""
        if self._failed:
            return
        self._failed = True
        if self._engine == "postgres":
            transaction.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        self._full = True
        self._write_too_much(transaction)

    def mend(self, error: StorageUnavailable) -> bool:
        """See `Killer.mend`. The failure was caused here, once; any other one is raised."""
        if not self._failed or self._mended:
            raise error
        self._full, self._mended = False, True
        return self._elsewhere

    @staticmethod
    def _write_too_much(transaction: Transaction) -> None:
        [(pages,)] = transaction.execute("PRAGMA page_count")
        transaction.execute(f"PRAGMA max_page_count={pages}")
        try:
            transaction.execute("CREATE TABLE filler AS SELECT zeroblob(?)", (_FILLER,))
        finally:
            transaction.execute(f"PRAGMA max_page_count={_UNBOUNDED}")
