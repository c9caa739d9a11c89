"""What the checks of a role host share: the connection, the calls and their answers, and the scopes of the check."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from mcp import MCPError
from mcp.types import CallToolRequest, CallToolRequestParams, ListToolsRequest, PaginatedRequestParams
from pydantic import ValidationError

from ...core import STORED_TIERS, Tier, check_id
from ...core.errors import InvalidArgument
from ...hosts.role_host.contract import TOOLS, ErrorAnswer
from ...mcp_client import HttpHost, StdioHost
from .connection import Connection, Failed, Finding, Mode, Result, Skipped, Unanswered

CONTRACT_REMEDY: Final = "answer as docs/reference/role-host.md says"
_SHORTEST: Final = 12  # characters of a role's text that do not occur in another text by chance
_PAGES: Final = 20  # of the list of tools


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
        ending: Seconds that a host program has to end after its input is closed.

    Raises:
        InvalidArgument: A value is invalid.
    """

    write: bool = False
    timeout: float = 10.0
    scopes: Mapping[Tier, str] = field(default_factory=dict)
    foreign: Mapping[Tier, str] = field(default_factory=dict)
    slow: float = 4.0
    slowish: float = 0.25
    ending: float = 5.0

    def __post_init__(self) -> None:
        for name, seconds in (("timeout", self.timeout), ("ending", self.ending)):
            if not 0 < seconds < float("inf"):
                raise InvalidArgument(f"`{name}` must be seconds above 0, got {seconds!r}", remedy="pass more than 0")
        for tier, scope_id in (*self.scopes.items(), *self.foreign.items()):
            if tier not in STORED_TIERS:
                remedy = "use workspace, account or channel"
                raise InvalidArgument(f"tier {tier.value!r} is never kept by a host", remedy=remedy)
            check_id(f"{tier} scope", scope_id)
        if self.scopes.items() & self.foreign.items():
            raise InvalidArgument("a scope must not be both one to use and a foreign one", remedy="name it once")


class Reply:
    """The answer to one call of a tool. Problems name fields and kinds of error, never the answer's content.

    Args:
        tool: The tool.
        result: The result of `tools/call` as it was received, or a protocol error.
    """

    def __init__(self, tool: str, result: Mapping[str, Any] | MCPError) -> None:
        self.tool = tool
        self.protocol = result.code if isinstance(result, MCPError) else None
        self.result: Any = result.error.data if isinstance(result, MCPError) else result
        self.failed = self.protocol is not None or bool(self.result.get("isError"))
        found = None if self.protocol is not None else self.result.get("structuredContent")
        self.content: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
        code = self.content.get("code")
        self.code = code if self.failed and isinstance(code, str) else None

    def expect(self, code: str, when: str) -> None:
        """Check that the answer is a tool error with this code.

        Args:
            code: The code.
            when: The kind of request, such as `for an unknown tier`.

        Raises:
            Failed: The answer is something else.
            Skipped: The answer is `forbidden`, so that the point cannot be checked.
        """
        if self.code == "forbidden" and code not in ("forbidden", "invalid"):  # arguments are checked before the scope
            raise self._refused()
        if self.code != code:
            raise Failed(f"{self.tool} {when} gave {self._what()} and not {code}", f"answer with the code {code}")

    def role(self) -> dict[str, Any]:
        """Return the role in the answer.

        Raises:
            Failed: The role is missing or invalid.
            Skipped: The scope is forbidden.
        """
        if self.failed:
            raise self._refused()
        for place, kind in self.validation_errors():
            if place[0] == "role" and kind != "extra_forbidden":
                raise Failed(f"{self.tool} answered without a role: {'.'.join(place)} is {kind}", CONTRACT_REMEDY)
        return cast("dict[str, Any]", self.content["role"])

    def roles(self) -> list[Any]:
        """Return the entries of the list of roles.

        Raises:
            Failed: The list is missing.
            Skipped: The scope is forbidden.
        """
        if self.failed:
            raise self._refused()
        found = self.content.get("roles")
        if not isinstance(found, list):
            raise Failed(f"{self.tool} answered without a list called roles", CONTRACT_REMEDY)
        return found

    def validation_errors(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield where the structured content does not match the contract: the place in it, and the kind of error."""
        model = ErrorAnswer if self.failed else TOOLS[self.tool].answer
        try:
            model.model_validate(dict(self.content))
        except ValidationError as error:
            for each in error.errors(include_url=False, include_context=False, include_input=False):
                yield tuple(map(str, each["loc"])), each["type"]

    def flaws(self, sent: Mapping[str, Any], marker: str, secret: str) -> Iterator[tuple[str, str, str]]:
        """Yield what is wrong with the answer to any request: the point that this breaks, the problem, and the remedy.

        Args:
            sent: The arguments of the call.
            marker: Part of every value that the check creates.
            secret: Part of the text of every role that the check puts.
        """
        if self.failed:
            received, requested = (json.dumps(each, ensure_ascii=False) for each in (self.result, sent))
            if any(mark in received and mark in requested for mark in (marker, secret)):
                yield "error.values", f"an error of {self.tool} repeats a value that was sent", "name the argument only"
        if self.protocol is not None:
            return
        for place, kind in self.validation_errors():
            if place[0] == "contract":
                yield "answer.contract", f"{self.tool} answered without contract 1", 'add "contract": 1 to each'
            elif place[0] == "code":
                what = "no code" if kind == "missing" else "an unknown code"
                yield "error.code", f"an error of {self.tool} has {what}", CONTRACT_REMEDY
            elif kind == "extra_forbidden" and place[0] != "roles":  # list.records reports those
                yield "answer.fields", f"an answer of {self.tool} has more fields than the contract", "leave them out"
        said = json.dumps(self.result.get("content"), ensure_ascii=False)
        if not self.failed and any(json.dumps(text, ensure_ascii=False)[1:-1] in said for text in self._texts(secret)):
            remedy = "say how many roles there are; clients log such texts"
            yield "answer.text", f"a text block of {self.tool} holds the role", remedy

    def _texts(self, secret: str) -> Iterator[str]:
        """Yield texts that only the text of a role contains."""
        yield secret
        roles = self.content.get("roles")
        for role in (*(roles if isinstance(roles, list) else ()), self.content.get("role")):
            text = role.get("content") if isinstance(role, dict) else None
            if isinstance(text, str) and len(text) >= _SHORTEST:
                yield text

    def _refused(self) -> Finding:
        if self.code == "forbidden":
            remedy = "name one that it can use: --scope workspace=ID"
            return Skipped("this caller must not use the scopes that the check creates", remedy)
        return Failed(f"{self.tool} gave {self._what()}", CONTRACT_REMEDY)

    def _what(self) -> str:
        if self.protocol is not None:
            return f"an error of the protocol ({self.protocol})"
        if not self.failed:
            return "an answer without an error"
        known = not any(place == ("code",) for place, _ in self.validation_errors())
        return f"the error {self.code}" if known else "an error without a code of the contract"


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
        start_seconds: How long connecting took at most, including the start of a program.
        left_processes: Whether a program left processes behind.
        mode: The mode of the connection.
        revision: The revision that the host speaks in that mode.
    """

    def __init__(self, host: HttpHost | StdioHost, options: HostCheckOptions) -> None:
        self.host = host
        self.options = options
        self.marker = secrets.token_hex(6)
        self.secret = f"say-{secrets.token_hex(8)}"
        self.revisions: dict[str, tuple[dict[str, Any], Any]] = {}
        self.tiers: tuple[Tier, ...] = (Tier.WORKSPACE, Tier.ACCOUNT)
        self.open: tuple[Tier, ...] | None = None
        self.results: dict[str, Result] = {}
        self.flaws: dict[str, Failed] = {}
        self.count: Counter[str] = Counter()
        self.stray = 0
        self.start_seconds = 0.0
        self.left_processes = False
        self.mode: Mode = "auto"
        self.revision = ""
        self._written: set[tuple[str, str]] = set()
        self._connection: Connection | None = None
        self._made = 0

    # --- the connection ---------------------------------------------------------------------------------------------

    async def connect(self, mode: Mode) -> None:
        """Connect and record what the host offers; the connection stays open until the next one.

        Raises:
            Unanswered: The host cannot be reached, or does not speak this revision.
        """
        await self.disconnect()
        connection = await self._connected(mode)
        self.mode, self.revision = mode, connection.client.protocol_version
        self.revisions[self.revision] = {}, None
        # If something is missing here, tools.present and list.answer report it.
        with contextlib.suppress(Finding):
            tools = await self._tools(connection)
            self.revisions[self.revision] = tools, None
            reply = await self.call("role_list", scope_ids={"workspace": self.readable(Tier.WORKSPACE)})
            self.revisions[self.revision] = tools, (reply.failed, reply.content)

    async def disconnect(self) -> None:
        """End the connection. The next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def connection(self) -> Connection:
        """Return the connection; a lost one is replaced.

        Raises:
            Unanswered: The host cannot be reached.
            Skipped: The host cannot be reached, and a point that failed before says why.
        """
        try:
            return await self._connected(self.mode)
        except Unanswered as error:
            if all(result.status != "fail" for result in self.results.values()):
                raise
            problem = error.problem
        raise Skipped(f"the host is gone: {problem}", "start it again, and fix the point that failed first")

    async def refusal(self, host: HttpHost | StdioHost, mode: Mode) -> str:
        """Reach the host in another way; returns how it refuses the first request, such as `HTTP 401`, or "".

        Raises:
            Unanswered: The host did not answer.
        """
        connection = Connection(host, mode, self.options.timeout, self._notice)
        try:
            await connection.open()
            answer = await connection.send(self._request("role_list", {"scope_ids": {}}))
            return "an error of MCP" if isinstance(answer, MCPError) else ""
        except Unanswered as error:
            if error.http_status is None and not error.reached:
                raise
            return f"HTTP {error.http_status}" if error.http_status else "an error of MCP"
        finally:
            await connection.aclose()

    async def _notice(self, message: object) -> None:
        if isinstance(message, Exception):
            self.stray += 1
        elif self.secret in repr(message):
            self.flaws.setdefault("answer.text", Failed("a notification holds a role", "leave its text out"))

    async def _connected(self, mode: Mode) -> Connection:
        if self._connection is None or self._connection.lost:
            await self.disconnect()
            began = time.monotonic()
            self._connection = Connection(self.host, mode, self.options.timeout, self._notice)
            try:
                await self._connection.open()
            except Unanswered as error:
                error.problem += ", and wrote something that is not an MCP message" if self.stray else ""
                await self.disconnect()
                raise
            self.start_seconds = max(self.start_seconds, time.monotonic() - began)
        return self._connection

    # --- calls ------------------------------------------------------------------------------------------------------

    @property
    def schemas(self) -> dict[str, Any]:
        """The input schemas of the contract's tools that the host has, by the contract's names."""
        found, _ = self.revisions[self.revision]
        named = {tool: self.host.tools.get(tool, tool) for tool in TOOLS}
        return {tool: found[name] for tool, name in named.items() if name in found}

    async def call(self, tool: str, *, over: Connection | None = None, **arguments: Any) -> Reply:
        """Call a tool and check what must hold for every answer.

        Args:
            tool: The tool, by the contract's name.
            over: The connection to use; None is the current one, which is replaced if it was lost.
            arguments: The arguments to send.

        Raises:
            Unanswered: The answer is missing or cannot be read.
            Skipped: The host does not have the tool.
        """
        if tool in TOOLS and tool not in self.schemas:
            raise Skipped(f"it needs the tool {tool}", "see tools.present", reason="needs")
        connection = over or await self.connection()
        tier, scope_id = arguments.get("tier"), arguments.get("scope_id")
        if tool == "role_put" and tier in STORED_TIERS and isinstance(scope_id, str):
            self._written.add((str(tier), scope_id))
        try:
            reply = Reply(tool, await connection.send(self._request(tool, arguments)))
        except Unanswered as error:
            error.problem = f"{tool}: {error.problem}"
            raise
        if tool in TOOLS:  # an unknown tool's name is not a value, and the contract does not cover its answer
            self.count["answers"] += reply.protocol is None
            self.count["errors"] += reply.failed and reply.protocol is None
            for point, problem, remedy in reply.flaws(arguments, self.marker, self.secret):
                self.flaws.setdefault(point, Failed(problem, remedy))
        return reply

    def _request(self, tool: str, arguments: Mapping[str, Any]) -> CallToolRequest:
        name = self.host.tools.get(tool, tool)
        return CallToolRequest(params=CallToolRequestParams(name=name, arguments=dict(arguments)))

    async def _tools(self, connection: Connection) -> dict[str, Any]:
        # The session's own `list_tools` drops tools whose schema it does not accept.
        found: dict[str, Any] = {}
        cursor: str | None = None
        for _ in range(_PAGES):
            page = await connection.send(ListToolsRequest(params=PaginatedRequestParams(cursor=cursor)))
            if isinstance(page, MCPError):
                raise Failed(f"tools/list gave an error of the protocol ({page.code})", CONTRACT_REMEDY)
            found |= {tool["name"]: tool.get("inputSchema") for tool in page["tools"]}
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        return found

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
