"""Which tables a database has, and in which order their rows can be written again. Derived from the schemas alone."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .._schema import Schema, migrate

_MADE = "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%' AND name<>'wa_schema'"
_DEPTH = "depth"
"""The column by which rows that refer to others of their own table stand after them."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table that the migrations of a schema make.

    Attributes:
        name: Its name.
        columns: Its columns, in their order.
        key: Its primary key.
        order: The columns by which no row stands before one that it refers to.
        refers: The tables that its rows refer to.
    """

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    order: tuple[str, ...]
    refers: frozenset[str]


def tables_of(schemas: Sequence[Schema]) -> tuple[Table, ...]:
    """The tables of `schemas`, each after those that it refers to."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        migrate(fresh, Path("memory"), schemas)
        found = {name: _table(fresh, name) for (name,) in fresh.execute(_MADE).fetchall()}
    ordered: dict[str, Table] = {}
    while found:
        free = [table for table in found.values() if table.refers - {table.name} <= ordered.keys()]
        assert free, f"tables refer to each other in a ring, or to none that is there: {sorted(found)}"
        for table in sorted(free, key=lambda table: table.name):
            ordered[table.name] = found.pop(table.name)
    return tuple(ordered.values())


def _table(connection: sqlite3.Connection, name: str) -> Table:
    rows = connection.execute("SELECT name, pk FROM pragma_table_info(?) ORDER BY cid", (name,)).fetchall()
    columns = tuple(column for column, _ in rows)
    key = tuple(column for column, place in sorted(rows, key=lambda row: row[1]) if place)
    assert key, f"the table {name!r} has no primary key, so its rows cannot be told apart"
    refers = {other for (other,) in connection.execute('SELECT "table" FROM pragma_foreign_key_list(?)', (name,))}
    order = (_DEPTH, *key) if name in refers else key
    assert order == key or len(key) == 1, f"rows of {name!r} refer to others of it by more than one column"
    assert set(order) <= set(columns), (
        f"rows of {name!r} refer to others of it, and no {_DEPTH!r} says which come first"
    )
    return Table(name, columns, key, order, frozenset(refers))


__all__ = ["Table", "tables_of"]
