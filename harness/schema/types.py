"""Makes the pydantic types of a `Function` from a JSON Schema. `checking` validates by the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, create_model, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError, to_jsonable_python

from .checking import Checker


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

    def check(value: object) -> Any:
        return _checked(checker, value)

    adapter = _Adapter(Annotated[Any, BeforeValidator(check)])
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


__all__ = ["params_of", "result_of"]
