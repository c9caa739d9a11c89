"""The requests and answers of workers, and of functions that replace a worker, as texts (H8).

A worker that declares nothing takes one text and returns one text. Other params and results are JSON in these texts.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from ..core import canonical_json
from ..core.errors import ParamsInvalid, ResultInvalid
from ..core.validation import json_of, json_of_value, read_model, read_value, validate_model
from .function import Function

REQUEST: Final = "request"
TEXT: Final[TypeAdapter[Any]] = TypeAdapter(str)
"""The result type of a worker that declares none."""


class WorkerRequest(BaseModel):
    """The params of a worker that declares none."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    request: str = Field(description="what it should do; all it needs to know", min_length=1)


def takes_text(function: Function) -> bool:
    """Whether a function takes one text called `request` and nothing else."""
    if function.params is WorkerRequest:
        return True
    fields = function.input_schema.get("properties", {})
    return set(fields) == {REQUEST} and fields[REQUEST].get("type") == "string"


def gives_text(function: Function) -> bool:
    """Whether a function returns a text."""
    return function.result is TEXT or function.output_schema.get("type") == "string"


def request_of(function: Function, given: object) -> str:
    """Write params as a request.

    Raises:
        ParamsInvalid: The params do not validate.
    """
    what = f"params of worker {function.name!r}"
    checked = validate_model(function.params, given, what=what, error=ParamsInvalid)
    fields = json_of(checked, what=what, error=ParamsInvalid)
    return str(fields[REQUEST]) if takes_text(function) else canonical_json(fields)


def inputs_of(function: Function, request: str) -> dict[str, Any]:
    """Read the params, as JSON, from a request.

    Raises:
        ParamsInvalid: The params do not validate.
    """
    what = f"params of worker {function.name!r}"
    given: Any = {REQUEST: request}
    if not takes_text(function):
        try:
            given = json.loads(request)
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise ParamsInvalid(
                f"{what} must be a JSON object", remedy="write the request as an object with the declared fields"
            )
    return json_of(read_model(function.params, given, what=what, error=ParamsInvalid), what=what, error=ParamsInvalid)


def text_of(function: Function, value: object) -> str:
    """Write a result as a text.

    Raises:
        ResultInvalid: The result does not validate.
    """
    given = json_of_value(function.result, value, what=f"the result of {function.name!r}", error=ResultInvalid)
    return str(given) if gives_text(function) else canonical_json(given)


def value_of(function: Function, text: str) -> Any:
    """Read the result from a text.

    Raises:
        ResultInvalid: The result does not fit what the function declares now.
    """
    what = f"the result of {function.name!r}"
    return read_value(
        function.result, text if gives_text(function) else json.loads(text), what=what, error=ResultInvalid
    )
