"""The tool `web_fetch`: its parameters, and a page as the model gets it. `fetch` fetches the page."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from ...core.errors import ToolFailed
from ...harness import Function, tool
from .fetch import Fetched, Fetcher
from .html import Reader, check_installed
from .html_program import decoded
from .network import CheckedNetwork

_HTML: Final = ("text/html", "application/xhtml+xml")
_PLAIN: Final = re.compile(
    r"text/.+|application/(json|xml|yaml|toml|javascript|x-ndjson)|application/.+\+(json|xml|yaml)"
)


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
    body, kind = fetched.body, fetched.kind
    if kind in _HTML:
        async with Reader(seconds=seconds) as reader:
            read = await reader.read(body, charset=fetched.charset, url=fetched.url, limit=limit, cut=fetched.cut)
        return WebPage(url=fetched.url, title=read.title, kind=kind, text=read.text, cut=read.cut or fetched.cut)
    if not _PLAIN.fullmatch(kind):
        raise ToolFailed(
            f"the page must be text, but is of the kind {kind[:80] or 'unknown'!r}", remedy="use another page"
        )
    text = decoded(body, fetched.charset, cut=fetched.cut)
    return WebPage(url=fetched.url, kind=kind, text=text[:limit], cut=fetched.cut or len(text) > limit)


__all__ = ["WebPage", "fetch_function", "page_of", "web_fetch_function"]
