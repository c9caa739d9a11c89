"""Functions as data: a name, a params model, a result type and an async body. How they are called is in `_call`."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, create_model

from ..core.errors import FunctionInvalid
from ..core.validation import declaration

Body = Callable[..., Awaitable[object]]
FunctionKind = Literal["leaf", "flow"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Function:
    """Something that can be called by name: `call(name, input, ctx)`.

    Attributes:
        name: 1 to 64 letters, digits, `_`, `.` and `-`, not starting with a digit.
        body: The coroutine function. A leaf gets the params as keyword arguments; a flow gets the context before them.
        params: The declared params.
        result: The declared result.
        description: What it does, for whoever chooses it.
        kind: A `leaf` may have effects and calls nothing; a `flow` calls others and has no effects of its own (D8).
        idempotent: Whether running the body twice does the same as running it once.
        approval: Whether a person is asked before it runs.
    """

    name: str
    body: Body
    params: type[BaseModel]
    result: TypeAdapter[Any]
    description: str = ""
    kind: FunctionKind = "leaf"
    idempotent: bool = False
    approval: bool = False

    def __post_init__(self) -> None:
        check_name("function", self.name)

    @property
    def declared(self) -> str:
        """Stands for what its params and its result are declared as."""
        return declaration(self.params, self.result)


def tool(
    body: Body | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    approval: bool = False,
) -> Any:
    """Make a leaf `Function` of an async Python function; its type hints become the params and the result.

    Args:
        body: The function, when used as `@tool` without brackets.
        name: Its name, if not the function's own.
        description: What it does, if not the first paragraph of the docstring.
        idempotent: Whether running it twice does the same as running it once.
        approval: Whether a person is asked before it runs.

    Raises:
        FunctionInvalid: It is not async, a parameter has no type hint, or a hint has no schema.
    """
    return _decorate(body, name=name, description=description, kind="leaf", idempotent=idempotent, approval=approval)


def flow(
    body: Body | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    approval: bool = False,
) -> Any:
    """Make a flow `Function` of an async Python function whose first parameter is the `CallContext`.

    A flow calls other functions through `ctx.call` and has no effects of its own, so that its body can be run again.

    Args:
        body: The function, when used as `@flow` without brackets.
        name: Its name, if not the function's own.
        description: What it does, if not the first paragraph of the docstring.
        approval: Whether a person is asked before it runs.

    Raises:
        FunctionInvalid: It is not async, a parameter has no type hint, or a hint has no schema.
    """
    return _decorate(body, name=name, description=description, kind="flow", idempotent=True, approval=approval)


def check_name(what: str, name: object) -> str:
    """Return `name` if it can name a function, worker or shape.

    Raises:
        FunctionInvalid: It cannot.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise FunctionInvalid(
        f"{name!r} cannot name a {what}", remedy="use 1 to 64 letters, digits, '_', '.' or '-', no digit first"
    )


def _decorate(body: Body | None, **options: Any) -> Any:
    if body is None:
        return lambda given: _make(given, **options)
    return _make(body, **options)


def _make(body: Body, *, name: str | None, description: str | None, **options: Any) -> Function:
    kind: FunctionKind = options["kind"]
    own_name = name or str(getattr(body, "__name__", ""))
    if not inspect.iscoroutinefunction(body):
        raise FunctionInvalid(f"the function {own_name!r} is not async", remedy="declare it with 'async def'")
    try:
        hints = typing.get_type_hints(body, include_extras=True)
    except Exception as error:
        raise FunctionInvalid(
            f"the type hints of the function {own_name!r} cannot be read ({type(error).__name__})",
            remedy="import the names that its hints use",
        ) from error
    parameters = list(inspect.signature(body).parameters.values())
    if kind == "flow":
        if not parameters:
            raise FunctionInvalid(f"the flow {own_name!r} takes no context", remedy="give it 'ctx' as first parameter")
        parameters = parameters[1:]
    return Function(
        own_name,
        body,
        _params_model(own_name, parameters, hints),
        _result_type(own_name, hints),
        description if description is not None else _summary(body),
        **options,
    )


def _params_model(name: str, parameters: list[inspect.Parameter], hints: dict[str, Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise FunctionInvalid(
                f"the parameter {parameter.name!r} of the function {name!r} cannot be given by name",
                remedy="use plain named parameters",
            )
        if parameter.name not in hints:
            raise FunctionInvalid(
                f"the parameter {parameter.name!r} of the function {name!r} has no type hint", remedy="give it one"
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], Field(default))
    config = ConfigDict(extra="forbid", hide_input_in_errors=True, arbitrary_types_allowed=False)
    try:
        return create_model(f"{name}_params", __config__=config, **fields)
    except (PydanticUserError, NameError) as error:
        problem = type(error).__name__
    raise FunctionInvalid(
        f"the params of the function {name!r} have no schema ({problem})",
        remedy="use types that pydantic can validate, and names without a leading underscore",
    )


def _result_type(name: str, hints: dict[str, Any]) -> TypeAdapter[Any]:
    if "return" not in hints:
        raise FunctionInvalid(f"the function {name!r} does not say what it returns", remedy="annotate its return type")
    try:
        return TypeAdapter(hints["return"])
    except PydanticUserError as error:
        problem = type(error).__name__
    raise FunctionInvalid(
        f"the result of the function {name!r} has no schema ({problem})", remedy="use a type that pydantic can validate"
    )


def _summary(body: Body) -> str:
    text = inspect.getdoc(body) or ""
    return " ".join(text.split("\n\n", 1)[0].split())
