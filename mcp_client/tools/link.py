"""The life of a connection to an MCP server: its list of tools and changes of it, calls, and its questions to a person.

Outside of this module requests and answers are plain values; inside they are types of the MCP library. `source` decides
which tools become Functions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from mcp import Client, MCPError
from mcp.client._transport import TransportStreams
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_REQUEST,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmptyResult,
    ErrorData,
    InputRequests,
    InputRequiredResult,
    JSONRPCResponse,
    ListResourcesRequest,
    ListResourcesResult,
    ReadResourceRequest,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    Tool,
    ToolListChangedNotification,
)
from mcp.types.methods import SERVER_RESULTS
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, TypeAdapter, ValidationError

from ...core import Clock
from ..hosts import Failure, Host
from ..link import OF_ITS_KIND, Link, pages
from ..oauth import LoginAuth
from ..readable import LEFT_OUT, MAX_LEFT_OUT, MAX_TOOLS
from ..transports import Incoming, Item
from .results import ServerFailures
from .server import Asked, CallTool, Listed, McpResource, ToolAnswer, ToolSpec
from .tasks import (
    ANSWERS,
    ANSWERS_OR_TASK,
    UNKNOWN,
    CancelTask,
    CreatedTask,
    GetTask,
    TaskParams,
    Tasks,
    TaskState,
    TaskUpdate,
    UpdateTask,
    has_tasks,
)

# --- invalid tools ----------------------------------------------------------------------------------------------------

MAX_INVALID_TOOLS: Final = 2 * MAX_LEFT_OUT  # the limit of tools that are left out and reported
_REASON: Final = 300  # the limit of characters of a reason, which can quote the server


def _problem(tool: Any, version: str) -> str:
    left_out = tool.get("inputSchema") if isinstance(tool, dict) else None
    if isinstance(left_out, str) and left_out.startswith(LEFT_OUT):
        return left_out.removeprefix(LEFT_OUT)[:_REASON]
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


# --- the link ---------------------------------------------------------------------------------------------------------

Elicit = Callable[[Asked], Awaitable[Any]]
"""Asks a person a question of the server; returns the answer, or None if there is none."""

_PAGES: Final = 50  # pages of the list of tools, or of resources
_PAUSE: Final = 0.1  # seconds between two reads of a list that changes


class ToolLink(Link):
    """A link to an MCP server.

    Args:
        host: Where the server is.
        failures: Makes the failures of the server.
        delay: Seconds to wait before connecting.
        clock: Waits.
        on_tools: Receives what the server offers, at the start and after each change.
        elicit: Asks a person what the server wants to know; None if the server cannot ask.
        auth: Sends the tokens of a login.
    """

    _failures: ServerFailures

    def __init__(
        self,
        host: Host,
        failures: ServerFailures,
        *,
        delay: float,
        clock: Clock,
        on_tools: Callable[[Listed], Awaitable[None]],
        elicit: Elicit | None,
        auth: LoginAuth | None = None,
    ) -> None:
        self._auth = auth
        self._on_tools = on_tools
        self._elicit = elicit
        self._elicitation = None if elicit is None else self._elicited
        self._extensions = (Tasks(),)
        self._has_tasks = False
        self._changed = asyncio.Event()
        self._invalid_tools: dict[str, str] = {}
        super().__init__(host, failures, delay=delay, clock=clock)

    @contextlib.asynccontextmanager
    async def _transport(self) -> AsyncGenerator[TransportStreams]:
        async with super()._transport() as (read, write):
            yield Incoming(read, self._without_invalid_tools), write

    async def _without_invalid_tools(self, item: Item) -> Item:
        """Remove the tools that violate MCP from an answer; the library would reject all of its tools."""
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            result: Any = item.message.result
            if isinstance(result, dict) and isinstance(result.get("tools"), list) and "content" not in result:
                valid = []
                for tool in result["tools"]:
                    await asyncio.sleep(0)  # checking each takes up to a few ms
                    if self._is_valid(tool):
                        valid.append(tool)
                result["tools"] = valid
        return item

    def _is_valid(self, tool: Any) -> bool:
        problem = _problem(tool, self._version)
        if problem and len(self._invalid_tools) < MAX_INVALID_TOOLS:
            name = tool.get("name") if isinstance(tool, dict) else None
            self._invalid_tools[str(name)[:100]] = problem
        return not problem

    # --- what it offers ---------------------------------------------------------------------------------------------

    async def _discover(self, client: Client) -> Failure | None:
        self._has_tasks = self.modern and has_tasks(client.server_capabilities)
        await self._on_tools(await self._list(client))
        return None

    async def _list(self, client: Client) -> Listed:
        offered = client.server_capabilities
        found: list[ToolSpec] = []
        known: dict[str, ToolSpec] = {}
        self._invalid_tools.clear()

        most = _PAGES if offered.tools is not None else 0
        async for page in pages(lambda params: client.session.list_tools(params=params), most):
            self._reset_silence()
            for spec in map(_spec_of, page.tools):
                if known.setdefault(spec.name, spec) is spec or known[spec.name] != spec:  # not the same page again
                    found.append(spec)
            if len(found) >= MAX_TOOLS:
                if page.next_cursor is not None:
                    self._invalid_tools["and more"] = f"further pages are not read after {MAX_TOOLS:,} tools"
                break
        for spec in found[MAX_TOOLS:][:MAX_LEFT_OUT]:
            self._invalid_tools[spec.name[:100]] = f"the server lists more than {MAX_TOOLS:,} tools"
        return Listed(
            tools=tuple(found[:MAX_TOOLS]),
            resources=offered.resources is not None,
            tasks=self._has_tasks,
            invalid_tools=dict(self._invalid_tools),
        )

    async def _noticed(self, message: object) -> None:
        await super()._noticed(message)
        if not isinstance(message, Exception):
            self._reset_silence()
        if isinstance(message, ToolListChangedNotification):
            self._changed.set()

    async def _follow(self, client: Client) -> None:
        """Follow the list of tools for as long as the link lives."""

        async def listen() -> bool:
            with contextlib.suppress(SubscriptionLost):
                async with client.listen(tools_list_changed=True) as stream:
                    async for _event in stream:
                        self._changed.set()
            self._changed.set()  # changes that it did not report in the meantime
            return True

        tools = client.server_capabilities.tools
        async with asyncio.TaskGroup() as both:
            if tools is not None and tools.list_changed:
                both.create_task(self._listen(listen))
            while True:
                await self._changed.wait()
                self._changed.clear()
                try:
                    await self._on_tools(await self._list(client))
                except (MCPError, ValidationError) as error:  # an unreadable list changes nothing
                    self._failure_of(error)
                await self._clock.sleep(_PAUSE)

    # --- calls ------------------------------------------------------------------------------------------------------

    async def call_tool(self, call: CallTool) -> ToolAnswer | Failure:
        """Make one round of a call."""
        params = CallToolRequestParams(
            name=call.tool,
            arguments=dict(call.arguments),
            input_responses={key: _elicited(value) for key, value in call.answers.items()} or None,
            request_state=call.state,
        )
        report = call.progress

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            assert report is not None
            report(progress, total, message)

        # Not `call_tool` of the session, which validates results against the server's schema without any limit.
        reporting = None if report is None else progress
        answers = ANSWERS_OR_TASK if self._has_tasks else ANSWERS
        answer = await self._answer(CallToolRequest(params=params), answers, progress=reporting)
        if isinstance(answer, MCPError):  # it belongs to the tool
            return self._failures.refused(call.tool, answer.code)
        if isinstance(answer, CreatedTask):
            return ToolAnswer(task=answer.remote())
        if isinstance(answer, InputRequiredResult):
            return _asking(answer.input_requests or {}, state=answer.request_state)
        return _ended(answer)

    async def look(self, tool: str, task: str, answers: Mapping[str, Any]) -> ToolAnswer | Failure | None:
        """Ask for the state of the task of a tool; None if the server does not know it.

        Args:
            tool: The server's name of the tool.
            task: The id of the task.
            answers: A person's answers to send before, by the server's key of the question; None declines.
        """
        if answers:
            given = TaskUpdate(task_id=task, input_responses={key: _elicited(value) for key, value in answers.items()})
            taken = await self._answer(UpdateTask(params=given), EmptyResult)
            if isinstance(taken, MCPError) and taken.code not in UNKNOWN:  # else the state of the task says more
                return self._failures.of_code(taken.code)
        found = await self._answer(GetTask(params=TaskParams(task_id=task)), TaskState)
        if isinstance(found, MCPError):
            return None if found.code in UNKNOWN else self._failures.of_code(found.code)
        match found.status:
            case "completed" if found.result is not None:
                return _ended(found.result)
            case "failed" if found.error is not None:
                return self._failures.refused(tool, found.error.code)
            case "cancelled":
                return self._failures.cancelled(tool)
            case "completed" | "failed":
                return self._failures.garbled(OF_ITS_KIND)
            case "working":
                return ToolAnswer(task=found.remote())
            case _:
                return replace(_asking(found.input_requests or {}), task=found.remote())

    async def cancel(self, task: str) -> None:
        """Ask the server to cancel a task."""
        await self._answer(CancelTask(params=TaskParams(task_id=task)), EmptyResult)

    async def resources(self) -> tuple[McpResource, ...]:
        """All resources."""
        found = pages(lambda params: self._send(ListResourcesRequest(params=params), ListResourcesResult), _PAGES)
        return tuple([_resource_of(each) async for page in found for each in page.resources])

    async def read(self, uri: str) -> tuple[Mapping[str, Any], ...]:
        """The contents of one resource, as JSON."""
        # Not the session's own method, which asks a person by itself.
        params = ReadResourceRequestParams(uri=uri)
        found = await self._send(ReadResourceRequest(params=params), ReadResourceResult)
        return tuple(_json(part) for part in found.contents)

    async def _elicited(self, context: ClientRequestContext, params: Any) -> ElicitResult | ErrorData:
        if self._elicit is None or not isinstance(params, ElicitRequestFormParams):
            return ErrorData(code=INVALID_REQUEST, message="only forms can be asked for")
        return _elicited(await self._elicit(Asked(message=params.message, schema=params.requested_schema)))


def _elicited(answer: Any) -> ElicitResult:
    """Convert an answer for the server; None declines."""
    return ElicitResult(action="decline") if answer is None else ElicitResult(action="accept", content=answer)


def _ended(result: CallToolResult) -> ToolAnswer:
    content = tuple(_json(block) for block in result.content)
    return ToolAnswer(content=content, structured=result.structured_content, failed=bool(result.is_error))


def _asking(requests: InputRequests, state: str | None = None) -> ToolAnswer:
    asks: list[Asked] = []
    for key, request in requests.items():
        if not isinstance(request, ElicitRequest) or not isinstance(request.params, ElicitRequestFormParams):
            return ToolAnswer(beyond=True)
        asks.append(Asked(message=request.params.message, schema=request.params.requested_schema, key=key))
    return ToolAnswer(asks=tuple(asks), state=state)


def _spec_of(tool: Tool) -> ToolSpec:
    """Convert the library's tool."""
    return ToolSpec(
        name=tool.name,
        description=tool.description or tool.title or "",
        title=tool.title or (tool.annotations.title if tool.annotations is not None else None) or "",
        params=tool.input_schema,
        result=tool.output_schema,
        annotations={} if tool.annotations is None else _json(tool.annotations),
    )


def _resource_of(listed: Resource) -> McpResource:
    """Convert the library's resource."""
    return McpResource(
        uri=listed.uri,
        name=listed.title or listed.name,
        description=listed.description or "",
        media_type=listed.mime_type or "",
        size=listed.size,
    )


def _json(value: BaseModel) -> dict[str, Any]:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)
