"""The mark of a database that is being copied into, and how far the copy has come. It stands in that database alone."""

from __future__ import annotations

import json
from typing import Final

from ...core.errors import StorageHalfCopied
from .._database import Database
from .._schema import COPYING
from .._transaction import Transaction
from ._part import Key

_WHOLE: Final = ""
"""The part that stands for the copy as a whole; `last` is its source, and `done` counts its runs."""
_NOTE: Final = """INSERT INTO wa_copy(part, last, done, whole) VALUES(?, ?, ?, ?)
                  ON CONFLICT(part) DO UPDATE SET last=excluded.last, done=excluded.done, whole=excluded.whole"""
_READ: Final = "SELECT last, done, whole FROM wa_copy WHERE part=?"
_STANDS: Final = "SELECT version FROM wa_schema WHERE name=?"


class Mark:
    """The mark in a database that was opened with the schema `COPYING`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._run = 0

    async def begin(self, source: str) -> str | None:
        """Begin a run, so that one from before writes nothing more, unless the target is a copy of something else.

        Returns:
            What an earlier run has copied from; None where there was none.
        """

        def work(transaction: Transaction) -> tuple[str | None, int]:
            [(known, runs, _)] = transaction.hold(_READ, (_WHOLE,), alone=True) or [(None, 0, 0)]
            if known in (None, source):
                transaction.execute(_NOTE, (_WHOLE, source, runs + 1, 0))
            return known, runs + 1

        known, self._run = await self._database.transact(work)
        return known

    def verify(self, transaction: Transaction) -> None:
        """Call first in each transaction that writes into the copy.

        Raises:
            StorageHalfCopied: Another run has begun, or the copy is finished or given up.
        """
        stands = transaction.hold(_STANDS, (COPYING.name,))
        if not stands or [run for _, run, _ in transaction.hold(_READ, (_WHOLE,))] != [self._run]:
            raise StorageHalfCopied(
                f"another run took the copy into {self._database.name!r} over, so this one writes nothing more",
                remedy="leave it to the other one",
            )

    async def reached(self, part: str) -> tuple[Key | None, int, bool]:
        """Where the last batch of a part ended, how many there are by then, and whether that is all of it."""
        rows = await self._database.read(lambda tx: tx.execute(_READ, (part,)))
        if not rows:
            return None, 0, False
        [(last, done, whole)] = rows
        return (None if last is None else json.loads(last)), done, bool(whole)

    async def note(self, part: str, last: Key | None, done: int, *, whole: bool = False) -> None:
        """Note that a part has come as far as this.

        Raises:
            StorageHalfCopied: As `verify`.
        """
        text = None if last is None else json.dumps(last)

        def work(transaction: Transaction) -> None:
            self.verify(transaction)
            transaction.execute(_NOTE, (part, text, done, int(whole)))

        await self._database.transact(work)

    async def remove(self) -> None:
        """Let others open the database.

        Raises:
            StorageHalfCopied: As `verify`.
        """

        def work(transaction: Transaction) -> None:
            self.verify(transaction)
            transaction.execute("DELETE FROM wa_schema WHERE name=?", (COPYING.name,))
            transaction.execute("DROP TABLE wa_copy")

        await self._database.transact(work)


__all__ = ["Mark"]
