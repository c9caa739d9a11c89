"""What a request has that lm15 does not write: messages back as they came, schemas as services take them, references.

lm15 writes the JSON of a request; `amend` changes it before it is signed and sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote
from uuid import uuid4

from dspy.lm15 import Message, Request, TextPart, ThinkingPart, ToolCallPart

from ..calling import FIND_TOOLS
from .reading.base import KEPT

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

# OpenAI's strict mode is not used. The gate checks the arguments of every call (T5) and the model is told what is
# wrong, so that strict mode would add little: it takes few schemas of other people's tools, makes the first request
# with each one slow, and has OpenAI keep them. In Responses it is the default, which makes optional arguments required.


def fitted(payload: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a request whose tools have schemas that services take.

    It is one form for all: an object at the root, in the words of the newest draft. It can accept more than the tool
    does, whose own schema the gate checks (T5).
    """
    tools = payload.get("tools")
    if not isinstance(tools, list):
        return payload
    return {**payload, "tools": [_fitted(tool) for tool in tools]}


def _fitted(tool: dict[str, Any]) -> dict[str, Any]:
    if "functionDeclarations" in tool:  # Gemini's `parameters` has a subset of OpenAPI's schemas
        return {**tool, "functionDeclarations": [_as_json_schema(each) for each in tool["functionDeclarations"]]}
    function = tool.get("function")
    if isinstance(function, dict):
        return {**tool, "function": _fitted(function)}
    place = next((name for name in ("input_schema", "parameters") if isinstance(tool.get(name), Mapping)), None)
    if place is None:
        return tool
    of_responses = {"strict": False} if tool.get("type") == "function" else {}
    return {**tool, place: fitting_schema(tool[place]), **of_responses}


def _as_json_schema(declaration: dict[str, Any]) -> dict[str, Any]:
    if "parameters" not in declaration:
        return declaration
    rest = {name: value for name, value in declaration.items() if name != "parameters"}
    return {**rest, "parametersJsonSchema": _with_bare_references(fitting_schema(declaration["parameters"]))}


def _with_bare_references(value: Any) -> Any:
    """A schema whose references have nothing beside them, such as a description, as Gemini requires."""
    if isinstance(value, Mapping):
        bare = isinstance(value.get("$ref"), str)
        return {key: _with_bare_references(each) for key, each in value.items() if key.startswith("$") or not bare}
    return [_with_bare_references(each) for each in value] if isinstance(value, list) else value


def fitting_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema of arguments as services take it. It must not be changed."""
    return _fitting(json.dumps(schema))


@lru_cache(maxsize=1024)
def _fitting(text: str) -> Mapping[str, Any]:
    schema = json.loads(text)
    if "definitions" in schema:
        schema = {"$defs" if name == "definitions" else name: value for name, value in schema.items()}
    return _with_object_root(_current(schema))


_UNIONS: Final = ("oneOf", "anyOf", "allOf")
_NOT_AT_ROOT: Final = frozenset((*_UNIONS, "$ref", "$schema", "enum", "const", "not", "if", "then", "else"))
_SCHEMAS_BY_NAME: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_LISTS_OF_SCHEMAS: Final = frozenset({*_UNIONS, "prefixItems"})
_SCHEMAS: Final = frozenset(
    {"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties"}
)
_CONSTRAINTS: Final = frozenset(
    {"pattern", "format", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "contains", "multipleOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minProperties", "maxProperties"}
    | {"patternProperties", "propertyNames", "dependentSchemas", "dependentRequired", "unevaluatedProperties"}
    | {"not", "if", "then", "else"}
)
_BOUNDS: Final = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))


def _current(schema: Any) -> Any:
    """A schema in the words of draft 2020-12, which Anthropic requires."""
    if not isinstance(schema, Mapping):
        return {} if schema is True else schema
    found = dict(schema)
    if isinstance(found.get("items"), list):
        found["prefixItems"], found["items"] = found["items"], found.pop("additionalItems", {})
    for bound, value in _BOUNDS:
        if isinstance(found.get(bound), bool) and found.pop(bound) and value in found:
            found[bound] = found.pop(value)
    kinds = found.get("type")
    if "array" in (kinds if isinstance(kinds, list) else [kinds]) and "prefixItems" not in found:
        found.setdefault("items", {})  # OpenAI and Gemini require it
    if isinstance(found.get("$ref"), str):
        found["$ref"] = found["$ref"].replace("#/definitions/", "#/$defs/", 1)
    return {name: _in_parts(name, value, _current) for name, value in found.items()}


def without_constraints(schema: Any) -> Any:
    """A schema without what a grammar of it can lack, such as the longest text; the gate checks that (T5)."""
    if not isinstance(schema, Mapping):
        return schema
    kept = schema.keys() - _CONSTRAINTS
    return {name: _in_parts(name, value, without_constraints) for name, value in schema.items() if name in kept}


def _in_parts(name: str, value: Any, change: Callable[[Any], Any]) -> Any:
    """The value of a keyword, with the schemas in it changed."""
    if name in _SCHEMAS_BY_NAME and isinstance(value, Mapping):
        return {key: change(each) for key, each in value.items()}
    if name in _LISTS_OF_SCHEMAS and isinstance(value, list):
        return [change(each) for each in value]
    return change(value) if name in _SCHEMAS and isinstance(value, Mapping) else value


def _with_object_root(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema of an object, with the properties of all that its root refers to or unites, which services refuse."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    _gather(schema, schema, properties, required, frozenset())
    rest = {name: value for name, value in schema.items() if name not in _NOT_AT_ROOT}
    listed = [name for name in dict.fromkeys(required) if name in properties]
    fitting = {**rest, "type": "object", "properties": properties, "required": listed}
    return fitting if listed else {name: value for name, value in fitting.items() if name != "required"}


def _gather(
    part: Any, root: Mapping[str, Any], properties: dict[str, Any], required: list[str], seen: frozenset[str]
) -> None:
    """Add the properties of a part of a schema, and those that are required whichever part applies."""
    if not isinstance(part, Mapping):
        return
    for name, value in (part.get("properties") or {}).items():
        properties.setdefault(name, value)
    required += [name for name in part.get("required") or () if isinstance(name, str)]
    target = part.get("$ref")
    if isinstance(target, str) and target not in seen:
        _gather(_at(target, root), root, properties, required, seen | {target})
    for union in _UNIONS:
        for each in part.get(union) or ():
            _gather(each, root, properties, required if union == "allOf" else [], seen)


def _at(target: str, root: Mapping[str, Any]) -> Any:
    """The part of a schema that a reference in it points at; None if there is none."""
    found: Any = root
    for step in target.removeprefix("#").split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


# --- tools that were found --------------------------------------------------------------------------------------------

FOUND: Final[ContextVar[frozenset[str]]] = ContextVar("worldagent_found", default=frozenset())
"""The tools of the running call that the model has searched for, by their names on the wire."""

NO_REFERENCES: Final = re.compile("defer_loading|tool_reference")
"""Words of a service that refuses what `with_references` writes."""


def with_references(payload: dict[str, Any], found: Collection[str]) -> dict[str, Any]:
    """A request to Anthropic with the tools that were found behind the messages, where a search refers to them.

    Deferred tools are not in the part of a prompt that stays the same and is cached. One whose search was in another
    process, and stands there in words, stays among the others.
    """
    found = {name for tool in payload.get("tools") or () if (name := tool.get("name")) in found}
    if not found:
        return payload
    blocks = [block for each in payload["messages"] if isinstance(each["content"], list) for block in each["content"]]
    searches = {block["id"] for block in blocks if block["type"] == "tool_use" and block["name"] == FIND_TOOLS}
    names_by_search: dict[str, list[str]] = {}
    for block in blocks:
        if block["type"] == "tool_result" and block["tool_use_id"] in searches:
            text = block["content"] if isinstance(block["content"], str) else ""
            if names := [name for name in sorted(found) if f'"name": "{name}"' in text]:
                names_by_search[block["tool_use_id"]] = names
    shown = {name for names in names_by_search.values() for name in names}
    tools = [{**tool, "defer_loading": True} if tool["name"] in shown else tool for tool in payload["tools"]]
    messages = [_with_references(message, names_by_search) for message in payload["messages"]]
    return {**payload, "messages": messages, "tools": tools}


def _with_references(message: dict[str, Any], names_by_search: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    if message["role"] != "user" or not isinstance(message["content"], list):
        return message
    content = []
    for block in message["content"]:
        names = names_by_search.get(block.get("tool_use_id")) if block["type"] == "tool_result" else None
        references = [{"type": "tool_reference", "tool_name": name} for name in names or ()]
        content.append({**block, "content": references} if references else block)
    return {**message, "content": content}
