"""The `output=` of `converse`: a type whose JSON Schema the model sees and that validates its answer."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import isroutine
from typing import Any

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError

from ...core import canonical_json
from ...core.errors import FunctionInvalid, InvalidArgument
from ...core.validation import describe_failure
from ...harness.schema import result_of

_REMEDY = "pass a pydantic model, another type that pydantic can validate, or a JSON Schema"


def output_type(given: Any) -> TypeAdapter[Any] | None:
    """Return the adapter that reads an answer; None if the answer is a text.

    Args:
        given: A pydantic model, any other type that has a JSON Schema, or a JSON Schema as a mapping.

    Raises:
        InvalidArgument: It has no JSON Schema.
    """
    if given is None:
        return None
    try:
        if isinstance(given, Mapping):
            return result_of("the answer", given)
        if isinstance(given, BaseModel):
            problem = "is an instance, not a type"
        elif isroutine(given):  # pydantic would describe its arguments
            problem = "is a function, not a type"
        else:
            made: TypeAdapter[Any] = TypeAdapter(given)
            made.json_schema()
            return made
    except FunctionInvalid as error:
        problem = error.problem
    except PydanticUserError as error:
        problem = f"has no JSON Schema ({type(error).__name__})"
    raise InvalidArgument(f"output= {problem}", remedy=_REMEDY)


def read_output(wanted: TypeAdapter[Any], value: Any) -> Any:
    """Return a turn's result as the type of `output=`.

    Args:
        wanted: The type.
        value: The result as JSON.

    Raises:
        InvalidArgument: The turn began with another type, and its result does not match this one.
    """
    try:
        return wanted.validate_json(canonical_json(value))  # like the answer: strict types treat JSON specially
    except ValidationError as error:
        problem = describe_failure(error)
    raise InvalidArgument(
        f"the turn's result does not match output=: {problem}", remedy="pass the output= that the turn began with"
    )


__all__ = ["output_type", "read_output"]
