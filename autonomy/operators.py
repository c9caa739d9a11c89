"""Decorators that make operators: workers out of a Signature, or out of a function that only says what is done.

Both make a `Worker`, which an agent gets in `workers=` and a member names in its `operator_ids`. So an operator has the
loop, the gate, the limits and the roles of any worker, and a member that runs it is shown its own memory.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, create_model

from ..core.errors import FunctionInvalid
from ..harness import Function, Worker, tool
from ..harness.worker import gives_text

if TYPE_CHECKING:
    from ..signatures import Signature

_CLOSED: Final = ConfigDict(extra="forbid", hide_input_in_errors=True)
_ROLE: Final = "role"
_ROLE_ARGUMENT: Final = re.compile(r"(?m)^( +)role(?: \([^)]*\))?:[ \t]*(.*(?:\n\1[ \t]+\S.*)*)\n?")
_NO_ARGUMENTS: Final = re.compile(r"(?m)^Args:\n*(?=^\S|\Z)")
_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@overload
def llm_node(signature: Signature, /, **options: Any) -> Worker: ...
@overload
def llm_node(**options: Any) -> Callable[[Signature], Worker]: ...
def llm_node(signature: Signature | None = None, /, **options: Any) -> Any:
    """Make an operator of a Signature of dspy: one call of a model, without tools.

    Its instructions, its inputs and its outputs are those of the Signature. One output is the result; several are an
    object with these fields. A declared `role` is not an input of the operator but the role of a task (R18).

    Args:
        signature: The class, when used as `@llm_node` without parentheses.
        options: Fields of `Worker`, such as `name`, `description`, `model` or `limits`. The name is that of the class
            in lower case with underscores, by default.

    Raises:
        FunctionInvalid: It is no Signature, its field `role` is not an input for a text, or an option does not fit.
    """
    return _of_signature(signature, options) if signature is not None else lambda given: _of_signature(given, options)


def agent_node(
    *, tools: Iterable[str | Function | Worker] = (), **options: Any
) -> Callable[[Callable[..., Any]], Worker]:
    """Make an operator of a function that is never run: a worker with these tools does what its docstring says.

    The parameters with their type hints are its input, the return type is its result, and the docstring is its
    instructions. A parameter `role` is not an input but the role of a task (R18).

    ```python
    @agent_node(tools=["crm_search"])
    def company_intel(company: str) -> str:
        \"\"\"Find out what a company does, with whom it competes, and who decides there.\"\"\"
    ```

    Args:
        tools: What it can call: functions, workers, or globs over their names. The agent must have them.
        options: Fields of `Worker`, such as `name`, `description`, `model` or `limits`.

    Raises:
        FunctionInvalid: The function has no docstring, a parameter no type hint, `role` is not a text, or an option
            does not fit.
    """
    named = [each if isinstance(each, str) else each.name for each in tools]
    return lambda body: _of_function(body, named, options)


def _of_signature(signature: Any, options: dict[str, Any]) -> Worker:
    if not hasattr(signature, "input_fields") or not hasattr(signature, "output_fields"):
        raise FunctionInvalid(
            f"`llm_node` takes a Signature, got a {type(signature).__name__!r}",
            remedy="decorate a subclass of dspy.Signature",
        )
    name = options.get("name") or _CAPITAL.sub("_", signature.__name__).lower()
    about_role = ""
    if _ROLE in signature.fields:
        from ..signatures.signature import without_role  # this loads dspy, which a Signature has loaded already

        declared, signature = signature, without_role(signature)
        about_role = _field(declared.input_fields[_ROLE])[1].description or ""
    outputs = {field: _field(info) for field, info in signature.output_fields.items()}
    [first, *others] = outputs.values()
    given: dict[str, Any] = {
        "description": _first_paragraph(signature.instructions),
        "input": _model(f"{name}_input", {field: _field(info) for field, info in signature.input_fields.items()}),
        "output": _model(f"{name}_output", outputs) if others else first[0],
        "about_role": about_role,
        "memory": True,
    }
    return _worker(name, signature.instructions, given | options)


def _of_function(body: Callable[..., Any], tools: list[str], options: dict[str, Any]) -> Worker:
    body, about_role = _without_role(body)
    made = tool(body, risk="read_only")  # reads its type hints and its docstring
    instructions = inspect.getdoc(body)
    if not instructions:
        raise FunctionInvalid(
            f"the function {made.name!r} has no docstring",
            remedy="say in it what the operator does: it is all it knows",
        )
    given: dict[str, Any] = {
        "description": made.description,
        "tools": tuple(tools),
        "input": made.params,
        "output": str if gives_text(made) else made.output_schema,
        "about_role": about_role,
        "memory": True,
    }
    return _worker(options.get("name") or made.name, instructions, given | options)


def _without_role(body: Any) -> tuple[Any, str]:
    """A function as if it had no parameter `role`, and the description of that parameter."""
    if _ROLE not in getattr(body, "__annotations__", {}):
        return body, ""
    from ..signatures.signature import takes_role

    if not takes_role(get_type_hints(body)[_ROLE]):
        raise FunctionInvalid(
            f"the parameter 'role' of the function {body.__name__!r} is not a text, but it is the role of a task",
            remedy="declare it as `role: str | None = None`, or rename it",
        )

    @functools.wraps(body)
    def plain() -> None: ...

    own: Any = plain
    parameters = inspect.signature(body).parameters.values()
    own.__signature__ = inspect.Signature([each for each in parameters if each.name != _ROLE])
    own.__annotations__ = {name: hint for name, hint in body.__annotations__.items() if name != _ROLE}
    documented = inspect.getdoc(body) or ""
    found = _ROLE_ARGUMENT.search(documented)
    own.__doc__ = _NO_ARGUMENTS.sub("", _ROLE_ARGUMENT.sub("", documented)).rstrip()
    return own, "" if found is None else " ".join(found[2].split())


def _worker(name: str, instructions: str, given: dict[str, Any]) -> Worker:
    unknown = sorted(given.keys() - set(inspect.signature(Worker).parameters))
    if unknown:
        raise FunctionInvalid(
            f"the operator {name!r} has the option {unknown[0]!r}, which no worker has",
            remedy="see Worker for its fields",
        )
    made: dict[str, Any] = {**given, "name": name, "instructions": instructions}
    return Worker(**made)


def _model(name: str, fields: dict[str, tuple[Any, Any]]) -> type[BaseModel]:
    made: type[BaseModel] = create_model(name, __config__=_CLOSED, **fields)  # type: ignore[call-overload] # by name
    return made


def _field(info: Any) -> tuple[Any, Any]:
    """The type of a field of a Signature, and its declaration with the description that a person wrote."""
    about = (info.json_schema_extra or {}).get("desc", "")
    description = None if about.startswith("${") else about or None  # dspy's own is the name in braces
    return info.annotation, Field(default=... if info.is_required() else info.default, description=description)


def _first_paragraph(text: str) -> str:
    return " ".join(text.strip().split("\n\n", 1)[0].split())


__all__ = ["agent_node", "llm_node"]
