"""`task()`: the one way to dispatch work (T2, T8). A task has only the role that its caller's code passes.

A task is a step of the turn's journal, like the call of a function. A finished task is not run again. A handler that
runs again gets the recorded answers of its model calls and other calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel

from ..core import Scope
from ..core.errors import AnswerInvalid, FunctionInvalid, InvalidArgument, ParamsInvalid, ResultInvalid, WorldAgentError
from ..core.events import TaskEnded, TaskStarted
from ..core.validation import json_of
from ..harness import CallContext, WorkerContext, call
from ..harness.gate import Caller
from ..harness.guard import guarded
from ..harness.inside import Inside, without_exit
from ..harness.journal import SUSPENDED, Frame, Step
from ..harness.limits import Budget
from ..harness.pipeline import Call, Prepared, apply_time_limit, run_call
from ..harness.worker import request_of, text_of, value_of
from ..memory.attachments import Attachments
from ..role_resolution import NO_ROLE, ResolvedRole, Role
from .modules import Outputs, run_module
from .shape import SUBAGENT, Shape

if TYPE_CHECKING:
    from ..signatures import Signature
    from ..signatures.modules import Module
    from .context import TurnContext

T = TypeVar("T")

_ROLE: Final = "role"  # the field's name, here because `signatures.adapter` loads dspy


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext(WorkerContext):
    """The context of a shape's handler. It lives as long as the task.

    Attributes:
        turn: The turn it belongs to, with this task's own role.
        calls: The call context that its functions run under.
        entry: The task's entry Signature, if it has one.
        signatures: The other Signatures that it can predict with.
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
    def path(self) -> str:
        """The same as `id`, under the name that all other contexts have."""
        return self.id

    @property
    def scope(self) -> Scope:
        """The ids it runs under."""
        return self.turn.scope

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds the task's id; do not log anything secret."""
        return self.calls.log

    @property
    def cancelled(self) -> bool:
        """Whether the task was cancelled and its result will be dropped."""
        return self.calls.cancelled

    @property
    def on_behalf_of(self) -> str:
        """The id of the member on whose thread the turn runs; `root` in a turn of no member.

        See `worldagent.harness.CallContext`.
        """
        return self.calls.on_behalf_of

    @property
    def attachments(self) -> Attachments:
        """The images and files that the turn's account reaches; see `Attachments.reached_by`."""
        return self.turn.services.attachments.reached_by(self.scope)

    async def predict(self, signature: Signature, /, **inputs: Any) -> Mapping[str, Any]:
        """Call the model with one of the shape's declared Signatures. The role is added if it applies (R6).

        Args:
            signature: A Signature that the shape declares.
            inputs: Its input fields, without a role. Pass `Media`, or a list of it, for an image or a file.

        Returns:
            Its output fields, a mapping by name.

        Raises:
            FunctionInvalid: It is not a Signature, such as a worker, or the shape does not declare it.
            InvalidArgument: The inputs do not match the Signature, or one is a role.
            OutputInvalid, RoleEchoed, HostError: The model failed.
        """
        if not isinstance(signature, type):
            raise FunctionInvalid(
                f"predict takes a Signature of dspy, got a {type(signature).__name__!r}",
                remedy="pass the class; call a worker, such as what @llm_node makes of a class, with call(NAME, {...})",
            )
        if signature is not self.entry and signature not in self.signatures:
            raise FunctionInvalid(
                f"the Signature {signature.__name__!r} is not declared by the shape",
                remedy="declare it in the shape's entry= or signatures=",
            )
        if _ROLE in inputs:
            raise InvalidArgument(
                f"the inputs of {signature.__name__!r} must not have a role, which the agent resolves and adds itself",
                remedy="leave it out, and pass role= to thread.task(...) or ctx.task(...)",
            )
        expected, given = set(signature.input_fields) - {_ROLE}, set(inputs)
        if expected != given:
            raise InvalidArgument(
                f"the inputs of {signature.__name__!r} must be {sorted(expected)}, got {sorted(given)}",
                remedy="pass each input field",
            )
        outputs = Outputs(signature)
        frame = self.calls.frame
        asked, _ = outputs.inputs(inputs)

        async def ask(_: Any) -> Any:
            turn = self.turn
            prompt = turn.prompt if signature is self.entry else None
            predictor = turn.services.predictors.get(signature, prompt)
            listener = turn.listener(predictor.name)
            answer = await turn.ask(lambda caller: predictor(inputs, caller, role=turn.role, listener=listener))
            if prompt is None:
                turn.keep_example(call_id, signature, inputs, answer.fields)
            return outputs.dump(answer.fields)

        name = signature.__name__
        call_id = await frame.child(name, asked, model=True)
        step = Step(id=call_id, parent=frame.path, name=name, kind="model", input=asked, body=ask)
        fields = outputs.read(await frame.do(step))
        frame.mark_model_influenced()  # the model's answer influences later calls
        return fields

    async def run_module(self, module: Module, /, **inputs: Any) -> Any:
        """Run a module of dspy on the agent's model. Predictors with all fields of the entry Signature get the role.

        Each call of a predictor is recorded, as by `predict`. A module with an `aforward` runs on the event loop, any
        other one on a thread.

        Args:
            module: The module; it is copied and not changed.
            inputs: The inputs of its `forward`.

        Returns:
            What the module returns, a `dspy.Prediction` as a rule.

        Raises:
            FunctionInvalid: It cannot run on an agent's model; the text says why.
            OutputInvalid, RoleEchoed, HostError: The model failed, and the module did not catch it.
        """
        return await run_module(module, inputs, turn=self.turn, frame=self.calls.frame, entry=self.entry)

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
    """Dispatch work to a shape within a turn.

    Args:
        shape: The shape's key.
        params: The shape's params.
        ctx: The task that dispatches.
        role: The call role of the dispatched task. It inherits none: without this it has no role (T8).
        key: Distinguishes it from tasks with equal params. It is required if one of them can run at the same time.

    Returns:
        The shape's result, an instance of its result model.

    Raises:
        UnknownShape, ParamsInvalid, ResultInvalid: The text names the shape and the field.
        RoleTooLong: The role is longer than the limit.
        TaskFailed: The handler raised an exception that is not one of worldagent's.
    """
    services = ctx.turn.services
    found = services.shapes.get(shape)
    checked = found.check_params(params)
    entries, others = found.names_for(checked, services.shapes)
    resolved = services.resolver.resolve_call(role, entry=entries, signatures=others, known=services.signatures)
    return await dispatched(Dispatched(shape=found, role=resolved), checked, ctx.calls, key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """The options of a dispatch in addition to its params.

    Attributes:
        shape: The shape that runs it.
        role: Its own role.
        slot: Held while it runs, if not all can run at the same time; see `Step.slot`.
        prompted: Whether a skill's prompt, or the passages that came with the turn, if any, apply to this task.
        raw: Whether to return its result as JSON.
    """

    shape: Shape[Any, Any]
    role: ResolvedRole = NO_ROLE
    slot: AbstractAsyncContextManager[Any] | None = None
    prompted: bool = False
    raw: bool = False


async def dispatched(
    how: Dispatched, params: BaseModel, ctx: CallContext, *, key: str | None = None, path: str = "", waits: bool = True
) -> Any:
    """Dispatch a task, or call the function that replaces it, which gets no role (H8).

    Args:
        how: The shape and options.
        params: The result of the shape's `check_params` or `read_params`.
        ctx: The context of the caller.
        key: See `Call`, as for the rest.
        path: Its path id; empty takes the next one of the caller's frame.
        waits: Whether a body waits for it.

    Returns:
        An instance of the shape's result model, or JSON if `how.raw`; `SUSPENDED` if no body waits for it and the task
        itself waits.
    """
    shape = how.shape
    stand_in = shape.stand_in(params)
    function, given = stand_in or (shape.callee(params), params)
    value = await run_call(
        Call(function=function, input=given, ctx=ctx, key=key, id=path, waits=waits, slot=how.slot, how=how)
    )
    if stand_in is None or value is SUSPENDED:
        return value
    result = {"worker": function.name, "text": text_of(function, value)}
    return result if how.raw else shape.check_result(result)


def calls_of(turn: TurnContext, frame: Frame, caller: Caller) -> CallContext:
    """The context of a turn's calls.

    Args:
        turn: The turn, as tasks that are dispatched there see it.
        frame: The frame of the calls.
        caller: The caller.
    """
    services = turn.services
    return CallContext(
        scope=turn.scope,
        registry=services.registry,
        emit=turn.emit,
        frame=frame,
        gate=turn.gate,
        caller=caller,
        dispatch=partial(_dispatch, turn),
        modules=partial(run_module, turn=replace(turn, role=NO_ROLE)),
        on_error=services.on_error,
        budget=turn.budget,
    )


async def _dispatch(turn: TurnContext, call: Call) -> Prepared:
    """Prepare the call of a worker or a shape. One that is called by its name has no role (T8)."""
    how = call.how if isinstance(call.how, Dispatched) else None
    shape, given, read = _called(turn, call) if how is None else (how.shape, call.input, _unchanged)
    if how is None:
        chosen = shape.TAKES_TURN_ROLE and not turn.task and call.ctx.current_caller == turn.caller  # the conversation
        how = Dispatched(shape=shape, role=turn.role if chosen else NO_ROLE)
    params = shape.check_params(given)
    if call.ctx.current_caller.model_influenced:
        shape.check_starter(params, by_model=True)
    shape.names_for(params, turn.services.shapes)  # for every caller: refuses names that it cannot run
    if call.function.kind == "shape" and (callee := shape.callee(params)).kind == "worker":
        call.function = callee  # its risk, limits and name count, as for a worker that is called by its own name
    if turn.guard and not call.function.guard:
        call.function = replace(call.function, guard=True)
    params_json = json_of(params, what=f"params of shape {shape.key!r}", error=ParamsInvalid)
    frame = call.ctx.frame
    noted = turn.role_digest(how.role)
    prompt = turn.prompt if how.prompted else None
    if how.role.tiers:
        turn.task_roles.append(how.role)
    caller = call.ctx.current_caller
    path = call.id or await frame.child(shape.key, params_json, call.key)
    context = turn.context if how.prompted else ()
    turn = replace(turn, role=how.role, prompt=prompt, context=context, task=path, caller=caller)

    async def run(changed: Mapping[str, Any] | None, budget: Budget) -> Any:
        # Read again, because a handler can change its params.
        taken = shape.read_params(params_json if changed is None else changed)
        gate = call.gate_below(path)
        below, inside = Frame(turn.drive, path, frame.depth + 1), replace(turn, budget=budget, gate=gate)
        calls = calls_of(inside, below, caller.calling(call.function.name))
        if call.function.capture:
            turn.emit.keep(path, "inputs", params_json if changed is None else dict(changed))
        return await _run(shape, taken, inside, calls, call)

    def fits(changed: Mapping[str, Any]) -> dict[str, Any]:
        taken = shape.read_params(changed)
        shape.names_for(taken, turn.services.shapes)
        if shape.callee(taken).name != call.function.name:
            raise AnswerInvalid(
                f"the arguments must be for the worker {call.function.name!r}", remedy="name this worker"
            )
        return json_of(taken, what=f"params of shape {shape.key!r}", error=ParamsInvalid)

    step = Step(
        id=path,
        parent=frame.path,
        name=shape.key,
        kind="task",
        input=params_json,
        role=noted,
        version=shape.version_of(params),
        check=fits,
    )
    read_for_caller = _unchanged if how.raw else lambda value: read(shape.read_result(value))
    return Prepared(step=step, run=run, read=read_for_caller, params=shape.params)


def _called(turn: TurnContext, call: Call) -> tuple[Shape[Any, Any], Any, Callable[[Any], Any]]:
    """Shape, params, and the conversion of the result for the caller, of a call by name."""
    function = call.function
    if function.kind == "shape":
        return turn.services.shapes.get(function.name), call.input, _unchanged
    params = {"worker": function.name, "request": request_of(function, call.input)}
    return turn.services.shapes.get(SUBAGENT), params, lambda result: value_of(function, result.text)


def _unchanged(value: Any) -> Any:
    return value


async def _run(shape: Shape[Any, Any], params: BaseModel, turn: TurnContext, calls: CallContext, call: Call) -> Any:
    function, gate = call.function, call.prepared.step.by
    entry, others = shape.entry_for(params)
    services, frame = turn.services, calls.frame
    ctx = TaskContext(turn=turn, calls=calls, entry=entry, signatures=others)
    label = entry.__name__ if entry else shape.key
    parent = frame.path.rpartition("/")[0]
    common_fields = {"task_id": frame.path, "shape": shape.key, "label": label, "parent": parent}
    step = call.prepared.step
    arguments = step.input if function.capture else None
    turn.emit(TaskStarted, **common_fields, risk=function.risk, gate=gate, arguments=arguments, labels=step.told)
    status, code = "cancelled", None
    try:
        handler = guarded(
            frame.run(_awaited(shape, params, ctx)),
            what=f"the handler of shape {shape.key!r}",
            on_error=services.on_error,
        )
        value = await apply_time_limit(handler, function, turn.budget)
        if value is SUSPENDED:
            status = "paused"
            return value
        what = f"fields of the result of shape {shape.key!r}"
        result = json_of(shape.check_result(value), what=what, error=ResultInvalid)
        if function.capture:
            turn.emit.keep(frame.path, "outputs", result)
        turn.gate.take_note_of_end(function, result)
        status = "done"
    except WorldAgentError as error:
        turn.gate.take_note_of_end(function, None)
        status, code = "failed", error.code
        raise
    finally:
        turn.emit(TaskEnded, task_id=frame.path, status=status, code=code)
    return result


async def _awaited(shape: Shape[Any, Any], params: BaseModel, ctx: TaskContext) -> Any:
    with Inside(ctx.calls.caller.name, ctx.calls, leaf=False):
        return await without_exit(shape.handler(params, ctx))
