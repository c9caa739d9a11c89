"""Tools as models see them, and how a Signature offers them and returns calls of them.

One Signature serves every form. The adapters send the tools natively or in words, and leave them out of the prompt if
none is offered. `graphs` decides what can be called, and makes the calls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import dspy
from pydantic import BaseModel, ConfigDict, Field, field_validator

from .bounds import JsonReader
from .escape import escape_descriptions

TOOLS: Final = "offered_tools"
"""The name of the input that holds tools in the format of model services."""

CALLS: Final = "calls"
"""The name of the output that holds tool calls."""

_LONGEST_NAME: Final = 64  # the limit of characters that services accept in a tool's name


class ToolCall(BaseModel):
    """One call that a model asks for."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    tool: str = Field(description="the name of one of the tools")
    arguments: dict[str, Any] = Field(default_factory=dict)

    @field_validator("arguments", mode="before")
    @classmethod
    def _read(cls, given: object) -> object:
        """Models sometimes give arguments as a text."""
        if not isinstance(given, str):
            return given
        return JsonReader().read(given) if given.strip() else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A tool as a model sees it.

    Attributes:
        name: Its name.
        description: Its description.
        params: The JSON Schema of its params.
    """

    name: str
    description: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OfferedTools:
    """The tools of one conversation or worker, made once, so that their bytes are the same at every step.

    Attributes:
        wire: The tools in the format of model services: the value of the input `offered_tools`.
        names: The tools' names by those on the wire, which have no dots and at most 64 characters.
    """

    wire: tuple[Mapping[str, Any], ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, offers: Sequence[Offer]) -> OfferedTools:
        """Make the tools from offers, in their order."""
        names: dict[str, str] = {}
        for offer in offers:
            plain = shown = offer.name.replace(".", "_")[:_LONGEST_NAME]
            count = 1
            while shown in names:
                count += 1
                shown = f"{plain[: _LONGEST_NAME - 4]}_{count}"
            names[shown] = offer.name
        return cls(
            wire=tuple(_as_services_take(name, offer) for name, offer in zip(names, offers, strict=True)), names=names
        )

    def wire_name(self, name: str) -> str:
        """The name on the wire of the tool called `name`."""
        return next((shown for shown, own in self.names.items() if own == name), name)


def _as_services_take(name: str, offer: Offer) -> Mapping[str, Any]:
    shown = {"description": offer.description, "parameters": dict(offer.params)}
    return {"type": "function", "function": {"name": name, **escape_descriptions(shown)}}


def with_calls(signature: type[dspy.Signature]) -> type[dspy.Signature]:
    """The same Signature with tools as an additional input and tool calls as an additional output.

    The name and the instructions are kept. The answer becomes optional if there are calls.
    """
    made: Any = signature
    [(answer, info)] = made.output_fields.items()
    about = info.json_schema_extra.get("desc", "")
    output = dspy.OutputField(default="" if info.annotation is str else None, **({"desc": about} if about else {}))
    if DECLARED in info.json_schema_extra:
        output.json_schema_extra[DECLARED] = info.json_schema_extra[DECLARED]
    made = made.append(TOOLS, dspy.InputField(default=None), type_=list[dict[str, Any]])
    made = made.delete(answer).append(answer, output, type_=info.annotation)
    made = made.append(CALLS, dspy.OutputField(default=[]), type_=list[ToolCall])
    made.__name__ = made.__qualname__ = signature.__name__
    return cast("type[dspy.Signature]", made)


DECLARED: Final = "declared"
"""The key under which an output field stores the JSON Schema of its value, in addition to what dspy stores."""

OFFERED: Final = "You can call these tools."
LAST_STEP: Final = "You can call no tools any more. Answer now."
"""The texts that tell a model in words that it can call tools, and that it can no longer."""


def in_words(tools: Sequence[Mapping[str, Any]], answer: str | None) -> str:
    """The text about the tools for a model without native tool calls.

    Args:
        tools: The tools in the format of model services.
        answer: The output field that holds the answer.
    """
    lines = []
    for each in tools:
        function = each["function"]
        schema = json.dumps(function["parameters"], ensure_ascii=False, sort_keys=True)
        about = function["description"] or "no description"
        lines.append(f"- {function['name']}: {about}; arguments: {schema}")  # their texts are already escaped
    return (
        f"{OFFERED} To call some, list them in `{CALLS}`; you get their results before you go on. Once "
        f"you know enough, leave `{CALLS}` empty and give `{answer}`.\n" + "\n".join(lines)
    )


__all__ = [
    "CALLS",
    "DECLARED",
    "LAST_STEP",
    "OFFERED",
    "TOOLS",
    "Offer",
    "OfferedTools",
    "ToolCall",
    "in_words",
    "with_calls",
]
