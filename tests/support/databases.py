"""The two engines of databases (D10): tests of what both must do run on both."""

import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import Any, Literal

import pytest

from worldagent.storage import PostgresAddress, Schema, Storage, Transaction

Engine = Literal["sqlite", "postgres"]
ENGINES: tuple[Engine, ...] = ("sqlite", "postgres")
on_every_database = pytest.mark.parametrize("engine", ENGINES)
"""For a test that takes `engine`, directly or through the fixture `place`."""


def fresh(engine: Engine, folder: Path) -> Path | PostgresAddress:
    """Where a new database of this engine is."""
    if engine == "sqlite":
        return folder / "home" / "agent.db"
    from support.postgres import new_database  # it starts a server

    return PostgresAddress(new_database())


_URL = "database-url"
"""The file of a home that says where its database is, if it is on a server."""


def storage_of(home: Path) -> Storage:
    """The storage of a home, the same in every process."""
    url = home / _URL
    return Storage(home=home, url=url.read_text() if url.exists() else None)


def on_postgres(home: Path, url: str) -> None:
    """Have the home's database be the one at `url`."""
    (home / _URL).write_text(url)


def made(engine: Engine, home: Path) -> Path:
    """Make an empty home whose database is on an engine."""
    home.mkdir(parents=True)
    if engine == "postgres":
        from support.postgres import new_database  # it starts a server

        on_postgres(home, new_database())
    return home


def copied(home: Path, to: Path) -> None:
    """Copy a home that is not open, with its database."""
    shutil.copytree(home, to)
    if url := storage_of(home).url:
        from support.postgres import new_database

        on_postgres(to, new_database(url))


def removed(home: Path) -> None:
    """Remove a home with its database."""
    if url := storage_of(home).url:
        from support.postgres import drop_database

        drop_database(url)
    shutil.rmtree(home)


def rows_of(home: Path, query: str) -> list[tuple[Any, ...]]:
    """What a query finds in the database of a home that is not open."""
    if (url := storage_of(home).url) is None:
        with contextlib.closing(sqlite3.connect(home / "agent.db")) as database:
            return database.execute(query).fetchall()
    from support.postgres import left_alone, rows

    left_alone(url)
    return rows(url, query)


def execute(home: Path, statement: str) -> None:
    """Run a statement in the database of a home, which may be open."""
    if (url := storage_of(home).url) is None:
        with contextlib.closing(sqlite3.connect(home / "agent.db")) as database, database:
            database.execute(statement)
        return
    import psycopg  # a process that has SQLite alone need not load it

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def contents_of(home: Path) -> dict[str, bytes]:
    """The bytes of a home's files, and of the tables of its database, by name."""
    found = {file.name: file.read_bytes() for file in home.rglob("*") if file.is_file()}
    if url := storage_of(home).url:
        from support.postgres import table_bytes

        found |= table_bytes(url)
    return found


def word(place: Path | PostgresAddress) -> str:
    """`place` as an argument for a child process; `named` reads it."""
    return place.url if isinstance(place, PostgresAddress) else str(place)


def named(text: str) -> Path | PostgresAddress:
    """The place that `word` stands for."""
    return PostgresAddress(text) if text.startswith("postgresql:") else Path(text)


NOTES = Schema("notes", (("CREATE TABLE note(id BIGINT NOT NULL, text TEXT NOT NULL)",),))
NOTES_2 = Schema("notes", (*NOTES.migrations, ("ALTER TABLE note ADD COLUMN tag TEXT", "UPDATE note SET tag='old'")))
ADD = "INSERT INTO note(id, text) SELECT COALESCE(MAX(id), 0) + 1, ? FROM note"


def add(text: str, transaction: Transaction) -> None:
    transaction.execute(ADD, (text,))


def texts(transaction: Transaction) -> list[str]:
    return [row[0] for row in transaction.execute("SELECT text FROM note ORDER BY id")]
