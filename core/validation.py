"""Values checked against declared models, with errors that name fields and never show a value."""

from __future__ import annotations

import copy
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_jsonable_python

from .errors import WorldAgentError
from .ids import canonical_json, digest

_M = TypeVar("_M", bound=BaseModel)
_T = TypeVar("_T")

# Texts of these kinds hold a piece of the input, or whatever an embedder's validator says; the kind's name stands in.
_TELLING = frozenset(
    {
        "assertion_error",
        "get_attribute_error",
        "iteration_error",
        "json_invalid",
        "mapping_type",
        "union_tag_invalid",
        "url_parsing",
        "uuid_parsing",
        "value_error",
    }
)
_SURELY_READ = 190  # bytes of JSON that pydantic's reader never finds too deep
_DEPTH = 200  # levels that a value is looked through for what is no JSON
_NUMBERED = re.compile(r'"(?:-?\d[^"]*|true|false|null|None|True|False)":')  # a key that may not have been a text
_FIELD = re.compile(r"\w[\w.-]{0,63}")


def validate_model(model: type[_M], data: object, *, what: str, error: type[WorldAgentError]) -> _M:
    """Return `data` as an instance of `model`. Fields that are not declared are refused, at any depth.

    The instance shares nothing with `data`, so changes that the caller makes later do not reach what was checked.

    Args:
        model: The declared model.
        data: A mapping, or an instance, which is checked again.
        what: What is checked, for the error's text, such as "params of shape 'subagent'".
        error: The error to raise.
    """
    if isinstance(data, BaseModel):
        read = read_model(model, json_of(data, what=what, error=error), what=what, error=error)
        return own_copy(data, lambda: read) if type(data) is model else read
    try:
        checked = model.model_validate(data, extra=_extra(model))
    except ValidationError as failure:
        problems = describe_failure(failure)
    else:
        # pydantic keeps nested models, and whatever an open type holds, by reference.
        return own_copy(
            checked, lambda: read_model(model, json_of(checked, what=what, error=error), what=what, error=error)
        )
    raise _misfit(model, problems, what, error)


def own_copy(value: _T, otherwise: Callable[[], _T]) -> _T:
    """Return a deep copy of `value`, or what `otherwise` gives where something in it cannot be copied."""
    try:
        return copy.deepcopy(value)
    except Exception:  # whatever a type of the embedder's raises; what the journal keeps can still be read
        pass
    return otherwise()


def read_model(model: type[_M], data: Any, *, what: str, error: type[WorldAgentError]) -> _M:
    """Return the JSON value `data`, such as `json_of` gave, as an instance of `model`.

    Args:
        model: The declared model.
        data: A JSON value.
        what: What is read, for the error's text.
        error: The error to raise.
    """
    try:
        return model.model_validate_json(canonical_json(data), extra=_extra(model))
    except ValidationError as failure:
        problems = describe_failure(failure)
    except (TypeError, ValueError) as failure:
        problems = f"not JSON: {_where(data)}{type(failure).__name__}"
    except WorldAgentError:
        raise
    except Exception as failure:  # a validator of the embedder's may raise anything, with the value in its text
        problems = f"a validator failed with {type(failure).__name__}"
    raise _misfit(model, problems, what, error)


def validate_value(adapter: TypeAdapter[Any], data: object, *, what: str, error: type[WorldAgentError]) -> Any:
    """Return `data` as the adapter's type, or raise `error` naming `what`."""
    problems = "values do not serialise"
    try:
        if isinstance(data, BaseModel):
            adapter.validate_json(data.model_dump_json(by_alias=True, warnings="error"))
        return adapter.validate_python(data)
    except ValidationError as failure:
        problems = describe_failure(failure)
    except PydanticSerializationError:
        pass
    raise error(f"{what} does not fit: {problems}", remedy="return what the annotation declares")


def json_of(model: BaseModel, *, what: str, error: type[WorldAgentError]) -> dict[str, Any]:
    """Return `model` as JSON that a database and a prompt can hold, or raise `error` naming `what`.

    Args:
        model: A checked value.
        what: What it is, for the error's text.
        error: The error to raise where a field holds what is not JSON, or half a surrogate pair.
    """
    return json_and_text_of(model, what=what, error=error)[0]


def json_and_text_of(model: BaseModel, *, what: str, error: type[WorldAgentError]) -> tuple[dict[str, Any], str]:
    """As `json_of`; beside it the same as canonical JSON."""
    try:
        # Without `warnings`, pydantic would print a value that is not of its field's type.
        dumped: dict[str, Any] = model.model_dump(mode="json", by_alias=True, warnings="error")
        text = kept_json(dumped)
        if "null" in text or _NUMBERED.search(text):
            _check_kept(model.model_dump(by_alias=True, warnings=False), dumped)
        twice = _twice(model)
    except (PydanticSerializationError, TypeError, ValueError) as failure:
        problem = type(failure).__name__
    else:
        if not twice:
            return dumped, text
        raise error(f"{what} do not fit: {twice}: the field is given twice", remedy="give it once, by its alias")
    raise error(
        f"{what} are not JSON: {_where_in(model)}{problem}", remedy="use JSON values, and text that UTF-8 can hold"
    )


def kept_json(value: object) -> str:
    """Return `value` as JSON text that a database can hold and that can be read again.

    Raises:
        TypeError, ValueError: It is not JSON, holds half a surrogate pair, or nests deeper than about 195 levels.
    """
    try:
        text = canonical_json(value)
        # pydantic's reader goes 200 levels deep; a row that holds the text has a few of its own.
        whole = f"[[[[{text}]]]]".encode()
        if len(whole) > _SURELY_READ:  # else it cannot be as deep, and no number in it is too long
            from_json(whole)
        return text
    except RecursionError:
        pass
    raise ValueError("nested too deep")


def declaration(params: type[BaseModel], result: type[BaseModel] | TypeAdapter[Any]) -> str:
    """Stands for what params and a result are declared as: another text, where a field or a type is another one."""
    return f"{_schema_digest(params)}:{_schema_digest(result)}"


def declared_alike(kept: str | None, now: str) -> bool:
    """Whether a declaration is as it was; one that an older version kept stands for the params alone."""
    return now in (kept, f"{kept}:{now.partition(':')[2]}")


@lru_cache(maxsize=1024)
def _schema_digest(kind: Any) -> str:
    try:
        # A result is compared as it is read again.
        schema = kind.json_schema() if isinstance(kind, TypeAdapter) else kind.model_json_schema()
    except PydanticUserError as error:  # a type that can be read and has no JSON Schema, such as a callable's
        schema = error.code
    return digest(schema, length=16)


def json_of_value(adapter: TypeAdapter[Any], value: object, *, what: str, error: type[WorldAgentError]) -> Any:
    """Return a checked `value` of the adapter's type as JSON, or raise `error` naming `what`."""
    try:
        dumped = adapter.dump_python(value, mode="json", by_alias=True, warnings="error")
        text = kept_json(dumped)
        if "null" in text or _NUMBERED.search(text):
            _check_kept(adapter.dump_python(value, by_alias=True, warnings=False), dumped)
    except (PydanticSerializationError, TypeError, ValueError) as failure:
        problem = type(failure).__name__
    else:
        return dumped
    raise error(f"{what} is not JSON ({problem})", remedy="return JSON values, and text that UTF-8 can hold")


def _check_kept(value: object, dumped: object) -> None:
    """Refuse what JSON has no place for: where the type is open, pydantic says nothing of it.

    That is a number that became null, and keys that became one, such as 1 and "1".

    Args:
        value: What was dumped, as plain values of Python.
        dumped: What it became as JSON. Where a type writes itself in another form, its own word counts.

    Raises:
        ValueError: There is one.
    """
    match value, dumped:
        case float(), None if not math.isfinite(value):
            raise ValueError("a number that JSON has not")
        case dict(), dict() if len(value) > len(dumped) and not all(isinstance(key, str) for key in value):
            raise ValueError("keys that are one in JSON")
        case dict(), dict():
            pairs = zip(value.values(), dumped.values(), strict=False)
        case list() | tuple() | set() | frozenset() | deque(), list():
            pairs = zip(value, dumped, strict=False)
        case _:
            return
    for each in pairs:
        _check_kept(*each)


def _twice(value: object, steps: tuple[object, ...] = ()) -> str:
    """Where a model that takes undeclared fields holds one that is called like a declared field; empty if none does.

    As JSON the two would be one key, so that what is looked at is not what the model holds.
    """
    match value:
        case BaseModel():
            fields, extra = type(value).model_fields, value.model_extra or {}
            for name, info in fields.items() if extra else ():
                called = {name, info.alias, info.serialization_alias} & extra.keys()
                if called:
                    return _path((*steps, name))
            inner: Iterable[tuple[object, object]] = [
                *((name, getattr(value, name)) for name in fields),
                *extra.items(),
            ]
        case dict():
            inner = value.items()
        case list() | tuple() | set() | frozenset() | deque():
            inner = enumerate(value)
        case _:
            return ""
    return next(filter(None, (_twice(each, (*steps, step)) for step, each in inner)), "")


def read_value(adapter: TypeAdapter[Any], data: Any, *, what: str, error: type[WorldAgentError]) -> Any:
    """Return the JSON value `data`, such as `json_of_value` gave, as the adapter's type."""
    try:
        return adapter.validate_json(canonical_json(data))
    except ValidationError as failure:
        problems = describe_failure(failure)
    except (TypeError, ValueError) as failure:  # of `canonical_json`: NaN, or no JSON at all
        problems = f"it is not JSON ({type(failure).__name__})"
    except WorldAgentError:
        raise
    except Exception as failure:  # as in `read_model`: a validator of the embedder's may raise anything
        problems = f"a validator failed with {type(failure).__name__}"
    raise error(f"{what} does not fit its type: {problems}", remedy="use a type that reads what it writes as JSON")


def is_text(value: object) -> bool:
    """Whether `value` is a text with something in it that UTF-8 can hold."""
    return isinstance(value, str) and bool(value.strip()) and not any("\ud800" <= mark <= "\udfff" for mark in value)


def describe_failure(failure: ValidationError) -> str:
    """Say which fields do not fit and why, without any input value."""
    parts = []
    for item in failure.errors(include_input=False, include_url=False, include_context=False):
        why = item["type"].replace("_", " ") if item["type"] in _TELLING else item["msg"]
        parts.append(f"{_path(item['loc'])}: {why}")
    return "; ".join(parts)


def _path(steps: Sequence[object]) -> str:
    """Where something stands. A step can be a key of the input's; one that no field could be called is not shown."""
    return ".".join(str(step) if _FIELD.fullmatch(str(step)) else "..." for step in steps) or "value"


def _where_in(model: BaseModel) -> str:
    """As `_where`; empty, too, where a serialiser of the model's own fails."""
    with suppress(PydanticSerializationError, RecursionError, TypeError, ValueError):
        return _where(model.model_dump(by_alias=True, warnings=False))
    return ""


def _where(value: object, steps: tuple[object, ...] = ()) -> str:
    """Where the first value stands that is no JSON, with a colon behind it; empty where none can be told."""
    if len(steps) > _DEPTH:
        return ""
    match value:
        case dict():
            inner: Iterable[tuple[object, object]] = value.items()
        case list() | tuple():
            inner = enumerate(value)
        case _:
            try:
                kept_json(to_jsonable_python(value))
            except (PydanticSerializationError, TypeError, ValueError):
                return f"{_path(steps)}: "
            return ""
    return next(filter(None, (_where(each, (*steps, step)) for step, each in inner)), "")


def _misfit(model: type[BaseModel], problems: str, what: str, error: type[WorldAgentError]) -> WorldAgentError:
    # One that a JSON Schema declares has no fields of its own.
    names = [info.alias or name for name, info in model.model_fields.items()] or model.model_json_schema().get(
        "properties", ()
    )
    fields = ", ".join(names) or "none"
    return error(f"{what} do not fit: {problems}", remedy=f"the fields are: {fields}")


def _extra(model: type[BaseModel]) -> Any:
    """A model that says what to do with undeclared fields is asked; all others refuse them."""
    return None if model.model_config.get("extra") else "forbid"


__all__ = [
    "declaration",
    "declared_alike",
    "is_text",
    "json_and_text_of",
    "json_of",
    "json_of_value",
    "kept_json",
    "own_copy",
    "read_model",
    "read_value",
    "validate_model",
    "validate_value",
]
