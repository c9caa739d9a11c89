"""Values checked against declared models, with errors that name fields and never show a value."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from ._ids import canonical_json
from .errors import WorldAgentError

_M = TypeVar("_M", bound=BaseModel)


def validate_model(
    model: type[_M], data: object, *, what: str, error: type[WorldAgentError], remedy: str | None = None
) -> _M:
    """Return `data` as an instance of `model`. Fields that the model does not declare are refused.

    Args:
        model: The declared model.
        data: A mapping, or an instance.
        what: What is checked, for the error's text, such as "params of shape 'subagent'".
        error: The error to raise.
        remedy: The error's remedy; by default it lists the model's fields.
    """
    if isinstance(data, model):
        return data
    if isinstance(data, BaseModel):
        data = data.model_dump()
    unknown = sorted(str(key) for key in data if key not in _accepted(model)) if isinstance(data, dict) else []
    try:
        value = model.model_validate(data)
    except ValidationError as failure:
        problems = describe_failure(failure)
    else:
        if not unknown or model.model_config.get("extra") == "allow":
            return value
        problems = ""
    if unknown and not any(name in problems for name in unknown):
        problems = "; ".join(filter(None, (problems, f"unknown field {', '.join(map(repr, unknown))}")))
    fields = ", ".join(model.model_fields) or "none"
    raise error(f"{what} do not fit: {problems}", remedy=remedy or f"the fields are: {fields}")


def validate_value(adapter: TypeAdapter[Any], data: object, *, what: str, error: type[WorldAgentError]) -> Any:
    """Return `data` as the adapter's type, or raise `error` naming `what`."""
    try:
        return adapter.validate_python(data)
    except ValidationError as failure:
        problems = describe_failure(failure)
    raise error(f"{what} does not fit: {problems}", remedy="return what the annotation declares")


def json_of(model: BaseModel, *, what: str, error: type[WorldAgentError]) -> dict[str, Any]:
    """Return `model` as JSON that a database and a prompt can hold, or raise `error` naming `what`.

    Args:
        model: A checked value.
        what: What it is, for the error's text.
        error: The error to raise where a field holds what is not JSON, or half a surrogate pair.
    """
    try:
        dumped: dict[str, Any] = model.model_dump(mode="json")
        canonical_json(dumped).encode()
    except (PydanticSerializationError, TypeError, ValueError) as failure:
        problem = type(failure).__name__
    else:
        return dumped
    raise error(f"{what} are not JSON ({problem})", remedy="use JSON values, and text that UTF-8 can hold")


def is_text(value: object) -> bool:
    """Whether `value` is a text with something in it that UTF-8 can hold."""
    return isinstance(value, str) and bool(value.strip()) and not any("\ud800" <= mark <= "\udfff" for mark in value)


def describe_failure(failure: ValidationError) -> str:
    """Say which fields do not fit and why, without any input value."""
    parts = []
    for item in failure.errors(include_input=False, include_url=False, include_context=False):
        place = ".".join(str(step) for step in item["loc"]) or "value"
        # A validator of the embedder's may put anything into its text; only its type's name is kept.
        why = item["type"].replace("_", " ") if item["type"] in ("value_error", "assertion_error") else item["msg"]
        parts.append(f"{place}: {why}")
    return "; ".join(parts)


def _accepted(model: type[BaseModel]) -> set[str]:
    names = set(model.model_fields)
    for field in model.model_fields.values():
        names.update(name for name in (field.alias, field.validation_alias) if isinstance(name, str))
    return names


__all__ = ["is_text", "json_of", "validate_model", "validate_value"]
