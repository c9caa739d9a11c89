"""One life of a connection, from connecting to its loss, owned by one task (D9).

A client of the MCP library can be closed only by the task that opened it, and is dead for good once its host is lost.
So a task of the link's own opens it, serves calls and closes it; callers await futures. It never reconnects: when a
link is over, `_connection` makes the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, TypeVar, cast

import httpx2
from mcp import Client, MCPError
from mcp.client.session import ClientSession
from mcp.types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    ListToolsRequest,
    ListToolsResult,
    PaginatedRequestParams,
)
from pydantic import ValidationError

from ...core import Clock, Tier
from .. import _failures as failures
from .._contract import CONTRACT, Answer, Operation, offered_tiers
from .._failures import SESSION_GONE, Failure
from .._hosts import TOOLS, Host, StdioHost
from .._quiet import quiet_context, quieten
from .._transports import open_transport
from . import _meanings as meanings
from ._calls import Calls
from ._notices import Notices

T = TypeVar("T")

_PAGES: Final = 20  # of the list of tools


class Link:
    """A connection that lives once. Made inside the event loop that it belongs to.

    Args:
        host: The host.
        delay: Seconds to wait before connecting.
        clock: What waits.
        on_change: Told of the tier and scope whose role changed.
    """

    def __init__(self, host: Host, *, delay: float, clock: Clock, on_change: Callable[[Tier, str], None]) -> None:
        self.tiers: frozenset[Tier] = frozenset()
        self.answered = False
        self._host = host
        self._delay = delay
        self._clock = clock
        self._notices = Notices(on_change)
        self._session: ClientSession | None = None
        self._tools: frozenset[str] = frozenset()
        self._serving: asyncio.TaskGroup | None = None
        self._stop = asyncio.Event()
        self._why: Failure | None = None
        self._settled = asyncio.Event()
        self._over_since: float | None = None
        self._garbled = False
        self._silent_since: float | None = None
        self._failure: Failure | None = None
        self._context = quiet_context()
        self._calls = Calls(host, ask=self._ask, late=self._late, context=self._context)
        self.task = asyncio.get_running_loop().create_task(
            self._own(), name=f"role host {host.label}", context=self._context
        )

    @property
    def over(self) -> bool:
        """Whether it takes no call any more."""
        return self._stop.is_set() or (self._settled.is_set() and self._serving is None)

    @property
    def over_since(self) -> float | None:
        """When it was over, by the clock."""
        return self._over_since

    async def ready(self) -> Failure | None:
        """Wait until calls can be made; what is in the way, if they cannot."""
        await self._settled.wait()
        return self._failure if self._serving is None else None

    async def call(self, operation: Operation[T]) -> T | Failure:
        """Make one call. Cancelling it cancels it in the host."""
        if self._serving is None or self._stop.is_set():
            return failures.gone(self._host)
        quieten()
        return await self._calls.make(self._serving, operation)

    def watch(self, scope_ids: dict[Tier, str]) -> None:
        """Ask the host, in the background, to tell of changes in these scopes; it need not be able to."""
        self._notices.watch(scope_ids)

    def stop(self) -> None:
        """Begin to end it; `task` is done when all is released."""
        connecting = not self._settled.is_set() and not self._stop.is_set()
        self._end(failures.closed(self._host.label))
        if connecting:
            self.task.cancel()  # once: a second one would cut off the end of a child

    def _lose(self, why: Failure | None = None) -> None:
        unopened = failures.unreachable(self._host.label, "it ended at once")
        self._end(why or (failures.broken(self._host) if self._session else unopened))

    def _give_up(self) -> None:
        self._settle(failures.late_connecting(self._host))

    def _end(self, why: Failure) -> None:
        """Begin to end it. Callers are told now: the end of a child may take seconds."""
        self._why = self._why or why
        self._stop.set()
        if not self._settled.is_set():
            self._settle(self._why)
        self._mark_over()
        self._calls.settle(self._why)

    def _settle(self, failure: Failure) -> None:
        """Have done with connecting: this is what became of it."""
        self._failure = failure
        self._settled.set()
        self._mark_over()

    def _mark_over(self) -> None:
        if self._over_since is None:
            self._over_since = self._clock.monotonic()

    # --- the owner task ---------------------------------------------------------------------------------------------

    async def _own(self) -> None:
        failure: Failure | None = None
        try:
            if self._delay > 0:
                await self._clock.sleep(self._delay)
            failure = await self._live()
        except Exception as error:
            failure = self._failure_of(error)
        finally:
            failure = self._why or failure or failures.closed(self._host.label)
            self._settle(failure)
            self._calls.settle(failure)

    async def _live(self) -> Failure | None:
        async with contextlib.AsyncExitStack() as opened:
            limit = self._host.connect_timeout
            # Ending a child that is no host takes seconds more; nobody needs to wait for that.
            giving_up = asyncio.get_running_loop().call_later(limit, self._give_up)
            opened.callback(giving_up.cancel)
            async with asyncio.timeout(limit):
                client = await opened.enter_async_context(self._client())
                schema = await self._meet(client.session)
            giving_up.cancel()
            if self._failure is not None:  # it got ready in the moment when it was given up
                return self._failure
            if isinstance(schema, Failure):
                return schema
            self.tiers = offered_tiers(schema)
            if not self.tiers:
                return failures.invalid(self._host.label, "keeps none of the tiers that a host can keep")
            await self._serve(client)
        return None

    def _client(self) -> Client:
        return Client(
            open_transport(self._host, self._lose),
            mode=self._host.mode,
            client_info=Implementation(name="worldagent", version=str(CONTRACT)),
            cache=None,
            message_handler=self._noticed,
        )

    async def _noticed(self, message: object) -> None:
        self._garbled = self._garbled or isinstance(message, Exception)

    async def _meet(self, session: ClientSession) -> object:
        """Learn which tools there are; give the input schema of `role_get`.

        The session's own `list_tools` would keep the host's schemas and let them copy arguments into HTTP headers,
        which proxies log.
        """
        schemas: dict[str, object] = {}
        cursor: str | None = None
        for _ in range(_PAGES):
            request = ListToolsRequest(params=PaginatedRequestParams(cursor=cursor))
            page = await session.send_request(request, ListToolsResult)
            schemas |= {tool.name: tool.input_schema for tool in page.tools}
            self._heard()
            cursor = page.next_cursor
            if cursor is None:
                break
        self._tools = frozenset(tool for tool in TOOLS if self._name(tool) in schemas)
        if "role_list" not in self._tools:
            return self._lacking("role_list")
        return schemas.get(self._name("role_get"))

    async def _serve(self, client: Client) -> None:
        self._session = client.session
        async with asyncio.TaskGroup() as calls:
            notices = calls.create_task(self._notices.follow(client))
            self._serving = calls
            self._settled.set()
            try:
                await self._stop.wait()
            finally:
                self._serving = None
                notices.cancel()
                self._calls.cancel()

    # --- one call ---------------------------------------------------------------------------------------------------

    async def _ask(self, operation: Operation[T]) -> T | Failure:
        session = self._session
        assert session is not None, "calls are made by a link that serves"
        if operation.tool not in self._tools:
            return self._lacking(operation.tool)
        params = CallToolRequestParams(name=self._name(operation.tool), arguments=operation.arguments())
        try:
            result = await session.send_request(CallToolRequest(params=params), CallToolResult)
        except Exception as error:
            return self._failure_of(error)
        self.answered = True
        self._heard()
        answer = Answer(cast("object", result.structured_content), bool(result.is_error))
        return operation.read(answer, self._host.label)

    def _heard(self) -> None:
        """Note that the host answered: what it did before says nothing about its next silence."""
        self._garbled = False
        self._silent_since = None

    def _late(self, began: float) -> Failure:
        """What the caller is told whose call got no answer in time.

        A program that left this call and an earlier one without an answer is ended, so that the next call starts it
        again. Of calls made at the same time the first one counts; a service over HTTP is not ours to end.
        """
        loop = asyncio.get_running_loop()
        if self._silent_since is None:
            self._silent_since = loop.time()
        elif began >= self._silent_since and isinstance(self._host, StdioHost):
            loop.call_soon(self._lose, failures.silent(self._host))
        return failures.stray(self._host.label) if self._garbled else failures.late(self._host)

    def _failure_of(self, error: BaseException) -> Failure:
        """What an error of the library means, and what follows from it for the link."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        host = self._host
        match error:
            case MCPError():
                return self._failure_of_code(error.code, error.data)
            case ValidationError():
                self._heard()
                return failures.invalid(host.label, "answered something that is no MCP message of its kind")
            case _ if self._session is not None:
                self._lose()
                return failures.broken(host)
            case TimeoutError() if self._garbled:
                return failures.stray(host.label)
            case TimeoutError():
                return failures.late_connecting(host)
            case httpx2.TimeoutException():
                return failures.late(host)
            case _:
                return meanings.of_connecting(host, error)

    def _failure_of_code(self, code: int, data: object) -> Failure:
        if code == SESSION_GONE:
            # No later call can use it either; soon, because the end tells the others something else than this one.
            asyncio.get_running_loop().call_soon(self._lose)
            return failures.gone(self._host)
        if code == CONNECTION_CLOSED:
            self._lose()
        else:
            self._heard()
        return self._why or meanings.of_code(self._host, code, data)

    def _name(self, tool: str) -> str:
        return self._host.tools.get(tool, tool)

    def _lacking(self, tool: str) -> Failure:
        return failures.invalid(
            self._host.label,
            f"has no tool {self._name(tool)!r}",
            f"let it offer one, or say what it calls it: {{{tool!r}: ...}} as tools= or in the setting role_host_tools",
        )
