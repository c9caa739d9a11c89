"""`call(name, input, ctx)`: the one way to run a function. No gate and no journal yet; never a model."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from ..core import Emitter, Scope, digest
from ..core.errors import ParamsInvalid, ResultInvalid, TaskFailed, WorldAgentError
from ..core.events import CallEnded, CallStarted
from ..core.validation import json_of, validate_model, validate_value
from ._registry import Registry

OnError = Callable[[BaseException], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What one call runs under; children get a fork of it (D8).

    Attributes:
        path: The call's id: its parent's, `/`, its name, `:` and a key or a digest of its input.
        scope: The ids it runs under.
        registry: What it can call.
        emit: Where its events go.
        on_error: Gets the original of an exception that is replaced by a `TaskFailed`.
    """

    path: str
    scope: Scope
    registry: Registry
    emit: Emitter
    on_error: OnError | None = None
    _seen: Counter[str] = field(default_factory=Counter, repr=False)

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
            TaskFailed: Its body raised something of its own.
        """
        return await call(name, input, self, key=key)

    def child_path(self, name: str, data: object, key: str | None = None) -> str:
        """The path id of the next child called `name` with this input; equal children are numbered."""
        base = f"{self.path}/{name}:{key if key is not None else digest(data, length=12)}"
        count = self._seen[base]
        self._seen[base] += 1
        return f"{base}.{count}" if count else base

    def fork(self, path: str) -> CallContext:
        """The context of a child with this path."""
        return CallContext(path=path, scope=self.scope, registry=self.registry, emit=self.emit, on_error=self.on_error)


async def call(name: str, input: Mapping[str, Any] | BaseModel, ctx: CallContext, *, key: str | None = None) -> Any:
    """Run the function called `name` as a child of `ctx`; see `CallContext.call`."""
    function = ctx.registry.function(name)
    params = validate_model(function.params, input, what=f"params of function {name!r}", error=ParamsInvalid)
    params_json = json_of(params, what=f"params of function {name!r}", error=ParamsInvalid)
    path = ctx.child_path(name, params_json, key)
    ctx.emit(CallStarted, call_id=path, function=name)
    status, code = "cancelled", None
    try:
        value = await _run(function.name, ctx.fork(path), params)
        status = "done"
    except WorldAgentError as error:
        status, code = "failed", error.code
        raise
    finally:
        ctx.emit(CallEnded, call_id=path, status=status, code=code)
    return value


async def _run(name: str, ctx: CallContext, params: BaseModel) -> Any:
    function = ctx.registry.function(name)
    # Validated values, not a dump: a body that asks for a model gets the model.
    given = {field: getattr(params, field) for field in type(params).model_fields}
    problem: BaseException
    try:
        value = await (function.body(ctx, **given) if function.kind == "flow" else function.body(**given))
    except WorldAgentError:
        raise
    except asyncio.CancelledError as error:
        running = asyncio.current_task()
        if running is None or running.cancelling():
            raise
        problem = error  # nobody cancels the caller: something that the body waited for was cancelled
    except Exception as error:
        problem = error
    else:
        return validate_value(function.result, value, what=f"the result of function {name!r}", error=ResultInvalid)
    if ctx.on_error is not None:
        ctx.on_error(problem)
    kind = type(problem).__name__
    del problem  # the traceback keeps this frame, and the original may quote what a model said
    raise TaskFailed(f"function {name!r} failed with {kind}", remedy="see on_error for the original, and mend its body")
