"""What a server offers and answers, as plain values. `link` reads them from the connection, and imports `mcp`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from mcp.client._transport import TransportStreams
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCResponse, Tool
from mcp.types.methods import SERVER_RESULTS
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, TypeAdapter, ValidationError

from ..nesting import DEEPEST, TOO_DEEP
from ..transports import Incoming, Item

Progress = Callable[[float, float | None, str | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as its server describes it.

    Attributes:
        name: The server's own name for it.
        description: What it does, as the server says.
        title: Its name for people, as the server says.
        params: The JSON Schema of its arguments.
        result: The JSON Schema of its structured result, if it has one.
        annotations: The server's hints about its risk.
    """

    name: str
    description: str = ""
    title: str = ""
    params: Mapping[str, Any]
    result: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Everything that a server offers.

    Attributes:
        tools: Its tools.
        resources: Whether it has resources.
        invalid_tools: Names of tools whose description violates MCP, and why.
    """

    tools: tuple[ToolSpec, ...] = ()
    resources: bool = False
    invalid_tools: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question of a server for a person during a call.

    Attributes:
        message: The question.
        schema: The JSON Schema of the answer.
        key: The server's key for it, if the server asks by ending the round of the call.
    """

    message: str
    schema: Mapping[str, Any]
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """The answer of a server to a call.

    Attributes:
        content: Blocks, as JSON.
        structured: The structured result; None if there is none.
        failed: Whether the tool reports that it failed.
        asks: Questions for a person. The call is then made again with the answers and with `state`.
        state: The value to send with the next round.
        beyond: Whether it asks for something other than a person's answer.
    """

    content: tuple[Mapping[str, Any], ...] = ()
    structured: Any = None
    failed: bool = False
    asks: tuple[Asked, ...] = ()
    state: str | None = None
    beyond: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTool:
    """One round of a call.

    Attributes:
        tool: The server's name of the tool.
        arguments: Its arguments.
        progress: Called with the progress of the call.
        answers: A person's answers of the round before, by the server's key of the question; None declines.
        state: The state that the server sent in the round before.
    """

    tool: str
    arguments: Mapping[str, Any]
    progress: Progress | None = None
    answers: Mapping[str, Any] = field(default_factory=dict)
    state: str | None = None


MAX_INVALID_TOOLS: Final = 100  # the limit of invalid tools that are reported
_REASON: Final = 300  # the limit of characters of a reason, which can quote the server


@asynccontextmanager
async def sifted(
    transport: AbstractAsyncContextManager[TransportStreams], invalid_tools: dict[str, str], version: Callable[[], str]
) -> AsyncGenerator[TransportStreams]:
    """The streams of a server, open inside the block.

    Args:
        transport: Opens the unfiltered streams.
        invalid_tools: Receives the names of removed tools, and why.
        version: Returns the protocol revision, which defines how a tool is described.
    """
    async with transport as (read, write):
        yield Incoming(read, _Sieve(invalid_tools, version)), write


class _Sieve:
    def __init__(self, invalid_tools: dict[str, str], version: Callable[[], str]) -> None:
        self._invalid_tools = invalid_tools
        self._version = version

    def __call__(self, item: Item) -> Item:
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            result: Any = item.message.result
            if isinstance(result, dict) and isinstance(result.get("tools"), list) and "content" not in result:
                result["tools"] = [tool for tool in result["tools"] if self._fits(tool)]
        return item

    def _fits(self, tool: Any) -> bool:
        problem = _problem(tool, self._version())
        if problem and len(self._invalid_tools) < MAX_INVALID_TOOLS:
            name = tool.get("name") if isinstance(tool, dict) else None
            self._invalid_tools[str(name)[:100]] = problem
        return not problem


def _problem(tool: Any, version: str) -> str:
    if isinstance(tool, dict) and tool.get("inputSchema") == TOO_DEEP:
        return f"its description is nested deeper than {DEEPEST} levels"
    try:
        read = Tool.model_validate(tool, by_name=False)
    except ValidationError:
        return "its description violates MCP"
    if not read.name:
        return "it has no name"
    if read.input_schema.get("type") != "object":
        return "the schema of its arguments must describe an object"
    modern = version in MODERN_PROTOCOL_VERSIONS
    if modern and (reason := find_invalid_x_mcp_header(read.input_schema)) is not None:
        return f"its x-mcp-header is invalid: {reason}"[:_REASON]  # the library would drop it silently
    if read.output_schema is not None and not modern and read.output_schema.get("type") != "object":
        return "the schema of its result must describe an object"
    try:
        _tools_of(version).validate_python([tool], by_name=False)
    except ValidationError as error:
        # The first two parts are MCP's own names; deeper parts can come from the server.
        where = error.errors(include_input=False, include_url=False)[0]["loc"][1:3]
        return f"its description violates MCP (at {'.'.join(map(str, where))})"
    return ""


@cache
def _tools_of(version: str) -> TypeAdapter[Any]:
    """The library's model of a list of tools in this revision; any value is valid if the revision is unknown."""
    page = SERVER_RESULTS.get(("tools/list", version))
    if not (isinstance(page, type) and issubclass(page, BaseModel)):
        return TypeAdapter(Any)
    listed: Any = page.model_fields["tools"].annotation
    return TypeAdapter(listed)
