"""What an operation is: one thing that programs and people can ask of a workspace, whatever host they use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from typing import Any, Final, Literal, TypeAlias, TypeGuard, TypeVar, get_args, get_type_hints

from ...core.errors import FunctionInvalid
from .arguments import WorkspaceArguments
from .call import Call, Refused
from .records import Answer
from .spec import ToolSpec

T = TypeVar("T")

Surface = Literal["sidecar", "web", "command"]
"""Where an operation can be asked for: as a tool, at a path, as a command."""

Who = Literal["caller", "owner", "operator"]
"""Who may call it: every caller, within its grant; the owner of the workspace and operators; operators alone."""

Kind = Literal["call", "turn", "events"]


Run: TypeAlias = Callable[[Any, Any], Awaitable[Any]]
"""Runs an operation: it takes the call and the workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(ToolSpec):
    """An operation. It is called with a `Call` and an open agent, or the workspace of a home where it needs no model.

    Attributes:
        name: Its name, which is that of its tool.
        who: Who may call it. That is checked before it runs.
        kind: Whether it is a plain call, runs a turn, or follows one. Hosts run the last two in ways of their own.
        run: Answers a plain call.
        absent: Why a surface lacks it, by surface.
        capability: The capability of another package that it is of; empty if it is one of this package.
    """

    name: str
    arguments: type[WorkspaceArguments]
    answer: type[Answer]
    who: Who = "caller"
    kind: Kind = "call"
    run: Run | None = None
    absent: Mapping[Surface, str] = field(default_factory=dict)
    capability: str = ""

    async def __call__(self, call: Call[Any], workspace: Any) -> Any:
        """Check who calls, and answer.

        Raises:
            Refused: The caller may not call it.
            WorldAgentError: As the operation says.
        """
        assert self.run is not None, f"{self.name} is not a plain call"
        if self.who == "operator" and not call.caller.grant.operator:
            raise Refused("forbidden", "only an operator can call this", remedy=OPERATOR_REMEDY)
        if self.who == "owner" and not call.caller.grant.operator:  # an agent without a society has operators, too
            check_owner(call, workspace.society)
        return await self.run(call, workspace)


OPERATOR_REMEDY: Final = "use a token with `operator = true`"


def operation(
    title: str, description: str, *, who: Who = "caller", absent: Mapping[Surface, str] | None = None, **more: Any
) -> Callable[[Run], Operation]:
    """Make a function an operation, with its name. Its annotations name the models of its arguments and its answer.

    Args:
        title: Its display name.
        description: What it does, for people and models.
        who: Who may call it.
        absent: Why a surface lacks it, by surface.
        more: Its effect and the other fields of `ToolSpec`.

    Raises:
        FunctionInvalid: The function is not a coroutine function, or an annotation does not name such a model.
    """

    def make(run: Run) -> Operation:
        arguments, answer = _models_of(run)
        return Operation(
            name=run.__name__,
            title=title,
            description=description,
            arguments=arguments,
            answer=answer,
            who=who,
            run=run,
            absent=absent or {},
            **more,
        )

    return make


def _models_of(run: Run) -> tuple[type[WorkspaceArguments], type[Answer]]:
    """The models of the arguments and of the answer, as the annotations name them."""
    problem = ""
    try:
        # The workspace's types are not loaded for this.
        types = get_type_hints(run, localns=dict.fromkeys(("WorldAgent", "Workspace", "Threads"), Any))
    except Exception as error:  # an annotation can be any expression
        problem = f"its annotations raise {type(error).__name__}"
    else:
        [arguments], answer = get_args(types.get("call")) or [None], types.get("return")
        if not _is(arguments, WorkspaceArguments):
            problem = "`call` is not annotated as `Call[...]` with a model of WorkspaceArguments"
        elif not _is(answer, Answer):
            problem = "it is not annotated to return a model of Answer"
        elif not iscoroutinefunction(run):
            problem = "it is not a coroutine function"
        else:
            return arguments, answer
    raise FunctionInvalid(
        f"{run.__name__} cannot be an operation: {problem}",
        remedy="write `async def NAME(call: Call[ARGUMENTS], agent: WorldAgent) -> ANSWER`",
    )


def _is(found: object, kind: type[T]) -> TypeGuard[type[T]]:
    return isinstance(found, type) and issubclass(found, kind)


# --- the owner --------------------------------------------------------------------------------------------------------


def is_owner(call: Call[Any], society: Any) -> bool:
    """Whether a call acts as the owner of the workspace."""
    account = call.caller.account
    return bool(account == society.config.owner or (account is None and call.caller.grant.operator))


def check_owner(call: Call[Any], society: Any) -> None:
    """Refuse a call that is not one of the owner or of an operator.

    Raises:
        Refused: It is not.
    """
    if not (call.caller.grant.operator or is_owner(call, society)):
        raise Refused(
            "forbidden",
            "only the owner of the workspace and operators see and change what members know",
            remedy=f"name the owner's account, or {OPERATOR_REMEDY}",
        )
