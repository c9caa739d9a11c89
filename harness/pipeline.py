"""`call(name, input, ctx)`: the one way to run a function, folded from layers that each do one thing (H1, H9).

`gate` decides which calls run, and `journal` returns the results of calls that ran before. This module knows no model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import BaseModel

from ..core.errors import (
    CallRefused,
    CallTimeout,
    DepthExceeded,
    FunctionInvalid,
    LimitReached,
    NobodyToAsk,
    ParamsInvalid,
    PauseExpired,
    ResultInvalid,
    ThreadUnavailable,
    ToolNotAllowed,
    WorldAgentError,
)
from ..core.events import CallDecided, CallEnded, CallRetried, CallStarted
from ..core.validation import (
    json_and_text_of,
    json_of,
    json_of_value,
    own_copy,
    read_model,
    read_value,
    validate_model,
    validate_value,
)
from .approval import require_approval
from .context import CallContext
from .function import READ_ONLY, Function
from .gate import Gate, is_like
from .guard import guarded
from .inside import Inside, without_exit
from .journal import ABOUT_THE_TURN, SUSPENDED, Step
from .limits import LEAF_END_SECONDS, Budget, retry_call, with_timeout
from .places import places_of

MAX_NAMES_IN_ERROR: Final = 20  # names in an error


@dataclass(slots=True, kw_only=True, eq=False)
class Prepared:
    """A call that is ready to run once the gate approves it.

    Attributes:
        step: Its step for the journal; the layers fill in the decision about it and its body.
        run: Runs it with its budget, and with its own params or, as JSON, those that a person put in their place.
        read: Makes the caller's result of the journal's JSON.
        params: The model that declares the params that a person can put in place of its own; `step.check` validates
            them.
    """

    step: Step
    params: type[BaseModel]
    run: Callable[[Mapping[str, Any] | None, Budget], Awaitable[Any]]
    read: Callable[[Any], Any]


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """One call on its way through the layers, which fill it in. It belongs to the layers and is used once.

    Attributes:
        function: The function that is called. If it is the shape that runs workers, `_validated` puts the worker here.
        input: Its params, as the caller passed them.
        ctx: The context of the caller.
        key: Distinguishes the call from calls with equal input.
        id: Its path id; if empty, the caller's frame makes one.
        waits: Whether a body waits for it. If a person is asked, that body continues in a later run.
        slot: Is held while the call runs; see `Step.slot`.
        how: Further options for `CallContext.dispatch`; opaque here.
        named: The function by whose name it is called.
        prepared: The call when it is ready to run, from `_validated`.
        budget: What the call, and all calls below it, can use; from `_limited`.
        labels: Where its arguments come from, as JSON; from `_gated`.
        changed: The params that a person put in place of its own, from `_journaled`.
    """

    function: Function
    input: Mapping[str, Any] | BaseModel
    ctx: CallContext
    key: str | None = None
    id: str = ""
    waits: bool = True
    slot: AbstractAsyncContextManager[Any] | None = None
    how: object = None
    named: Function = field(init=False)
    prepared: Prepared = field(init=False)
    budget: Budget = field(init=False)
    labels: Mapping[str, Any] = field(default_factory=dict, init=False)
    changed: Mapping[str, Any] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.named, self.budget = self.function, self.ctx.budget

    @property
    def is_task(self) -> bool:
        """Whether it is a worker or a shape, which `dispatch` prepares."""
        return self.function.kind in ("worker", "shape")

    def gate_below(self, path: str) -> Gate:
        """The gate for the calls that it makes itself.

        Args:
            path: Its path id.
        """
        labels = None if self.ctx.resolved is None else self.labels.values()
        return self.ctx.gate.of_call(path, self.function, labels)


Handler = Callable[[Call], Awaitable[Any]]


def _fold(run: Handler) -> Handler:
    """Wrap `run` in the layers of every call, outermost first: validate, limit, gate, journal, trace."""
    handler = run
    for layer in reversed((_validated, _limited, _gated, _journaled, _traced)):
        handler = layer(handler)
    return handler


def _validated(inner: Handler) -> Handler:
    async def layer(call: Call) -> Any:
        function, ctx = call.function, call.ctx
        if function.dry_run is not None and ctx.gate.is_dry(function, ctx.current_caller):
            call.function = call.named = replace(function, body=function.dry_run)
        call.prepared = await (_dispatched(call) if call.is_task else _prepared(call))
        try:
            value = await inner(call)
        finally:
            call.ctx.frame.release(call.prepared.step.id)  # also if a limit or the gate stopped it before its frame
        if value is SUSPENDED:
            return value
        read = call.prepared.read
        del call.prepared  # its closures hold the call: a cycle that only the garbage collector would free
        return read(value)

    return layer


def _limited(inner: Handler) -> Handler:
    async def layer(call: Call) -> Any:
        function, ctx, step = call.function, call.ctx, call.prepared.step
        if ctx.tools is not None and not is_like(call.named.name, ctx.tools):
            some = ", ".join(ctx.tools[:MAX_NAMES_IN_ERROR]) + (", ..." if len(ctx.tools) > MAX_NAMES_IN_ERROR else "")
            raise ToolNotAllowed(
                f"{ctx.caller.name!r} is not allowed to call {call.named.name!r}",
                remedy=f"it can call: {some or 'nothing'}",
            )
        depth = ctx.budget.ledger.depth
        if ctx.frame.depth >= depth:
            raise DepthExceeded(
                f"the call of {function.name!r} is nested {ctx.frame.depth + 1} deep, and the limit is {depth}",
                remedy="nest calls less deeply, or raise the setting turn_depth",
            )
        reached: LimitReached | None = None
        if ctx.frame.drive.recorded(step.id) is None:  # else it was counted when it was first made
            try:
                # A map counts as one call and bounds its items itself.
                ctx.budget.take(step.id, chosen=ctx.current_caller.model_influenced and call.slot is None)
            except LimitReached as error:
                reached = error
        if reached is not None:
            return await _refused(call, reached)
        if function.limits.counted:
            call.budget = ctx.budget.child(_whose(function), function.limits, step.id)
        return await inner(call)

    return layer


async def _refused(call: Call, reached: LimitReached) -> Any:
    """Fail a call that is over a limit. The journal keeps the failure, so that a replay gets the same error."""
    step, ctx = call.prepared.step, call.ctx
    ctx.emit(CallDecided, call_id=step.id, function=step.name, decision="refuse", gate="limit", parent=step.parent)

    async def raising(_: Any) -> Any:
        raise reached

    if isinstance(reached, ABOUT_THE_TURN):
        step.body, step.once = raising, False  # the turn ends, and makes the call again when it is resumed
    else:
        step.refusal = reached
    return await _stepped(call)


def _stepped(call: Call) -> Awaitable[Any]:
    """Let the frame run the step, or return what the journal has of it."""
    step, frame = call.prepared.step, call.ctx.frame
    return frame.do(step) if call.waits else frame.direct(step)


def _gated(inner: Handler) -> Handler:
    async def layer(call: Call) -> Any:
        prepared, function = call.prepared, call.function
        step = prepared.step
        # A worker that is called by name has the params of the shape that runs it.
        callee = function if function.params is prepared.params else replace(function, params=prepared.params)
        shape = None if call.named is function else call.named
        await require_approval(step, callee, call.ctx, shape)
        call.labels = step.labels
        result_read = False
        try:
            value = await inner(call)
            result_read = value is not SUSPENDED
        except WorldAgentError as error:
            # An error can contain a stranger's text as well.
            result_read = not isinstance(error, CallRefused | PauseExpired)
            raise
        finally:
            if result_read:
                held = call.ctx.resolved is not None
                call.ctx.gate.take_note_of_result(step.id, function, step.read, held=held)
            if call.ctx.frame.drive.is_model_influenced(step.id):
                call.ctx.frame.mark_model_influenced()
        return value

    return layer


def _journaled(inner: Handler) -> Handler:
    async def layer(call: Call) -> Any:
        async def body(let: Any) -> Any:
            call.changed = None if let is None else let.get("arguments")
            call.labels = call.prepared.step.labels  # those of the arguments that a person changed
            call.ctx.gate.take_note_of_change(call.prepared.step.id, call.function, call.labels.values())
            return await (inner(call) if call.function.place is None else _with_places(call, inner))

        slot = call.slot
        if slot is None and call.function.kind == "leaf" and call.ctx.current_caller.model_influenced:
            # leaves only: a function that waits for its own calls could wait for itself
            slot = call.budget.ledger.slots
        call.prepared.step.body, call.prepared.step.slot = body, slot
        return await _stepped(call)

    return layer


async def _with_places(call: Call, inner: Handler) -> Any:
    """Keep the marks of what the call writes before it does, and take those of what it has read afterwards (H11)."""
    function, ctx, step = call.function, call.ctx, call.prepared.step
    gate, check = ctx.gate, step.check
    if gate.places is None or function.place is None:
        return await inner(call)
    arguments = step.input if call.changed is None or check is None else check(call.changed)
    places = await places_of(function.place, arguments, ctx.on_error)
    await gate.places.add(places, gate.marks_of_writing(function, call.labels.values()))
    try:
        value = await inner(call)
    except WorldAgentError:  # it can contain a text from there
        step.read = await gate.places.marks(places)
        raise
    step.read = await gate.places.marks(places)
    return value


def _traced(inner: Handler) -> Handler:
    async def layer(call: Call) -> Any:
        if call.is_task:  # a task emits its own events
            return await inner(call)
        step, emit = call.prepared.step, call.ctx.emit
        arguments = (step.input if call.changed is None else dict(call.changed)) if call.function.capture else None
        about = {"title": call.function.title, "risk": call.function.risk, "gate": step.by, "arguments": arguments}
        emit(CallStarted, call_id=step.id, function=step.name, parent=step.parent, labels=step.told, **about)
        if arguments is not None:
            emit.keep(step.id, "inputs", arguments)
        status, code = "cancelled", None
        try:
            value = await inner(call)
            if call.function.capture and value is not SUSPENDED:
                emit.keep(step.id, "outputs", value)
            status = "paused" if value is SUSPENDED else "done"
        except WorldAgentError as error:
            status, code = "failed", error.code
            raise
        finally:
            emit(CallEnded, call_id=step.id, status=status, code=code)
        return value

    return layer


async def _run(call: Call) -> Any:
    if call.is_task:  # a task applies its own time limit
        return await _run_attempts(call)
    return await apply_time_limit(_run_attempts(call), call.function, call.budget)


async def _run_attempts(call: Call) -> Any:
    function, prepared, budget = call.function, call.prepared, call.budget

    def run() -> Awaitable[Any]:
        return prepared.run(call.changed, budget)

    def tell(attempt: int, code: str, seconds: float) -> None:
        step = prepared.step
        call.ctx.emit(CallRetried, call_id=step.id, function=step.name, attempt=attempt, code=code, seconds=seconds)

    return await (run() if function.retry.attempts == 1 else retry_call(run, function.retry, budget.clock, tell=tell))


run_call: Final = _fold(_run)
"""Sends a call through the layers; see `CallContext.call`. A call that no body waits for can return `SUSPENDED`."""


async def _dispatched(call: Call) -> Prepared:
    if call.ctx.dispatch is None:
        raise FunctionInvalid(
            f"the {call.function.kind} {call.function.name!r} cannot run here", remedy="call it on an open agent"
        )
    return await call.ctx.dispatch(call)


async def _prepared(call: Call) -> Prepared:
    """Prepare the call of a leaf or a flow."""
    function, frame = call.function, call.ctx.frame
    what = f"params of function {function.name!r}"
    params = validate_model(function.params, call.input, what=what, error=ParamsInvalid)
    given, text = json_and_text_of(params, what=what, error=ParamsInvalid)
    call_id = call.id or await frame.child(function.name, given, call.key, text=text)

    def changed_params(changed: Mapping[str, Any]) -> BaseModel:
        return read_model(function.params, changed, what=what, error=ParamsInvalid)

    def changed_json(changed: Mapping[str, Any]) -> dict[str, Any]:
        return json_of(changed_params(changed), what=what, error=ParamsInvalid)

    step = Step(
        id=call_id,
        parent=frame.path,
        name=function.name,
        kind="flow" if function.kind == "flow" else "leaf",
        input=given,
        text=text,
        once=function.kind == "leaf" and not function.idempotent and function.risk != READ_ONLY,
        version=function.declared,
        result_schema=lambda: function.output_schema,
        check=changed_json,
    )

    async def run(changed: Mapping[str, Any] | None, budget: Budget) -> Any:
        # An attempt may change its params; the next one gets a fresh copy of the validated ones.
        taken = _for_try(function, params, given) if changed is None else changed_params(changed)
        ctx = call.ctx.fork(call_id, function, budget=budget)
        if function.kind == "flow" or call.labels:  # also a leaf can begin a turn with what a stranger wrote
            ctx = replace(ctx, gate=call.gate_below(call_id))
        return await _body(function, taken, ctx)

    def read(value: Any) -> Any:
        return read_value(function.result, value, what=f"the result of function {function.name!r}", error=ResultInvalid)

    return Prepared(step=step, run=run, read=read, params=function.params)


def _for_try(function: Function, params: BaseModel, given: Mapping[str, Any]) -> BaseModel:
    if function.retry.attempts == 1:
        return params
    what = f"params of function {function.name!r}"
    return own_copy(params, lambda: read_model(function.params, given, what=what, error=ParamsInvalid))


async def _body(function: Function, params: BaseModel, ctx: CallContext) -> Any:
    # Validated values, not a dump: a parameter that is declared as a model receives the model.
    given = {field: getattr(params, field) for field in type(params).model_fields} | (params.model_extra or {})
    flow, what = function.kind == "flow", f"function {function.name!r}"

    async def body() -> Any:
        with Inside(function.name, ctx, leaf=not flow):
            if flow:
                return await without_exit(function.body(ctx, **given))
            try:
                return await without_exit(function.body(ctx, **given) if function.context else function.body(**given))
            except ThreadUnavailable as error:
                error.unsent = ctx.path  # the call is simply repeated
                raise
            finally:
                ctx.frame.end()

    def cut() -> None:
        ctx.frame.cancelled = True  # for a body that runs on in a thread, or swallows its cancellation

    def late() -> WorldAgentError:
        return CallTimeout(
            f"the call of {function.name!r} took longer than {function.timeout:g} s",
            remedy="ask for less work in one call, or raise its timeout",
        )

    running = guarded(ctx.frame.run(body()) if flow else body(), what=what, on_error=ctx.on_error)
    if flow and function.timeout is None:
        value = await running  # the frame ends a body that does not end by itself
    else:
        time = None if function.timeout is None else ctx.budget.clock.sleep(function.timeout)
        patience = None if flow else LEAF_END_SECONDS
        value = await with_timeout(running, time, what=what, late=late, patience=patience, cut=cut)
    if value is SUSPENDED:
        return value
    what = f"the result of function {function.name!r}"
    checked = validate_value(function.result, value, what=what, error=ResultInvalid)
    return json_of_value(function.result, checked, what=what, error=ResultInvalid)


def apply_time_limit(running: Coroutine[Any, Any, Any], function: Function, budget: Budget) -> Awaitable[Any]:
    """Apply the time limit of the function's `Limits` to a running call, if it has one."""
    seconds = function.limits.seconds
    if seconds is None:
        return running
    whose = _whose(function)

    def late() -> WorldAgentError:
        return LimitReached(
            f"{whose} reached its limit of {seconds:g} s", remedy="ask for less work in one call, or raise its limits"
        )

    return with_timeout(running, budget.clock.sleep(seconds), what=whose, late=late)


def _whose(function: Function) -> str:
    return f"the {function.kind} {function.name!r}"


async def call(name: str, input: Mapping[str, Any] | BaseModel, ctx: CallContext, *, key: str | None = None) -> Any:
    """Run the function, worker or shape called `name` as a child of `ctx`; see `CallContext.call`."""
    return await run_call(Call(function=ctx.registry.function(name), input=input, ctx=ctx, key=key))


async def call_alone(name: str, input: Mapping[str, Any] | BaseModel, ctx: CallContext) -> Any:
    """Run the function, worker or shape called `name` without a turn; see `CallContext.call`.

    Raises:
        NobodyToAsk: The call requires approval or an answer from a person.
    """
    value = await run_call(Call(function=ctx.registry.function(name), input=input, ctx=ctx, waits=False))
    if value is SUSPENDED:
        raise NobodyToAsk(f"{name!r} cannot wait for a person here", remedy="call it inside a turn")
    return value
