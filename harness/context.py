"""What a call runs under, and the views that workers and tools have of it (H7). What a call does is in `pipeline`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from pydantic import BaseModel

from ..core import Emitter, Scope
from .function import Function
from .gate import CODE, Caller, Gate
from .guard import OnError
from .journal import Frame
from .leave import Asker
from .limits import Budget
from .questions import Question, ask_person
from .registry import Registry

if TYPE_CHECKING:
    from .pipeline import Call, Prepared

M = TypeVar("M", bound=BaseModel)

Dispatch = Callable[["Call"], Awaitable["Prepared"]]

_LOG = logging.getLogger("worldagent.calls")


class ToolContext(Protocol):
    """What a leaf sees of the call that it runs for: ids, logging, cancellation. It cannot call others."""

    @property
    def path(self) -> str:
        """The call's id."""
        ...

    @property
    def scope(self) -> Scope:
        """The ids it runs under."""
        ...

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """Logs with the call's id; say nothing in it that should not be in a log."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more; for those that run on a thread and cannot be cut off."""
        ...


class WorkerContext(ToolContext, Protocol):
    """What a worker, a flow or a shape's handler sees: it can call others, and ask a person (H7)."""

    async def call(self, name: str, input: Mapping[str, Any] | BaseModel, *, key: str | None = None) -> Any:
        """Run the function, worker or shape called `name`; see `CallContext.call`."""
        ...

    async def call_tool(self, name: str, input: Mapping[str, Any] | BaseModel, *, key: str | None = None) -> Any:
        """The same as `call`, under the name of 003."""
        ...

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
        """Ask a person; see `CallContext.ask_person`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What one call runs under; children get a fork of it (D8).

    Attributes:
        scope: The ids it runs under.
        registry: What it can call.
        emit: Where its events go.
        frame: Its calls, and how deep they nest.
        gate: What decides about its calls.
        caller: Who makes its calls, for the policy.
        dispatch: Prepares calls of workers and shapes; None where none can be called.
        tools: Globs over what it may call; None is anything.
        on_error: Gets the original of an exception that is replaced by a `TaskFailed`.
        budget: What it and all below it may still use.
    """

    scope: Scope
    registry: Registry
    emit: Emitter
    frame: Frame = field(repr=False)
    gate: Gate = field(default_factory=Gate, repr=False)
    caller: Caller = CODE
    dispatch: Dispatch | None = field(default=None, repr=False)
    tools: tuple[str, ...] | None = None
    on_error: OnError | None = None
    budget: Budget = field(default_factory=Budget, repr=False)

    @property
    def path(self) -> str:
        """The call's id: its parent's, `/`, its name, `:` and a key or a digest of its input."""
        return self.frame.path

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """Logs with the call's id."""
        return logging.LoggerAdapter(_LOG, {"call_id": self.path})

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more."""
        return self.frame.cancelled

    async def call(self, name: str, input: Mapping[str, Any] | BaseModel, *, key: str | None = None) -> Any:
        """Run the function, worker or shape called `name` as a child of this call.

        Args:
            name: Which one.
            input: Its params.
            key: Tells it from calls with equal input; needed where one of them can run at the same time.

        Returns:
            What its result type declares.

        Raises:
            UnknownFunction, ParamsInvalid, ResultInvalid: The call does not fit the function, or its result not.
            ToolNotAllowed: The caller may not call it.
            InvalidArgument: An equal call runs, and no `key` tells this one from it. The body ends with it.
            CallRefused, PauseExpired: It needs leave, from the policy or a person, and did not get it.
            EffectLost: It was under way when a process stopped, and a person says that it did not happen.
            DepthExceeded, LimitReached, CallTimeout: Calls nest too deep, a limit is used up, it took too long.
            TaskFailed: Its body raised something of its own.
        """
        from .pipeline import call  # it imports this module, whose class every body is handed

        return await call(name, input, self, key=key)

    call_tool = call
    """The same under the name of 003."""

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
            key: Tells it from equal questions; needed where one of them can be asked at the same time.
            seconds: How long an answer is waited for; None is for ever.

        Returns:
            The text, one of the options, or an instance of the form.

        Raises:
            PauseExpired: Nobody answered in time.
            CallRefused: The turn is unattended and refuses what a person would be asked.
            InvalidArgument, FunctionInvalid: The question does not fit, or a leaf asks it.
            NobodyToAsk: It is asked outside any turn.
        """
        return await ask_person(
            self.frame,
            Question.of(question, options, form, seconds),
            key,
            emit=self.emit,
            caller=self.caller.name,
        )

    def fork(self, path: str, function: Function | None = None, *, budget: Budget | None = None) -> CallContext:
        """The context of a child: of a call of `function`, or of something else that calls.

        Args:
            path: Its path id.
            function: What is called.
            budget: What it may use; left out, what this one may.
        """
        caller = self.told_caller
        if function is not None and function.on_behalf:
            function = None
        return CallContext(
            scope=self.scope,
            registry=self.registry,
            emit=self.emit,
            frame=Frame(self.frame.drive, path, self.frame.depth + 1),
            gate=self.gate,
            caller=caller if function is None else caller.calling(function.name),
            dispatch=self.dispatch,
            tools=self.tools if function is None else function.tools,
            on_error=self.on_error,
            budget=self.budget if budget is None else budget,
        )

    @property
    def told_caller(self) -> Caller:
        """Who makes its calls from now on: a model may have had a say meanwhile."""
        return self.caller.told(modelled=self.frame.modelled)

    @property
    def asker(self) -> Asker:
        """Who makes its calls, as the gate is told of it."""
        return Asker(self.frame.drive, self.gate, self.emit, self.told_caller, self.on_error)


__all__ = ["CallContext", "Dispatch", "ToolContext", "WorkerContext"]
