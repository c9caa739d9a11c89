"""The context of a call, the protocols by which workers and tools see it (H7), and questions to a person."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from pydantic import BaseModel, PydanticUserError, TypeAdapter

from ..core import Emitter, Scope
from ..core.errors import AnswerInvalid, CallRefused, FunctionInvalid, InvalidArgument
from ..core.pauses import MAX_WAIT_SECONDS
from ..core.validation import is_text, json_of_value, read_value
from .approval import emit_decision, plain_note
from .function import Function
from .gate import CODE, Caller, Gate
from .guard import OnError
from .handles import Resolved
from .inside import Origin
from .journal import UNATTENDED, Ask, Frame, Step
from .limits import Budget
from .registry import Registry

if TYPE_CHECKING:
    from .pipeline import Call, Prepared

_ANSWER = "the answer"


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a person, and the type of the answer.

    Attributes:
        ask: The question as the journal keeps it.
        answer: The type of the answer.
    """

    ask: Ask
    answer: TypeAdapter[Any] = field(repr=False)

    @classmethod
    def of(
        cls, question: object, options: Sequence[str] | None, form: type[BaseModel] | None, seconds: float | None
    ) -> Question:
        """Validate a question and make a `Question` of it.

        Raises:
            InvalidArgument: An argument is not valid; the text names it.
        """
        if not isinstance(question, str) or not is_text(question):
            raise InvalidArgument("`question` must be a text that is not empty", remedy="pass the question to ask")
        if options is not None and (isinstance(options, str) or not options or not all(map(is_text, options))):
            raise InvalidArgument("`options` must be a list of texts", remedy="pass a list of one or more texts")
        if options is not None and form is not None:
            raise InvalidArgument("a question cannot have both `options` and `form`", remedy="pass only one of them")
        _check_seconds(seconds)
        try:
            answer: TypeAdapter[Any] = TypeAdapter(str if form is None else form)
            schema = answer.json_schema()
        except PydanticUserError as error:
            problem = type(error).__name__
        else:
            taken = None if options is None else tuple(options)
            return cls(Ask(kind="question", question=question, options=taken, schema=schema, seconds=seconds), answer)
        raise InvalidArgument(f"the form has no JSON Schema ({problem})", remedy="use fields that JSON can hold")


def _check_seconds(seconds: object) -> None:
    if seconds is None:
        return
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds <= MAX_WAIT_SECONDS:
        raise InvalidArgument(
            f"`seconds` must be above 0 and at most ten years, got {seconds!r}",
            remedy="pass a number of seconds, or None to wait for ever",
        )


async def ask_person(ctx: CallContext, question: Question, key: str | None) -> Any:
    """Ask it as a step of the call; see `CallContext.ask_person`."""
    frame, ask = ctx.frame, question.ask
    asked = {"question": ask.question, "options": ask.options, "schema": ask.schema}

    async def read(value: Any) -> Any:
        taken = read_value(question.answer, value, what=_ANSWER, error=AnswerInvalid)
        return json_of_value(question.answer, taken, what=_ANSWER, error=AnswerInvalid)

    call_id = await frame.child("ask_person", asked, key)
    step = Step(
        id=call_id,
        parent=frame.path,
        name="ask_person",
        kind="question",
        input=asked,
        body=read,
        ask=ask,
    )
    if frame.drive.refuses(call_id):
        _refuse(step, ctx)
    return read_value(question.answer, await frame.do(step), what=_ANSWER, error=AnswerInvalid)


async def wait_for_reply(ctx: CallContext, message_id: str, *, seconds: float | None = None) -> Any:
    """Wait for the reply to a message; the turn pauses until host code resumes it with a `Reply`, here or elsewhere.

    Args:
        ctx: The context of the call that waits: of a flow, a worker or a shape's handler.
        message_id: The message. Two calls cannot wait for the same one at the same time.
        seconds: How long to wait, from the first run of this call on; None waits for ever.

    Returns:
        The reply, as JSON. A model has influenced what the body calls after it.

    Raises:
        PauseExpired: The time is over, or host code said that no reply will come.
        InvalidArgument: An argument is not valid.
        FunctionInvalid: A leaf waits.
        NobodyToAsk: The call runs outside of any turn.
    """
    if not isinstance(message_id, str) or not is_text(message_id):
        raise InvalidArgument("`message_id` must be a text that is not empty", remedy="pass the id of the message")

    return await _waited(ctx, {"message_id": message_id}, seconds)


async def wait_for_replies(
    ctx: CallContext,
    message_ids: Sequence[str],
    gather: Gather,
    *,
    quorum: int,
    seconds: float | None = None,
) -> Any:
    """Wait for replies to several messages; the turn pauses once, and host code resumes it once, with a `Reply`.

    Args:
        ctx: As for `wait_for_reply`.
        message_ids: The messages.
        gather: Collects the replies once the wait is over, in the process that resumes the turn. It gets the value of
            the `Reply`, or None after the deadline, and the deadline. What it returns is recorded.
        quorum: How many replies are enough; host code reads it from `Journal.open_replies`.
        seconds: As for `wait_for_reply`.

    Returns:
        What `gather` returned, also if the deadline is over.

    Raises:
        InvalidArgument, FunctionInvalid, NobodyToAsk: As for `wait_for_reply`.
    """
    return await _waited(ctx, {"message_ids": [*message_ids], "quorum": quorum}, seconds, gather)


Gather = Callable[[Any, datetime | None], Awaitable[Any]]


async def _waited(
    ctx: CallContext, asked: Mapping[str, Any], seconds: float | None, gather: Gather | None = None
) -> Any:
    _check_seconds(seconds)
    frame = ctx.frame
    step_id = await frame.child("wait_for_reply", asked)

    async def read(value: Any) -> Any:
        if gather is None:
            return value
        record = frame.drive.recorded(step_id)
        expires = None if record is None else record.expires
        return await gather(value, None if expires is None else datetime.fromtimestamp(expires, UTC))

    step = Step(
        id=step_id,
        parent=frame.path,
        name="wait_for_reply",
        kind="reply",
        input=asked,
        body=read,
        ask=Ask(kind="reply", seconds=seconds, caller=ctx.caller.name),
        gathers=gather is not None,
    )
    reply = await frame.do(step)
    frame.mark_model_influenced()
    return reply


def _refuse(step: Step, ctx: CallContext) -> None:
    """Refuse a question of an unattended turn. A replay gets the recorded refusal, and the event is sent once."""
    if ctx.frame.drive.recorded(step.id) is None:
        emit_decision(ctx, step, "refuse", UNATTENDED)
    step.refusal = CallRefused(
        "the question is refused: no person watches this unattended turn",
        remedy="continue without the answer, or begin the turn with unattended='pause'",
    )
    step.by = UNATTENDED
    step.gate = plain_note("refuse", UNATTENDED, ctx.caller.name, step.name)


M = TypeVar("M", bound=BaseModel)

Dispatch = Callable[["Call"], Awaitable["Prepared"]]
Modules = Callable[..., Awaitable[Any]]

_LOG = logging.getLogger("worldagent.calls")


class ToolContext(Protocol):
    """The context that a leaf receives: ids, logging and cancellation. A leaf cannot call other functions."""

    __slots__ = ()

    @property
    def path(self) -> str:
        """The call's id."""
        ...

    @property
    def scope(self) -> Scope:
        """The ids of the workspace, account, channel, thread and turn that the call belongs to."""
        ...

    @property
    def on_behalf_of(self) -> str:
        """The id of the member on whose thread the turn runs; `root` in a turn of no member. See `CallContext`."""
        ...

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds the call's id; do not log anything secret."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled and its result will be dropped.

        A function on a thread cannot be interrupted, so it should check this in long loops.
        """
        ...


class WorkerContext(ToolContext, Protocol):
    """The context of a worker, a flow or a shape's handler: it can call functions and ask a person (H7)."""

    __slots__ = ()

    async def call(self, name: str, input: Mapping[str, Any] | BaseModel, *, key: str | None = None) -> Any:
        """Run the function, worker or shape called `name`; see `CallContext.call`."""
        ...

    async def call_tool(self, name: str, input: Mapping[str, Any] | BaseModel, *, key: str | None = None) -> Any:
        """The same as `call`, under a second name (H7)."""
        return await self.call(name, input, key=key)

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
            question: The question.
            options: The answers to choose from; by default any text is an answer.
            form: A model whose fields the person fills in, instead of a text.
            key: Distinguishes the question from equal ones. It is required if two of them can be asked
                concurrently.
            seconds: How long to wait for an answer; None waits for ever.

        Returns:
            The text, one of the options, or an instance of the form.

        Raises:
            PauseExpired: The question expired without an answer.
            CallRefused: The turn is unattended, and its mode is to refuse questions.
            InvalidArgument: An argument is not valid.
            FunctionInvalid: A leaf asks the question.
            NobodyToAsk: The call runs outside of any turn.
        """
        calls: Any = getattr(self, "calls", self)  # a task has its calls apart
        return await ask_person(calls, Question.of(question, options, form, seconds), key)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext(WorkerContext):
    """The context of one call; each child call gets a fork of it (D8).

    Attributes:
        scope: The ids it runs under.
        registry: The functions, workers and shapes that can be called.
        emit: Sends its events.
        frame: Its calls, and how deep they nest.
        gate: Decides about its calls.
        caller: The name under which it makes calls, for the policy.
        dispatch: Prepares calls of workers and shapes; None if it cannot call any.
        modules: Runs modules of dspy; None if it cannot run any.
        tools: Globs over the names that it can call; None allows any.
        resolved: The values of the next call's handles, if its model is guarded; see `handles`.
        on_error: Receives the original of an exception that is replaced by a `TaskFailed`.
        budget: What the call, and all calls below it, can still use.
    """

    scope: Scope = field()  # pyright: ignore[reportIncompatibleMethodOverride]  # frozen, as a property is
    registry: Registry
    emit: Emitter
    frame: Frame = field(repr=False)
    gate: Gate = field(default_factory=Gate, repr=False)
    caller: Caller = CODE
    dispatch: Dispatch | None = field(default=None, repr=False)
    modules: Modules | None = field(default=None, repr=False)
    tools: tuple[str, ...] | None = None
    resolved: Resolved | None = field(default=None, repr=False)
    on_error: OnError | None = None
    budget: Budget = field(default_factory=Budget, repr=False)

    @property
    def path(self) -> str:
        """The call's id: its parent's id, `/`, its name, `:`, and a key or a digest of its input."""
        return self.frame.path

    @property
    def on_behalf_of(self) -> str:
        """The id of the member on whose thread the turn runs; `root` in a turn of no member (C9).

        It is the same at every depth, and after a resume in another process. It is stored with the turn when the turn
        begins: neither arguments, a model, a worker nor a request over the wire can set it.
        """
        return self.frame.drive.on_behalf_of

    @property
    def origin(self) -> Origin:
        """The origin of a turn that the body of this call begins now."""
        return Origin(
            caller=self.caller.name,
            model_influenced=self.current_caller.model_influenced,
            depth=self.frame.depth,
            marks=tuple(sorted(self.gate.marks)),
            workers=self.caller.workers,
            handed=self.handed,
        )

    @property
    def handed(self) -> bool:
        """Whether the member that the turn runs for speaks in the conversation of a person, which it was handed (A21).

        What it does is then what the person asked for, and not what the member does of its own.
        """
        return self.frame.drive.handed

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds the call's id."""
        return logging.LoggerAdapter(_LOG, {"call_id": self.path})

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled and its result will be dropped."""
        return self.frame.cancelled

    async def run_module(self, module: object, /, **inputs: Any) -> Any:
        """Run a module of dspy on the agent's model, without a role, in the body of a flow.

        Each call of one of its predictors is recorded. See `TaskContext.run_module`.

        Raises:
            FunctionInvalid: It cannot run on an agent's model, or this call belongs to no agent; the text says why.
            OutputInvalid, HostError: The model failed, and the module did not catch it.
        """
        if self.modules is None:
            raise FunctionInvalid("this call has no model", remedy="run the module in a call of an agent")
        return await self.modules(module, inputs, frame=self.frame)

    async def call(self, name: str, input: Mapping[str, Any] | BaseModel, *, key: str | None = None) -> Any:
        """Run the function, worker or shape called `name` as a child of this call.

        Args:
            name: The name of the function, worker or shape.
            input: Its params.
            key: Distinguishes the call from calls with equal input. It is required if two of them can run
                concurrently.

        Returns:
            A value of its declared result type.

        Raises:
            UnknownFunction: No function has this name.
            ParamsInvalid, ResultInvalid: The params or the result do not validate.
            ToolNotAllowed: The caller's `tools` do not include it.
            InvalidArgument: An equal call is running, and no `key` distinguishes the two. The body ends with this
                error.
            CallRefused, PauseExpired: The policy or a person refused the call, or the approval request expired.
            EffectLost: A process stopped during the call, and a person says that the effect did not happen.
            DepthExceeded, LimitReached, CallTimeout: Calls nest too deep, a limit is reached, or the call took too
                long.
            TaskFailed: Its body raised an exception that is not a `WorldAgentError`.
        """
        from .pipeline import call  # here, because `pipeline` imports this module

        return await call(name, input, self, key=key)

    def fork(self, path: str, function: Function | None = None, *, budget: Budget | None = None) -> CallContext:
        """The context of a child: of a call of `function`, or of another part that makes calls.

        Args:
            path: The child's path id.
            function: The function that is called.
            budget: The child's budget; by default the budget of this context.
        """
        caller = self.current_caller
        if function is not None and function.calls_as_caller:
            function = None
        return replace(
            self,
            frame=Frame(self.frame.drive, path, self.frame.depth + 1),
            caller=caller if function is None else caller.calling(function.name),
            tools=self.tools if function is None else function.tools,
            resolved=None,
            budget=self.budget if budget is None else budget,
        )

    @property
    def current_caller(self) -> Caller:
        """The caller of the calls that it makes from now on; it is marked if a model has influenced them."""
        return self.caller.with_model_influence(model_influenced=self.frame.model_influenced)
