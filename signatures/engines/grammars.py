"""Grammars of llama.cpp for the embedded model: JSON Schemas that it can follow, and the choice of a tool.

Schemas are restricted to what a grammar supports, with a limit for each text and list. To choose a tool the model is
asked twice. First it picks one of the tools, or `none`, and writes the arguments; a grammar allows nothing else. If it
picked `none`, it then answers in text. `local` runs the model and makes the text.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from dspy.lm15 import FunctionTool, Message, Request, TextPart, ToolCallDelta, ToolCallPart, ToolResultPart

_TEXT: Final = 120  # the limit of characters of a text in the arguments
_MOST_ITEMS: Final = 4
_DEEPEST: Final = 5  # the limit of levels of a schema; a recursive one has no end
_BOUNDS: Final[Mapping[str, Any]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
}
_ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator"}
    | {"$schema", "$id", "$comment", "$defs", "definitions", "additionalProperties", "type"}
)
_ALONE: Final = frozenset({"$ref", "const", "enum", "anyOf", "oneOf"})  # keywords that are only supported alone
_KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"minLength", "maxLength"}),
    "integer": frozenset(_BOUNDS),
    "number": frozenset(_BOUNDS),
    "boolean": frozenset(),
    "null": frozenset(),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required"}),
}


class GrammarUnfit(Exception):
    """No grammar can enforce the schema. This exception never leaves the engine."""


def bounded(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema whose values are all valid for `schema`, for the arguments of a tool or an answer.

    Optional properties keep their defaults, unless all are optional.

    Raises:
        GrammarUnfit: There is none, for example because a required text must match a pattern.
    """
    root = {"type": "object", **schema}
    return _bounded(root, root, 0)


def object_of(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object with exactly these properties."""
    shown = dict(properties)
    return {"type": "object", "properties": shown, "required": list(shown), "additionalProperties": False}


def _bounded(schema: Any, root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if depth > _DEEPEST or schema is False:
        raise GrammarUnfit
    if schema is True or not schema:
        return {"type": "string", "maxLength": _TEXT}
    keywords = schema.keys() - _ANNOTATIONS
    if len(keywords) == 1 and (keyword := next(iter(keywords))) in _ALONE:
        given = schema[keyword]
        if keyword in ("const", "enum"):
            return {"enum": [given] if keyword == "const" else list(given)}
        return _first_fitting([_target(given, root)] if keyword == "$ref" else given, root, depth)
    kind = schema.get("type")
    if isinstance(kind, list):
        return _first_fitting([{**schema, "type": each} for each in kind], root, depth)
    if kind not in _KEYWORDS or keywords - _KEYWORDS[kind]:
        raise GrammarUnfit
    if kind == "object":
        return _bounded_object(schema, root, depth)
    own = {"type": kind, **{name: schema[name] for name in keywords}}
    if kind == "string":
        _put_end(own, "minLength", "maxLength", _TEXT)
    if kind == "array":
        _put_end(own, "minItems", "maxItems", _MOST_ITEMS)
        own["items"] = _bounded(own.get("items", True), root, depth + 1)
    return own


def _put_end(own: dict[str, Any], least: str, most: str, limit: int) -> None:
    own[most] = min(own.get(most, limit), limit)
    if own.get(least, 0) > own[most]:
        raise GrammarUnfit


def _bounded_object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties, required = schema.get("properties", {}), set(schema.get("required", ()))
    if not required <= properties.keys():
        raise GrammarUnfit
    kept: dict[str, Any] = {}
    for name, each in properties.items():
        if required and name not in required:
            continue
        try:
            kept[name] = _bounded(each, root, depth + 1)
        except GrammarUnfit:
            if required:
                raise
    return object_of(kept)


def _first_fitting(options: Sequence[Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """The first usable option. `null` is tried last."""
    for option in sorted(options, key=lambda each: isinstance(each, Mapping) and each.get("type") == "null"):
        try:
            return _bounded(option, root, depth + 1)
        except GrammarUnfit:
            continue
    raise GrammarUnfit


def _target(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for name in reference.removeprefix("#/").split("/"):
        if not isinstance(found, Mapping) or name not in found:
            raise GrammarUnfit
        found = found[name]
    return found


def is_within(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether numbers are within their limits, which a grammar does not enforce for fractions."""
    match schema.get("type"):
        case "object":
            return all(is_within(each, value[name]) for name, each in schema["properties"].items())
        case "array":
            return all(is_within(schema["items"], each) for each in value)
        case "integer" | "number":
            within = all(_BOUNDS[name](value, schema[name]) for name in _BOUNDS.keys() & schema.keys())
            return within and math.isfinite(value)
        case _:
            return True


# --- the choice of a tool ---------------------------------------------------------------------------------------------

CALL_TOKENS: Final = 200
"""The limit of tokens of a call. A longer one is discarded, and the model answers in text."""

_NONE: Final = "none"
_MOST_TOOLS: Final = 12  # 40 to 60 tokens of prompt each, read in a quarter of a second
_ABOUT: Final = 80  # the limit of characters of a tool's description
_MESSAGE: Final = 1_000  # the limit of characters of the message
_ROLE_LINE: Final = "[[ ## role ## ]]\n"  # a role shapes the answer, but confuses the choice of a tool
_TALK: Final = ("Thank you!", "What is the capital of Japan?", "Tell me a story.", "How are you?")
_SAMPLES: Final[Mapping[str, Sequence[Any]]] = {
    "string": ("apple", "Rome", "a red house"),
    "integer": (3, 7, 20),
    "number": (2.5, 4.0, 20.5),
    "boolean": (True, False),
    "null": (None,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One request to pick a tool.

    Attributes:
        schemas: The schema of the arguments of each tool that can be picked, by its name.
        messages: The prompt.
        required: Whether a tool must be picked.
        id: The id of the call.
    """

    schemas: Mapping[str, Mapping[str, Any]]
    messages: Sequence[Mapping[str, str]]
    required: bool
    id: str

    @classmethod
    def of(cls, request: Request) -> Choice | None:
        """The request to make before the answer to `request`; None if no tool can be called.

        If a message names tools, only these can be called. After there are results, only named tools that were not
        called yet can be called, because such a small model would keep calling.
        """
        chosen = request.config.tool_choice
        if not request.tools or (chosen is not None and chosen.mode == "none"):
            return None
        message, called = _asked(request.messages)
        allowed = (
            set(chosen.allowed) if chosen is not None and chosen.allowed else {tool.name for tool in request.tools}
        )
        fitting: dict[str, tuple[str, dict[str, Any]]] = {}
        for tool in request.tools:
            if isinstance(tool, FunctionTool) and tool.name in allowed:
                with suppress(GrammarUnfit):
                    fitting[tool.name] = (_about(tool), bounded(tool.parameters))
        named = _named(message, list(fitting))
        shown = list(fitting)
        if len(shown) > _MOST_TOOLS:
            shown = [*named, *(name for name in shown if name not in named)][:_MOST_TOOLS]
        offered = [name for name in named if name not in called] if called else named or shown
        offered = [name for name in offered if name in shown]
        if not offered:
            return None
        return cls(
            schemas={name: fitting[name][1] for name in offered},
            messages=_prompt({name: fitting[name] for name in shown}, message),
            required=chosen is not None and chosen.mode == "required" and not called,
            id=f"call_{len(called) + 1}",
        )

    def body(self, most: int) -> dict[str, Any]:
        """The request to llama.cpp. It takes the most probable choice, whatever the temperature of answers.

        Args:
            most: The limit of tokens of the output.
        """
        options = [object_of({"tool": {"const": name}, "arguments": self.schemas[name]}) for name in self.schemas]
        options += [] if self.required else [object_of({"tool": {"const": _NONE}})]
        return {
            "messages": self.messages,
            "max_tokens": min(most, CALL_TOKENS),
            "temperature": 0.0,
            "stream_options": {"include_usage": True},
            "json_schema": {"anyOf": options},
        }

    def read(self, text: str) -> ToolCallDelta | None:
        """The picked call; None if there is none, or if it was truncated or exceeds a limit."""
        try:
            given = json.loads(text)
        except ValueError:
            return None
        name = given["tool"]
        if name not in self.schemas or not is_within(self.schemas[name], given["arguments"]):
            return None
        return ToolCallDelta(input=json.dumps(given["arguments"]), id=self.id, name=name)


def _asked(messages: Sequence[Message]) -> tuple[str, list[str]]:
    """The message to answer, and the names of the tools that were called for it."""
    called: list[str] = []
    texts: list[str] = []
    for message in reversed(messages):
        calls = message.parts_of(ToolCallPart)
        if message.role == "assistant" and not calls:
            break
        called += [call.name for call in calls]
        if message.role == "user":
            texts.insert(0, "".join(part.text for part in message.parts if isinstance(part, TextPart)))
    texts = [text for text in texts if not text.startswith(_ROLE_LINE)]
    # A summary comes before the message and is longer, so the end of the text is kept.
    return "\n\n".join(texts)[-_MESSAGE:], called


def _named(message: str, names: Sequence[str]) -> list[str]:
    """The tools that a message names, by the number of matching words."""
    words = set(re.findall(r"\w{3,}", message.lower().replace("_", " ")))

    def is_said(part: str) -> bool:
        return any(word.startswith(part) or (len(word) > 4 and part.startswith(word)) for word in words)

    said = {name: sum(map(is_said, re.findall(r"[^\W_]{3,}", name.lower()))) for name in names}
    most = max(said.values(), default=0)
    return [name for name in names if said[name] == most and most]


def _about(tool: FunctionTool) -> str:
    """The first sentence of a tool's description, shortened at the end of a word if it is long."""
    first = re.split(r"(?<=[.!?])\s|\n", (tool.description or "").strip(), maxsplit=1)[0]
    if len(first) > _ABOUT:
        first = first[:_ABOUT].rsplit(maxsplit=1)[0]
    return first.rstrip(".!? ") or tool.name.replace("_", " ")


def _prompt(tools: Mapping[str, tuple[str, Mapping[str, Any]]], message: str) -> list[dict[str, str]]:
    """A list of the tools, one example for each, and between them examples of messages that need no tool.

    A single tool gets two examples by its name. With one example the model picks it for unrelated messages.
    """
    listed = "; ".join(f"{name}: {about}" for name, (about, _) in tools.items())
    system = f"Choose a tool. {listed}; {_NONE}: everything else. Reply as JSON with the keys tool, arguments."
    prompt = [{"role": "system", "content": system}]
    alone = len(tools) == 1
    talk = list(_TALK[: 1 if alone else 2])
    every = max(1, len(tools) // len(talk)) + alone
    for place, (name, (about, schema)) in enumerate(list(tools.items()) * (1 + alone)):
        sample = _sample(schema, place)
        given = ", ".join(value if isinstance(value, str) else json.dumps(value) for value in sample.values())
        asked = f"{name.replace('_', ' ').capitalize()}" if alone else f"Please {about[0].lower()}{about[1:]}"
        said = " ".join(filter(None, (asked, given))) + "?" if alone else f"{asked}: {given}." if given else f"{asked}."
        prompt += _example(said, {"tool": name, "arguments": sample})
        if talk and place % every == every - 1:
            prompt += _example(talk.pop(0), {"tool": _NONE})
    for said in talk:
        prompt += _example(said, {"tool": _NONE})
    return [*prompt, {"role": "user", "content": message}]


def _example(said: str, answer: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{"role": "user", "content": said}, {"role": "assistant", "content": json.dumps(answer, ensure_ascii=False)}]


def _sample(schema: Mapping[str, Any], place: int) -> Any:
    """A value for an example, different in each position."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "object":
        properties = schema["properties"]
        return {name: _sample(each, place + at) for at, (name, each) in enumerate(properties.items())}
    if schema["type"] == "array":
        return [_sample(schema["items"], place)]
    samples = _SAMPLES[schema["type"]]
    return samples[place % len(samples)]


def result_text(message: Message) -> str:
    """The results of calls as text, for a model that was not trained to read them."""
    result_lines = []
    for part in message.parts_of(ToolResultPart):
        text = "".join(each.text for each in part.content if isinstance(each, TextPart))
        result_lines.append(f"{part.name or 'The tool'} gave: {text}")
    return "\n\n".join([*result_lines, "Answer with this."])
