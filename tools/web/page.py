"""The tools `web_fetch` and `web_search`: parameters, pages as the model gets them, and what a search must provide."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

from ...core.errors import MissingExtra, SearchUnavailable, ToolFailed
from ...harness import Function, tool
from ..program import Program
from .fetch import CheckedNetwork, Fetched, Fetcher
from .html_program import decoded

_PROGRAM: Final = Path(__file__).with_name("html_program.py")
_PACKAGE: Final = "html_to_markdown"
_KEPT: Final = ("LD_LIBRARY_PATH", "SYSTEMROOT")
_SECONDS: Final = 10.0


class WebPage(BaseModel):
    """A page.

    Attributes:
        url: Where it was in the end, after redirects.
        title: What it calls itself; empty where it does not.
        kind: Its media type.
        text: What it says: HTML as Markdown, all else as it is.
        cut: Whether there is more of it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str
    title: str = ""
    kind: str
    text: str
    cut: bool = False


def check_installed() -> None:
    """Check that HTML can be read.

    Raises:
        MissingExtra: The package that reads it is not installed.
    """
    if find_spec(_PACKAGE) is None:
        raise MissingExtra(
            f"pages are read with the package {_PACKAGE!r}, which is not installed",
            remedy="install it: pip install 'worldagent[web]'",
        )


class Reader:
    """Turns pages into text, one after another: `async with Reader() as reader: ...`.

    Args:
        seconds: How long one page can take.
    """

    def __init__(self, *, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._process: Program | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def read(self, page: Fetched, *, limit: int) -> WebPage:
        """Turn a page into text.

        Args:
            page: The page; its address can be empty.
            limit: How many characters are kept.

        Raises:
            ToolFailed: It cannot be read, or takes longer than `seconds`.
        """
        problem = "is too large or too complex to read"
        try:
            async with asyncio.timeout(self._seconds):
                return await self._asked(page, limit)
        except TimeoutError:
            problem = f"takes longer than {self._seconds:g} seconds to read"
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            pass  # the process has ended
        except asyncio.CancelledError:
            await self._end()
            raise
        await self._end()
        raise ToolFailed(f"the page {problem}", remedy="use another page")

    async def _asked(self, page: Fetched, limit: int) -> WebPage:
        process = await self._started()
        asked = {"size": len(page.body), "charset": page.charset, "url": page.url, "limit": limit, "cut": page.cut}
        process.stdin.write(json.dumps(asked).encode() + b"\n" + page.body)
        reply = json.loads(await process.stdout.readline())
        text = (await process.stdout.readexactly(reply["size"])).decode()
        cut = reply["cut"] or page.cut
        return WebPage(url=page.url, title=reply["title"], kind=page.kind, text=text, cut=cut)

    async def _started(self) -> Program:
        if self._process is None:
            check_installed()
            spec = find_spec(_PACKAGE)
            assert spec is not None
            assert spec.origin is not None
            env = {name: os.environ[name] for name in _KEPT if name in os.environ}
            self._process = await Program.start(_PROGRAM, str(Path(spec.origin).parent.parent), env=env)
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.end(0)


# --- web_fetch --------------------------------------------------------------------------------------------------------

_HTML: Final = ("text/html", "application/xhtml+xml")
_PLAIN: Final = re.compile(
    r"text/.+|application/(json|xml|yaml|toml|javascript|x-ndjson)|application/.+\+(json|xml|yaml)"
)


def web_fetch_function(*, allow_private: bool = False, timeout: float = 30, limit: int = 50_000) -> Function:
    """Make the tool `web_fetch`. It keeps no cookies, uses no proxy and sends no password.

    Args:
        allow_private: Whether it can reach this machine and its network.
        timeout: Seconds for a page, including redirects.
        limit: Characters of a page's text.

    Raises:
        MissingExtra: The package that reads HTML is not installed.
    """
    check_installed()
    return fetch_function(Fetcher(CheckedNetwork(allow_private=allow_private)), timeout=timeout, limit=limit)


def fetch_function(fetcher: Fetcher, *, timeout: float, limit: int) -> Function:
    """Make the tool over a `Fetcher`; see `web_fetch_function`."""

    @tool(
        name="web_fetch",
        description="Read a page of the web: HTML comes as Markdown, text and JSON as they are.",
        risk="network",
        untrusted=True,
    )
    async def web_fetch(
        url: Annotated[str, Field(min_length=1, max_length=4096, description="its address, with https:// or http://")],
    ) -> WebPage:
        try:
            async with asyncio.timeout(timeout):
                return await page_of(await fetcher.get(url), seconds=timeout, limit=int(limit))
        except TimeoutError:
            pass
        raise ToolFailed(f"the page did not come within {timeout:g} seconds", remedy="try again, or use another page")

    return web_fetch


async def page_of(fetched: Fetched, *, seconds: float, limit: int) -> WebPage:
    """Return the text of a fetched page.

    Args:
        fetched: The page.
        seconds: How long reading it can take.
        limit: Characters that are kept.

    Raises:
        ToolFailed: It is not text.
    """
    kind = fetched.kind
    if kind in _HTML:
        async with Reader(seconds=seconds) as reader:
            return await reader.read(fetched, limit=limit)
    if not _PLAIN.fullmatch(kind):
        raise ToolFailed(
            f"the page must be text, but is of the kind {kind[:80] or 'unknown'!r}", remedy="use another page"
        )
    text = decoded(fetched.body, fetched.charset, cut=fetched.cut)
    return WebPage(url=fetched.url, kind=kind, text=text[:limit], cut=fetched.cut or len(text) > limit)


# --- web_search -------------------------------------------------------------------------------------------------------

_TITLE: Final = 300
_URL: Final = 2000
_EXCERPT: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """Something found.

    Attributes:
        title: What it is called.
        url: Where it is: an address, or the path of a file.
        excerpt: A part of it that matches the query.
    """

    title: str
    url: str
    excerpt: str


class WebSearch(Protocol):
    """A search: a host's own service, or `LocalIndex`."""

    async def search(self, query: str, *, limit: int) -> Sequence[SearchHit]:
        """Search for a query.

        Args:
            query: The model's query.
            limit: The maximum number of hits.

        Returns:
            The hits, best first.

        Raises:
            SearchUnavailable: The search cannot be reached.
        """
        ...


def web_search_function(search: WebSearch | None, *, timeout: float = 30) -> Function:
    """Make the tool `web_search`.

    Args:
        search: What it searches; without one, each call fails with `SearchUnavailable`.
        timeout: Seconds for a search.
    """

    @tool(
        name="web_search",
        description="Search for pages by words; read what is found with another tool.",
        risk="network",
        untrusted=True,
    )
    async def web_search(
        query: Annotated[str, Field(min_length=1, max_length=1000, description="the words to search for")],
        limit: Annotated[int, Field(ge=1, le=20, description="how many hits are wanted at most")] = 8,
    ) -> list[SearchHit]:
        if search is None:
            raise SearchUnavailable(
                "'web_search' has nothing to search",
                remedy="pass BuiltinTools(search=LocalIndex([...])) or your own search, or set tool_search",
            )
        try:
            async with asyncio.timeout(timeout):
                found = await search.search(query, limit=limit)
        except TimeoutError:
            found = None
        if found is None:
            raise ToolFailed(f"the search took longer than {timeout:g} seconds", remedy="try again, or do without")
        return [
            SearchHit(title=hit.title[:_TITLE], url=hit.url[:_URL], excerpt=hit.excerpt[:_EXCERPT])
            for hit in list(found)[:limit]
        ]

    return web_search
