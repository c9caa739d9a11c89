"""A worker's entry Signature in its three forms: without tools, with tools in words, with tools as the model has them.

All three have the worker's name, so a role attaches to each of them alike (R6). What may be called, and what becomes of
a call, is decided in `graphs`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy
from pydantic import BaseModel, ConfigDict, Field, field_validator

from ...core.errors import FunctionInvalid
from .._adapter import TOOLS, Signature
from .._bounds import JsonReader
from .._escape import escape_description, escape_descriptions
from .._signature import named, worker_signature

RESULT, CALLS = "result", "calls"
_TAKEN = (RESULT, CALLS, TOOLS)

_HOW = (
    "You can call these tools. To call some, put them into `calls`; what they give reaches you before you go on. Once "
    "you know enough, leave `calls` empty and give `result`."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A tool as a model is told of it.

    Attributes:
        name: What it is called.
        description: What it does.
        params: The JSON Schema of its params.
    """

    name: str
    description: str
    params: Mapping[str, Any]

    def line(self) -> str:
        """How it is told in words."""
        schema = json.dumps(self.params, ensure_ascii=False, sort_keys=True)
        return escape_description(f"- {self.name}: {self.description or 'no description'}; arguments: {schema}")


class ToolCall(BaseModel):
    """One call that a model asks for in words."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    tool: str = Field(description="the name of one of those listed")
    arguments: dict[str, Any] = Field(default_factory=dict)

    @field_validator("arguments", mode="before")
    @classmethod
    def _read(cls, given: object) -> object:
        """Models give arguments as a text now and then."""
        if not isinstance(given, str):
            return given
        return JsonReader().read(given) if given.strip() else {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkerSignatures:
    """The forms of one worker's entry Signature.

    Attributes:
        answer: Without tools: the result at once.
        calls: With tools in words; None where it has none.
        native: With tools as the model has them; None where it has none.
        offered: The tools for `native`, as model services take them.
        names: The tools' names by those that the services are told.
    """

    answer: Signature
    calls: Signature | None = None
    native: Signature | None = None
    offered: tuple[Mapping[str, Any], ...] = ()
    names: Mapping[str, str]

    @classmethod
    def of(
        cls,
        name: str,
        instructions: str,
        *,
        fields: Mapping[str, Any] | None = None,
        output: Mapping[str, Any] | None = None,
        offers: Sequence[Offer] = (),
    ) -> WorkerSignatures:
        """Make them.

        Args:
            name: The worker's.
            instructions: The worker's, static.
            fields: The JSON Schema of each of its params by name; None is one text, `request`.
            output: The JSON Schema of its result; None is a text.
            offers: What it may call.

        Raises:
            FunctionInvalid: A param is called as an output is.
        """
        answer = worker_signature(name, instructions)
        if fields is not None:
            answer = _with_fields(answer, name, instructions, fields)
        if output is not None:
            answer = answer.delete(RESULT).append(RESULT, dspy.OutputField(desc=_wanted(output)), type_=_json(output))
            answer = named(answer, name, instructions)
        if not offers:
            return cls(answer=answer, names={})
        told = "\n".join(offer.line() for offer in offers)
        kind = answer.output_fields[RESULT]
        empty: Any = "" if output is None else None
        result = dspy.OutputField(default=empty, **({} if output is None else {"desc": _wanted(output)}))
        bare = answer.delete(RESULT)
        calls = bare.append(CALLS, dspy.OutputField(default=[]), type_=list[ToolCall])
        calls = calls.append(RESULT, result, type_=kind.annotation)
        native = answer.append(TOOLS, dspy.InputField(), type_=list[dict[str, Any]])
        native = native.append(CALLS, dspy.OutputField(), type_=dspy.ToolCalls)
        names = _native_names(offers)
        return cls(
            answer=answer,
            calls=named(calls, name, f"{instructions}\n\n{_HOW}\n{told}"),
            native=named(native, name, instructions),
            offered=tuple(_as_services_take(told, offer) for told, offer in zip(names, offers, strict=True)),
            names=names,
        )

    @property
    def all(self) -> tuple[Signature, ...]:
        """Those that there are; the one with tools in words last."""
        return tuple(each for each in (self.answer, self.native, self.calls) if each is not None)


def _with_fields(answer: Signature, name: str, instructions: str, fields: Mapping[str, Any]) -> Signature:
    taken = [field for field in fields if field in _TAKEN or not field.isidentifier() or field.startswith("_")]
    if taken or not fields:
        problem = f"a param that cannot be called {taken[0]!r}" if taken else "no params"
        raise FunctionInvalid(f"the worker {name!r} has {problem}", remedy="name its params as Python names arguments")
    made = answer.delete("request")
    for field, schema in reversed(tuple(fields.items())):
        text = schema.get("type") == "string"
        about = schema.get("description")
        info = dspy.InputField(**({"desc": about} if about else {}))
        made = made.prepend(field, info, type_=str if text else Any)
    return named(made, name, instructions)


def _wanted(schema: Mapping[str, Any]) -> str:
    return f"JSON that fits this schema: {json.dumps(schema, ensure_ascii=False, sort_keys=True)}"


def _json(schema: Mapping[str, Any]) -> Any:
    """A type for any JSON value: what it should be is told in the description, and checked where it can be told of."""
    kinds = {"object": dict[str, Any], "array": list[Any]}
    kind = schema.get("type")
    return kinds.get(kind, Any) if isinstance(kind, str) else Any


def _native_names(offers: Sequence[Offer]) -> dict[str, str]:
    """Services take no dots in names."""
    names: dict[str, str] = {}
    for offer in offers:
        plain = told = offer.name.replace(".", "_")[:64]
        count = 1
        while told in names:
            count += 1
            told = f"{plain[:60]}_{count}"
        names[told] = offer.name
    return names


def _as_services_take(name: str, offer: Offer) -> Mapping[str, Any]:
    told = {"description": offer.description, "parameters": dict(offer.params)}
    return {"type": "function", "function": {"name": name, **escape_descriptions(told)}}


__all__ = ["CALLS", "RESULT", "Offer", "ToolCall", "WorkerSignatures"]
