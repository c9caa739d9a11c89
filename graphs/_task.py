"""`task()`: the one way to dispatch work (T2, T8). A task gets no role but the one its caller's code passes.

A task is a step of the turn's journal, as a call of a function is: one that is done is not run again, and a handler
that is run again gets the answers of its model calls and calls from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, PydanticUserError, TypeAdapter

from ..core import Scope
from ..core.errors import FunctionInvalid, InvalidArgument, ParamsInvalid, ResultInvalid, WorldAgentError
from ..core.events import TaskEnded, TaskStarted
from ..core.validation import json_of, json_of_value, read_value
from ..harness import CallContext, call, guarded
from ..harness.journal import SUSPENDED, Frame, Step
from ..memory.attachments import Attachments
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

    @property
    def attachments(self) -> Attachments:
        """The images and files that messages refer to.

        Raises:
            InvalidArgument: The engine was made without them, as for measurements.
        """
        found = self.turn.services.attachments
        if found is None:
            raise InvalidArgument("there are no attachments here", remedy="run the task on an agent")
        return found

    async def predict(self, signature: Signature, /, **inputs: Any) -> Mapping[str, Any]:
        """Call the model with one of the shape's declared Signatures; the role comes along where it applies (R6).

        Args:
            signature: One that the shape declares.
            inputs: Its input fields, without a role. `Media`, or a list of it, stands for an image or a file.

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
        outputs = _Outputs(signature)
        frame = self.calls.frame
        asked = outputs.inputs(inputs)

        async def ask(_: Any) -> Any:
            turn = self.turn
            prompt = turn.prompt if signature is self.entry else None
            predictor = turn.services.predictors.get(signature, prompt)
            listener = turn.listener(predictor.name)
            answer = await predictor(inputs, turn.services.caller, role=turn.role, listener=listener)
            return outputs.dump(answer.fields)

        name = signature.__name__
        call_id, site = await frame.child(name, asked)
        step = Step(id=call_id, parent=frame.path, name=name, kind="model", input=asked, body=ask, site=site)
        return outputs.read(await frame.do(step))

    async def call(self, name: str, input: Mapping[str, Any] | BaseModel, *, key: str | None = None) -> Any:
        """Run a function as a child of this task; see `worldagent.harness.call`."""
        return await call(name, input, self.calls, key=key)

    async def task(
        self, shape: str, params: Mapping[str, Any] | BaseModel, *, role: Role | None = None, key: str | None = None
    ) -> Any:
        """Dispatch a task as a child of this one; see `task`."""
        return await task(shape, params, self, role=role, key=key)


class _Outputs:
    """The fields of a Signature as JSON and back: what a model once answered must be read again as it was."""

    def __init__(self, signature: Signature) -> None:
        self._what = f"the answer of {signature.__name__!r}"
        self._kinds: dict[str, TypeAdapter[Any]] = {
            name: TypeAdapter(field.annotation or object) for name, field in signature.output_fields.items()
        }

    def dump(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: json_of_value(self._kinds[name], value, what=self._what, error=ResultInvalid)
            for name, value in fields.items()
        }

    def read(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: read_value(self._kinds[name], value, what=self._what, error=ResultInvalid)
            for name, value in fields.items()
        }

    @staticmethod
    def inputs(given: Mapping[str, Any]) -> dict[str, Any]:
        """What tells this model call from others; inputs that are no JSON tell by their place alone."""
        found: dict[str, Any] = {}
        for name, value in given.items():
            try:
                found[name] = json_of_value(TypeAdapter(type(value)), value, what=name, error=ResultInvalid)
            except (PydanticUserError, ResultInvalid):  # a type without a schema, or a value that is no JSON
                found[name] = type(value).__name__
        return found


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
    entries, others = found.names_for(checked, services.shapes)
    resolved = services.resolver.resolve_call(role, entry=entries, signatures=others)
    params_json = json_of(checked, what=f"params of shape {shape!r}", error=ParamsInvalid)
    frame = ctx.calls.frame
    path, site = await frame.child(found.key, params_json, key)
    turn = replace(ctx.turn, prompt=None)
    step = task_step(found, params_json, turn=turn, path=path, parent=frame, role=resolved)
    return found.read_result(await frame.do(replace(step, site=site)))


def task_step(
    shape: Shape[Any, Any],
    params: Mapping[str, Any],
    *,
    turn: TurnContext,
    path: str,
    parent: Frame | None,
    role: ResolvedRole,
) -> Step:
    """A task as a step of the turn's journal.

    Args:
        shape: The shape.
        params: Its params as JSON.
        turn: The turn that it belongs to.
        path: Its path id.
        parent: The calls of whoever dispatches it; None is the turn itself.
        role: Its own role.
    """
    noted = turn.services.resolver.key.digest(role) if turn.services.journal is not None else None
    frame = Frame(turn.drive, path, 0 if parent is None else parent.depth + 1)
    turn = replace(turn, role=role, stream=False, noted=noted)

    async def run(_: Any) -> Any:
        return await _run(shape, shape.read_params(params), turn, frame)

    return Step(
        id=path,
        parent=turn.turn_id if parent is None else parent.path,
        name=shape.key,
        kind="task",
        input=params,
        body=run,
        role=noted,
        version=shape.declared,
    )


async def _run(shape: Shape[Any, Any], params: BaseModel, turn: TurnContext, frame: Frame) -> Any:
    entry, others = shape.entry_for(params)
    services = turn.services
    calls = CallContext(
        scope=turn.scope, registry=services.registry, emit=turn.emit, frame=frame, on_error=services.on_error
    )
    ctx = TaskContext(turn=turn, calls=calls, entry=entry, signatures=others)
    turn.emit(TaskStarted, task_id=frame.path, shape=shape.key, label=entry.__name__ if entry else shape.key)
    status, code = "cancelled", None
    try:
        value = await guarded(
            frame.run(_awaited(shape, params, ctx)),
            what=f"the handler of shape {shape.key!r}",
            on_error=services.on_error,
        )
        if value is SUSPENDED:
            status = "paused"
            return value
        what = f"fields of the result of shape {shape.key!r}"
        result = json_of(shape.check_result(value), what=what, error=ResultInvalid)
        status = "done"
    except WorldAgentError as error:
        status, code = "failed", error.code
        raise
    finally:
        turn.emit(TaskEnded, task_id=frame.path, status=status, code=code)
    return result


async def _awaited(shape: Shape[Any, Any], params: BaseModel, ctx: TaskContext) -> Any:
    return await shape.handler(params, ctx)
