"""The life of a connection to an MCP server: what it offers, followed while it changes, and calls of it.

What a call is, is in `_sending`; which tools become Functions is `tools._source`'s matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.client.subscriptions import SubscriptionLost
from mcp.types import (
    INVALID_REQUEST,
    ElicitRequestFormParams,
    ElicitResult,
    ErrorData,
    Implementation,
    PaginatedRequestParams,
    ToolListChangedNotification,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ....core import Clock
from ..._failures import Failure, invalid
from ..._link import Link
from ..._request import Request
from .. import _failures as failures
from .._listed import Asked, CallTool, Listed, ToolSpec
from .._server import McpServer
from ._sending import elicited, send, spec_of
from ._sifting import sifted

T = TypeVar("T")

Elicit = Callable[[Asked], Awaitable[Any]]
"""Has a person asked something; gives the answer, or None where there is none."""

_PAGES: Final = 50  # of the list of tools
_TOOLS: Final = 1000  # in it
_PAUSE: Final = 0.1  # seconds between two looks at a list that changes
_ENDS: Final = 10  # of streams of notices that a server ends before it is left alone


class ToolLink(Link):
    """A link to an MCP server.

    Args:
        name: What errors call it.
        server: The server.
        delay: Seconds to wait before connecting.
        clock: What waits.
        on_tools: Told what the server offers, at first and after each change.
        elicit: Has a person asked for what the server asks; None where it may not ask.
    """

    def __init__(
        self,
        name: str,
        server: McpServer,
        *,
        delay: float,
        clock: Clock,
        on_tools: Callable[[Listed], None],
        elicit: Elicit | None,
    ) -> None:
        self._name = name
        self._on_tools = on_tools
        self._elicit = elicit
        self._changed = asyncio.Event()
        self._misfits: dict[str, str] = {}
        self._opened: Client | None = None
        super().__init__(server.host, delay=delay, clock=clock)

    def _client(self) -> Client:
        self._opened = Client(
            sifted(self._host, self._lose, self._misfits, lambda: self._version),
            mode=self._host.mode,
            client_info=Implementation(name="worldagent", version="1"),
            cache=None,
            message_handler=self._noticed,
            elicitation_callback=None if self._elicit is None else self._elicited,
        )
        return self._opened

    @property
    def modern(self) -> bool:
        """Whether the revision 2026-07-28, or a newer one, is spoken."""
        return self._version in MODERN_PROTOCOL_VERSIONS

    @property
    def _version(self) -> str:
        """The revision that is spoken; empty before it is known."""
        client = self._opened
        return client.protocol_version if client is not None and client._session is not None else ""

    async def _meet(self, client: Client) -> Failure | None:
        self._on_tools(await self._list(client))
        return None

    async def _list(self, client: Client) -> Listed:
        offered = client.server_capabilities
        found: list[ToolSpec] = []
        self._misfits.clear()
        cursor: str | None = None
        for _ in range(_PAGES if offered.tools is not None else 0):
            page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            self._heard()
            found += map(spec_of, page.tools)
            cursor = page.next_cursor
            if cursor is None or len(found) >= _TOOLS:
                break
        return Listed(tools=tuple(found[:_TOOLS]), resources=offered.resources is not None, misfits=dict(self._misfits))

    # --- changes ----------------------------------------------------------------------------------------------------

    async def _noticed(self, message: object) -> None:
        await super()._noticed(message)
        if not isinstance(message, Exception):
            self._heard()
        if isinstance(message, ToolListChangedNotification):
            self._changed.set()

    async def _beside(self, client: Client) -> None:
        """Follow the list of tools for as long as the link lives."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._listen(client))
            while True:
                await self._changed.wait()
                self._changed.clear()
                try:
                    self._on_tools(await self._list(client))
                except (MCPError, ValidationError) as error:  # a list that cannot be read changes nothing
                    self._failure_of(error)
                await self._clock.sleep(_PAUSE)

    async def _listen(self, client: Client) -> None:
        """Ask for notices, which newer revisions send to those who ask alone."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        for _ in range(_ENDS):
            try:
                async with client.listen(tools_list_changed=True) as stream:
                    async for _event in stream:
                        self._changed.set()
            except SubscriptionLost:
                pass
            except Exception:  # whatever it is: a server without notices is as good, and its calls go on
                return
            self._changed.set()  # what it did not tell meanwhile

    # --- questions and calls ----------------------------------------------------------------------------------------

    async def _elicited(self, context: ClientRequestContext, params: Any) -> ElicitResult | ErrorData:
        if self._elicit is None or not isinstance(params, ElicitRequestFormParams):
            return ErrorData(code=INVALID_REQUEST, message="only forms can be asked for")
        asked = Asked(message=params.message, schema=params.requested_schema)
        return elicited(await self._elicit(asked))

    async def _send(self, session: ClientSession, request: Request[T]) -> T | Failure:
        try:
            answer: Any = await send(session, request)
        except MCPError as error:
            # An error that answers a call is the tool's, whatever its code. One with a text was made on this side.
            if isinstance(request, CallTool) and not error.message:
                self._has_answered()
                return failures.refused(request.tool, self._name, error.code)
            raise
        self._has_answered()
        return answer  # type: ignore[no-any-return]  # what `send` gives is the request's own type

    def _failure_of(self, error: BaseException) -> Failure:
        if isinstance(error, RuntimeError) and self._session is not None:
            # The library's own for an answer that it cannot make sense of; the connection is as it was.
            return invalid(self._host.label, "answered something that is no MCP message of its kind")
        return super()._failure_of(error)


__all__ = ["Elicit", "ToolLink"]
