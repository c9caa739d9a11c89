"""The rows of a search index: SQLite's full-text search, and the source of each text. All functions block.

`index` decides what the index contains.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import weakref
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...core.errors import SearchUnavailable
from .search import SearchHit

_ID: Final = 0x57414958  # marks a file as such an index
_VERSION: Final = 1
_BUSY: Final = 10.0  # seconds
_WORD: Final = re.compile(r"\w+")
_WORDS: Final = 32
_TABLES: Final = """
DROP TABLE IF EXISTS documents;
DROP TABLE IF EXISTS texts;
CREATE TABLE documents (id INTEGER PRIMARY KEY, place TEXT NOT NULL, source TEXT NOT NULL, stamp TEXT NOT NULL,
    title TEXT NOT NULL, UNIQUE (source, place));
CREATE VIRTUAL TABLE texts USING fts5 (title, text, tokenize = 'porter unicode61 remove_diacritics 2');
"""
_SEARCH: Final = """
SELECT documents.title, documents.place, snippet(texts, 1, '', '', ' … ', 48)
FROM texts JOIN documents ON documents.id = texts.rowid
WHERE texts MATCH ? AND documents.source IN (SELECT value FROM json_each(?))
ORDER BY bm25(texts, 4.0, 1.0), documents.place LIMIT ?
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A text to store.

    Attributes:
        place: Its path or URL.
        source: The source that it was found in.
        stamp: The state of its source.
        title: Its title.
        text: Its text.
    """

    place: str
    source: str
    stamp: str
    title: str
    text: str


class Rows:
    """An index, in a file or in memory. Threads can share it, and processes can share a file.

    Args:
        path: The file; None keeps it in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._memory: sqlite3.Connection | None = None
        self._ready = False

    def stamps(self, sources: str) -> dict[tuple[str, str], str]:
        """Return the stamps of the texts in the index, by source and place.

        Args:
            sources: The sources, as a JSON list.

        Raises:
            SearchUnavailable: The index cannot be opened or read; the other methods raise it too.
        """
        with self._open("BEGIN") as rows:
            given = rows.execute(
                "SELECT source, place, stamp FROM documents WHERE source IN (SELECT value FROM json_each(?))",
                (sources,),
            )
            return {(source, place): stamp for source, place, stamp in given}

    def put(self, documents: Iterable[Document]) -> None:
        """Store texts, replacing those with the same source and place."""
        with self._open() as rows:
            for each in documents:
                _remove(rows, each.source, each.place)
                added = rows.execute(
                    "INSERT INTO documents (place, source, stamp, title) VALUES (?, ?, ?, ?)",
                    (each.place, each.source, each.stamp, each.title),
                )
                rows.execute(
                    "INSERT INTO texts (rowid, title, text) VALUES (?, ?, ?)",
                    (added.lastrowid, each.title, each.text.replace("\0", " ")),
                )

    def remove(self, places: Iterable[tuple[str, str]]) -> None:
        """Remove texts, by source and place."""
        with self._open() as rows:
            for source, place in places:
                _remove(rows, source, place)

    def search(self, query: str, sources: str, limit: int) -> Sequence[SearchHit]:
        """Return the best hits; texts with most of the words, and with the rarest, come first."""
        words = _WORD.findall(query.encode("utf-8", "ignore").decode())[:_WORDS]
        if not words:
            return []
        # Quotes make a word literal, whatever it means in the query language.
        wanted = " OR ".join(f'"{word}"' for word in dict.fromkeys(words))
        with self._open("BEGIN") as rows:
            found = rows.execute(_SEARCH, (wanted, sources, limit)).fetchall()
        return [SearchHit(title=title, url=place, excerpt=" ".join(part.split())) for title, place, part in found]

    @contextmanager
    def _open(self, begin: str = "BEGIN IMMEDIATE") -> Generator[sqlite3.Connection]:
        """Open a connection in a transaction."""
        problem = ""
        try:
            with self._lock, self._connected() as rows:
                self._prepare(rows)
                rows.execute(begin)
                try:
                    yield rows
                except BaseException:
                    rows.execute("ROLLBACK")
                    raise
                rows.execute("COMMIT")
                return
        except sqlite3.Error as error:
            problem = error.sqlite_errorname if hasattr(error, "sqlite_errorname") else type(error).__name__
        except OSError as error:
            problem = error.strerror or type(error).__name__
        raise SearchUnavailable(
            f"the search index {str(self._path or 'in memory')!r} cannot be used: {problem}",
            remedy="pass another path to LocalIndex, or remove the file: it is created again",
        )

    @contextmanager
    def _connected(self) -> Generator[sqlite3.Connection]:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=_BUSY, isolation_level=None)) as opened:
                yield opened
            return
        if self._memory is None:
            self._memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            weakref.finalize(self, self._memory.close)
        yield self._memory

    def _prepare(self, rows: sqlite3.Connection) -> None:
        if self._ready and self._path is None:
            return
        (known,), (version,) = (
            rows.execute("PRAGMA application_id").fetchone(),
            rows.execute("PRAGMA user_version").fetchone(),
        )
        if (known, version) == (_ID, _VERSION):
            return
        rows.execute("BEGIN IMMEDIATE")
        try:
            (known,) = rows.execute("PRAGMA application_id").fetchone()
            (version,) = rows.execute("PRAGMA user_version").fetchone()
            (tables,) = rows.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if known != _ID and tables:
                raise sqlite3.DatabaseError("not an index")
            if (known, version) != (_ID, _VERSION):
                for statement in _TABLES.split(";"):
                    rows.execute(statement)
                rows.execute(f"PRAGMA application_id = {_ID}")
                rows.execute(f"PRAGMA user_version = {_VERSION}")
        except BaseException:
            rows.execute("ROLLBACK")
            raise
        rows.execute("COMMIT")
        self._ready = True


def _remove(rows: sqlite3.Connection, source: str, place: str) -> None:
    kept = rows.execute("SELECT id FROM documents WHERE source = ? AND place = ?", (source, place)).fetchone()
    if kept is not None:
        rows.execute("DELETE FROM texts WHERE rowid = ?", kept)
        rows.execute("DELETE FROM documents WHERE id = ?", kept)


__all__ = ["Document", "Rows"]
