"""`task()`: the one way to dispatch work (T2, T8). A task gets no role but the one its caller's code passes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from ..core import Scope
from ..core.errors import FunctionInvalid, InvalidArgument, ParamsInvalid, TaskFailed, WorldAgentError
from ..core.events import TaskEnded, TaskStarted
from ..core.validation import json_of
from ..harness import CallContext, call
from ..role_resolution import ResolvedRole, Role
from ..signatures import Signature
from ._context import TurnContext
from ._shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """What a shape's handler works with; it lives as long as the task.

    Attributes:
        turn: The turn it belongs to, with this task's own role.
        calls: The call context that its functions run under.
        entry: The task's entry Signature, if it has one.
        signatures: The other Signatures it may predict with.
    """

    turn: TurnContext
    calls: CallContext
    entry: Signature | None = None
    signatures: tuple[Signature, ...] = ()

    @property
    def id(self) -> str:
        """The task's path id, below its turn's id."""
        return self.calls.path

    @property
    def scope(self) -> Scope:
        """The ids it runs under."""
        return self.turn.scope

    async def predict(self, signature: Signature, /, **inputs: Any) -> Mapping[str, Any]:
        """Call the model with one of the shape's declared Signatures; the role comes along where it applies (R6).

        Args:
            signature: One that the shape declares.
            inputs: Its input fields, without a role.

        Returns:
            Its output fields.

        Raises:
            FunctionInvalid: The shape does not declare this Signature.
            InvalidArgument: The inputs are not the Signature's.
            OutputInvalid, RoleEchoed, HostError: The model failed.
        """
        if signature is not self.entry and signature not in self.signatures:
            raise FunctionInvalid(
                f"the Signature {signature.__name__!r} is not one of the shape's",
                remedy="declare it in the shape's entry= or signatures=",
            )
        expected, given = set(signature.input_fields), set(inputs)
        if expected != given:
            raise InvalidArgument(
                f"the inputs of {signature.__name__!r} are {sorted(expected)}, and {sorted(given)} were given",
                remedy="give each input field, and no role",
            )
        turn = self.turn
        prompt = turn.prompt if signature is self.entry else None
        predictor = turn.services.predictors.get(signature, prompt)
        answer = await predictor(inputs, turn.services.caller, role=turn.role, listener=turn.listener(predictor.name))
        return answer.fields

    async def call(self, name: str, input: Mapping[str, Any] | BaseModel, *, key: str | None = None) -> Any:
        """Run a function as a child of this task; see `worldagent.harness.call`."""
        return await call(name, input, self.calls, key=key)

    async def task(
        self, shape: str, params: Mapping[str, Any] | BaseModel, *, role: Role | None = None, key: str | None = None
    ) -> Any:
        """Dispatch a task as a child of this one; see `task`."""
        return await task(shape, params, self, role=role, key=key)


async def task(
    shape: str,
    params: Mapping[str, Any] | BaseModel,
    ctx: TaskContext,
    *,
    role: Role | None = None,
    key: str | None = None,
) -> Any:
    """Dispatch work to a shape from inside a turn.

    Args:
        shape: The shape's key.
        params: The shape's params.
        ctx: The task that dispatches.
        role: The call role of the dispatched task. Nothing is inherited: left out, it has none (T8).
        key: Tells tasks with equal params apart; needed only where what follows differs.

    Returns:
        The shape's result, an instance of its result model.

    Raises:
        UnknownShape, ParamsInvalid, ResultInvalid: The text names the shape and the field.
        RoleTooLong: The role is over the limit.
        TaskFailed: The handler raised something of its own.
    """
    services = ctx.turn.services
    found = services.shapes.get(shape)
    checked = found.check_params(params)
    entry, others = found.entry_for(checked)
    resolved = services.resolver.resolve_call(
        role, entry=entry.__name__ if entry else found.key, signatures=[other.__name__ for other in others]
    )
    params_json = json_of(checked, what=f"params of shape {shape!r}", error=ParamsInvalid)
    path = ctx.calls.child_path(found.key, params_json, key)
    return await run_task(found, checked, turn=replace(ctx.turn, prompt=None), path=path, role=resolved)


async def run_task(
    shape: Shape[Any, Any], params: BaseModel, *, turn: TurnContext, path: str, role: ResolvedRole
) -> BaseModel:
    """Run a shape's handler once, with checked params, and check its result.

    Raises:
        ResultInvalid: The result does not fit.
        TaskFailed: The handler raised something of its own; `on_error` gets the original.
    """
    turn = replace(turn, role=role, stream=False)
    entry, others = shape.entry_for(params)
    calls = CallContext(
        path=path,
        scope=turn.scope,
        registry=turn.services.registry,
        emit=turn.emit,
        on_error=turn.services.on_error,
    )
    ctx = TaskContext(turn=turn, calls=calls, entry=entry, signatures=others)
    turn.emit(TaskStarted, task_id=path, shape=shape.key, label=entry.__name__ if entry else shape.key)
    status, code = "cancelled", None
    try:
        result: BaseModel = shape.check_result(await _handle(shape, params, ctx))
        status = "done"
    except WorldAgentError as error:
        status, code = "failed", error.code
        raise
    finally:
        turn.emit(TaskEnded, task_id=path, status=status, code=code)
    return result


async def _handle(shape: Shape[Any, Any], params: BaseModel, ctx: TaskContext) -> Any:
    problem: BaseException
    try:
        return await shape.handler(params, ctx)
    except WorldAgentError:
        raise
    except asyncio.CancelledError as error:
        running = asyncio.current_task()
        if running is None or running.cancelling():
            raise
        problem = error  # nobody cancels the turn: something that the handler waited for was cancelled
    except Exception as error:  # an embedder's code may raise anything
        problem = error
    if ctx.turn.services.on_error is not None:
        ctx.turn.services.on_error(problem)
    kind = type(problem).__name__
    del problem  # the traceback keeps this frame, and the original may quote what a model said
    raise TaskFailed(
        f"the handler of shape {shape.key!r} failed with {kind}", remedy="see on_error for the original, and mend it"
    )
