"""The MCP servers of an agent. One with a login of each account is a source for each account that uses it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import ExitStack
from itertools import pairwise
from typing import Any, Final

from ...core import Clock
from ...core.errors import HostError, InvalidArgument, NameTaken, WorldAgentError
from ...harness import CallContext, Function, Registry
from ..logins import LoginStore
from .kept import KeptTasks
from .results import LOG_IN, KeepFor, login_function
from .server import McpServer, ToolSpec, name_of
from .source import CANCEL_SECONDS, CLASH, McpSource

MAX_ACCOUNTS: Final = 64
"""The accounts that one server keeps a connection and a list of tools for; those whose turns do not run make room."""

LIST_SECONDS: Final = 5.0
"""How long a turn waits at its beginning for the tools of a server that its account has logged in to."""

_LOG: Final = logging.getLogger("worldagent.mcp")


class _OfAccount(McpSource):
    """A server as one account uses it. Without a login it has one Function, which asks the person for it."""

    async def prepare(self) -> None:
        """Get the list of tools, if there is a login and the list is not known yet."""
        if self._listed:
            return
        record = None if self._kept is None else await self._kept.read()
        if record is None or record.tokens is None:
            self._failure = self.failures.no_login().error()
            return
        await asyncio.wait(self._attempt(), timeout=LIST_SECONDS)

    async def ask_to_log_in(self, ctx: CallContext) -> str:
        """Ask the person to log in, unless that is done."""
        assert self._rounds is not None
        await self._rounds.log_in(ctx)
        return f"There is a login to {self.name!r} now, and its tools can be called."

    def show(self, login: Function) -> None:
        """Offer only the Function that asks for the login, until the list is known."""
        self._registry.replace_source(self.name, (login,), prefix=self._prefix, missing=self._missing, known=False)

    def _take(self, spec: ToolSpec, made: dict[str, tuple[ToolSpec, Function]]) -> str:
        # A turn that waits in the Function for the login finds that one, whatever the server lists.
        return CLASH if name_of(self._prefix, spec.name) == name_of(self._prefix, LOG_IN) else super()._take(spec, made)


class McpAccounts(McpSource):
    """An MCP server to which each account logs in for itself. What one account has is never another one's.

    Args:
        name: Its name.
        server: Its host and settings.
        registry: The registry of the agent; the Functions of an account are in the account's registry only.
        clock: Waits between attempts to connect.
        more: Further arguments of `McpSource`.
    """

    def __init__(self, name: str, server: McpServer, *, registry: Registry, clock: Clock, **more: Any) -> None:
        super().__init__(name, server, registry=registry, clock=clock, **more)
        self._more: dict[str, Any] = {"clock": clock, **more}
        self._open: OrderedDict[str, _OfAccount] = OrderedDict()
        self._used: Counter[str] = Counter()
        self._closing: set[asyncio.Task[None]] = set()
        self._login = login_function(name, prefix=self._prefix, body=self._log_in)

    def of(self, account: str) -> _OfAccount:
        found = self._open.get(account)
        if found is None:
            self._make_room()
            registry = self._registry.for_account(account)
            found = _OfAccount(self.name, self.server, registry=registry, account=account, **self._more)
            found.show(self._login)
            self._open[account] = found
        self._open.move_to_end(account)
        return found

    @contextlib.contextmanager
    def in_use(self, account: str) -> Generator[_OfAccount | None]:
        """Keep the source of an account open in this block; None if there are too many."""
        found: _OfAccount | None = None
        try:
            found = self.of(account)
        except HostError as error:
            _LOG.warning("%s: its tools are missing in a turn", error)
        self._used[account] += 1
        try:
            yield found
        finally:
            self._used[account] -= 1
            self._used += Counter()  # without those that are 0

    async def start(self) -> None:
        if not self._registry.is_free(self._login.name, self.name):
            raise NameTaken(
                f"a function has the name {self._login.name!r}, which MCP server {self.name!r} needs for its login",
                remedy="give the server another prefix",
            )
        self._registry.replace_source(self.name, (), prefix=self._prefix, missing=self._missing, known=False)
        self._registry.add_unlisted(self._login)

    async def aclose(self) -> None:
        for account in list(self._open):
            self._close(account)
        if self._closing:
            await asyncio.wait(set(self._closing))
        await super().aclose()

    def _make_room(self) -> None:
        while len(self._open) >= MAX_ACCOUNTS:
            if self._idle is None:
                raise self.failures.crowded_by_accounts(MAX_ACCOUNTS).error()
            self._close(self._idle)

    @property
    def _idle(self) -> str | None:
        """The account that has used it for the longest time ago, of those whose turns do not run."""
        return next((account for account in self._open if not self._used[account]), None)

    def _close(self, account: str) -> None:
        source = self._open.pop(account)
        source.withdraw()  # at once, since the account can come back before the task begins
        task = asyncio.get_running_loop().create_task(source.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _missing(self, function: str) -> WorldAgentError | None:
        ours = function.startswith(self._prefix) and self.server.allows(function.removeprefix(self._prefix))
        if not ours:
            return None
        crowded = len(self._open) >= MAX_ACCOUNTS and self._idle is None
        failure = self.failures.crowded_by_accounts(MAX_ACCOUNTS) if crowded else self.failures.without_account()
        return failure.error()

    async def _log_in(self, ctx: CallContext, /) -> str:
        if ctx.scope.account is None:
            raise self.failures.without_account().error()
        return await self.of(ctx.scope.account).ask_to_log_in(ctx)


def check_prefixes(servers: Mapping[str, McpServer]) -> None:
    """Refuse servers if one of them could give its tools the names of another's.

    With the prefixes `git_` and `git_hub_`, a tool `hub_push` of the first gets the name of the tool `push` of the
    second, and the approval rules for it. A rule for `git_*` would also cover both.

    Raises:
        NameTaken: One prefix begins another; the text names both servers.
    """
    prefixes = sorted((server.prefix_as(name), name) for name, server in servers.items())
    # In sorted order a prefix comes directly before one that it begins, if any exists.
    for (short, first), (long, second) in pairwise(prefixes):
        if long.startswith(short):
            raise NameTaken(
                f"a tool of MCP server {first!r} could take the name of one of MCP server {second!r}: "
                f"the prefix {short!r} begins the prefix {long!r}",
                remedy="give one of them another `prefix`, such as 'hub_' where 'git_' and 'git_hub_' clash",
            )


class McpSources:
    """The MCP servers of an agent: `sources[name]`, and their names by iteration.

    Args:
        servers: The servers by name.
        registry: Receives their Functions.
        clock: Waits between attempts to connect.
        keep: Stores images and other media that they return.
        logins: Where logins are kept.
        tasks: The tasks of the servers that turns wait for.

    Attributes:
        of_accounts: Those that each account logs in to for itself.

    Raises:
        NameTaken: See `check_prefixes`.
    """

    def __init__(
        self,
        servers: Mapping[str, McpServer],
        *,
        registry: Registry,
        clock: Clock,
        keep: KeepFor | None = None,
        logins: LoginStore | None = None,
        tasks: KeptTasks | None = None,
    ) -> None:
        check_prefixes(servers)
        self._tasks = tasks
        self._looking: set[asyncio.Task[None]] = set()
        self._sources: dict[str, McpSource] = {}
        for name, server in servers.items():
            kind = McpAccounts if server.login is not None and server.login.by == "account" else McpSource
            more: dict[str, Any] = {"keep": keep, "logins": logins, "tasks": tasks}
            self._sources[name] = kind(name, server, registry=registry, clock=clock, **more)
        self.of_accounts = tuple(each for each in self._sources.values() if isinstance(each, McpAccounts))

    def __getitem__(self, name: str) -> McpSource:
        """The server called `name`.

        Raises:
            InvalidArgument: The server does not exist.
        """
        if name in self._sources:
            return self._sources[name]
        known = ", ".join(sorted(self._sources)) or "none"
        raise InvalidArgument(f"there is no MCP server {name!r}", remedy=f"the MCP servers are: {known}")

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    async def start(self) -> None:
        """Connect to all servers concurrently. The agent starts even if some are down.

        Raises:
            NameTaken: A tool has the name of another function.
        """
        starts = (source.start() for source in self._sources.values())
        for outcome in await asyncio.gather(*starts, return_exceptions=True):  # wait for all of them, even if one fails
            if outcome is not None:
                raise outcome

    def cancel_left(self) -> None:
        """Ask the servers in the background to cancel the tasks of turns that are over, in whatever process."""

        async def look(tasks: KeptTasks) -> None:
            with contextlib.suppress(WorldAgentError):  # the next opening looks again
                for name, account, task in await tasks.left():
                    source = self._sources.get(name)
                    if source is not None and (account or source not in self.of_accounts):
                        source.of(account).cancel(task)

        if self._tasks is not None:
            looking = asyncio.get_running_loop().create_task(look(self._tasks))
            self._looking.add(looking)
            looking.add_done_callback(self._looking.discard)

    @contextlib.asynccontextmanager
    async def serving(self, account: str | None) -> AsyncGenerator[None]:
        """Keep what an account has of its own in this block: tools of servers that it has logged in to."""
        with ExitStack() as used:
            found: list[_OfAccount | None] = []
            if account is not None:
                found = [used.enter_context(source.in_use(account)) for source in self.of_accounts]
            await asyncio.gather(*(each.prepare() for each in found if each is not None))
            yield

    async def aclose(self) -> None:
        """End all connections."""
        if self._looking:
            await asyncio.wait(set(self._looking), timeout=CANCEL_SECONDS)
        await asyncio.gather(*(source.aclose() for source in self._sources.values()))
