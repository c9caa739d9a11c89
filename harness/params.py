"""Makes a model of the parameters of a Python function. `tool` reads everything else that it declares."""

from __future__ import annotations

import inspect
import warnings
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model

from ..core.errors import FunctionInvalid
from ..core.validation import describe_failure

_CONFIG: Final = ConfigDict(
    extra="forbid",
    hide_input_in_errors=True,
    arbitrary_types_allowed=False,
    validate_default=True,
    protected_namespaces=(),
)
RESERVED_NAMES: Final = frozenset(name for name in dir(BaseModel) if name.startswith("model_"))
_TYPED: Final = "a TypedDict of typing"


def params_model(
    name: str, parameters: list[inspect.Parameter], hints: dict[str, Any], descriptions: dict[str, str]
) -> type[BaseModel]:
    """Make the model of a function's params.

    Args:
        name: The function's name.
        parameters: Its parameters, without a context.
        hints: Type hints by name.
        descriptions: Descriptions from the docstring, by name.

    Raises:
        FunctionInvalid: A parameter cannot be passed by name, has no type hint, has a hint without a schema, or has
            a default that does not fit its hint.
    """
    fields: dict[str, Any] = {}
    for place, parameter in enumerate(parameters):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise FunctionInvalid(
                f"the parameter {parameter.name!r} of the function {name!r} cannot be passed by name",
                remedy="use plain named parameters",
            )
        if parameter.name not in hints:
            is_self = place == 0 and parameter.name in ("self", "cls")
            raise FunctionInvalid(
                f"the parameter {parameter.name!r} of the function {name!r} has no type hint",
                remedy="decorate a plain function, not a method" if is_self else "annotate it",
            )
        if parameter.name.startswith("_") or parameter.name in RESERVED_NAMES:
            raise FunctionInvalid(
                f"a parameter of the function {name!r} cannot be named {parameter.name!r}", remedy="rename it"
            )
        hint, about = hints[parameter.name], descriptions.get(parameter.name)
        if about is not None:
            hint = Annotated[hint, Field(description=about)]
        # pydantic merges a default of `Field(...)` with the hint.
        fields[parameter.name] = (hint, ... if parameter.default is parameter.empty else parameter.default)
    made = _model(f"{name}_params", fields)
    if isinstance(made, str):
        wrong, problem = next(
            (
                (each, found)
                for each, field in fields.items()
                if isinstance(found := _model(each, {"value": field}), str)
            ),
            ("", made),
        )
        what = f"parameter {wrong!r} of the function {name!r} has" if wrong else f"params of the function {name!r} have"
        remedy = (
            "import TypedDict from typing_extensions" if problem == _TYPED else "use types that pydantic can validate"
        )
        raise FunctionInvalid(f"the {what} no schema ({problem})", remedy=remedy)
    for each, field in fields.items():
        problem = "" if made.model_fields[each].is_required() else _default_error(field)
        if problem:
            raise FunctionInvalid(
                f"the default of the parameter {each!r} of the function {name!r} does not fit its type hint: {problem}",
                remedy="change the default, or let the hint allow it, such as 'str | None'",
            )
    return made


def _model(name: str, fields: dict[str, Any]) -> type[BaseModel] | str:
    """Return a model, or the reason why there cannot be one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Field name .* shadows", UserWarning)  # fields such as `schema` are harmless
        try:
            return create_model(name, __config__=_CONFIG, **fields)
        except (PydanticUserError, NameError, TypeError, ValueError) as error:
            return _TYPED if "typing_extensions.TypedDict" in str(error) else type(error).__name__


def _default_error(field: tuple[Any, Any]) -> str:
    """Return why a default does not fit its hint; empty if it fits."""
    alone = _model("alone", {"value": field})
    try:
        if not isinstance(alone, str):
            alone()
    except ValidationError as failure:
        return describe_failure(failure).removeprefix("value: ")
    except PydanticUserError:  # the hint names a class that is defined later
        pass
    return ""


__all__ = ["params_model"]
