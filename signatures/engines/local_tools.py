"""Tool calls of the embedded model: picks the tool for a message and its arguments, under one grammar of llama.cpp.

The model is asked twice. First it picks one of the tools, or `none`, and writes the arguments; a grammar allows nothing
else. If it picked `none`, it then answers in text. `local` runs the model and makes the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from dspy.lm15 import FunctionTool, Message, Request, TextPart, ToolCallDelta, ToolCallPart, ToolResultPart

from .grammars import GrammarUnfit, bounded, is_within, object_of

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


__all__ = ["CALL_TOKENS", "Choice", "result_text"]
