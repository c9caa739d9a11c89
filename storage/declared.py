"""Checks the migrations that a capability declares, before one of them reaches a database."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Collection
from typing import Final

from ..core.errors import InvalidArgument
from .copies import Table, tables_in

_TABLE: Final = r"\b(?:table|exists|into|update|from|join|on|to|references)\s+[\"'`\[]?"
"""What comes before the name of a table."""


def declared_tables(capability: str, migrations: object, *, reserved: Collection[str]) -> tuple[Table, ...]:
    """The tables that the migrations of a capability make, by a run in memory where it has no other tables.

    Args:
        capability: The capability's name.
        migrations: Its migrations.
        reserved: The names of tables of others, besides all that begin with `wa_`.

    Raises:
        InvalidArgument: They are not tuples of statements, one of them cannot be run or touches a table of this
            package, or a table cannot be copied.
    """
    problem, remedy = "", ""
    try:
        return _run(migrations, re.compile(rf"\bwa_\w|{_TABLE}(?:{'|'.join(reserved)})\b", re.IGNORECASE))
    except InvalidArgument as error:
        problem, remedy = error.problem, error.remedy
    raise InvalidArgument(f"`migrations` of the capability {capability!r} cannot be used: {problem}", remedy=remedy)


def _run(migrations: object, ours: re.Pattern[str]) -> tuple[Table, ...]:
    if not isinstance(migrations, tuple) or not all(_is_step(each) for each in migrations):
        raise InvalidArgument(
            "they must be a tuple of steps, each a tuple of statements", remedy='write (("CREATE TABLE ...",),)'
        )
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        for number, step in enumerate(migrations, 1):
            for statement in step:
                if ours.search(statement):
                    raise InvalidArgument(
                        f"step {number} names a table of worldagent",
                        remedy="use tables of its own, whose names begin with the capability's",
                    )
                try:
                    fresh.execute(statement)
                except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
                    problem = str(error).rstrip(".")  # there are no rows, so it has no values
                else:
                    continue
                raise InvalidArgument(
                    f"step {number} cannot be run: {problem}",
                    remedy="correct the statement; it must run on SQLite and Postgres, and use no table of others",
                )
        return tables_in(fresh)


def _is_step(step: object) -> bool:
    return isinstance(step, tuple) and all(isinstance(each, str) for each in step)
