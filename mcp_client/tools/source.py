"""One MCP server as a source of Functions. Its tools are in the registry for as long as the server offers them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from ...core import Clock
from ...core.errors import FunctionInvalid, HostError, InvalidArgument, NameTaken, WorldAgentError
from ...core.events import CallProgress
from ...harness import CallContext, Function, Registry
from ...harness.schema import check_apart
from ..connection import Connection
from ..hosts import Failure, HttpHost
from ..logins import KeptLogin, LoginStore
from .kept import KeptTasks
from .results import (
    READ_RESOURCE,
    Keep,
    KeepFor,
    blocks_of,
    decoded,
    failures_of,
    function_of,
    made_by,
    resource_function,
    result_of_answer,
)
from .rounds import Rounds
from .server import CallTool, Listed, McpResource, McpServer, Progress, ToolAnswer, ToolSpec, name_of

if TYPE_CHECKING:
    from ..oauth import LoginAuth, Return, Show
    from .link import ToolLink


_LOG: Final = logging.getLogger("worldagent.mcp")
MAX_FILES_BYTES: Final = 16 << 20  # bytes of all resources that are read as files
_MESSAGE: Final = 500  # the limit of characters of a server's progress message
PROGRESS_INTERVAL_SECONDS: Final = 0.05  # seconds between two progress events of a call
CANCEL_SECONDS: Final = 2.0  # seconds that the server has to take note that a task is cancelled
_RESOURCES: Final = ToolSpec(name=READ_RESOURCE, params={})
CLASH: Final = "another function has this name"
"""Why a tool is left out."""


class McpSource:
    """An MCP server of an open agent: `agent.mcp[name]`.

    Args:
        name: Its name.
        server: Its host and settings.
        registry: Receives its Functions.
        clock: Waits between attempts to connect.
        keep: Stores images and other media that it returns; without it they are only described.
        logins: Where logins are kept; without it there are none.
        tasks: The tasks of the server that turns wait for; without it they are left to the server.
        account: The account whose login it uses, and which alone can call its Functions; None is any account.
    """

    def __init__(
        self,
        name: str,
        server: McpServer,
        *,
        registry: Registry,
        clock: Clock,
        keep: KeepFor | None = None,
        logins: LoginStore | None = None,
        tasks: KeptTasks | None = None,
        account: str | None = None,
    ) -> None:
        self.name = name
        self.server = server
        self.account = account
        self._prefix = server.prefix_as(name)
        self._registry = registry
        self._clock = clock
        self._keep = keep
        self._made: dict[str, tuple[ToolSpec, Function]] = {}
        self._left_out: dict[str, str] = {}
        self._listed = self._withdrawn = False
        self._failure: WorldAgentError | None = None
        self._connecting: set[asyncio.Task[None]] = set()
        self._tasks = tasks
        self._cancelling: dict[str, asyncio.Task[None]] = {}
        self._rounds = Rounds(self) if server.elicitation or account is not None else None
        self._auth: LoginAuth | None = None
        self._kept: KeptLogin | None = None
        if logins is not None and server.login is not None and isinstance(server.host, HttpHost):
            self._kept = logins.of(name, server.host.url, account)
        self.failures = failures_of(name, server, logins, account)
        self._connection = Connection(self._link, self.failures, clock=clock)

    def __repr__(self) -> str:
        return f"McpSource({self.name!r})"

    @property
    def connected(self) -> bool:
        """Whether a call could be made at once. If not, a call reconnects."""
        link = self._connection.link
        return link is not None and link.serving

    @property
    def functions(self) -> Mapping[str, Function]:
        """Its Functions, by the server's own names of its tools."""
        return MappingProxyType({tool: made for tool, (_, made) in self._made.items()})

    @property
    def left_out(self) -> Mapping[str, str]:
        """Tools that it offers but that cannot be used, by the server's own names, and why."""
        return MappingProxyType(self._left_out)

    def of(self, account: str) -> McpSource:
        """This server as an account uses it: where each account has a login of its own, that is another source.

        Raises:
            McpServerUnavailable: It is used by too many accounts at once.
        """
        return self

    async def connect(self) -> None:
        """Connect if needed. Afterwards its tools exist.

        Raises:
            McpServerUnavailable, McpServerForbidden, McpServerInvalid: The server cannot be reached or used.
            AgentClosed: The agent is closed.
        """
        try:
            await self._connection.connect()
        except HostError as error:
            self._failure = error
            raise

    async def log_in(self, show: Show, back: AbstractAsyncContextManager[Return]) -> None:
        """Log a person in, for the workspace or for the account that this source is of.

        Args:
            show: Shows the person where to log in. The address has secrets of this login in it.
            back: Where the person is sent back to.

        Raises:
            InvalidArgument: No person logs in to it.
            McpServerUnavailable, McpServerForbidden, McpServerInvalid: The login was refused, or is not valid.
            StorageUnavailable: The login cannot be kept.
        """
        from ..oauth import log_in

        host, login = self.server.host, self.server.login
        if login is not None and login.by == "account" and self.account is None:
            raise self.failures.without_account().error()
        if self._kept is None or login is None or login.by == "client" or not isinstance(host, HttpHost):
            raise InvalidArgument(
                f"no person logs in to MCP server {self.name!r}", remedy="use it without a login, or change `login`"
            )
        await log_in(host, login, self._kept, self.failures, clock=self._clock, show=show, back=back)

    async def resources(self) -> tuple[McpResource, ...]:
        """The resources that it offers.

        Raises:
            McpServerUnavailable, McpServerForbidden, McpServerInvalid: The server cannot be reached or used.
        """
        return await self._connection.call(lambda link: link.resources(), self.server.timeout)

    async def read(self, uri: str) -> list[dict[str, Any]]:
        """The contents of a resource, as blocks. A text block has `text`; anything else is stored as an attachment.

        Args:
            uri: Its address, from `resources()`.

        Raises:
            McpServerUnavailable, McpServerForbidden, McpServerInvalid: The server cannot be reached or used, or does
                not have the resource.
        """
        return await blocks_of(await self._contents(uri), self._keeping(None))

    def _keeping(self, ctx: CallContext | None) -> Keep | None:
        """What stores media for the account of a call, or for the host."""
        return None if self._keep is None else partial(self._keep, None if ctx is None else ctx.scope)

    async def _contents(self, uri: str) -> tuple[Mapping[str, Any], ...]:
        return await self._connection.call(lambda link: link.read(uri), self.server.timeout)

    async def files(self, uris: Iterable[str]) -> tuple[bytes, ...]:
        """The contents of resources as they are, at most `MAX_FILES_BYTES` in all.

        Args:
            uris: Their addresses, from `resources()`.

        Raises:
            McpServerUnavailable, McpServerForbidden, McpServerInvalid: The server cannot be reached or used, does not
                have a resource, or they are too large.
        """
        found: list[bytes] = []
        for uri in uris:
            found.append(b"".join(map(_bytes_of, await self._contents(uri))))
            if sum(map(len, found)) > MAX_FILES_BYTES:
                raise self.failures.invalid(f"offers skills of more than {MAX_FILES_BYTES} bytes").error()
        return tuple(found)

    async def start(self) -> None:
        """Connect at the agent's start. The agent starts even if the server is down.

        Raises:
            NameTaken: One of its tools has the name of a function, worker or shape of the agent.
        """
        self._registry.replace_source(self.name, (), prefix=self._prefix, missing=self._missing, known=False)
        try:
            await self.connect()
        except HostError as error:
            _LOG.warning("%s: its tools are missing", error)
        clash = next((tool for tool, why in self._left_out.items() if why == CLASH), None)
        if clash is not None:
            raise NameTaken(
                f"two functions, workers or shapes have the name {name_of(self._prefix, clash)!r}, one of them the "
                f"tool {clash!r} of MCP server {self.name!r}",
                remedy="give the server another prefix, or exclude the tool with allow=",
            )

    async def aclose(self) -> None:
        """End the connection and remove its Functions."""
        self.withdraw()
        if self._cancelling:
            await asyncio.wait(self._cancelling.values(), timeout=CANCEL_SECONDS)
        await self._connection.aclose()
        if self._auth is not None:
            await self._auth.aclose()

    def withdraw(self) -> None:
        """Remove its Functions for good; the connection can take longer to end."""
        if not self._withdrawn:
            self._withdrawn = True
            self._registry.remove_source(self.name)
            self._made, self._listed = {}, False
        for task in self._connecting:
            task.cancel()
        if self._rounds is not None:
            self._rounds.close()

    def _link(self, delay: float) -> ToolLink:
        # Imported here, so that the MCP library is loaded only if a server is used.
        from ..oauth import LoginAuth
        from .link import ToolLink

        host, login = self.server.host, self.server.login
        if login is not None and login.by == "account" and self.account is None:
            raise self.failures.without_account().error()
        if self._auth is None and self._kept is not None and login is not None and isinstance(host, HttpHost):
            self._auth = LoginAuth(host, login, self._kept, self._clock)
        return ToolLink(
            self.server.host,
            self.failures,
            delay=delay,
            clock=self._clock,
            on_tools=self._offered,
            elicit=self._rounds.elicit if self._rounds is not None and self.server.elicitation else None,
            auth=self._auth,
        )

    # --- what it offers ---------------------------------------------------------------------------------------------

    async def _offered(self, listed: Listed) -> None:
        """Update the registry to what the server offers now. The event loop runs while its Functions are made."""
        if listed.tasks and self._rounds is None:  # for good: a call that was made in rounds is repeated in rounds
            self._rounds, self._made = Rounds(self), {}
        left_out = {name: why for name, why in listed.invalid_tools.items() if self.server.allows(name)}
        made: dict[str, tuple[ToolSpec, Function]] = {}
        specs = [spec for spec in listed.tools if self.server.allows(spec.name)]
        resources = listed.resources and self.server.allows(READ_RESOURCE)
        if resources and all(spec.name != READ_RESOURCE for spec in specs):
            specs.append(_RESOURCES)
        shared = Counter(name_of(self._prefix, spec.name) for spec in specs)
        for spec in specs:
            # None of them gets the name: the order of the list, which the server chooses, must not decide.
            if shared[name := name_of(self._prefix, spec.name)] > 1:
                left_out[spec.name] = f"{shared[name]} tools of this server have the name {name!r} here"
            else:
                for schema in (spec.params, spec.result):
                    await check_apart(schema)
                if why := self._take(spec, made):
                    left_out[spec.name] = why
            await asyncio.sleep(0)
        if self._withdrawn:
            return
        self._left_out = left_out
        for name, why in left_out.items():
            _LOG.warning("MCP server %r: the tool %r is left out: %s", self.name, name, why)
        self._made, self._listed, self._failure = made, True, None
        functions = [function for _, function in made.values()]
        self._registry.replace_source(self.name, functions, prefix=self._prefix, missing=self._missing)

    def _take(self, spec: ToolSpec, made: dict[str, tuple[ToolSpec, Function]]) -> str:
        """Make the Function of a tool; return why it is left out, or an empty text."""
        known = self._made.get(spec.name)
        try:
            function = known[1] if known is not None and known[0] == spec else self._function(spec)
        except FunctionInvalid as error:
            return error.problem
        if not self._registry.is_free(function.name, self.name):
            return CLASH
        made[spec.name] = (spec, function)
        return ""

    def _function(self, spec: ToolSpec) -> Function:
        kind: Literal["leaf", "flow"] = "leaf" if self._rounds is None else "flow"
        call = self.call if self._rounds is None else self._rounds.call
        read = self.read_for if self._rounds is None else self._rounds.read

        async def body(ctx: CallContext, /, **arguments: Any) -> Any:
            self._check_account(ctx)
            return await (read(ctx, **arguments) if spec is _RESOURCES else call(spec, arguments, ctx))

        if spec is _RESOURCES:
            return resource_function(self.server, name=self.name, prefix=self._prefix, body=body, kind=kind)
        return function_of(spec, self.server, prefix=self._prefix, body=body, kind=kind)

    def _check_account(self, ctx: CallContext) -> None:
        """Refuse a call of another account. The registry of its turn does not have the function anyway."""
        if self.account is not None and ctx.scope.account != self.account:
            raise self.failures.without_account().error()

    def _missing(self, function: str) -> WorldAgentError | None:
        """The error for a missing function that could be one of this server's; None if it is not."""
        ours = function.startswith(self._prefix) and self.server.allows(function.removeprefix(self._prefix))
        if self._listed or not ours:
            return None
        self._attempt()
        return self.failures.absent(function, self._failure)

    def _attempt(self) -> set[asyncio.Task[None]]:
        """Connect in the background, in the one task that is returned."""
        if not self._connecting:
            task = asyncio.get_running_loop().create_task(self._try())
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)
        return self._connecting

    async def _try(self) -> None:
        with contextlib.suppress(WorldAgentError):
            await self.connect()

    # --- calls ------------------------------------------------------------------------------------------------------

    async def call(self, spec: ToolSpec, arguments: Mapping[str, Any], ctx: CallContext) -> Any:
        """Make one call, and return the result for its caller.

        Raises:
            ToolFailed, ResultInvalid: The tool reports that it failed, or its result is too long.
            McpServerUnavailable, McpServerForbidden, McpServerInvalid: The server cannot be reached or used.
        """
        with self.progress(ctx) as progress, made_by(ctx.path):
            request = CallTool(tool=spec.name, arguments=arguments, progress=progress)
            answer = await self.send(request, self.server.timeout)
        return await self.given(spec, answer, ctx)

    @property
    def asks_in_rounds(self) -> bool:
        """Whether the server, as it is connected, asks by ending a round of a call."""
        link = self._connection.link
        return link is not None and link.modern

    async def send(self, request: CallTool, seconds: float) -> ToolAnswer:
        """Make one round of a call; see `Rounds`."""
        return await self._connection.call(lambda link: link.call_tool(request), seconds)

    async def look(self, tool: str, task: str, answers: Mapping[str, Any]) -> ToolAnswer | None:
        """Ask for the state of a task, after the answers to its questions; None if the server does not know it."""
        return await self._connection.call(lambda link: link.look(tool, task, answers), self.server.timeout)

    def cancel(self, task: str) -> None:
        """Ask the server in the background to cancel a task. It can be too late, and the server need not do it."""

        async def ask() -> None:
            with contextlib.suppress(WorldAgentError):
                await self._connection.call(lambda link: link.cancel(task), CANCEL_SECONDS)
                await self.forget(task)

        if task not in self._cancelling:
            asking = self._cancelling[task] = asyncio.get_running_loop().create_task(ask())
            asking.add_done_callback(lambda _: self._cancelling.pop(task))

    async def keep(self, task: str, turn: str) -> None:
        """Keep a task, so that it is cancelled if its turn ends without it, whatever becomes of this process."""
        if self._tasks is not None:
            await self._tasks.add(self.name, self.account, task, turn)

    async def forget(self, task: str) -> None:
        """Keep a task no longer, because it has ended or is cancelled."""
        if self._tasks is not None:
            await self._tasks.drop(self.name, self.account, task)

    async def given(self, spec: ToolSpec, answer: ToolAnswer, ctx: CallContext) -> Any:
        """Convert an answer to the result for the caller, whose account reaches the media in it.

        Raises:
            ToolFailed, ResultInvalid: The tool reports that it failed, or its result is too long.
        """
        value = await result_of_answer(
            spec, answer, failures=self.failures, limit=self.server.result_limit, keep=self._keeping(ctx)
        )
        if isinstance(value, Failure):
            raise value.error()
        return value

    @contextlib.contextmanager
    def progress(self, ctx: CallContext) -> Generator[Progress]:
        """Yield a callback that reports the progress of a call as events."""
        last, over = float("-inf"), False

        def report(progress: float, total: float | None, message: str | None) -> None:
            nonlocal last
            now = asyncio.get_running_loop().time()
            if over or (now - last < PROGRESS_INTERVAL_SECONDS and progress != total):
                return
            last = now
            said = " ".join((message or "").split())[:_MESSAGE]
            ctx.emit(CallProgress, call_id=ctx.path, progress=progress, total=total, message=said)

        try:
            yield report
        finally:
            over = True

    async def read_for(self, ctx: CallContext, /, *, uri: str) -> list[dict[str, Any]]:
        """The contents of a resource, whose media the account of the call reaches."""
        return await blocks_of(await self._contents(uri), self._keeping(ctx))


def _bytes_of(content: Mapping[str, Any]) -> bytes:
    """A part of a resource: a text, or base64."""
    text = content.get("text")
    return decoded(str(content.get("blob", ""))) if text is None else str(text).encode()
