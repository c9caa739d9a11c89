"""The built-in search over folders and pages that a user names, on this machine.

`index_rows` stores the texts, `index_files` finds the files in folders.
"""

from __future__ import annotations

import asyncio
import json
import time
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ...core.errors import AddressRefused, InvalidArgument, SearchUnavailable, ToolFailed
from .fetch import Fetcher
from .html import Reader, check_installed
from .html_program import decoded
from .index_files import SUFFIXES, Found, find_files, read_file
from .index_rows import Document, Rows
from .network import CheckedNetwork
from .page import page_of
from .search import SearchHit

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
        self._pages = tuple(dict.fromkeys(each for each in sources if isinstance(each, str) and _is_page(each)))
        paths = [
            Path(each).expanduser().absolute() for each in sources if not (isinstance(each, str) and _is_page(each))
        ]
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
        try:
            read = await reader.read(body, charset=None, url="", limit=_LONGEST)
            title, text = read.title, read.text
        except ToolFailed:
            pass  # the search finds it by its name
    else:
        text = decoded(body, "utf-8")
        title = _heading(text)
    name = Path(found.place).name
    return Document(place=found.place, source=found.source, stamp=found.stamp, title=title or name, text=text)


def _heading(text: str) -> str:
    """Return the heading of a text in Markdown or similar, if it begins with one."""
    first = text.lstrip()[:300].partition("\n")[0].strip()
    return first.lstrip("#= ").strip() if first.startswith(("# ", "= ")) else ""


def _is_page(source: str) -> bool:
    return urlsplit(source).scheme.lower() in ("http", "https")


__all__ = ["LocalIndex"]
