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

from ..core.errors import FunctionInvalid
from ..graphs.shapes.signature import signature_worker, worker_of
from ..harness import Function, Worker, tool
from ..harness.worker import gives_text

if TYPE_CHECKING:
    from ..signatures import Signature

_ROLE: Final = "role"
_ROLE_ARGUMENT: Final = re.compile(r"(?m)^( +)role(?: \([^)]*\))?:[ \t]*(.*(?:\n\1[ \t]+\S.*)*)\n?")
_NO_ARGUMENTS: Final = re.compile(r"(?m)^Args:\n*(?=^\S|\Z)")


@overload
def llm_node(signature: Signature, /, **options: Any) -> Worker: ...
@overload
def llm_node(**options: Any) -> Callable[[Signature], Worker]: ...
def llm_node(signature: Signature | None = None, /, **options: Any) -> Any:
    """Make an operator of a Signature of dspy: a `worldagent.graphs.shapes.signature_worker` with memory.

    Args:
        signature: The class, when used as `@llm_node` without parentheses.
        options: Fields of `Worker`, such as `name`, `description`, `model` or `limits`.

    Raises:
        FunctionInvalid: As for `signature_worker`.
    """
    if signature is None:
        return lambda given: llm_node(given, **options)
    return signature_worker(signature, **{"memory": True, **options})


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
        "about_result": made.output_schema.get("description", "") if gives_text(made) else "",
        "memory": True,
    }
    return worker_of(options.get("name") or made.name, instructions, given | options)


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
