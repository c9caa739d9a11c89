"""Validates JSON values by a JSON Schema, and the schema itself. Errors never quote a value.

`schema_keywords` bounds the time that a keyword can take. No schema is fetched.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import islice
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model, model_validator
from pydantic_core import (
    InitErrorDetails,
    PydanticCustomError,
    ValidationError,
    core_schema,
    to_jsonable_python,
)

from ..core.errors import FunctionInvalid
from ..core.validation import storable_json


def params_of(name: str, schema: Mapping[str, Any]) -> type[BaseModel]:
    """Return a model whose instances are the JSON objects that `schema` allows.

    The model has no fields: `model_extra` and `model_dump(mode="json")` are the object, whatever the names of its keys,
    and `model_json_schema()` is `schema`.

    Args:
        name: The function or worker that takes these params, for the model's name and errors.
        schema: The schema; without `$schema` its draft is 2020-12.

    Raises:
        FunctionInvalid: It is not a JSON Schema, does not describe an object, refers to something that it does not
            contain, or is too large.
    """
    checker = Checker(f"the params of {name!r}", schema)
    checker.check_object()
    model = create_model(f"{name}_params", __base__=_Declared)
    model.checker = checker
    return model


def result_of(name: str, schema: Mapping[str, Any]) -> TypeAdapter[Any]:
    """Return an adapter of the JSON values that `schema` allows; its `json_schema()` is `schema`.

    Args:
        name: The function or worker that returns this result, for errors.
        schema: The schema; without `$schema` its draft is 2020-12.

    Raises:
        FunctionInvalid: It is not a JSON Schema, refers to something that it does not contain, or is too large.
    """
    checker = Checker(f"the result of {name!r}", schema)
    adapter = _Adapter(checker)  # type: ignore[arg-type]  # pydantic takes all that has a core schema
    adapter.checker = checker
    return adapter


class _Declared(BaseModel):
    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)

    checker: ClassVar[Checker]

    @model_validator(mode="before")
    @classmethod
    def _fits(cls, given: object) -> Any:
        return _checked(cls.checker, given)

    @classmethod
    def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
        """A copy of the declared schema."""
        return cls.checker.schema


class _Adapter(TypeAdapter[Any]):  # type: ignore[misc]  # final, but there is no other way to keep the schema unchanged
    checker: Checker

    def json_schema(self, *_: Any, **__: Any) -> dict[str, Any]:
        """A copy of the declared schema."""
        return self.checker.schema


def _checked(checker: Checker, given: object) -> Any:
    """Return `given` as plain JSON values, or raise a `ValidationError`."""
    value = to_jsonable_python(given, by_alias=True)
    problems = checker.problems(value)
    if not problems:
        return value
    # The text is a parameter, because pydantic reads a message with braces as a template.
    kinds = [(PydanticCustomError("json_schema", "{text}", {"text": each.text}), each.where) for each in problems]
    raise ValidationError.from_exception_data(
        checker.what, [InitErrorDetails(type=kind, loc=where, input=None) for kind, where in kinds], hide_input=True
    )


_LONGEST: Final = 256 * 1024  # characters of a schema
_PARTS: Final = 5_000  # values in a schema
_SHORT: Final = 2048  # characters of a schema that is checked at once
MAX_PROBLEMS: Final = 10  # problems that are reported
MAX_CHOICES_CHARACTERS: Final = 200  # characters of allowed values that are reported
_TEXTS: Final = {
    "additionalProperties": "is not declared",
    "unevaluatedProperties": "has a field that is not declared",
    None: "is not allowed",
}
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_MATCHED: Final = frozenset(("patternProperties", "unevaluatedProperties"))
_SIZES: Final = frozenset(
    f"{end}{what}" for end in ("min", "max") for what in ("Length", "Items", "Properties", "imum")
)
_BOUNDS: Final = _SIZES | {"exclusiveMinimum", "exclusiveMaximum", "multipleOf"}


@dataclass(frozen=True, slots=True)
class Problem:
    """A validation error: its place in the value, and what is wrong."""

    where: tuple[str | int, ...]
    text: str

    def __str__(self) -> str:
        return f"{_place(self.where) if self.where else 'value'}: {self.text}"


class Checker:
    """Validates values by one schema.

    Args:
        what: What the schema declares, for errors.
        schema: The schema.

    Raises:
        FunctionInvalid: It is not a JSON Schema, refers to something that it does not contain, or is too large.
    """

    def __init__(self, what: str, schema: object) -> None:
        self.what = what
        self.text = _text(what, schema)
        problem = _problem_of(self.text)
        if problem:
            raise _invalid(what, problem, "correct the schema")

    @property
    def schema(self) -> dict[str, Any]:
        """A copy of the schema, for the caller to keep."""
        schema: dict[str, Any] = json.loads(self.text)
        return schema

    def check_object(self) -> None:
        """Check that the schema describes objects.

        Raises:
            FunctionInvalid: It describes something else.
        """
        kind = self.schema.get("type", "object")
        if kind != "object" and "object" not in (kind if isinstance(kind, list) else ()):
            raise _invalid(
                self.what, "must describe an object", "set 'type': 'object', and declare the params as properties"
            )

    def problems(self, value: Any) -> list[Problem]:
        """Return the validation errors of a JSON value; empty if it is valid."""
        return self._found(value, _problems)

    def quoting(self, value: Any) -> list[Problem]:
        """Return the same as `problems`, in texts that quote the value. Show them only to the author of the value."""
        return self._found(value, lambda error: [Problem(tuple(error.absolute_path), str(error.message))])

    def _found(self, value: Any, problems_of: Callable[[Any], Iterable[Problem]]) -> list[Problem]:

        from .schema_keywords import TooMuch, bounded

        found: list[Problem] = []
        try:
            with bounded():
                for error in islice(self._validator.iter_errors(value), MAX_PROBLEMS):
                    found += problems_of(error)
        except (TooMuch, RecursionError):
            found = [Problem((), "takes too many steps to check")]
        return list(dict.fromkeys(found))[:MAX_PROBLEMS]

    @cached_property
    def _validator(self) -> Any:
        return _validator_of(self.schema)

    def __get_pydantic_core_schema__(self, *_: Any) -> core_schema.CoreSchema:
        """Let pydantic take it for a type. The module typing would keep each `Annotated` of it, with all its values."""
        return core_schema.no_info_plain_validator_function(partial(_checked, self))


def _validator_of(schema: dict[str, Any]) -> Any:
    from referencing import Registry

    from .schema_keywords import draft_of, without_flags

    draft = draft_of(without_flags(schema))
    # The library would check a part that names its draft with its own class, which has no bounds.
    schema.pop("$schema", None)
    # An empty registry keeps the library from fetching what a schema refers to.
    return draft(schema, registry=Registry())


async def check_apart(schema: object) -> None:
    """Check a schema in a thread, so that the event loop runs meanwhile. Soon after, models of it are made quickly.

    The check takes up to a third of a second, step by step. What is wrong with the schema is reported when it is used.

    Args:
        schema: The schema of a stranger.
    """
    with suppress(FunctionInvalid):
        text = _text("", schema)
        if len(text) > _SHORT:
            await asyncio.to_thread(_problem_of, text)


@lru_cache(maxsize=64)
def _problem_of(text: str) -> str:
    """Return what is wrong with a schema; empty if it can be used."""
    # Imported here, because it takes half a second.
    from jsonschema import FormatChecker, SchemaError  # type: ignore[import-untyped]  # it has no types

    from .schema_keywords import draft_of, without_flags

    schema = without_flags(json.loads(text))
    if _count(schema) > _PARTS:
        return f"holds more than {_PARTS} values"
    try:
        # No formats are checked: patterns are JavaScript's, and Python might reject a valid one.
        draft_of(schema).check_schema(schema, format_checker=FormatChecker(formats=()))
        return _problem_of_parts(_validator_of(schema))
    except SchemaError as error:
        return f"is not a JSON Schema (at {_place(error.absolute_path)}: {error.validator})"
    except RecursionError:
        return "nests too deep"


def _text(what: str, schema: object) -> str:
    """Return the schema as JSON text, with its keys in their order."""
    if not isinstance(schema, Mapping):
        raise _invalid(what, "must be a JSON object", "pass a JSON Schema, such as {'type': 'object'}")
    try:
        text = json.dumps(dict(schema), ensure_ascii=False, allow_nan=False)
        storable_json(json.loads(text))
    except (TypeError, ValueError, RecursionError) as error:
        problem = type(error).__name__
    else:
        if len(text) <= _LONGEST:
            return text
        raise _invalid(what, "is too large", f"keep it below {_LONGEST} characters")
    raise _invalid(what, f"is not JSON ({problem})", "use JSON values only, and do not nest them too deep")


def _count(schema: object) -> int:
    """Return how many values a schema has."""
    left, count = [schema], 0
    while left:
        count += 1
        match left.pop():
            case dict() as fields:
                left += fields.values()
            case list() as items:
                left += items
            case _:
                pass
    return count


def _problem_of_parts(validator: Any) -> str:
    """Return what is wrong with a part of a schema, such as a reference to something that is not in it."""
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import specification_with

    root = specification_with(validator.META_SCHEMA["$schema"]).create_resource(validator.schema)
    left, seen = [(root, validator._resolver)], set[str]()
    while left:
        part, resolver = left.pop()
        if not isinstance(part.contents, dict):
            continue
        part.contents.pop("$schema", None)
        seen.update(_MATCHED & part.contents.keys())
        references = [part.contents[name] for name in _REFERENCES if isinstance(part.contents.get(name), str)]
        try:
            for reference in references:
                resolver.lookup(reference)
        except Unresolvable:
            return "refers to something that is not in it"
        left += [(each, resolver.in_subresource(each)) for each in part.subresources()]
    # The library would match these patterns with an engine that can take unlimited time.
    return "has both patternProperties and unevaluatedProperties" if seen == _MATCHED else ""


def _problems(error: Any) -> Iterator[Problem]:
    """Return the problems of a `jsonschema` error, without its texts, because those quote values."""
    where, rule = tuple(error.absolute_path), error.validator_value
    match error.validator:
        case "required":
            yield from (Problem((*where, name), "is required") for name in rule if name not in error.instance)
        case "type":
            yield Problem(where, f"should be {' or '.join([rule] if isinstance(rule, str) else rule)}")
        case "enum" | "const":
            allowed = json.dumps([rule] if error.validator == "const" else rule, ensure_ascii=False)[1:-1]
            yield Problem(
                where,
                f"should be {allowed}"
                if len(allowed) <= MAX_CHOICES_CHARACTERS
                else "is not one of the allowed values",
            )
        case keyword if keyword in _BOUNDS:
            yield Problem(where, f"does not fit {keyword} {rule}")
        case keyword:
            yield Problem(where, _TEXTS.get(keyword, f"does not fit {keyword}"))


def _place(path: Any) -> str:
    # A stranger may have chosen a name, so only names that look like a field are shown.
    return ".".join(str(step) if re.fullmatch(r"[\w$-]{1,64}", str(step)) else "..." for step in path) or "its top"


def _invalid(what: str, problem: str, remedy: str) -> FunctionInvalid:
    return FunctionInvalid(f"the schema of {what} {problem}", remedy=remedy)
