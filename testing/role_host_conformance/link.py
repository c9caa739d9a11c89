"""The link to a role host that is checked, and the answers to its calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from mcp import Client, MCPError
from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult
from pydantic import ValidationError

from ...core import SystemClock
from ...hosts.role_host.contract import TOOLS, ErrorAnswer
from ...mcp_client import HttpHost, StdioHost
from ...mcp_client.hosts import Failure, Failures
from ...mcp_client.link import Link, input_schemas
from .points import Failed, Finding, Skipped

CONTRACT_REMEDY: Final = "answer as docs/reference/role-host.md says"
AN_MCP_ERROR: Final = "an error of MCP"
_SHORTEST: Final = 12  # characters of a role's text that do not occur in another text by chance


class _Failures(Failures):
    """The failures of a link, for a check: their subject is "it", and their remedies name options of the check."""

    LONGER = "see what delays it, or pass --timeout"
    TOKEN = "pass a token that it accepts: --token-file"

    def __init__(self, host: HttpHost | StdioHost) -> None:
        super().__init__(host.label, program=isinstance(host, StdioHost))
        self.name = "it"

    def late_connecting(self, seconds: float) -> Failure:
        """See `Failures.late_connecting`."""
        return self.late(seconds)


class HostLink(Link):
    """A link to the host that is checked, which is the one that an agent uses.

    Args:
        host: The host.
        seconds: Seconds that connecting, and each call, can take.
        notice: Receives each notification, and an exception for each line that is not a message.

    Attributes:
        client: The client of the MCP library, once the link serves.
        tools: The input schemas of the host's tools.
        refused: How the host refused last, such as `HTTP 401`; `AN_MCP_ERROR` also if it speaks no revision that this
            package knows.
    """

    client: Client
    tools: Mapping[str, Any]

    def __init__(self, host: HttpHost | StdioHost, seconds: float, notice: Callable[[object], None]) -> None:
        self.refused = ""
        self._seconds = seconds
        self._notice = notice
        host = replace(host, timeout=seconds, connect_timeout=seconds)
        super().__init__(host, _Failures(host), delay=0, clock=SystemClock())

    async def send(self, tool: str, arguments: Mapping[str, Any]) -> CallToolResult | MCPError | Failure:
        """Call a tool; returns the result, the host's protocol error, or why there is no answer."""
        params = CallToolRequestParams(name=self._host.tools.get(tool, tool), arguments=dict(arguments))
        return await self.call(lambda: self._answer(CallToolRequest(params=params), CallToolResult), self._seconds)

    async def aclose(self) -> None:
        """End the link; a program has ended afterwards."""
        self.stop()
        await asyncio.wait({self.task})

    async def _discover(self, client: Client) -> None:
        self.client, self.tools = client, await input_schemas(client)

    async def _follow(self, client: Client) -> None:
        """Follow nothing: `change.notice` listens itself."""

    async def _noticed(self, message: object) -> None:
        await super()._noticed(message)
        self._notice(message)

    def _foreign(self) -> Failure:
        self.refused = AN_MCP_ERROR
        return super()._foreign()

    def _failure_of_mcp(self, error: MCPError) -> Failure:
        found = super()._failure_of_mcp(error)
        if not error.message:
            self.refused = AN_MCP_ERROR
        elif error.code in range(100, 600):  # otherwise it was lost
            self.refused = f"HTTP {error.code}"
            if error.code in (401, 403):
                return replace(found, problem=f"it refused access ({self.refused})")
        return found


class Reply:
    """The answer to one call of a tool. Problems name fields and kinds of error, never the answer's content.

    Args:
        tool: The tool.
        result: The result of `tools/call`, or a protocol error.
    """

    def __init__(self, tool: str, result: CallToolResult | MCPError) -> None:
        self.tool = tool
        self.protocol: int | None = None
        self.failed = True
        self.result: Any
        found: Any = None
        if isinstance(result, MCPError):
            self.protocol, self.result = result.code, result.error.data
        else:
            self.failed, found = result.is_error, result.structured_content
            self.result = result.model_dump(mode="json", by_alias=True)
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
