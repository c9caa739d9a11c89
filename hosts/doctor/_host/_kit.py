"""What the checks of a host share: the connection, what was said over it, and the scopes that are theirs.

What must hold is in `_checks`; which points there are, in `_points`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Any, Final

from mcp import MCPError
from mcp.types import CallToolRequest, CallToolRequestParams, ListToolsRequest, PaginatedRequestParams

from ....core import STORED_TIERS, Tier
from ....mcp_client import TOOLS, HttpHost, StdioHost
from .._outcomes import Failed, Result, Skipped
from ._options import HostCheckOptions
from ._record import Exchange, Heard, Life
from ._replies import CONTRACT_REMEDY, Reply
from ._streams import Intake
from ._wire import Wire, WireError

_PAGES: Final = 20


class Kit:
    """One check of one host.

    Args:
        host: The host.
        options: What may be done.

    Attributes:
        marker: Stands in every value that is made up, so that it is found where it should not be.
        secret: Stands in every role's text, and nowhere else.
        heard: What each revision gave that the host speaks.
        tiers: The tiers that the host offers.
        open: Those of them in which this caller has a scope to use; all, until that is looked at.
        exchanges: Every call so far with its answer.
        results: The results so far, by point.
        written: The tiers and scopes that may have a role of ours.
        revision: The revision that is spoken.
        life: What a child did whose input was closed; None before it was looked at.
    """

    def __init__(self, host: HttpHost | StdioHost, options: HostCheckOptions) -> None:
        self.host = host
        self.options = options
        self.marker = secrets.token_hex(6)
        self.secret = f"say-{secrets.token_hex(8)}"
        self.heard: dict[str, Heard] = {}
        self.tiers: tuple[Tier, ...] = (Tier.WORKSPACE, Tier.ACCOUNT)
        self.open: tuple[Tier, ...] | None = None
        self.exchanges: list[Exchange] = []
        self.results: dict[str, Result] = {}
        self.written: dict[tuple[str, str], None] = {}
        self.revision = ""
        self.life: Life | None = None
        self._wire: Wire | None = None
        self._intake = Intake()
        self._made = 0

    # --- the connection ---------------------------------------------------------------------------------------------

    async def meet(self, revision: str) -> None:
        """Connect in `revision` and note what the host gives; the connection stays open until the next one.

        Raises:
            WireError: It cannot be reached, or does not speak this revision.
        """
        await self.disconnect()
        self.revision = revision
        wire = await self._connected()
        heard = self.heard[revision] = Heard()
        # What is missing here is told by tools.present and list.answer.
        with contextlib.suppress(Failed, Skipped, WireError):
            heard.tools = await self._tools(wire)
            if self.name("role_list") in heard.tools:
                reply = await self.call("role_list", scope_ids={"workspace": self.readable(Tier.WORKSPACE)})
                heard.roles = (reply.failed, reply.content)

    async def disconnect(self) -> None:
        """End the connection. The next call makes another."""
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.aclose()

    async def wire(self) -> Wire:
        """The connection, made anew where it was lost.

        Raises:
            Failed: It cannot be made.
            Skipped: It cannot be made, and a point that failed before says why.
        """
        try:
            return await self._connected()
        except WireError as error:
            problem, remedy = error.problem, error.remedy
        if any(result.status == "fail" for result in self.results.values()):
            raise Skipped(f"the host is gone: {problem}", "start it again, and mend the point that failed first")
        raise Failed(problem, remedy)

    async def _connected(self) -> Wire:
        if self._wire is not None and not self._wire.lost:
            return self._wire
        await self.disconnect()
        wire = self._wire = Wire(self.host, self.revision, self.options, self._intake)
        try:
            await wire.open()
        except WireError:
            await self.disconnect()
            raise
        return wire

    # --- calls ------------------------------------------------------------------------------------------------------

    def name(self, tool: str) -> str:
        """What the host calls a tool of the contract."""
        return self.host.tools.get(tool, tool)

    @property
    def schemas(self) -> dict[str, Any]:
        """The input schemas of the tools of the contract that the host has, by the contract's names."""
        found = self.heard[self.revision].tools
        return {tool: found[self.name(tool)] for tool in TOOLS if self.name(tool) in found}

    async def call(self, tool: str, **arguments: Any) -> Reply:
        """Call a tool and note the answer, whatever it is.

        Raises:
            Failed: There is no answer that can be read.
        """
        wire = await self.wire()
        return await self.call_over(wire, tool, arguments)

    async def call_over(self, wire: Wire, tool: str, arguments: dict[str, Any]) -> Reply:
        """As `call`, over a connection that is at hand."""
        if tool == "role_put":
            self._note_written(arguments)
        request = CallToolRequest(params=CallToolRequestParams(name=self.name(tool), arguments=arguments))
        try:
            answer = await wire.send(request, self.options.timeout)
        except WireError as error:
            failure = Failed(f"{tool}: {error.problem}", error.remedy)
        else:
            if isinstance(answer, MCPError):
                reply = Reply(tool, {}, answer.code, f"{answer.message} {answer.error.data}")
            else:
                reply = Reply(tool, answer)
            self.exchanges.append(Exchange(arguments, reply))
            return reply
        raise failure

    async def _tools(self, wire: Wire) -> dict[str, Any]:
        found: dict[str, Any] = {}
        cursor: str | None = None
        for _ in range(_PAGES):
            request = ListToolsRequest(params=PaginatedRequestParams(cursor=cursor))
            page = await wire.send(request, self.options.timeout)
            if isinstance(page, MCPError):
                raise Failed(f"tools/list gave an error of the protocol ({page.code})", CONTRACT_REMEDY)
            given = page.get("tools")
            tools: list[Any] = given if isinstance(given, list) else []
            found |= {str(tool.get("name")): tool.get("inputSchema") for tool in tools if isinstance(tool, dict)}
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str):
                break
        return found

    # --- scopes and roles -------------------------------------------------------------------------------------------

    def passed(self, point: str) -> bool:
        """Whether a point was looked at and holds."""
        return point in self.results and self.results[point].status in ("pass", "warn")

    @property
    def tier(self) -> Tier:
        """The tier that most points use: one in which any scope may be used, if there is one."""
        usable = self.usable
        return next((tier for tier in usable if tier not in self.options.scopes), usable[0])

    @property
    def usable(self) -> tuple[Tier, ...]:
        """The tiers in which there is a scope to use."""
        return self.open or self.tiers

    def made_up(self) -> str:
        """An id that nobody has used."""
        self._made += 1
        return f"worldagent-doctor-{self.marker}-{self._made}"

    def readable(self, tier: Tier) -> str:
        """A scope that may be read: the one that is named, else one that nobody has used."""
        return self.options.scopes.get(tier) or self.made_up()

    async def free(self, tier: Tier) -> str:
        """A scope that may be written to and has no role: one of our own, or the one that is named, cleared of ours."""
        named = self.options.scopes.get(tier)
        if named is None:
            return self.made_up()
        if (tier.value, named) in self.written:
            await self.call("role_delete", tier=tier.value, scope_id=named)
        return named

    def two_scopes(self, tier: Tier) -> None:
        """Leave a point out that needs two scopes of a tier where one is named.

        Raises:
            Skipped: One is named.
        """
        if tier in self.options.scopes:
            raise Skipped(
                "two scopes are needed, and one is named", "give a token that reaches more than --scope names"
            )

    def text(self, words: str = "Answer in one sentence.") -> str:
        """A role's text that can be told from every other."""
        self._made += 1
        return f"{words} {self.secret} {self._made}"

    async def put(self, tier: Tier, scope_id: str, content: str, name: str = "doctor") -> Reply:
        """Put a role."""
        return await self.call("role_put", tier=tier.value, scope_id=scope_id, name=name, content=content)

    async def get(self, tier: Tier, scope_id: str) -> Reply:
        """Get a role."""
        return await self.call("role_get", tier=tier.value, scope_id=scope_id)

    async def listed(self, scope_ids: dict[Tier, str]) -> list[Any]:
        """The roles that `role_list` gives."""
        reply = await self.call("role_list", scope_ids={tier.value: scope_id for tier, scope_id in scope_ids.items()})
        return reply.roles()

    async def set_role(self, tier: Tier) -> tuple[str, str]:
        """Put a role into a free scope; the scope and the text."""
        scope_id, content = await self.free(tier), self.text()
        (await self.put(tier, scope_id, content)).role()
        return scope_id, content

    def _note_written(self, arguments: dict[str, Any]) -> None:
        tier, scope_id = arguments.get("tier"), arguments.get("scope_id")
        if isinstance(tier, str) and tier in STORED_TIERS and isinstance(scope_id, str):
            self.written[tier, scope_id] = None

    async def clean_up(self) -> list[tuple[str, str]]:
        """Clear every scope that was written to; those that still have a role, or of which nobody knows."""
        left: list[tuple[str, str]] = []
        for tier, scope_id in list(self.written):
            if await self._cleared(tier, scope_id):
                del self.written[tier, scope_id]
            else:
                left.append((tier, scope_id))
        return left

    async def _cleared(self, tier: str, scope_id: str) -> bool:
        try:
            await self.call("role_delete", tier=tier, scope_id=scope_id)
            reply = await self.call("role_get", tier=tier, scope_id=scope_id)
        except (Failed, Skipped):
            return False
        # What was refused for its id, its tier or its caller was not stored.
        return reply.code in ("not_found", "invalid", "forbidden")

    async def aclose(self) -> None:
        """Clear what is left of what was written, and disconnect; also after an interrupt. Bounded."""
        try:
            if self.written and self.revision:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.options.timeout * 2):
                        await self.clean_up()
        finally:
            await self.disconnect()


__all__ = ["Kit"]
