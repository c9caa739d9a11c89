"""Tools as models see them, and how a Signature offers them and takes calls of them.

One Signature serves every form: the adapters send the tools by the service's own means or in words, and leave them out
of the prompt where nothing is offered. What may be called, and what becomes of a call, is decided in `graphs`.
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
"""The name of the input that holds tools as model services take them."""

CALLS: Final = "calls"
"""The name of the output that holds the calls of tools."""

_LONGEST_NAME: Final = 64  # characters that services take in a tool's name


class ToolCall(BaseModel):
    """One call that a model asks for."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    tool: str = Field(description="the name of one of the tools")
    arguments: dict[str, Any] = Field(default_factory=dict)

    @field_validator("arguments", mode="before")
    @classmethod
    def _read(cls, given: object) -> object:
        """Models give arguments as a text now and then."""
        if not isinstance(given, str):
            return given
        return JsonReader().read(given) if given.strip() else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A tool as a model sees it.

    Attributes:
        name: What it is called.
        description: What it does.
        params: The JSON Schema of its params.
    """

    name: str
    description: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OfferedTools:
    """The tools of one conversation or worker, made once, so that their bytes are the same at every step.

    Attributes:
        wire: The tools as model services take them: the value of the input `offered_tools`.
        names: The tools' names by those on the wire, which have no dots and are at most 64 characters long.
    """

    wire: tuple[Mapping[str, Any], ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, offers: Sequence[Offer]) -> OfferedTools:
        """Those of some offers, in their order."""
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
    """The same Signature with tools as an input and calls of them as an output beside its answer.

    The name and the instructions are kept, and the answer may be left out where there are calls.
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
"""Where an output field keeps the JSON Schema of its value, beside what dspy knows of it."""

OFFERED: Final = "You can call these tools."
LAST_STEP: Final = "You can call no tools any more. Answer now."
"""What a model reads in words: that it can call tools, and that it cannot any more."""


def in_words(tools: Sequence[Mapping[str, Any]], answer: str | None) -> str:
    """What a model that cannot take tools natively reads of them.

    Args:
        tools: The tools as services take them.
        answer: The output field that holds the answer.
    """
    lines = []
    for each in tools:
        function = each["function"]
        schema = json.dumps(function["parameters"], ensure_ascii=False, sort_keys=True)
        about = function["description"] or "no description"
        lines.append(f"- {function['name']}: {about}; arguments: {schema}")  # their texts are escaped by now
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
