"""Requests and answers between our plain values and the types of the MCP library."""

from __future__ import annotations

from typing import Any, Final

from mcp.client.session import ClientSession
from mcp.types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    PaginatedRequestParams,
    ReadResourceRequest,
    ReadResourceRequestParams,
    ReadResourceResult,
    Tool,
)
from pydantic import BaseModel, TypeAdapter

from ..._request import Request
from .._listed import Asked, CallTool, ListResources, ReadResource, ToolAnswer, ToolSpec

_PAGES: Final = 50  # of the list of resources
_ANSWERS: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)


async def send(session: ClientSession, request: Request[Any]) -> Any:
    """Send a request; gives what its type says.

    Raises:
        MCPError, ValidationError, RuntimeError: What the library makes of an answer that is none.
    """
    match request:
        case CallTool():
            return await _call(session, request)
        case ListResources():
            return await _resources(session)
        case ReadResource():
            # Not the session's own, which would ask a person by itself.
            params = ReadResourceRequestParams(uri=request.uri)
            found = await session.send_request(ReadResourceRequest(params=params), ReadResourceResult)
            return tuple(_json(part) for part in found.contents)
        case _:
            raise TypeError(type(request).__name__)


def elicited(answer: Any) -> ElicitResult:
    """What a server gets for an answer; None says no."""
    return ElicitResult(action="decline") if answer is None else ElicitResult(action="accept", content=answer)


async def _call(session: ClientSession, call: CallTool) -> ToolAnswer:
    responses: dict[str, Any] = {key: elicited(value) for key, value in call.answers.items()}
    params = CallToolRequestParams(
        name=call.tool,
        arguments=dict(call.arguments),
        input_responses=responses or None,
        request_state=call.state,
    )
    told = call.progress

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        assert told is not None
        told(progress, total, message)

    # Not the session's own `call_tool`, which checks results by the server's schema without any bound.
    answer = await session.send_request(
        CallToolRequest(params=params), _ANSWERS, progress_callback=None if told is None else tell
    )
    if isinstance(answer, InputRequiredResult):
        return _asking(answer)
    content = tuple(_json(block) for block in answer.content)
    return ToolAnswer(content=content, structured=answer.structured_content, failed=bool(answer.is_error))


def _asking(answer: InputRequiredResult) -> ToolAnswer:
    asks: list[Asked] = []
    for key, request in (answer.input_requests or {}).items():
        if not isinstance(request, ElicitRequest) or not isinstance(request.params, ElicitRequestFormParams):
            return ToolAnswer(beyond=True)
        asks.append(Asked(message=request.params.message, schema=request.params.requested_schema, key=key))
    return ToolAnswer(asks=tuple(asks), state=answer.request_state)


async def _resources(session: ClientSession) -> tuple[dict[str, Any], ...]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await session.list_resources(params=PaginatedRequestParams(cursor=cursor))
        found += map(_json, page.resources)
        cursor = page.next_cursor
        if cursor is None:
            break
    return tuple(found)


def spec_of(tool: Tool) -> ToolSpec:
    """What the library read of a tool."""
    return ToolSpec(
        name=tool.name,
        description=tool.description or tool.title or "",
        title=tool.title or (tool.annotations.title if tool.annotations is not None else None) or "",
        params=tool.input_schema,
        result=tool.output_schema,
        annotations={} if tool.annotations is None else _json(tool.annotations),
    )


def _json(value: BaseModel) -> dict[str, Any]:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


__all__ = ["send", "spec_of"]
