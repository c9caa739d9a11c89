"""The floor of a search by words: the databases' own full text search over the same texts, without anything else.

It stores only the account and the words of an entry, and does not keep what `memory.py` asks for: its counts are those
of all accounts, and the two engines rank differently.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

LIMIT = 8
_FTS5 = "SELECT rowid FROM peer WHERE peer MATCH ? ORDER BY rank LIMIT ?"
_FULL_TEXT = """SELECT id FROM peer, to_tsquery('simple', %s) AS asked WHERE account=%s AND words @@ asked
                ORDER BY ts_rank(words, asked) DESC, id LIMIT %s"""


class Peer(Protocol):
    """A table with full text search."""

    def add(self, entries: Sequence[tuple[str, str]]) -> None:
        """Write entries, each an account and a text."""
        ...

    def search(self, account: str, words: Sequence[str]) -> int:
        """Search for entries of an account with any of the words; returns how many of the best are found."""
        ...

    def bytes(self) -> float:
        """Return the size of the table with its index."""
        ...


class Fts5:
    """FTS5 in a file of SQLite.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = sqlite3.connect(path)
        self._connection.execute("CREATE VIRTUAL TABLE peer USING fts5(account, text)")

    def add(self, entries: Sequence[tuple[str, str]]) -> None:
        """See `Peer.add`."""
        with self._connection:
            self._connection.executemany("INSERT INTO peer(account, text) VALUES(?, ?)", entries)

    def search(self, account: str, words: Sequence[str]) -> int:
        """See `Peer.search`."""
        asked = f"account : {account} AND text : ({' OR '.join(words)})"
        return len(self._connection.execute(_FTS5, (asked, LIMIT)).fetchall())

    def bytes(self) -> float:
        """See `Peer.bytes`."""
        self._connection.execute("VACUUM")
        return float(self._path.stat().st_size)


class FullText:
    """A tsvector with a GIN index on a Postgres server.

    Args:
        url: The database.
    """

    def __init__(self, url: str) -> None:
        import psycopg

        self._connection: Any = psycopg.connect(url, autocommit=True)
        self._connection.execute("CREATE TABLE peer(id BIGSERIAL PRIMARY KEY, account TEXT, text TEXT, words TSVECTOR)")
        self._connection.execute("CREATE INDEX peer_words ON peer USING GIN(words)")
        self._connection.execute("CREATE INDEX peer_account ON peer(account)")

    def add(self, entries: Sequence[tuple[str, str]]) -> None:
        """See `Peer.add`."""
        insert = "INSERT INTO peer(account, text, words) VALUES(%s, %s, to_tsvector('simple', %s))"
        with self._connection.transaction():
            self._connection.cursor().executemany(insert, [(account, text, text) for account, text in entries])

    def search(self, account: str, words: Sequence[str]) -> int:
        """See `Peer.search`."""
        return len(self._connection.execute(_FULL_TEXT, (" | ".join(words), account, LIMIT)).fetchall())

    def bytes(self) -> float:
        """See `Peer.bytes`. It also updates what the server knows of all tables, as autovacuum does after a minute."""
        self._connection.execute("VACUUM ANALYZE")
        [(size,)] = self._connection.execute("SELECT pg_total_relation_size('peer')").fetchall()
        return float(size)


__all__ = ["LIMIT", "Fts5", "FullText", "Peer"]
