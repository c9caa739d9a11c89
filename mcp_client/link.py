"""One life of a connection, from connecting to its loss. One task owns it (D9).

Only the task that opened a client of the MCP library can close it, and a client cannot be used again after its host is
lost. So the link has a task that opens the client, serves calls and closes it. A link never reconnects: after it ends,
`connection` makes the next one. `RoleLink` here and `tools.link` define the calls.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote

import httpx2
from mcp import Client, MCPError
from mcp.client._transport import TransportStreams
from mcp.client.extension import ClientExtension
from mcp.client.session import ClientSession, ElicitationFnT
from mcp.client.subscriptions import ResourceUpdated, SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp.types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    ListToolsRequest,
    ListToolsResult,
    PaginatedRequestParams,
    PaginatedResult,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, TypeAdapter, ValidationError

from ..core import Clock, Tier
from .contract import Answer, Operation, offered_tiers
from .hosts import TOOLS, Failure, Failures, Host, HttpHost, StdioHost
from .readable import OUT_OF_BOUNDS
from .transports import SESSION_GONE, open_transport, quiet_context, quieten

T = TypeVar("T")
R = TypeVar("R", bound=BaseModel)

IN_FLIGHT: Final = 32
"""The number of calls that a host gets at once; the others wait."""
MAX_WAITING_CALLS: Final = 256
"""The limit of running and waiting calls; one more is refused."""

MAX_STREAMS: Final = 10  # the number of notification streams that a host can end before no new one is opened
_MISUSED: Final = (INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, HEADER_MISMATCH)
# The library has no error type for this. The tests include a host that speaks such a revision.
_OF_REVISIONS: Final = ("Unsupported protocol version", "No mutually supported modern protocol version")
OF_ITS_KIND: Final = " of its kind"


class Link(ABC):
    """A connection that is used once. Make it inside the event loop that it belongs to.

    A subclass defines the first requests to the host, what runs next to the calls, and a method for each call.

    Args:
        host: The host.
        failures: Makes the failures of the host.
        delay: Seconds to wait before connecting.
        clock: Waits.
    """

    _elicitation: ElicitationFnT | None = None
    """Asks a person what the host wants to know; None if the host cannot ask."""
    _extensions: Sequence[ClientExtension] = ()
    """The extensions of MCP that the host is told of."""
    _auth: httpx2.Auth | None = None
    """Sends a token with each request; None if the host has one of its own, or needs none."""

    def __init__(self, host: Host, failures: Failures, *, delay: float, clock: Clock) -> None:
        loop = asyncio.get_running_loop()
        self.answered = False
        self.over_since: float | None = None
        self._host = host
        self._failures = failures
        self._clock = clock
        self._version = ""
        self._session: ClientSession | None = None
        self._serving: asyncio.TaskGroup | None = None
        self._settled = asyncio.Event()  # set when calls can be made, or when the link is over
        self._over: asyncio.Future[Failure] = loop.create_future()  # done when no more calls are taken, with the reason
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._calls: set[asyncio.Task[Any]] = set()
        self._garbled = False
        self._silent_since: float | None = None
        self._context = quiet_context()
        self.task = loop.create_task(self._own(delay), name=failures.name, context=self._context)

    @property
    def over(self) -> bool:
        """Whether it takes no more calls."""
        return self._over.done()

    @property
    def serving(self) -> bool:
        """Whether it takes calls now."""
        return self._serving is not None and not self.over

    @property
    def modern(self) -> bool:
        """Whether both sides use the revision 2026-07-28 or a newer one."""
        return self._version in MODERN_PROTOCOL_VERSIONS

    async def ready(self) -> Failure | None:
        """Wait until calls can be made. Return the failure if they cannot."""
        await self._settled.wait()
        return self._over.result() if self.over else None

    def stop(self) -> None:
        """Begin to end the link. `task` is done when everything is released."""
        connecting = not self._settled.is_set()
        self._end(self._failures.closed())
        if connecting:
            self.task.cancel()  # only once: a second cancel would interrupt the ending of a child process

    # --- for subclasses ---------------------------------------------------------------------------------------------

    def _transport(self) -> contextlib.AbstractAsyncContextManager[TransportStreams]:
        """The streams of the host, open inside the block."""
        return open_transport(self._host, self._failures, self._lose, self._auth)

    @abstractmethod
    async def _discover(self, client: Client) -> Failure | None:
        """Learn what the host offers. Return the failure if it cannot be used."""

    @abstractmethod
    async def _follow(self, client: Client) -> None:
        """Follow changes in the host for as long as calls are served."""

    async def _listen(self, listen: Callable[[], Awaitable[bool]]) -> None:
        """Listen to notifications. The revision 2026-07-28 sends them on request; older revisions have no such stream.

        Args:
            listen: Listens once, and returns whether the host ended the stream. Then it is called again a few times.
        """
        ended = 0
        while self.modern and ended < MAX_STREAMS:
            try:
                ended += await listen()
            except Exception:  # any error: notifications are optional, and calls work without them
                return

    async def _send(self, request: Any, result: type[R] | TypeAdapter[R], *, progress: ProgressFnT | None = None) -> R:
        """Send the request of a call, and return its answer. `call` interprets the errors of the library."""
        assert self._session is not None, "calls need a link that serves"
        answer = await self._session.send_request(request, result, progress_callback=progress)
        self._has_answered()
        return answer

    async def _answer(
        self, request: Any, result: type[R] | TypeAdapter[R], *, progress: ProgressFnT | None = None
    ) -> R | MCPError:
        """The same as `_send`, except that an error which the host answers, whatever its code, is returned."""
        try:
            return await self._send(request, result, progress=progress)
        except MCPError as error:
            if error.message or error.code == OUT_OF_BOUNDS:  # it was made in this process
                raise
            self._has_answered()
            return error

    async def _noticed(self, message: object) -> None:
        self._garbled = self._garbled or isinstance(message, Exception)

    def _has_answered(self) -> None:
        """Record that the host answered a call."""
        self.answered = True
        self._reset_silence()

    def _reset_silence(self) -> None:
        """Record that the host answered. Earlier silence then no longer counts against it."""
        self._garbled = False
        self._silent_since = None

    # --- the owner task ---------------------------------------------------------------------------------------------

    async def _own(self, delay: float) -> None:
        failure: Failure | None = None
        try:
            if delay > 0:
                await self._clock.sleep(delay)
            failure = await self._live()
        except Exception as error:
            failure = self._failure_of(error)
        finally:
            self._end(failure or self._failures.closed())

    async def _live(self) -> Failure | None:
        async with contextlib.AsyncExitStack() as opened:
            limit = self._host.connect_timeout
            # Ending a child that is not an MCP host takes some seconds. Callers do not wait for that.
            giving_up = asyncio.get_running_loop().call_later(limit, self._end, self._failures.late_connecting(limit))
            opened.callback(giving_up.cancel)
            client = Client(
                self._transport(),
                mode=self._host.mode,
                client_info=Implementation(name="worldagent", version="1"),
                cache=None,
                message_handler=self._noticed,
                elicitation_callback=self._elicitation,
                extensions=self._extensions,
            )
            async with asyncio.timeout(limit):
                await opened.enter_async_context(client)
                self._version = client.protocol_version
                failure = await self._discover(client)
            giving_up.cancel()
            if failure is not None or self.over:  # the time limit passed just before it became ready
                return failure
            await self._serve(client)
        return None

    async def _serve(self, client: Client) -> None:
        self._session = client.session
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._follow(client))
            self._serving = group
            self._settled.set()
            try:
                await asyncio.wait({self._over})
            finally:
                self._lose()
                for task in (following, *self._calls):
                    task.cancel()

    def _lose(self, why: Failure | None = None) -> None:
        """End the link because the connection is lost."""
        unopened = self._failures.unreachable("it ended at once")
        self._end(why or (self._failures.broken() if self._session else unopened))

    def _end(self, why: Failure) -> None:
        """Begin to end the link, for the first reason given.

        Callers fail now, because the end of a child can take seconds.
        """
        if not self._over.done():
            self._over.set_result(why)
            self.over_since = self._clock.monotonic()
            self._settled.set()

    # --- one call ---------------------------------------------------------------------------------------------------

    async def call(self, ask: Callable[[], Awaitable[T | Failure]], seconds: float) -> T | Failure:
        """Make one call in a task of the link. Cancelling it also cancels the call in the host.

        The time limit applies to the caller. The task of an abandoned call still has to notify the host, and a host
        that reads nothing would block it for some seconds more. So only the end of the link waits for the task.

        Args:
            ask: Makes the call.
            seconds: How long the call can take.
        """
        if self._serving is None or self.over:
            return self._failures.gone()
        if len(self._calls) >= MAX_WAITING_CALLS:
            what = f"has {len(self._calls)} calls waiting"
            return self._failures.unavailable(what, "try again later, and find out why the host is slow")
        quieten()
        began = asyncio.get_running_loop().time()
        task = self._serving.create_task(self._ask(ask), context=self._context.copy())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            waited: set[asyncio.Future[Any]] = {task, self._over}
            await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and not task.cancelled():
                return task.result()
            return self._over.result() if self.over else self._late(began, seconds)
        finally:
            task.cancel()

    async def _ask(self, ask: Callable[[], Awaitable[T | Failure]]) -> T | Failure:
        async with self._slots:
            try:
                return await ask()
            except Exception as error:
                return self._failure_of(error)

    def _late(self, began: float, seconds: float) -> Failure:
        """The failure of a call that got no answer within the time limit.

        A program that did not answer this call and an earlier one is ended, so that the next call restarts it. Of calls
        made at the same time only the first one counts. A service over HTTP is never ended, because it is not ours.
        """
        if self._silent_since is None:
            self._silent_since = asyncio.get_running_loop().time()
        elif began >= self._silent_since and isinstance(self._host, StdioHost):
            self._lose(self._failures.unavailable("did not answer two calls", self._failures.restart))
        return self._failures.stray() if self._garbled else self._failures.late(seconds)

    # --- errors of the library --------------------------------------------------------------------------------------

    def _failure_of(self, error: BaseException) -> Failure:
        """Interpret an error of the library, and apply its consequences to the link."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        failures = self._failures
        match error:
            case MCPError():
                return self._failure_of_mcp(error)
            case ValidationError():
                self._reset_silence()
                return failures.garbled(OF_ITS_KIND)
            case RuntimeError() if self._session is not None:
                # The library uses this code for an answer that it cannot interpret. The connection still works.
                return failures.garbled(OF_ITS_KIND)
            case _ if self._session is not None:
                self._lose()
                return self._over.result()
            case TimeoutError():
                return failures.late_connecting(self._host.connect_timeout)
            case httpx2.TimeoutException():
                return failures.late(self._host.timeout)
            case RuntimeError() if str(error).startswith(_OF_REVISIONS):
                return self._foreign()
            case _:
                return failures.unopened(error)

    def _failure_of_mcp(self, error: MCPError) -> Failure:
        """Interpret an MCP error.

        Errors of a host come without their text; an error with a text was made in this process.
        """
        code, made_here = error.code, bool(error.message)
        if made_here and code == SESSION_GONE:
            # The link is useless for later calls. It ends a little later, because that gives other callers another
            # error.
            asyncio.get_running_loop().call_soon(self._lose)
            return self._failures.gone()
        if made_here and code == CONNECTION_CLOSED:
            self._lose()
        else:
            self._reset_silence()
        if self.over:
            return self._over.result()
        if made_here and code in range(100, 600):
            return self._failures.of_status(code, error.data)
        if code == PARSE_ERROR:
            return self._failures.garbled()
        if code == OUT_OF_BOUNDS:
            return self._failures.crowded()
        if code == UNSUPPORTED_PROTOCOL_VERSION:
            return self._foreign()
        if code in _MISUSED:
            http = isinstance(self._host, HttpHost)
            what = "the address is perhaps not its MCP endpoint" if http else "the program is perhaps not an MCP server"
            return self._failures.invalid(f"rejected a request of MCP (MCP error {code}); {what}")
        return self._failures.of_code(code)

    def _foreign(self) -> Failure:
        what = "speaks no protocol revision of MCP that this package knows"
        return self._failures.invalid(what, "use one that speaks 2025-11-25 or newer")


P = TypeVar("P", bound=PaginatedResult)


async def pages(fetch: Callable[[PaginatedRequestParams], Awaitable[P]], most: int) -> AsyncGenerator[P]:
    """The pages of a list, at most `most` of them and none twice, because a host can have an endless list."""
    cursor: str | None = None
    seen: set[str | None] = set()
    while cursor not in seen and len(seen) < most:
        seen.add(cursor)
        page = await fetch(PaginatedRequestParams(cursor=cursor))
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return


_PAGES: Final = 20  # pages of the list of tools
_SCOPES: Final = 256  # the limit of watched scopes; the one unused for longest is dropped first


# --- a role host ------------------------------------------------------------------------------------------------------


async def input_schemas(client: Client) -> dict[str, object]:
    """The input schemas of the tools of a role host, by the host's names."""
    # Not `list_tools` of the session: it keeps the schemas of the host, and these can copy arguments into HTTP headers,
    # which proxies log.
    send = client.session.send_request
    found = pages(lambda params: send(ListToolsRequest(params=params), ListToolsResult), _PAGES)
    return {tool.name: tool.input_schema async for page in found for tool in page.tools}


class RoleLink(Link):
    """A link to a role host.

    Args:
        host: The host.
        failures: Makes the failures of the host.
        delay: Seconds to wait before connecting.
        clock: Waits.
        on_change: Called with the tier and scope whose role changed.
    """

    def __init__(
        self, host: Host, failures: Failures, *, delay: float, clock: Clock, on_change: Callable[[Tier, str], None]
    ) -> None:
        self.tiers: frozenset[Tier] = frozenset()
        self._on_change = on_change
        self._watched: dict[str, tuple[Tier, str]] = {}
        self._more = asyncio.Event()
        self._listening = False
        self._tools: frozenset[str] = frozenset()
        super().__init__(host, failures, delay=delay, clock=clock)

    def watch(self, scope_ids: dict[Tier, str]) -> None:
        """Ask the host, in the background, to report changes in these scopes.

        A host that cannot do this is not an error.
        """
        for tier, scope_id in scope_ids.items():
            uri = f"role://{tier.value}/{quote(scope_id, safe='')}"
            if self._watched.pop(uri, None) is None or not self._listening:
                self._more.set()
            self._watched[uri] = (tier, scope_id)
        while len(self._watched) > _SCOPES:
            del self._watched[next(iter(self._watched))]

    async def ask(self, operation: Operation[T]) -> T | Failure:
        """Make one call of the contract."""
        if operation.tool not in self._tools:
            return self._lacking(operation.tool)
        params = CallToolRequestParams(name=self._name(operation.tool), arguments=operation.arguments())
        result = await self._send(CallToolRequest(params=params), CallToolResult)
        answer = Answer(cast("object", result.structured_content), bool(result.is_error))
        return operation.read(answer, self._failures)

    async def _discover(self, client: Client) -> Failure | None:
        """Learn which tools the host has, and which tiers it keeps."""
        schemas = await input_schemas(client)
        self._reset_silence()
        self._tools = frozenset(tool for tool in TOOLS if self._name(tool) in schemas)
        if "role_list" not in self._tools:
            return self._lacking("role_list")
        self.tiers = offered_tiers(schemas.get(self._name("role_get")))
        return None if self.tiers else self._failures.invalid("keeps none of the tiers that a role host can keep")

    async def _follow(self, client: Client) -> None:
        resources = client.server_capabilities.resources
        if resources is not None and resources.subscribe:
            await self._listen(lambda: self._listen_to_watched(client))

    async def _listen_to_watched(self, client: Client) -> bool:
        """Listen to the watched scopes until there are new ones or the stream ends. Return True if the stream ended."""
        await self._more.wait()
        self._more.clear()
        scopes = dict(self._watched)

        async def read() -> None:
            with contextlib.suppress(SubscriptionLost):
                async for event in stream:
                    if isinstance(event, ResourceUpdated) and event.uri in scopes:
                        self._on_change(*scopes[event.uri])

        async with client.listen(resource_subscriptions=list(scopes)) as stream:
            self._listening = True
            tasks = [asyncio.create_task(each) for each in (read(), self._more.wait())]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                return tasks[0].done()
            finally:
                self._listening = False
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    def _name(self, tool: str) -> str:
        return self._host.tools.get(tool, tool)

    def _lacking(self, tool: str) -> Failure:
        return self._failures.invalid(
            f"has no tool {self._name(tool)!r}",
            f"add it to the host, or map its name with {{{tool!r}: ...}} as tools= or in the setting role_host_tools",
        )
