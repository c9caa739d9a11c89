"""The built-in search over folders and pages that a user names, on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ...core.errors import AddressRefused, InvalidArgument, PathRefused, SearchUnavailable, ToolFailed
from ..files import Roots
from .fetch import CheckedNetwork, Fetched, Fetcher
from .html_program import decoded
from .page import Reader, SearchHit, check_installed, page_of

_LOOKED_AT: Final = 500_000  # names of files and folders

LARGEST: Final = 2 << 20
"""Bytes of a file that are read."""

SUFFIXES: Final = (".adoc", ".htm", ".html", ".md", ".org", ".rst", ".tex", ".txt")
"""The suffixes of the file names that are found in folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A file that can be searched.

    Attributes:
        place: Its path.
        source: The folder that it was found in.
        stamp: Changes when the file changes.
        size: Its bytes, as far as they are read.
        roots: The folder that reading it never leaves.
        name: Its path in that folder.
    """

    place: str
    source: str
    stamp: str
    size: int
    roots: Roots = field(repr=False)
    name: str


def find_files(sources: Sequence[str], *, suffixes: tuple[str, ...], files: int, size: int) -> list[Found]:
    """Find the files in folders, in a stable order. Hidden files and links are skipped.

    A link within a folder leads to a file that is found anyway; one that leads out does not belong to the folder.

    Args:
        sources: Folders, or single files.
        suffixes: The suffixes of file names in folders.
        files: How many files at most.
        size: How many bytes at most.
    """
    found: dict[str, Found] = {}
    for each in islice(_all(sources, suffixes), _LOOKED_AT):
        if each is None or each.place in found:
            continue
        size -= each.size
        if len(found) >= files or size < 0:
            break
        found[each.place] = each
    return list(found.values())


def read_file(found: Found) -> bytes | None:
    """Read a file's beginning; returns None if it no longer exists, or is now a link or behind one."""
    try:
        with found.roots.place(found.name) as place:
            if place.path != found.roots.folders[0] / found.name:  # the path passes a link
                return None
            handle = place.handle.open(place.name, os.O_RDONLY)
    except (OSError, PathRefused, ToolFailed):
        return None
    with os.fdopen(handle, "rb") as file:
        try:
            return file.read(LARGEST) if stat.S_ISREG(os.fstat(handle).st_mode) else None
        except OSError:
            return None


def _all(sources: Sequence[str], suffixes: tuple[str, ...]) -> Iterator[Found | None]:
    """Yield the files of all sources, and None for each folder and each other file, since these count too."""
    for source in sources:
        real = os.path.realpath(source)
        file = os.path.isfile(real)
        try:
            roots = Roots([Path(real).parent if file else Path(real)])
        except InvalidArgument:  # it no longer exists, or is neither a file nor a folder
            continue
        if file:
            yield _found(real, source, os.path.basename(real), roots)
            continue
        for folder, folders, names in os.walk(source):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            yield None
            for name in sorted(names):
                path = os.path.join(folder, name)
                wanted = not name.startswith(".") and name.lower().endswith(suffixes)
                yield _found(path, source, os.path.relpath(path, source), roots) if wanted else None


def _found(path: str, source: str, name: str, roots: Roots) -> Found | None:
    try:
        path.encode()
        about = os.lstat(path)
    except (OSError, UnicodeEncodeError):  # it no longer exists, or its name is not valid text
        return None
    if not stat.S_ISREG(about.st_mode):
        return None
    stamp = f"{about.st_mtime_ns}:{about.st_size}"
    size = min(about.st_size, LARGEST)
    return Found(place=path, source=source, stamp=stamp, size=size, roots=roots, name=name)


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
                with _transaction(rows, begin):
                    yield rows
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

    @staticmethod
    def _prepare(rows: sqlite3.Connection) -> None:
        if _form(rows) == (_ID, _VERSION):
            return
        with _transaction(rows, "BEGIN IMMEDIATE"):
            (tables,) = rows.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            known, version = _form(rows)  # another process can have created them
            if known != _ID and tables:
                raise sqlite3.DatabaseError("not an index")
            if (known, version) != (_ID, _VERSION):
                for statement in _TABLES.split(";"):
                    rows.execute(statement)
                rows.execute(f"PRAGMA application_id = {_ID}")
                rows.execute(f"PRAGMA user_version = {_VERSION}")


@contextmanager
def _transaction(rows: sqlite3.Connection, begin: str) -> Generator[None]:
    rows.execute(begin)
    try:
        yield
    except BaseException:
        rows.execute("ROLLBACK")
        raise
    rows.execute("COMMIT")


def _form(rows: sqlite3.Connection) -> tuple[int, int]:
    """Return what marks a file as such an index, and its version."""
    (known,), (version,) = (rows.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
    return known, version


def _remove(rows: sqlite3.Connection, source: str, place: str) -> None:
    kept = rows.execute("SELECT id FROM documents WHERE source = ? AND place = ?", (source, place)).fetchone()
    if kept is not None:
        rows.execute("DELETE FROM texts WHERE rowid = ?", kept)
        rows.execute("DELETE FROM documents WHERE id = ?", kept)


_PAGE_AGE: Final = 86_400.0  # seconds after which a page is fetched again
_TRY_AGAIN: Final = 300.0  # seconds after which a page that could not be fetched is tried again
_PAGE_TIME: Final = 20.0  # seconds for a page
_LONGEST: Final = 1 << 21  # characters of a text
_BATCH: Final = 32  # texts that are stored at once


class LocalIndex:
    """A full-text search over files and pages. It is a `WebSearch`.

    Each search looks through the folders and reads only changed files; pages are fetched once a day. If a search runs
    out of time, the index keeps what it has read.

    Args:
        sources: Folders, files, and pages by their URLs.
        path: A file for the index, which processes can share; None keeps it in memory.
        suffixes: The suffixes of file names in folders.
        files: How many files are read at most, in the order of the sources and of their names.
        size: How many bytes of files are read at most.
        allow_private: Whether pages can be of this machine and its network.

    Raises:
        InvalidArgument: The list of sources is empty, or one is neither a path nor a URL.
        MissingExtra: The package that reads HTML is not installed.
    """

    def __init__(
        self,
        sources: Sequence[Path | str],
        *,
        path: Path | str | None = None,
        suffixes: Iterable[str] = SUFFIXES,
        files: int = 10_000,
        size: int = 200 << 20,
        allow_private: bool = False,
    ) -> None:
        if isinstance(sources, str) or not sources or not all(isinstance(each, str | Path) for each in sources):
            raise InvalidArgument(
                "`sources` must be a list of folders or pages", remedy="name them, as in LocalIndex(['docs'])"
            )
        check_installed()
        self._pages = tuple(dict.fromkeys(str(each) for each in sources if _is_page(each)))
        paths = [Path(each).expanduser().absolute() for each in sources if not _is_page(each)]
        self._folders = tuple(dict.fromkeys(map(str, paths)))
        self._all = json.dumps([*self._folders, *self._pages])
        self._suffixes = tuple(each.lower() for each in suffixes)
        self._files = files
        self._size = size
        self._rows = Rows(None if path is None else Path(path).expanduser())
        self._fetcher = Fetcher(CheckedNetwork(allow_private=allow_private))
        self._tried: dict[str, float] = {}
        self._updating: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    async def search(self, query: str, *, limit: int = 8) -> Sequence[SearchHit]:
        """Search, after reading what has changed.

        Args:
            query: Words; texts with more of them, and with rarer ones, come first.
            limit: The maximum number of hits.

        Raises:
            SearchUnavailable: The index cannot be used, or is empty.
        """
        async with self._updating.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            await self._update()
        return await asyncio.to_thread(self._rows.search, query, self._all, limit)

    async def _update(self) -> None:
        known = await asyncio.to_thread(self._rows.stamps, self._all)
        found = await asyncio.to_thread(self._found)
        there = {(each.source, each.place) for each in found} | {(page, page) for page in self._pages}
        gone = known.keys() - there
        if gone:
            await asyncio.to_thread(self._rows.remove, gone)
        changed = [each for each in found if known.get((each.source, each.place)) != each.stamp]
        await self._read(changed)
        read = await asyncio.gather(*(self._page(page, known.get((page, page))) for page in self._pages))
        pages = [each for each in read if each is not None]
        if pages:
            await asyncio.to_thread(self._rows.put, pages)
        if not found and not pages and not any((page, page) in known for page in self._pages):
            raise SearchUnavailable(
                f"the {len(self._folders) + len(self._pages)} sources of the index have nothing to search",
                remedy="name folders with text files, or pages that can be fetched",
            )

    def _found(self) -> list[Found]:
        return find_files(self._folders, suffixes=self._suffixes, files=self._files, size=self._size)

    async def _read(self, changed: Sequence[Found]) -> None:
        async with Reader() as reader:
            for at in range(0, len(changed), _BATCH):
                documents = [await _document(each, reader) for each in changed[at : at + _BATCH]]
                await asyncio.to_thread(self._rows.put, [each for each in documents if each is not None])

    async def _page(self, url: str, known: str | None) -> Document | None:
        """Fetch a page that is new or was fetched long ago; returns None if it is neither, or cannot be fetched now."""
        if known is not None and 0 <= time.time() - float(known) < _PAGE_AGE:
            return None
        if time.monotonic() - self._tried.get(url, float("-inf")) < _TRY_AGAIN:
            return None
        self._tried[url] = time.monotonic()
        try:
            async with asyncio.timeout(_PAGE_TIME):
                page = await page_of(await self._fetcher.get(url), seconds=_PAGE_TIME, limit=_LONGEST)
        except (AddressRefused, TimeoutError, ToolFailed):
            return None  # the index keeps the last version
        return Document(place=url, source=url, stamp=str(time.time()), title=page.title or url, text=page.text)


async def _document(found: Found, reader: Reader) -> Document | None:
    body = await asyncio.to_thread(read_file, found)
    if body is None:
        return None
    title, text = "", ""
    if found.place.lower().endswith((".html", ".htm")):
        with suppress(ToolFailed):  # the search finds it by its name
            page = Fetched(url="", kind="text/html", charset=None, body=body, cut=False)
            read = await reader.read(page, limit=_LONGEST)
            title, text = read.title, read.text
    else:
        text = decoded(body, "utf-8")
        title = _heading(text)
    name = Path(found.place).name
    return Document(place=found.place, source=found.source, stamp=found.stamp, title=title or name, text=text)


def _heading(text: str) -> str:
    """Return the heading of a text in Markdown or similar, if it begins with one."""
    first = text.lstrip()[:300].partition("\n")[0].strip()
    return first.lstrip("#= ").strip() if first.startswith(("# ", "= ")) else ""


def _is_page(source: Path | str) -> bool:
    return isinstance(source, str) and urlsplit(source).scheme.lower() in ("http", "https")
