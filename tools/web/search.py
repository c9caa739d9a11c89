"""The tool `web_search`, and the interface of what it searches. `index` is the built-in search."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Protocol

from pydantic import Field

from ...core.errors import SearchUnavailable, ToolFailed
from ...harness import Function, tool

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


__all__ = ["SearchHit", "WebSearch", "web_search_function"]
