"""A table as a part of a copy: rows in batches, and a comparison of what both databases hold.

It says nothing of checkpoints, which LangGraph keeps otherwise on each engine (`graphs.copies`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from .._database import Database
from .._transaction import Transaction
from ._part import Check, Held, Key
from ._tables import Table

BATCH: Final = 200  # rows; one of them may be a long message
BLOCK: Final = 50_000  # keys of rows
_VALUES: Final = 900  # of one statement; some builds of SQLite take 999

Row = tuple[Any, ...]


class TableCopy:
    """One table of two databases.

    Args:
        table: The table.
        source: Where its rows are.
        target: Where they go; it has the same table.
    """

    def __init__(self, table: Table, source: Database, target: Database) -> None:
        self.name = table.name
        self._table = table
        self._source = source
        self._target = target

    def batches(self, last: Key | None) -> AsyncGenerator[tuple[Sequence[Row], Key]]:
        """See `Part.batches`."""
        return self._batches(self._source, last)

    async def put(self, batch: Sequence[Row], check: Check) -> None:
        """See `Part.put`."""
        columns, width = ", ".join(self._table.columns), len(self._table.columns)
        most = max(1, _VALUES // width)

        def work(transaction: Transaction) -> None:
            check(transaction)
            for begin in range(0, len(batch), most):
                some = batch[begin : begin + most]
                places = ", ".join([f"({', '.join('?' * width)})"] * len(some))
                statement = f"INSERT INTO {self.name}({columns}) VALUES{places} ON CONFLICT DO NOTHING"
                transaction.execute(statement, tuple(value for row in some for value in row))

        await self._target.transact(work)

    async def count(self) -> int:
        """See `Part.count`."""
        [(found,)] = await self._source.read(lambda tx: tx.execute(f"SELECT COUNT(*) FROM {self._table.name}"))
        return int(found)

    async def held(self) -> tuple[Held, Held]:
        """See `Part.held`."""
        return await self._held(self._source), await self._held(self._target)

    async def _held(self, database: Database) -> Held:
        found = Held()
        async for rows, _ in self._batches(database, None):
            found = found.more([json.dumps(row, default=bytes.hex) for row in rows])
        return found

    def _batches(self, database: Database, last: Key | None) -> AsyncGenerator[tuple[Sequence[Row], Key]]:
        return self._by_key(database, last) if self._table.order == self._table.key else self._in_order(database, last)

    async def _by_key(self, database: Database, last: Key | None) -> AsyncGenerator[tuple[Sequence[Row], Key]]:
        while rows := await self._after(database, self._table.columns, last, BATCH):
            last = self._place(rows[-1])
            yield rows, last

    async def _in_order(self, database: Database, last: Key | None) -> AsyncGenerator[tuple[Sequence[Row], Key]]:
        """As `_by_key`, in an order for which there is no index: it is worked out once for many batches."""
        table, [key] = self._table, self._table.key
        while block := await self._after(database, table.order, last, BLOCK):
            for begin in range(0, len(block), BATCH):
                keys = [row[-1] for row in block[begin : begin + BATCH]]
                found = (
                    f"SELECT {', '.join(table.columns)} FROM {table.name} WHERE {key} IN ({', '.join('?' * len(keys))})"
                )
                rows = sorted(
                    await database.read(lambda tx: tx.execute(found, keys)),  # noqa: B023 -- awaited at once
                    key=self._place,
                )
                last = list(block[begin : begin + BATCH][-1])
                yield rows, last

    async def _after(
        self, database: Database, columns: Sequence[str], last: Key | None, most: int
    ) -> list[tuple[Any, ...]]:
        """Columns of the rows after `last`, in the table's order."""
        order, given = ", ".join(self._table.order), tuple(last or ())
        after = f"WHERE ({order}) > ({', '.join('?' * len(given))})" if given else ""
        statement = f"SELECT {', '.join(columns)} FROM {self.name} {after} ORDER BY {order} LIMIT {most}"
        return await database.read(lambda tx: tx.execute(statement, given))

    def _place(self, row: Row) -> Key:
        return [row[self._table.columns.index(column)] for column in self._table.order]


__all__ = ["TableCopy"]
