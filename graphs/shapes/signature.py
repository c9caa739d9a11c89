"""Makes a worker of a Signature of dspy (T20)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, Field, create_model

from ...core.errors import FunctionInvalid
from ...core.validation import ClosedModel
from ...harness import Worker

if TYPE_CHECKING:
    from ...signatures import Signature

_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def signature_worker(signature: Signature, **options: Any) -> Worker:
    """A worker with the instructions, inputs and outputs of a Signature: pass it in `WorldAgent(workers=[...])`.

    Its params are the inputs. One output is its result, and its model reads the name and the description of the field;
    several are an object with these fields. A declared `role` is
    not a param but the role of a task (R18).

    Args:
        signature: The Signature.
        options: Fields of `Worker`, such as `name`, `description`, `tools`, `model` or `limits`. By default the name is
            that of the class in lower case with underscores, and the description is the first paragraph of the
            instructions.

    Raises:
        FunctionInvalid: It is not a Signature, its field `role` is not a text input, a field has a reserved name, or an
            option does not fit.
    """
    from ...signatures.signature import check_signature, describe_own_role, without_role

    check_signature(signature)
    about_role, plain = describe_own_role(signature), without_role(signature)
    name = options.get("name") or _CAPITAL.sub("_", signature.__name__).lower()
    outputs = {field: _field(field, info) for field, info in plain.output_fields.items()}
    [first, *others] = outputs.values()
    [name_of_first, *_] = outputs
    about = ": ".join(each for each in (name_of_first, first[1].description) if each)
    given: dict[str, Any] = {
        "description": _first_paragraph(plain.instructions),
        "input": _model(f"{name}_input", {field: _field(field, info) for field, info in plain.input_fields.items()}),
        "output": _model(f"{name}_output", outputs) if others else first[0],
        "about_role": about_role,
        "about_result": "" if others else about,
    }
    return worker_of(name, plain.instructions, given | options)


def worker_of(name: str, instructions: str, options: Mapping[str, Any]) -> Worker:
    """A worker with options by name.

    Raises:
        FunctionInvalid: An option does not fit, or no worker has it.
    """
    known = {each.name for each in fields(Worker) if each.init}
    unknown = sorted(options.keys() - known)
    if unknown:
        raise FunctionInvalid(
            f"the worker {name!r} has the option {unknown[0]!r}, which no worker has",
            remedy="see Worker for its fields",
        )
    made: dict[str, Any] = {"instructions": instructions, **options, "name": name}
    return Worker(**made)


def _model(name: str, fields: dict[str, tuple[Any, Any]]) -> type[BaseModel]:
    made: type[BaseModel] = create_model(name, __base__=ClosedModel, **fields)  # type: ignore[call-overload] # by name
    return made


def _field(name: str, info: Any) -> tuple[Any, Any]:
    """The type of a field with its limits, and its declaration with the description that a person wrote."""
    from ...signatures.signature import own_description

    about = own_description(name, info)
    more: dict[str, Any] = {"default": ... if info.is_required() else info.default}
    if info.default_factory is not None:
        more = {"default_factory": info.default_factory}
    if about:
        more["description"] = about
    kind = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
    return kind, Field(**more)


def _first_paragraph(text: str) -> str:
    return " ".join(text.strip().split("\n\n", 1)[0].split())
