"""`call(name, input, ctx)`: the one way to run a function, folded from layers that each do one thing (H1, H9).

What may be called is decided in `gate`, what was called before is given again by `journal`. No model in here.
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
from .context import CallContext
from .function import Function
from .gate import is_like
from .guard import guarded
from .inside import Inside, kept_in
from .journal import ABOUT_THE_TURN, SUSPENDED, Step
from .leave import with_leave
from .limits import PATIENCE, Budget, in_time, tried

_SHOWN: Final = 20  # names in an error


@dataclass(slots=True, kw_only=True, eq=False)
class Prepared:
    """What a call will do, once it may.

    Attributes:
        step: What the journal is told of it; what was decided about it and its body come from the layers.
        run: Does it: with its own params, or as JSON with those that a person put in their place; and with its budget.
        read: Makes what the journal has of its result what the caller gets.
        params: What a person may put in the place of its input is declared by; `step.check` looks at it.
    """

    step: Step
    params: type[BaseModel]
    run: Callable[[Mapping[str, Any] | None, Budget], Awaitable[Any]]
    read: Callable[[Any], Any]


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """One call on its way through the layers, which fill in what they find out. It belongs to them, and is used once.

    Attributes:
        function: What is called.
        input: Its params, as they were given.
        ctx: Who calls.
        key: Tells it from calls with equal input.
        id: Its path id; empty is one that its caller's frame gives.
        waits: Whether a body waits for it, which goes on in another run where a person is asked.
        slot: Is held while it is done; see `Step.slot`.
        how: What `CallContext.dispatch` is told beside; opaque here.
        prepared: What it will do, from `_validated`.
        budget: What it and all below it may use, from `_limited`.
        changed: The params that a person put in the place of its own, from `_journaled`.
    """

    function: Function
    input: Mapping[str, Any] | BaseModel
    ctx: CallContext
    key: str | None = None
    id: str = ""
    waits: bool = True
    slot: AbstractAsyncContextManager[Any] | None = None
    how: object = None
    prepared: Prepared = field(init=False)
    budget: Budget = field(init=False)
    changed: Mapping[str, Any] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.budget = self.ctx.budget

    @property
    def is_task(self) -> bool:
        """Whether it is dispatched: a worker or a shape."""
        return self.function.kind in ("worker", "shape")


Handler = Callable[[Call], Awaitable[Any]]


def _fold(run: Handler) -> Handler:
    """What every call goes through, outermost first: validate, limit, gate, journal, trace, run."""
    handler = run
    for layer in reversed((_validated, _limited, _gated, _journaled, _traced)):
        handler = layer(handler)
    return handler


def _validated(inner: Handler) -> Handler:
    async def layer(call: Call) -> Any:
        call.prepared = await (_dispatched(call) if call.is_task else _prepared(call))
        try:
            value = await inner(call)
        finally:
            call.ctx.frame.release(call.prepared.step.id)  # also where a limit or the gate came before its frame
        if value is SUSPENDED:
            return value
        read = call.prepared.read
        del call.prepared  # its closures hold the call: a cycle, which only the collector would free
        return read(value)

    return layer


def _limited(inner: Handler) -> Handler:
    async def layer(call: Call) -> Any:
        function, ctx, step = call.function, call.ctx, call.prepared.step
        if ctx.tools is not None and not is_like(function.name, ctx.tools):
            some = ", ".join(ctx.tools[:_SHOWN]) + (", ..." if len(ctx.tools) > _SHOWN else "")
            raise ToolNotAllowed(
                f"{ctx.caller.name!r} may not call {function.name!r}", remedy=f"it may call: {some or 'nothing'}"
            )
        depth = ctx.budget.book.depth
        if ctx.frame.depth >= depth:
            raise DepthExceeded(
                f"the call of {function.name!r} is {ctx.frame.depth + 1} deep, and {depth} is the limit",
                remedy="let calls nest less deep, or raise the setting turn_depth",
            )
        reached: LimitReached | None = None
        if ctx.frame.drive.recorded(step.id) is None:  # else it was counted when it was made
            try:
                # The items of a map are bounded by the map, which counts as one call.
                ctx.budget.take(step.id, chosen=ctx.told_caller.modelled and call.slot is None)
            except LimitReached as error:
                reached = error
        if reached is not None:
            return await _refused(call, reached)
        if function.limits.counted:
            call.budget = ctx.budget.child(_whose(function), function.limits, step.id)
        return await inner(call)

    return layer


async def _refused(call: Call, reached: LimitReached) -> Any:
    """A call beyond a limit: the journal keeps it as its failure, so that a replay is told the same."""
    step, ctx = call.prepared.step, call.ctx
    ctx.emit(CallDecided, call_id=step.id, function=step.name, decision="refuse", gate="limit", parent=step.parent)

    async def raising(_: Any) -> Any:
        raise reached

    if isinstance(reached, ABOUT_THE_TURN):
        step.body, step.once = raising, False  # the turn ends, and makes it once it is resumed
    else:
        step.refusal = reached
    return await _stepped(call)


def _stepped(call: Call) -> Awaitable[Any]:
    """Have its frame do its step, or give what the journal has of it."""
    step, frame = call.prepared.step, call.ctx.frame
    return frame.do(step) if call.waits else frame.direct(step)


def _gated(inner: Handler) -> Handler:
    async def layer(call: Call) -> Any:
        prepared, function = call.prepared, call.function
        step = prepared.step
        # A worker that is called by its name has the params of the shape that runs it.
        callee = function if function.params is prepared.params else replace(function, params=prepared.params)
        await with_leave(step, callee, call.ctx.asker)
        told = False
        try:
            value = await inner(call)
            told = value is not SUSPENDED
        except WorldAgentError as error:
            # What it failed with may be a stranger's text, too.
            told = not isinstance(error, CallRefused | PauseExpired)
            raise
        finally:
            if told and function.untrusted:
                call.ctx.gate.mark(function.name)
            if call.ctx.frame.drive.heard(step.id):
                call.ctx.frame.hear()
        return value

    return layer


def _journaled(inner: Handler) -> Handler:
    async def layer(call: Call) -> Any:
        async def body(let: Any) -> Any:
            call.changed = None if let is None else let.get("arguments")
            return await inner(call)

        slot = call.slot
        if slot is None and call.function.kind == "leaf" and call.ctx.told_caller.modelled:
            slot = call.budget.book.slots  # not for what waits for calls of its own: that could wait for itself
        call.prepared.step.body, call.prepared.step.slot = body, slot
        return await _stepped(call)

    return layer


def _traced(inner: Handler) -> Handler:
    async def layer(call: Call) -> Any:
        if call.is_task:  # it tells of itself
            return await inner(call)
        step, emit = call.prepared.step, call.ctx.emit
        risk = call.function.risk
        arguments = (step.input if call.changed is None else dict(call.changed)) if call.function.capture else None
        told = {"title": call.function.title, "risk": risk, "gate": step.by, "arguments": arguments}
        emit(CallStarted, call_id=step.id, function=step.name, parent=step.parent, **told)
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
    if call.is_task:  # its time is looked after where it tells of itself
        return await _tried(call)
    return await timely(_tried(call), call.function, call.budget)


async def _tried(call: Call) -> Any:
    function, prepared, budget = call.function, call.prepared, call.budget

    def run() -> Awaitable[Any]:
        return prepared.run(call.changed, budget)

    def tell(attempt: int, code: str, seconds: float) -> None:
        step = prepared.step
        call.ctx.emit(CallRetried, call_id=step.id, function=step.name, attempt=attempt, code=code, seconds=seconds)

    return await (run() if function.retry.attempts == 1 else tried(run, function.retry, budget.clock, tell=tell))


_CALL: Final = _fold(_run)


async def _dispatched(call: Call) -> Prepared:
    if call.ctx.dispatch is None:
        raise FunctionInvalid(
            f"the {call.function.kind} {call.function.name!r} cannot run here", remedy="call it on an open agent"
        )
    return await call.ctx.dispatch(call)


async def _prepared(call: Call) -> Prepared:
    """What the call of a leaf or a flow will do."""
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
        once=function.kind == "leaf" and not function.idempotent,
        version=function.declared,
        result_schema=lambda: function.output_schema,
        check=changed_json,
    )

    async def run(changed: Mapping[str, Any] | None, budget: Budget) -> Any:
        # A try may change what it is given; the next one gets what was checked.
        taken = _for_try(function, params, given) if changed is None else changed_params(changed)
        return await _body(function, taken, call.ctx.fork(call_id, function, budget=budget))

    def read(value: Any) -> Any:
        return read_value(function.result, value, what=f"the result of function {function.name!r}", error=ResultInvalid)

    return Prepared(step=step, run=run, read=read, params=function.params)


def _for_try(function: Function, params: BaseModel, given: Mapping[str, Any]) -> BaseModel:
    if function.retry.attempts == 1:
        return params
    what = f"params of function {function.name!r}"
    return own_copy(params, lambda: read_model(function.params, given, what=what, error=ParamsInvalid))


async def _body(function: Function, params: BaseModel, ctx: CallContext) -> Any:
    # Validated values, not a dump: a body that asks for a model gets the model.
    given = {field: getattr(params, field) for field in type(params).model_fields} | (params.model_extra or {})
    flow, what = function.kind == "flow", f"function {function.name!r}"

    async def body() -> Any:
        with Inside(function.name, ctx, leaf=not flow):
            if flow:
                return await kept_in(function.body(ctx, **given))
            try:
                return await kept_in(function.body(ctx, **given) if function.context else function.body(**given))
            finally:
                ctx.frame.end()

    def cut() -> None:
        ctx.frame.cancelled = True  # for what goes on on its thread, or swallows its cancellation

    def late() -> WorldAgentError:
        return CallTimeout(
            f"the call of {function.name!r} took longer than {function.timeout:g} s",
            remedy="ask it for less, or raise its timeout",
        )

    running = guarded(ctx.frame.run(body()) if flow else body(), what=what, on_error=ctx.on_error)
    if flow and function.timeout is None:
        value = await running  # the frame ends what does not end
    else:
        time = None if function.timeout is None else ctx.budget.clock.sleep(function.timeout)
        patience = None if flow else PATIENCE
        value = await in_time(running, time, what=what, late=late, patience=patience, cut=cut)
    if value is SUSPENDED:
        return value
    what = f"the result of function {function.name!r}"
    checked = validate_value(function.result, value, what=what, error=ResultInvalid)
    return json_of_value(function.result, checked, what=what, error=ResultInvalid)


def timely(running: Coroutine[Any, Any, Any], function: Function, budget: Budget) -> Awaitable[Any]:
    """Hold what a call runs to the seconds of its own limits, if it has such a limit."""
    seconds = function.limits.seconds
    if seconds is None:
        return running
    whose = _whose(function)

    def late() -> WorldAgentError:
        return LimitReached(f"{whose} may take {seconds:g} s, and has", remedy="ask it for less, or raise its limits")

    return in_time(running, budget.clock.sleep(seconds), what=whose, late=late)


def _whose(function: Function) -> str:
    return f"the {function.kind} {function.name!r}"


async def run_call(call: Call) -> Any:
    """Send a call through the layers.

    Returns:
        What its result type declares; `SUSPENDED` where a person is asked first and no body waits for it.

    Raises:
        WorldAgentError: See `CallContext.call`.
    """
    return await _CALL(call)


async def call(name: str, input: Mapping[str, Any] | BaseModel, ctx: CallContext, *, key: str | None = None) -> Any:
    """Run the function, worker or shape called `name` as a child of `ctx`; see `CallContext.call`."""
    return await _CALL(Call(function=ctx.registry.function(name), input=input, ctx=ctx, key=key))


async def call_alone(name: str, input: Mapping[str, Any] | BaseModel, ctx: CallContext) -> Any:
    """Run the function, worker or shape called `name` where no body waits for it; see `CallContext.call`.

    Raises:
        NobodyToAsk: A person would have to be asked.
    """
    value = await _CALL(Call(function=ctx.registry.function(name), input=input, ctx=ctx, waits=False))
    if value is SUSPENDED:
        raise NobodyToAsk(f"{name!r} cannot wait for a person here", remedy="call it inside a turn")
    return value


__all__ = ["Call", "Prepared", "call", "call_alone", "run_call", "timely"]
