"""What the checks of a role host share: the options, the calls, and the scopes of the check."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mcp import MCPError

from ...core import STORED_TIERS, Tier, check_id
from ...core.errors import InvalidArgument
from ...mcp_client import TOOLS, HttpHost, StdioHost
from ...mcp_client.hosts import Failure, Mode
from .link import AN_MCP_ERROR, HostLink, Reply
from .points import Failed, Finding, Result, Skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheckOptions:
    """The options of a check of a role host.

    Attributes:
        write: Whether the check can put and delete roles, in its own scopes or in `scopes`.
        timeout: Seconds that connecting, and each call, can take.
        scopes: The scope to use for a tier, if the host does not let this caller use every scope. With `write`, they
            must not have a role.
        foreign: Scopes that the host must not let this caller use.
        slow: Seconds of a median `role_list` above which the point fails.
        slowish: Seconds above which the point warns.

    Raises:
        InvalidArgument: A value is invalid.
    """

    write: bool = False
    timeout: float = 10.0
    scopes: Mapping[Tier, str] = field(default_factory=dict)
    foreign: Mapping[Tier, str] = field(default_factory=dict)
    slow: float = 4.0
    slowish: float = 0.25

    def __post_init__(self) -> None:
        if not 0 < self.timeout < float("inf"):
            raise InvalidArgument(f"`timeout` must be seconds above 0, got {self.timeout!r}", remedy="pass more than 0")
        for tier, scope_id in (*self.scopes.items(), *self.foreign.items()):
            if tier not in STORED_TIERS:
                remedy = "use workspace, account or channel"
                raise InvalidArgument(f"tier {tier.value!r} is never kept by a host", remedy=remedy)
            check_id(f"{tier} scope", scope_id)
        if self.scopes.items() & self.foreign.items():
            raise InvalidArgument("a scope must not be both one to use and a foreign one", remedy="name it once")


class Kit:
    """One check of one host.

    Args:
        host: The host.
        options: What may be done.

    Attributes:
        marker: Part of every id and value that the check creates, so that it can be found where it must not be.
        secret: Part of the text of every role that the check puts, and of nothing else.
        revisions: The tools of each revision that the host speaks, and its answer to the same call.
        tiers: The tiers that the host offers.
        open: The tiers in which this caller has a scope to use; None until that is known.
        results: The results so far, by point.
        flaws: By point, the first answer that broke a point about all answers.
        count: How many answers came, and how many of them were errors.
        stray: How many lines came that are not messages.
        reached: Whether the host answered a connection that failed in MCP.
        mode: The mode of the connection.
        revision: The revision that the host speaks in that mode.
    """

    def __init__(self, host: HttpHost | StdioHost, options: HostCheckOptions) -> None:
        self.host = host
        self.options = options
        self.marker = secrets.token_hex(6)
        self.secret = f"say-{secrets.token_hex(8)}"
        self.revisions: dict[str, tuple[Mapping[str, Any], Any]] = {}
        self.tiers: tuple[Tier, ...] = (Tier.WORKSPACE, Tier.ACCOUNT)
        self.open: tuple[Tier, ...] | None = None
        self.results: dict[str, Result] = {}
        self.flaws: dict[str, Failed] = {}
        self.count: Counter[str] = Counter()
        self.stray = 0
        self.reached = False
        self.mode: Mode = "auto"
        self.revision = ""
        self._written: set[tuple[str, str]] = set()
        self._link: HostLink | None = None
        self._made = 0

    # --- the connection ---------------------------------------------------------------------------------------------

    async def connect(self, mode: Mode) -> None:
        """Connect and record what the host offers; the link stays open until the next one.

        Raises:
            Failed: The host cannot be reached, or does not speak this revision.
        """
        await self.disconnect()
        link = await self._linked(mode)
        self.mode, self.revision = mode, link.client.protocol_version
        self.revisions[self.revision] = link.tools, None
        with contextlib.suppress(Finding):  # if something is missing here, tools.present and list.answer report it
            reply = await self.call("role_list", scope_ids={"workspace": self.readable(Tier.WORKSPACE)})
            self.revisions[self.revision] = link.tools, (reply.failed, reply.content)

    async def disconnect(self) -> None:
        """End the link. The next call opens another."""
        link, self._link = self._link, None
        if link is not None:
            await link.aclose()

    async def link(self) -> HostLink:
        """Return the link; a lost one is replaced.

        Raises:
            Failed: The host cannot be reached.
            Skipped: The host cannot be reached, and a point that failed before says why.
        """
        try:
            return await self._linked(self.mode)
        except Failed as error:
            if all(result.status != "fail" for result in self.results.values()):
                raise
            problem = error.problem
        raise Skipped(f"the host is gone: {problem}", "start it again, and fix the point that failed first")

    async def refusal(self, host: HttpHost | StdioHost) -> str:
        """Reach the host in another way; returns how it refuses that, such as `HTTP 401`, or "".

        Raises:
            Failed: The host did not answer.
        """
        link = HostLink(host, self.options.timeout, self._notice)
        try:
            answer = await link.ready() or await link.send("role_list", {"scope_ids": {}})
        finally:
            await link.aclose()
        if isinstance(answer, Failure) and not link.refused:
            raise Failed(answer.problem, answer.remedy)
        return link.refused if isinstance(answer, Failure) else AN_MCP_ERROR * isinstance(answer, MCPError)

    def _notice(self, message: object) -> None:
        if isinstance(message, Exception):
            self.stray += 1
        elif self.secret in repr(message):
            self.flaws.setdefault("answer.text", Failed("a notification holds a role", "leave its text out"))

    async def _linked(self, mode: Mode) -> HostLink:
        if self._link is None or self._link.over:
            await self.disconnect()
            self._link = HostLink(replace(self.host, mode=mode), self.options.timeout, self._notice)
        link = self._link
        failure = await link.ready()
        self.reached = self.reached or link.refused == AN_MCP_ERROR
        if failure is not None:
            raise Failed(failure.problem, failure.remedy)
        return link

    # --- calls ------------------------------------------------------------------------------------------------------

    @property
    def schemas(self) -> dict[str, Any]:
        """The input schemas of the contract's tools that the host has, by the contract's names."""
        found, _ = self.revisions[self.revision]
        named = {tool: self.host.tools.get(tool, tool) for tool in TOOLS}
        return {tool: found[name] for tool, name in named.items() if name in found}

    async def call(self, tool: str, **arguments: Any) -> Reply:
        """Call a tool and check what must hold for every answer.

        Args:
            tool: The tool, by the contract's name.
            arguments: The arguments to send.

        Raises:
            Failed: The answer is missing or cannot be read.
            Skipped: The host does not have the tool.
        """
        if tool in TOOLS and tool not in self.schemas:
            raise Skipped(f"it needs the tool {tool}", "see tools.present", reason="needs")
        link = await self.link()
        tier, scope_id = arguments.get("tier"), arguments.get("scope_id")
        if tool == "role_put" and tier in STORED_TIERS and isinstance(scope_id, str):
            self._written.add((str(tier), scope_id))
        answer = await link.send(tool, arguments)
        if isinstance(answer, Failure):
            raise Failed(f"{tool}: {answer.problem}", answer.remedy)
        reply = Reply(tool, answer)
        if tool in TOOLS:  # an unknown tool's name is not a value, and the contract does not cover its answer
            self.count["answers"] += reply.protocol is None
            self.count["errors"] += reply.failed and reply.protocol is None
            for point, problem, remedy in reply.flaws(arguments, self.marker, self.secret):
                self.flaws.setdefault(point, Failed(problem, remedy))
        return reply

    # --- scopes and roles -------------------------------------------------------------------------------------------

    def passed(self, point: str) -> bool:
        """Whether a point was checked and holds."""
        return point in self.results and self.results[point].status in ("pass", "warn")

    @property
    def usable(self) -> tuple[Tier, ...]:
        """The tiers in which there is a scope to use."""
        return self.open or self.tiers

    @property
    def tier(self) -> Tier:
        """The tier that most points use: preferably one in which any scope can be used."""
        return next((tier for tier in self.usable if tier not in self.options.scopes), self.usable[0])

    def unused_id(self) -> str:
        """Return a new id, which no other program uses."""
        self._made += 1
        return f"worldagent-doctor-{self.marker}-{self._made}"

    def readable(self, tier: Tier) -> str:
        """Return a scope to read: the named one, else an unused one."""
        return self.options.scopes.get(tier) or self.unused_id()

    async def free(self, tier: Tier) -> str:
        """Return a scope to write to that has no role: a new one, or the named one without the check's own role."""
        scope_id = self.readable(tier)
        if (tier.value, scope_id) in self._written:
            await self.delete(tier, scope_id)
        return scope_id

    def text(self, words: str = "Answer in one sentence.") -> str:
        """Return a text for a role, unlike every other."""
        self._made += 1
        return f"{words} {self.secret} {self._made}"

    async def put(self, tier: Tier, scope_id: str, content: str, name: str = "doctor") -> Reply:
        """Put a role."""
        return await self.call("role_put", tier=tier.value, scope_id=scope_id, name=name, content=content)

    async def get(self, tier: Tier, scope_id: str) -> Reply:
        """Get a role."""
        return await self.call("role_get", tier=tier.value, scope_id=scope_id)

    async def delete(self, tier: Tier, scope_id: str) -> Reply:
        """Delete a role."""
        return await self.call("role_delete", tier=tier.value, scope_id=scope_id)

    async def listed(self, scope_ids: Mapping[Tier, str]) -> list[Any]:
        """Return the roles that `role_list` gives."""
        reply = await self.call("role_list", scope_ids={tier.value: scope_id for tier, scope_id in scope_ids.items()})
        return reply.roles()

    async def set_role(self, tier: Tier) -> tuple[str, str]:
        """Put a role into a free scope; returns the scope and the text."""
        scope_id, content = await self.free(tier), self.text()
        (await self.put(tier, scope_id, content)).role()
        return scope_id, content

    async def clean_up(self) -> tuple[int, set[tuple[str, str]]]:
        """Clear every scope that was written to; returns how many there are, and those that may still have a role."""
        written = list(self._written)
        for tier, scope_id in written:
            with contextlib.suppress(Finding):
                await self.call("role_delete", tier=tier, scope_id=scope_id)
                reply = await self.call("role_get", tier=tier, scope_id=scope_id)
                # A write that was refused for its id, its tier or its caller stored nothing.
                if reply.code in ("not_found", "invalid", "forbidden"):
                    self._written.remove((tier, scope_id))
        return len(written), self._written

    async def aclose(self) -> None:
        """Clear the remaining writes, and disconnect, also after an interrupt. This takes a bounded time."""
        try:
            if self._written:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.options.timeout * 2):
                        await self.clean_up()
        finally:
            await self.disconnect()
