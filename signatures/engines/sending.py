"""What a request has that lm15 does not write: messages back as they came, and schemas as each service takes them.

lm15 writes the JSON of a request; `amend` changes it before it is signed and sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

from dspy.lm15 import Message, Request, TextPart, ThinkingPart, ToolCallPart

from .reading import KEPT

Amend = Callable[[dict[str, Any]], dict[str, Any]]

_AMEND: Final[ContextVar[Amend | None]] = ContextVar("worldagent_amend", default=None)


@contextmanager
def amending(change: Amend) -> Generator[None]:
    """Change the JSON of requests that are written in the block."""
    before = _AMEND.set(change)
    try:
        yield
    finally:
        _AMEND.reset(before)


def open_to_amends(adapter: Any) -> None:
    """Let `amending` change the requests of one of lm15's adapters: all that it sends passes its method `_emit`."""
    kind = type(adapter)
    if not hasattr(kind, "is_amended"):
        adapter.__class__ = _AMENDED.get(kind) or _AMENDED.setdefault(kind, _amended(kind))


_AMENDED: Final[dict[type[Any], type[Any]]] = {}


def _amended(kind: type[Any]) -> type[Any]:
    def emit(self: Any, *, payload: Any = None, **more: Any) -> Any:
        change = _AMEND.get()
        if change is not None and isinstance(payload, dict):
            payload = change(payload)
        return kind._emit(self, payload=payload, **more)

    return type(kind.__name__, (kind,), {"__slots__": (), "_emit": emit, "is_amended": True})


# --- messages as they came --------------------------------------------------------------------------------------------


def marked(request: Request, origin: str) -> tuple[Request, Mapping[str, Mapping[str, Any]]]:
    """Return a request with a mark in place of each message of the model that is kept as it came, and these by mark.

    A message of another model or address goes back as its texts and calls alone (H3).

    Args:
        request: The request.
        origin: The model and address that the request is for.
    """
    kept: dict[str, Mapping[str, Any]] = {}
    messages = tuple(_marked(message, origin, kept) for message in request.messages)
    return replace(request, messages=messages), kept


def _marked(message: Message, origin: str, kept: dict[str, Mapping[str, Any]]) -> Message:
    if message.role != "assistant":
        return message
    mine = next((state.data for state in message.continuation if state.provider == KEPT), None)
    calls = message.parts_of(ToolCallPart)
    if mine is not None and mine.get("origin") == origin:
        mark = uuid4().hex
        kept[mark] = json.loads(str(mine["message"]))
        return Message(role="assistant", parts=(TextPart(mark), *(_bare(call) for call in calls)))
    parts = tuple(
        _bare(part)
        for part in message.parts
        if not isinstance(part, ThinkingPart) and not (isinstance(part, TextPart) and not part.text and calls)
    )
    return Message(role="assistant", parts=parts or (TextPart(""),))


def _bare(part: Any) -> Any:
    return replace(part, continuation=()) if getattr(part, "continuation", ()) else part


def put_back(payload: dict[str, Any], kept: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Replace marks in the JSON of a request by the messages that they stand for."""
    if not kept:
        return payload
    if "input" in payload:
        return {**payload, "input": list(_items_back(payload["input"], kept))}
    name = "contents" if "contents" in payload else "messages"
    messages = [kept.get(_mark_of(message), message) for message in payload[name]]
    if name == "contents":
        messages = [_without_own_ids(message) for message in messages]
    return {**payload, name: messages}


def _items_back(
    items: Sequence[Mapping[str, Any]], kept: Mapping[str, Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """The items of Responses: a mark is followed by the calls of its message."""
    own: set[Any] = set()
    for item in items:
        found = kept.get(_mark_of(item))
        if found is not None:
            own = {each.get("call_id") for each in found["items"] if each.get("type") == "function_call"}
            yield from found["items"]
        elif item.get("type") != "function_call" or item.get("call_id") not in own:
            yield item


def _mark_of(message: Mapping[str, Any]) -> str:
    content = message.get("content", message.get("parts"))
    first = content[0] if isinstance(content, list) and content else content
    text = first.get("text") if isinstance(first, Mapping) else first
    return text if isinstance(text, str) else ""


_OWN_ID: Final = re.compile(r"tool_call_\d+")


def _without_own_ids(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Gemini's calls have no ids, and their results none either: without this they would have lm15's."""
    parts = []
    for part in message.get("parts") or ():
        result = part.get("functionResponse")
        own = isinstance(result, Mapping) and _OWN_ID.fullmatch(str(result.get("id")))
        rest = {name: value for name, value in result.items() if name != "id"} if own else None
        parts.append(part if rest is None else {**part, "functionResponse": rest})
    return {**message, "parts": parts} if parts else message


# --- schemas ----------------------------------------------------------------------------------------------------------

_UNIONS: Final = ("oneOf", "anyOf", "allOf")


def fitted(payload: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a request whose tools have schemas that its service takes."""
    tools = payload.get("tools")
    if not isinstance(tools, list):
        return payload
    return {**payload, "tools": [_fitted(tool) for tool in tools]}


def _fitted(tool: dict[str, Any]) -> dict[str, Any]:
    if "functionDeclarations" in tool:  # Gemini's `parameters` has a subset of OpenAPI's schemas
        return {**tool, "functionDeclarations": [_as_json_schema(each) for each in tool["functionDeclarations"]]}
    if "input_schema" in tool:  # Anthropic
        return {**tool, "input_schema": without_root_union(tool["input_schema"])}
    function = tool.get("function")
    if isinstance(function, dict) and "parameters" in function:
        return {**tool, "function": {**function, "parameters": without_root_union(function["parameters"])}}
    return tool


def _as_json_schema(declaration: dict[str, Any]) -> dict[str, Any]:
    if "parameters" not in declaration:
        return declaration
    rest = {name: value for name, value in declaration.items() if name != "parameters"}
    return {**rest, "parametersJsonSchema": declaration["parameters"]}


def without_root_union(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of arguments without unions at its root, which services refuse, with the properties of their parts.

    The gate checks the arguments against the schema that the tool has (T5), so that this one can accept more.
    """
    unions = [name for name in _UNIONS if isinstance(schema.get(name), list)]
    if not unions and schema.get("type") == "object":
        return dict(schema)
    properties: dict[str, Any] = dict(schema.get("properties") or {})
    required: set[str] | None = None
    for name in unions:
        for part in schema[name]:
            found = part if isinstance(part, Mapping) else {}
            for key, value in (found.get("properties") or {}).items():
                properties.setdefault(key, value)
            names = set(found.get("required") or ())
            if name == "allOf":
                required = (required or set()) | names
    rest = {name: value for name, value in schema.items() if name not in _UNIONS}
    wanted: Sequence[str] = [*(schema.get("required") or ()), *sorted(required or ())]
    listed = [name for name in dict.fromkeys(wanted) if name in properties]
    fitting = {**rest, "type": "object", "properties": properties}
    return (
        {**fitting, "required": listed}
        if listed
        else {key: value for key, value in fitting.items() if key != "required"}
    )
