"""The base of all models on the wire, and validation errors in the terms of JSON.

The errors have names of the contract and rules, but no values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from ...core.errors import InvalidArgument

_OBJECT: Final = "It should be an object"
_IN_JSON: Final[Mapping[str, str]] = {
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "list_type": "It should be an array",
}
"""Texts for errors that pydantic words in terms of Python, by the types of these errors."""

MAX_ID_CHARACTERS: Final = 200
MAX_ERRORS: Final = 100
"""The most errors of one value that are described. Wording each takes microseconds, and a body can have thousands."""

M = TypeVar("M", bound=BaseModel)


class Wire(BaseModel):
    """A part of the contract. It converts no values, forbids extra fields, and quotes no value in an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


def _printable(value: str) -> str:
    if value.isprintable() and value.strip():
        return value
    raise PydanticCustomError("not_printable", "It is blank or has characters that cannot be printed")


Printable = AfterValidator(_printable)

Label = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARACTERS), Printable]
"""Printable characters, not only blanks."""


def validated(model: type[M], arguments: Mapping[str, Any], *, texts: bool = False) -> M:
    """Validate the arguments of a call.

    Args:
        model: The model of the arguments.
        arguments: What the caller sent.
        texts: Whether all values are texts, such as `"5"` for a number, as in the query of a URL.

    Raises:
        InvalidArgument: They are invalid. The text has names of the model and rules, and no value.
    """
    try:
        return model.model_validate(arguments, strict=False if texts else None)
    except ValidationError as failure:
        problem = describe_errors(model, failure, unknown="there is an argument that the tool does not have")
        remedies = [_fields(model, each["loc"]) for each in errors_of(failure)]
    remedy = "; ".join(dict.fromkeys(remedies)) or _fields(model, ())
    raise InvalidArgument(f"the arguments are invalid: {problem}", remedy=remedy)


def describe_errors(model: type[BaseModel], failure: ValidationError, *, unknown: str, within: str = "") -> str:
    """Say which fields are invalid and which rules they break. The text has no values, and only names of the model.

    Args:
        model: The model.
        failure: The error of pydantic.
        unknown: The text for fields that the model does not have.
        within: The name of the object that the model describes, for an object within another.
    """
    problems: list[str] = []
    for item in errors_of(failure):
        names = [name for name, _ in _within(model, item["loc"])]
        path = ".".join([within, *names] if within else names)
        rule = str(_IN_JSON.get(item["type"], item["msg"]))
        told = f"{path}: {rule}" if path else rule  # a rule about several fields has no path
        problems.append(told if names or not item["loc"] else unknown)
    return "; ".join(dict.fromkeys(problems)) or f"there are more than {MAX_ERRORS} errors"


def errors_of(failure: ValidationError) -> list[Any]:
    """The errors without the values that they are about; none if there are too many to look at each of them."""
    if failure.error_count() > MAX_ERRORS:
        return []
    return [*failure.errors(include_input=False, include_url=False, include_context=False)]


def _fields(model: type[BaseModel], steps: Sequence[int | str]) -> str:
    """List the fields of the innermost object that an error is about."""
    place: list[str] = []
    found = f"the arguments are {', '.join(model.model_fields)}"
    for name, inner in _within(model, steps):
        place.append(name)
        if inner is not None:
            found = f"{'.'.join(place)} is an object with {', '.join(inner.model_fields)}"
    return found


def _within(model: type[BaseModel], steps: Sequence[int | str]) -> list[tuple[str, type[BaseModel] | None]]:
    """Return the names of the contract on the path to an error, each with its model if its value is an object."""
    found: list[tuple[str, type[BaseModel] | None]] = []
    kind: type[BaseModel] | None = model
    for name in map(str, steps):
        fields = {} if kind is None else {field.alias or own: field for own, field in kind.model_fields.items()}
        if name not in fields:
            break
        kind = _model_in(fields[name].annotation)
        found.append((name, kind))
    return found


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = getattr(annotation, "__args__", ())
    return next((one for one in inner if isinstance(one, type) and issubclass(one, BaseModel)), None)
