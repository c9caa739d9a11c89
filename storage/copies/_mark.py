"""The mark of a database that is being copied into, and how far the copy has come. It stands in that database alone."""

from __future__ import annotations

import json
from typing import Final

from ...core.errors import StorageInvalid
from .._database import Database
from .._schema import COPYING
from .._transaction import Transaction
from ._part import Key

_WHOLE: Final = ""
"""The part that stands for the copy as a whole; `last` is its source."""
_NOTE: Final = """INSERT INTO wa_copy(part, last, done, whole) VALUES(?, ?, ?, ?)
                  ON CONFLICT(part) DO UPDATE SET last=excluded.last, done=excluded.done, whole=excluded.whole"""
_READ: Final = "SELECT last, done, whole FROM wa_copy WHERE part=?"


class Mark:
    """The mark in a database that was opened with the schema `COPYING`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def source(self) -> str | None:
        """What is copied from; None where the mark is new."""
        rows = await self._database.read(lambda tx: tx.execute(_READ, (_WHOLE,)))
        return rows[0][0] if rows else None

    async def begin(self, source: str) -> None:
        """Note what is copied from."""
        await self._database.transact(lambda tx: tx.execute(_NOTE, (_WHOLE, source, 0, 0)))

    async def reached(self, part: str) -> tuple[Key | None, int, bool]:
        """Where the last batch of a part ended, how many there are by then, and whether that is all of it."""
        rows = await self._database.read(lambda tx: tx.execute(_READ, (part,)))
        if not rows:
            return None, 0, False
        [(last, done, whole)] = rows
        return (None if last is None else json.loads(last)), done, bool(whole)

    async def note(self, part: str, last: Key | None, done: int, *, whole: bool = False) -> None:
        """Note that a part has come as far as this."""
        text = None if last is None else json.dumps(last)
        await self._database.transact(lambda tx: tx.execute(_NOTE, (part, text, done, int(whole))))

    async def remove(self) -> None:
        """Let others open the database."""

        def work(transaction: Transaction) -> None:
            if not transaction.execute("DELETE FROM wa_schema WHERE name=? RETURNING name", (COPYING.name,)):
                raise StorageInvalid(
                    f"the copy into {self._database.name!r} was given up meanwhile", remedy="begin it again"
                )
            transaction.execute("DROP TABLE wa_copy")

        await self._database.transact(work)


__all__ = ["Mark"]
