"""`call(name, input, ctx)`: the one way to run a function, recorded in the turn's journal. No policy, never a model.

What is asked of a person, and what a call gives that was made before, is decided in `journal`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from pydantic import BaseModel

from ..core import Emitter, Scope
from ..core.errors import NobodyToAsk, ParamsInvalid, ResultInvalid, TaskFailed, WorldAgentError
from ..core.events import CallEnded, CallStarted
from ..core.validation import json_of, json_of_value, read_value, validate_model, validate_value
from ._function import Function
from ._questions import Question, ask_person
from ._registry import Registry
from .journal import SUSPENDED, Ask, Frame, Step

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

OnError = Callable[[BaseException], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What one call runs under; children get a fork of it (D8).

    Attributes:
        scope: The ids it runs under.
        registry: What it can call.
        emit: Where its events go.
        frame: Its calls, and how deep they nest.
        on_error: Gets the original of an exception that is replaced by a `TaskFailed`.
    """

    scope: Scope
    registry: Registry
    emit: Emitter
    frame: Frame = field(repr=False)
    on_error: OnError | None = None

    @property
    def path(self) -> str:
        """The call's id: its parent's, `/`, its name, `:` and a key or a digest of its input."""
        return self.frame.path

    async def call(self, name: str, input: Mapping[str, Any] | BaseModel, *, key: str | None = None) -> Any:
        """Run the function called `name` as a child of this call.

        Args:
            name: Which function.
            input: Its params.
            key: Tells calls with equal input apart; needed only where what follows differs.

        Returns:
            What its result type declares.

        Raises:
            UnknownFunction, ParamsInvalid, ResultInvalid: The call does not fit the function, or its result not.
            CallRefused, PauseExpired: It needs a person's leave and did not get it.
            EffectLost: It was under way when a process stopped, and a person says that it did not happen.
            DepthExceeded: Calls nest too deep.
            TaskFailed: Its body raised something of its own.
        """
        return await call(name, input, self, key=key)

    @overload
    async def ask_person(
        self,
        question: str,
        options: Sequence[str] | None = None,
        *,
        form: None = None,
        key: str | None = None,
        seconds: float | None = None,
    ) -> str: ...
    @overload
    async def ask_person(
        self,
        question: str,
        options: None = None,
        *,
        form: type[M],
        key: str | None = None,
        seconds: float | None = None,
    ) -> M: ...
    async def ask_person(
        self,
        question: str,
        options: Sequence[str] | None = None,
        *,
        form: type[BaseModel] | None = None,
        key: str | None = None,
        seconds: float | None = None,
    ) -> Any:
        """Ask a person; the turn pauses until `resume()` brings the answer, in this process or another.

        Args:
            question: What is asked.
            options: What can be answered; left out, any text.
            form: A model whose fields are asked for, instead of a text.
            key: Tells equal questions apart; needed only where what follows differs.
            seconds: How long an answer is waited for; None is for ever.

        Returns:
            The text, one of the options, or an instance of the form.

        Raises:
            PauseExpired: Nobody answered in time.
            InvalidArgument, FunctionInvalid: The question does not fit, or a leaf asks it.
            NobodyToAsk: It is asked outside any turn.
        """
        return await ask_person(self.frame, Question.of(question, options, form, seconds), key)

    def fork(self, path: str) -> CallContext:
        """The context of a child with this path."""
        frame = Frame(self.frame.drive, path, self.frame.depth + 1)
        return CallContext(
            scope=self.scope, registry=self.registry, emit=self.emit, frame=frame, on_error=self.on_error
        )


async def call(name: str, input: Mapping[str, Any] | BaseModel, ctx: CallContext, *, key: str | None = None) -> Any:
    """Run the function called `name` as a child of `ctx`; see `CallContext.call`."""
    function, step = await _step(name, input, ctx, key)
    return _read(function, await ctx.frame.do(step))


async def call_alone(name: str, input: Mapping[str, Any] | BaseModel, ctx: CallContext) -> Any:
    """Run the function called `name` where no body waits for it; see `CallContext.call`.

    Raises:
        NobodyToAsk: A person would have to be asked.
    """
    function, step = await _step(name, input, ctx, None)
    value = await ctx.frame.drive.run(step)
    if value is SUSPENDED:
        raise NobodyToAsk(f"{name!r} cannot wait for a person here", remedy="call it inside a turn")
    return _read(function, value)


async def _step(
    name: str, input: Mapping[str, Any] | BaseModel, ctx: CallContext, key: str | None
) -> tuple[Function, Step]:
    function = ctx.registry.function(name)
    params = validate_model(function.params, input, what=f"params of function {name!r}", error=ParamsInvalid)
    params_json = json_of(params, what=f"params of function {name!r}", error=ParamsInvalid)
    path, site = await ctx.frame.child(name, params_json, key)
    step = Step(
        id=path,
        parent=ctx.frame.path,
        name=name,
        kind=function.kind,
        input=params_json,
        body=lambda _: _told(function, ctx.fork(path), params),
        ask=Ask(kind="approval") if function.approval else None,
        once=function.kind == "leaf" and not function.idempotent,
        version=function.declared,
        site=site,
    )
    return function, step


async def _told(function: Function, ctx: CallContext, params: BaseModel) -> Any:
    """Run a function's body; tell of it in events."""
    ctx.emit(CallStarted, call_id=ctx.path, function=function.name)
    status, code = "cancelled", None
    try:
        value = await _run(function, ctx, params)
        status = "paused" if value is SUSPENDED else "done"
    except WorldAgentError as error:
        status, code = "failed", error.code
        raise
    finally:
        ctx.emit(CallEnded, call_id=ctx.path, status=status, code=code)
    return value


async def _run(function: Function, ctx: CallContext, params: BaseModel) -> Any:
    # Validated values, not a dump: a body that asks for a model gets the model.
    given = {field: getattr(params, field) for field in type(params).model_fields}

    async def body() -> Any:
        return await (function.body(ctx, **given) if function.kind == "flow" else function.body(**given))

    value = await guarded(
        ctx.frame.run(body()) if function.kind == "flow" else body(),
        what=f"function {function.name!r}",
        on_error=ctx.on_error,
    )
    if value is SUSPENDED:
        return value
    what = f"the result of function {function.name!r}"
    checked = validate_value(function.result, value, what=what, error=ResultInvalid)
    return json_of_value(function.result, checked, what=what, error=ResultInvalid)


async def guarded(running: Awaitable[T], *, what: str, on_error: OnError | None) -> T:
    """Wait for somebody's code; what it raises of its own becomes a `TaskFailed`, and `on_error` gets the original.

    Args:
        running: The code under way.
        what: What it is, for the error.
        on_error: Gets the original.
    """
    problem: BaseException
    try:
        return await running
    except WorldAgentError:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        problem = error  # nobody cancels the caller: something that the code waited for was cancelled
    except Exception as error:  # somebody's code may raise anything; `on_error` gets it as it is
        problem = error
    if on_error is not None:
        on_error(problem)
    kind = type(problem).__name__
    del problem  # the traceback keeps this frame, and the original may quote what a model said
    raise TaskFailed(f"{what} failed with {kind}", remedy="see on_error for the original, and mend it")


def _read(function: Function, value: Any) -> Any:
    return read_value(function.result, value, what=f"the result of function {function.name!r}", error=ResultInvalid)
