"""Validates values against declared models. Errors name fields and never show a value."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import re
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_jsonable_python

from .errors import InvalidArgument, WorldAgentError


def new_id(prefix: str, *, after: str = "") -> str:
    """Return `prefix_` and 32 hex digits that sort by creation time in milliseconds (the layout of UUID version 7).

    Args:
        prefix: The prefix.
        after: An earlier id of the same prefix; the new one sorts after it, whatever clock made that.
    """
    milliseconds = time.time_ns() // 1_000_000
    if after:
        milliseconds = max(milliseconds, (int(after[-32:], 16) >> 80) + 1)
    value = milliseconds << 80 | int.from_bytes(os.urandom(10), "big")
    return f"{prefix}_{value:032x}"


# Shared, because making an encoder takes as long as encoding a text.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> str:
    """Return `value` as JSON with sorted keys and no spaces, so that equal values give equal text.

    Raises:
        TypeError: It contains something that is not JSON.
        ValueError: It contains a number that JSON does not have (NaN, infinity).
    """
    return _ENCODER.encode(value)


def digest(value: Any, *, length: int = 32, text: str | None = None) -> str:
    """Return the first `length` hex digits of a JSON value's digest. It has no key, so never digest a role with it.

    Args:
        value: The value.
        length: How many digits, 64 at most.
        text: Its canonical JSON, if the caller has it already.
    """
    kept = canonical_json(value) if text is None else text
    return hashlib.blake2b(kept.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()[:length]


_M = TypeVar("_M", bound=BaseModel)
_T = TypeVar("_T")


class ClosedModel(BaseModel):
    """A model that refuses fields which it does not declare, and whose errors show no input."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


# Messages of these kinds repeat a part of the input, or the text of an embedder's validator. The kind is shown instead.
_LEAKING_KINDS = frozenset(
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
_SAFE_BYTES = 190  # bytes of JSON that are never too deep for pydantic's reader
_MAX_DEPTH = 200  # levels of a value that are searched for something that is not JSON
_NON_STRING_KEY = re.compile(r'"(?:-?\d[^"]*|true|false|null|None|True|False)":')  # a key that was perhaps not a string
_FIELD = re.compile(r"\w[\w.-]{0,63}")


def validate_model(model: type[_M], data: object, *, what: str, error: type[WorldAgentError]) -> _M:
    """Return `data` as an instance of `model`. Fields that are not declared are refused, at any depth.

    The instance shares nothing with `data`, so later changes by the caller do not affect it.

    Args:
        model: The declared model.
        data: A mapping, or an instance, which is validated again.
        what: What is validated, for the error's text, such as "params of shape 'subagent'".
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
        # pydantic keeps nested models, and the values of an open type such as `Any`, by reference.
        return own_copy(
            checked, lambda: read_model(model, json_of(checked, what=what, error=error), what=what, error=error)
        )
    raise _validation_error(model, problems, what, error)


def own_copy(value: _T, otherwise: Callable[[], _T]) -> _T:
    """Return a deep copy of `value`, or the result of `otherwise` if something in it cannot be copied."""
    try:
        return copy.deepcopy(value)
    except Exception:  # an embedder's type can raise anything; the value can still be read back from its JSON
        pass
    return otherwise()


def read_model(model: type[_M], data: Any, *, what: str, error: type[WorldAgentError]) -> _M:
    """Return the JSON value `data`, such as a result of `json_of`, as an instance of `model`.

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
    except Exception as failure:  # an embedder's validator can raise anything, with the value in its text
        problems = f"a validator failed with {type(failure).__name__}"
    raise _validation_error(model, problems, what, error)


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
        error: The error to raise if a field is not JSON or contains half a surrogate pair.
    """
    return json_and_text_of(model, what=what, error=error)[0]


def json_and_text_of(model: BaseModel, *, what: str, error: type[WorldAgentError]) -> tuple[dict[str, Any], str]:
    """Like `json_of`, but also return the value as canonical JSON text."""
    try:
        # Without `warnings`, pydantic would print any value that does not have its field's type.
        dumped: dict[str, Any] = model.model_dump(mode="json", by_alias=True, warnings="error")
        text = storable_json(dumped)
        if "null" in text or _NON_STRING_KEY.search(text):
            _check_kept(model.model_dump(by_alias=True, warnings=False), dumped)
        twice = _duplicate_field(model)
    except (PydanticSerializationError, TypeError, ValueError) as failure:
        problem = type(failure).__name__
    else:
        if not twice:
            return dumped, text
        raise error(f"{what} do not fit: {twice}: the field is given twice", remedy="give it once, by its alias")
    raise error(
        f"{what} are not JSON: {_where_in(model)}{problem}", remedy="use JSON values, and text that UTF-8 can hold"
    )


def storable_json(value: object) -> str:
    """Return `value` as JSON text that a database can hold and that can be read again.

    Raises:
        TypeError, ValueError: It is not JSON, has half a surrogate pair, or is nested deeper than about 195 levels.
    """
    try:
        text = canonical_json(value)
        # pydantic reads 200 levels. The brackets account for the levels of the row that will contain the text.
        wrapped = f"[[[[{text}]]]]".encode()
        if len(wrapped) > _SAFE_BYTES:  # a shorter text is never too deep, and no number in it is too long
            from_json(wrapped)
        return text
    except RecursionError:
        pass
    raise ValueError("nested too deep")


def declaration(params: type[BaseModel], result: type[BaseModel] | TypeAdapter[Any]) -> str:
    """A digest of the declared params and result. It changes when a field or a type changes."""
    return f"{_schema_digest(params)}:{_schema_digest(result)}"


def same_declaration(kept: str | None, now: str) -> bool:
    """Whether a declaration is unchanged. Older versions stored a digest of the params only."""
    return now in (kept, f"{kept}:{now.partition(':')[2]}")


@lru_cache(maxsize=1024)
def _schema_digest(kind: Any) -> str:
    try:
        # The validation schema, not the serialisation schema: it decides how a stored result is read.
        schema = kind.json_schema() if isinstance(kind, TypeAdapter) else kind.model_json_schema()
    except PydanticUserError as error:  # a valid type without a JSON Schema, such as a callable
        schema = error.code
    return digest(schema, length=16)


def json_of_value(adapter: TypeAdapter[Any], value: object, *, what: str, error: type[WorldAgentError]) -> Any:
    """Return a checked `value` of the adapter's type as JSON, or raise `error` naming `what`."""
    try:
        dumped = adapter.dump_python(value, mode="json", by_alias=True, warnings="error")
        text = storable_json(dumped)
        if "null" in text or _NON_STRING_KEY.search(text):
            _check_kept(adapter.dump_python(value, by_alias=True, warnings=False), dumped)
    except (PydanticSerializationError, TypeError, ValueError) as failure:
        problem = type(failure).__name__
    else:
        return dumped
    raise error(f"{what} is not JSON ({problem})", remedy="return JSON values, and text that UTF-8 can hold")


def _check_kept(value: object, dumped: object) -> None:
    """Refuse values that JSON cannot represent, which pydantic does not report for an open type such as `Any`.

    These are numbers that became null, and different keys that became equal, such as 1 and "1".

    Args:
        value: The dumped value, as plain Python values.
        dumped: The same value as JSON. A type with its own serialiser is accepted as it writes itself.

    Raises:
        ValueError: The value contains one of these.
    """
    match value, dumped:
        case float(), None if not math.isfinite(value):
            raise ValueError("a number that JSON does not have")
        case dict(), dict() if len(value) > len(dumped) and not all(isinstance(key, str) for key in value):
            raise ValueError("keys that are equal in JSON")
        case dict(), dict():
            pairs = zip(value.values(), dumped.values(), strict=False)
        case list() | tuple() | set() | frozenset() | deque(), list():
            pairs = zip(value, dumped, strict=False)
        case _:
            return
    for each in pairs:
        _check_kept(*each)


def _duplicate_field(value: object, steps: tuple[object, ...] = ()) -> str:
    """The place of an undeclared field with the name or alias of a declared field; empty if there is none.

    In JSON the two would share one key, so that the JSON would not show what the model contains.
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
    return next(filter(None, (_duplicate_field(each, (*steps, step)) for step, each in inner)), "")


def read_value(adapter: TypeAdapter[Any], data: Any, *, what: str, error: type[WorldAgentError]) -> Any:
    """Return the JSON value `data`, such as a result of `json_of_value`, as the adapter's type."""
    try:
        return adapter.validate_json(canonical_json(data))
    except ValidationError as failure:
        problems = describe_failure(failure)
    except (TypeError, ValueError) as failure:  # from `canonical_json`: NaN, or not JSON
        problems = f"it is not JSON ({type(failure).__name__})"
    except WorldAgentError:
        raise
    except Exception as failure:  # as in `read_model`: an embedder's validator can raise anything
        problems = f"a validator failed with {type(failure).__name__}"
    raise error(f"{what} does not fit its type: {problems}", remedy="use a type that reads what it writes as JSON")


def is_text(value: object) -> bool:
    """Whether `value` is a string that is not blank and that UTF-8 can encode."""
    if not isinstance(value, str) or not value or value.isspace():
        return False
    with suppress(UnicodeEncodeError):
        value.encode()  # characters one by one in Python would take a hundred times as long
        return True
    return False


def is_line(value: object, most: int) -> bool:
    """Whether `value` is one line of 1 to `most` printable characters, not only blanks."""
    return isinstance(value, str) and 0 < len(value) <= most and value.isprintable() and bool(value.strip())


def check_line(name: str, value: object, most: int, *, remedy: str) -> str:
    """Return an argument that must be such a line.

    Raises:
        InvalidArgument: It is not; the error does not show the value.
    """
    if isinstance(value, str) and is_line(value, most):
        return value
    given = f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
    raise InvalidArgument(
        f"`{name}` must be 1 to {most} printable characters in one line, not only blanks, got {given}", remedy=remedy
    )


def check_integer(name: str, value: object, most: int, *, remedy: str) -> None:
    """Refuse an argument that is not an integer from 1 to `most`.

    Raises:
        InvalidArgument: It is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidArgument(f"`{name}` must be an integer from 1 to {most}, got {value!r}", remedy=remedy)


def describe_failure(failure: ValidationError, *, names: Container[str] | None = None) -> str:
    """Say which fields are invalid and why, without any input value.

    Args:
        failure: The failure.
        names: The keys that can be shown; None shows each one that could name a field.
    """
    parts = []
    for item in failure.errors(include_input=False, include_url=False, include_context=False):
        why = item["type"].replace("_", " ") if item["type"] in _LEAKING_KINDS else item["msg"]
        parts.append(f"{_path(item['loc'], names)}: {why}")
    return "; ".join(parts)


def _path(steps: Sequence[object], names: Container[str] | None = None) -> str:
    """The path of a field as text. A step can be a key from the input, so it is shown only if it could name a field."""
    known = [names is None or isinstance(step, int) or str(step) in names for step in steps]
    texts = [
        str(step) if fine and _FIELD.fullmatch(str(step)) else "..." for step, fine in zip(steps, known, strict=True)
    ]
    return ".".join(texts) or "value"


def _where_in(model: BaseModel) -> str:
    """Like `_where`; also empty if a custom serialiser of the model fails."""
    with suppress(PydanticSerializationError, RecursionError, TypeError, ValueError):
        return _where(model.model_dump(by_alias=True, warnings=False))
    return ""


def _where(value: object, steps: tuple[object, ...] = ()) -> str:
    """The path of the first value that is not JSON, followed by a colon; empty if it cannot be found."""
    if len(steps) > _MAX_DEPTH:
        return ""
    match value:
        case dict():
            inner: Iterable[tuple[object, object]] = value.items()
        case list() | tuple():
            inner = enumerate(value)
        case _:
            try:
                storable_json(to_jsonable_python(value))
            except (PydanticSerializationError, TypeError, ValueError):
                return f"{_path(steps)}: "
            return ""
    return next(filter(None, (_where(each, (*steps, step)) for step, each in inner)), "")


def _validation_error(
    model: type[BaseModel], problems: str, what: str, error: type[WorldAgentError]
) -> WorldAgentError:
    # A model that is declared by a JSON Schema has no pydantic fields.
    names = [info.alias or name for name, info in model.model_fields.items()] or model.model_json_schema().get(
        "properties", ()
    )
    fields = ", ".join(names) or "none"
    return error(f"{what} do not fit: {problems}", remedy=f"the fields are: {fields}")


def _extra(model: type[BaseModel]) -> Any:
    """Use the model's own setting for undeclared fields if it has one; other models refuse them."""
    return None if model.model_config.get("extra") else "forbid"
