"""Requests and answers as texts: what a worker, or a function in a worker's place, is asked and gives (H8).

A worker that declares nothing takes one text and gives one. Anything else stands in these texts as JSON.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from ...core import canonical_json
from ...core.errors import ParamsInvalid, ResultInvalid
from ...core.validation import json_of, json_of_value, read_model, read_value, validate_model
from ..function import Function

REQUEST: Final = "request"
TEXT: Final[TypeAdapter[Any]] = TypeAdapter(str)
"""What is given where nothing is declared."""


class WorkerRequest(BaseModel):
    """What a worker takes that declares nothing else."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    request: str = Field(description="what it should do; all it needs to know", min_length=1)


def takes_text(function: Function) -> bool:
    """Whether all that a function takes is one text called `request`."""
    if function.params is WorkerRequest:
        return True
    fields = function.input_schema.get("properties", {})
    return set(fields) == {REQUEST} and fields[REQUEST].get("type") == "string"


def gives_text(function: Function) -> bool:
    """Whether a function gives a text."""
    return function.result is TEXT or function.output_schema.get("type") == "string"


def request_of(function: Function, given: object) -> str:
    """Params as a request.

    Raises:
        ParamsInvalid: They do not fit.
    """
    what = f"params of worker {function.name!r}"
    checked = validate_model(function.params, given, what=what, error=ParamsInvalid)
    fields = json_of(checked, what=what, error=ParamsInvalid)
    return str(fields[REQUEST]) if takes_text(function) else canonical_json(fields)


def inputs_of(function: Function, request: str) -> dict[str, Any]:
    """The params, as JSON, that a request holds.

    Raises:
        ParamsInvalid: They do not fit.
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
                f"{what} are no JSON object", remedy="give the request as one, with its declared fields"
            )
    return json_of(read_model(function.params, given, what=what, error=ParamsInvalid), what=what, error=ParamsInvalid)


def text_of(function: Function, value: object) -> str:
    """A result as a text.

    Raises:
        ResultInvalid: It does not fit.
    """
    given = json_of_value(function.result, value, what=f"the result of {function.name!r}", error=ResultInvalid)
    return str(given) if gives_text(function) else canonical_json(given)


def value_of(function: Function, text: str) -> Any:
    """The result that a text holds.

    Raises:
        ResultInvalid: It does not fit what the function declares by now.
    """
    what = f"the result of {function.name!r}"
    return read_value(
        function.result, text if gives_text(function) else json.loads(text), what=what, error=ResultInvalid
    )


__all__ = [
    "REQUEST",
    "TEXT",
    "WorkerRequest",
    "gives_text",
    "inputs_of",
    "request_of",
    "takes_text",
    "text_of",
    "value_of",
]
