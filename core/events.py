"""The events of a turn while it runs: a frozen, versioned, discriminated union (D14, T10).

Events are data for hosts in any language: `event.model_dump_json()` writes the wire form, `parse_event()` reads it.
Every event has the turn's id and the time. All but `UnnumberedEvent`s have a sequence number that counts from 1 without
gaps. A reader must ignore kinds it does not know, because kinds can be added without a new version. No event ever
carries the content or the name of a role.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import datetime
from operator import not_
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from .clock import Clock
from .scope import ROOT, Tier

Risk = Literal["read_only", "write", "network", "destructive"]
PauseKind = Literal["approval", "question", "uncertain", "reply"]
TurnKind = Literal["message", "task", "skill", "schedule"]

Deltas = Literal["none", "answer", "all"]
"""What a run sends in parts: nothing, the text of the conversation, or that of its tasks too."""


_IF_ANY: Any = Field(default_factory=dict, exclude_if=not_)
"""A field that an event without any lacks."""


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    v: Literal[1] = 1
    turn_id: str
    seq: int = Field(ge=1)
    at: datetime


class UnnumberedEvent(_Event):
    """An event that only a client which streams the turn receives.

    It is not recorded, so it has no number: `seq` is 0 and is left out of the JSON.
    """

    seq: int = Field(default=0, exclude=True)


class TurnStarted(_Event):
    """The role is resolved and the turn begins; nothing has reached a model yet.

    The kind `call` marks a call that `agent.call` makes without a turn. Only traces get it.
    `on_behalf_of` is the member on whose thread the turn runs, or that speaks in the conversation of a person (A21); it
    is `root` in a turn of no member.
    """

    type: Literal["turn_started"] = "turn_started"
    thread: str
    kind: TurnKind | Literal["call"]
    role_tiers: tuple[Tier, ...] = ()
    resumed: bool = False
    on_behalf_of: str = ROOT


class RoleTierSkipped(_Event):
    """The source of a tier was down, and the host chose to continue without it (R14)."""

    type: Literal["role_tier_skipped"] = "role_tier_skipped"
    tier: Tier
    code: str


class TextDelta(_Event):
    """More of the model's text at a step; append it to the text of that step.

    `step` counts from 0. The text of a step that ends in calls is interim; see `StepEnded`.
    """

    type: Literal["text_delta"] = "text_delta"
    text: str
    step: int = Field(default=0, ge=0)


class ReasoningDelta(UnnumberedEvent):
    """More of the model's reasoning at a step, if its service shows it; append it to the reasoning of that step."""

    type: Literal["reasoning_delta"] = "reasoning_delta"
    text: str
    step: int = Field(default=0, ge=0)


class TextReplaced(_Event):
    """The text of a step, which replaces all its deltas so far; an empty text means that it was withdrawn.

    `step` is None if the text is the answer of the turn, whatever text came before.
    """

    type: Literal["text_replaced"] = "text_replaced"
    text: str
    step: int | None = None


class StepEnded(_Event):
    """A step of the conversation ended. An `interim` one ended in calls or is corrected; its text is not the answer."""

    type: Literal["step_ended"] = "step_ended"
    step: int = Field(default=0, ge=0)
    interim: bool


class MessageTaken(_Event):
    """The model reads a message that came while the turn ran (T15), at the beginning of a step.

    `id` is that of the message in the inbox, and `message_id` its id in the log. The kind `report` is a report of work
    in the background. A turn that resumes can send it again, with the same ids.
    """

    type: Literal["message_taken"] = "message_taken"
    id: str
    message_id: str
    kind: Literal["steer", "report"]
    author: str
    name: str | None = None
    text: str
    step: int = Field(default=0, ge=0)


class PlanRejected(_Event):
    """A step of the conversation could not be used. This is reported to the model once; after that it must answer."""

    type: Literal["plan_rejected"] = "plan_rejected"
    reason: str
    final: bool


class AnswerChecked(_Event):
    """An answer was checked. The model writes a rejected answer again; after a `final` verdict no answer is checked.

    `check` counts from 1; `findings` says what was missing or wrong.
    """

    type: Literal["answer_checked"] = "answer_checked"
    check: int
    satisfied: bool
    findings: str = ""
    final: bool


class HistorySummarised(_Event):
    """The history was too long for the model: a summary now replaces the oldest messages, from `first` to `last`."""

    type: Literal["history_summarised"] = "history_summarised"
    message_id: str
    first: str
    last: str
    messages: int


class MemoryRecalled(_Event):
    """The turn, or its task `call_id`, has looked for memory entries that fit, once. `entries` are the ids of them."""

    type: Literal["memory_recalled"] = "memory_recalled"
    entries: tuple[str, ...]
    call_id: str


class SummaryFailed(_Event):
    """The oldest messages could not be summarised; the model reads only the newest ones."""

    type: Literal["summary_failed"] = "summary_failed"
    code: str


class TaskStarted(_Event):
    """A dispatched task begins. `task_id` is its path id; `parent` is that of the call, task or turn above it.

    `gate`, `arguments` and `labels` are as in `CallStarted`.
    """

    type: Literal["task_started"] = "task_started"
    task_id: str
    shape: str
    label: str
    parent: str = ""
    risk: tuple[Risk, ...] = ()
    gate: str = ""
    arguments: dict[str, Any] | None = None
    labels: dict[str, Any] = _IF_ANY


class TaskEnded(_Event):
    """A dispatched task ended; if it failed, `code` is the error's code."""

    type: Literal["task_ended"] = "task_ended"
    task_id: str
    status: Literal["done", "failed", "cancelled", "paused"]
    code: str | None = None


class TaskDelta(UnnumberedEvent):
    """More of what the model of a worker or a skill says, if the stream asks for it with `subagents`.

    Append it to the text of this kind, task and step. A higher `attempt` replaces everything that the step has sent,
    whatever its kind. The attempt rises when the model is asked again, and when text is withdrawn; then the text is
    empty. The text of the last step of a task that is `done` is its result. Text of earlier steps came before calls, or
    could not be used.
    """

    task_id: str
    step: int = Field(ge=0)
    attempt: int = Field(default=0, ge=0)
    text: str


class TaskTextDelta(TaskDelta):
    """More of the text of a worker or a skill, if the stream asks for it with `subagents`."""

    type: Literal["task_text_delta"] = "task_text_delta"


class TaskReasoningDelta(TaskDelta):
    """More of the reasoning of the model of a worker or a skill, if its service shows it."""

    type: Literal["task_reasoning_delta"] = "task_reasoning_delta"


class TaskArgumentsDelta(TaskDelta):
    """More of the arguments, as JSON, of a call that a worker or a skill asks for.

    `call` is the place of the call in its step, from 0, and `tool` the name of the function. The call is made only if
    the gate allows it; then `CallStarted` or `TaskStarted` follows.
    """

    type: Literal["task_arguments_delta"] = "task_arguments_delta"
    call: int = Field(ge=0)
    tool: str


class CallStarted(_Event):
    """A Function is called inside the turn. `call_id` is its path id, `parent` that of the call, task or turn above it.

    `title` is the function's name for people, or empty. `gate` says what allowed the call: `code` if no model could
    influence it, `default`, `rule:NAME`, `always`, `approver` or `person`. `arguments` is set if the function is
    declared with `capture=True`.

    `labels` says where each argument comes from, in a turn that has or holds results which strangers can have written;
    an event of any other call lacks the key. They are as in `Pause.labels`, and the person's are among them. In place
    of `readers` some have `restricted`, if not everybody may see the value, and `decided` is there if the gate looked
    at where it comes from.
    """

    type: Literal["call_started"] = "call_started"
    call_id: str
    function: str
    title: str = ""
    parent: str = ""
    risk: tuple[Risk, ...] = ()
    gate: str = ""
    arguments: dict[str, Any] | None = None
    labels: dict[str, Any] = _IF_ANY


class CallEnded(_Event):
    """A Function's call ended; if it failed, `code` is the error's code."""

    type: Literal["call_ended"] = "call_ended"
    call_id: str
    status: Literal["done", "failed", "cancelled", "paused"]
    code: str | None = None


class ResultHeld(_Event):
    """A guarded model does not read the result of a call. `outline` has its name, such as `r0`, and declared types."""

    type: Literal["result_held"] = "result_held"
    call_id: str
    outline: str


class CallDecided(_Event):
    """The gate requires approval for a call or refuses it, or an approval was answered.

    `gate` is as in `CallStarted`, or `limit`, or `expired` if no answer came before the pause expired, or `unattended`
    if the turn refuses calls that require approval. `account` is the account that answered, if it is known. `labels`
    are as in `CallStarted`.
    """

    type: Literal["call_decided"] = "call_decided"
    call_id: str
    function: str
    decision: Literal["ask", "approve", "modify", "reject", "refuse"]
    gate: str
    account: str | None = None
    parent: str = ""
    labels: dict[str, Any] = _IF_ANY


class CallRetried(_Event):
    """A Function's call failed with a retryable error and is retried after `seconds`; `attempt` counts the next try."""

    type: Literal["call_retried"] = "call_retried"
    call_id: str
    function: str
    attempt: int
    code: str
    seconds: float


class ModelWaiting(_Event):
    """A model call waits up to `seconds` because the model's service asked to slow down; `call_id` is as in `Usage`."""

    type: Literal["model_waiting"] = "model_waiting"
    model: str
    seconds: float
    call_id: str = ""


class CallProgress(_Event):
    """The progress of a call to an MCP server's tool, as the server reports it, or of a task that runs a graph.

    `total` is None if it is unknown. If the server goes on with a call as a task, `progress` counts what it says. For a
    graph `message` is more text of one of its chat models: append it. `progress` is how many characters came so far.
    Only a turn that is streamed has these.
    """

    type: Literal["call_progress"] = "call_progress"
    call_id: str
    progress: float
    total: float | None = None
    message: str = ""


class AttachmentLeftOut(_Event):
    """The model gets only the name of an attachment: it does not accept the kind or size, or the content is gone."""

    type: Literal["attachment_left_out"] = "attachment_left_out"
    name: str
    reason: Literal["not_taken", "missing", "too_large"]


class MessageSent(_Event):
    """A message is in the mailbox of a member or a person. Its text is not in the event.

    `message_type` is its type, or `request`, `response` or `notification` if it has none. `answers` is the message that
    it answers, or the request that a referral is made for. `introduces` is the member that it introduces. `chain` is
    how many messages led to it since the last of a person or event, with itself. `call_id` is the path id of the call.
    """

    type: Literal["message_sent"] = "message_sent"
    message_id: str
    sender: str
    receiver: str
    message_type: str
    answers: str = ""
    introduces: str = ""
    chain: int = Field(ge=1)
    call_id: str = ""


class MessageRefused(_Event):
    """A message was refused. `code` is the error's code. An id that is not in the workspace is left empty."""

    type: Literal["message_refused"] = "message_refused"
    code: str
    sender: str
    receiver: str
    call_id: str = ""


class Usage(_Event):
    """Tokens of one model call, counted as in `ModelUsage`, and its cost in US dollars; null means unknown.

    `service_calls` is how often the service ran tools of its own in it; an event without any lacks the key.

    `call_id` is the path id of the call, task or turn that made the model call; `seconds` is how long it took.
    """

    type: Literal["usage"] = "usage"
    signature: str
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None
    call_id: str = ""
    model: str = ""
    seconds: float = 0.0
    service_calls: int = Field(default=0, ge=0, exclude_if=lambda calls: not calls)


class RoleWithheld(_Event):
    """Parts of a role were withheld from a model's answer, because it disclosed the role (R16).

    `characters` is how many, `fields` names the output fields that they were in; `reasoning` is the model's reasoning.
    `call_id` is the path id of the call, task or turn that made the model call.
    """

    type: Literal["role_withheld"] = "role_withheld"
    signature: str
    characters: int = Field(ge=0)
    fields: tuple[str, ...] = ()
    call_id: str = ""


class PauseOpened(_Event):
    """The turn waits for a person, or for a reply; it ends as `paused` once nothing else in it can run.

    `labels` says where the arguments come from, as `Pause.labels` does; an event without any lacks the key.
    """

    type: Literal["pause_opened"] = "pause_opened"
    pause_id: str
    kind: PauseKind
    function: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    hash: str = ""
    risk: tuple[Risk, ...] = ()
    reason: str = ""
    caller: str = ""
    approvers: tuple[str, ...] = ()
    question: str | None = None
    options: tuple[str, ...] | None = None
    answer_schema: dict[str, Any] | None = None
    labels: dict[str, Any] = Field(default_factory=dict, exclude_if=lambda labels: not labels)


class PauseNotified(_Event):
    """An unattended turn waits for a person, and its notifier, if there is one, was called for the pause.

    `thread` and `account` say whose turn it is. `agent.events(account=...)` yields these events too.
    """

    type: Literal["pause_notified"] = "pause_notified"
    pause_id: str
    kind: PauseKind
    function: str
    thread: str
    account: str | None = None


class BackgroundReported(_Event):
    """Work in the background ended, waits for a person, or failed (T17). `agent.events(account=...)` yields it.

    `thread` is the conversation that dispatched it, `task` its id, and `name` what was dispatched. With `last` its
    conversation reads the report, but it begins no turn: reports have begun as many turns in a row as they can.
    """

    type: Literal["background_reported"] = "background_reported"
    thread: str
    account: str | None = None
    task: str
    name: str
    status: str
    last: bool = False


class StallFound(_Event):
    """Members of a workspace stand still, or go round (A18). `agent.events(account=...)` yields it for the owner.

    `kind` is `long_wait`, `mailbox`, `ping_pong` or `forwards`, and `remedy` says what a person can do. `turn_id` is
    the id of the message that tells the owner.
    """

    type: Literal["stall_found"] = "stall_found"
    kind: str
    members: tuple[str, ...]
    since: datetime
    remedy: str


class PauseClosed(_Event):
    """The answer or the reply is there, and the turn continues."""

    type: Literal["pause_closed"] = "pause_closed"
    pause_id: str


class TurnEnded(_Event):
    """The last event of a turn in this run. If the turn failed, `code` is the error's code.

    A `paused` turn waits for a person. A `stopped` turn can continue where it stopped. You resume both.
    `outputs` has the further outputs of the answer, and `labels` says which of its parts strangers can have written, as
    `Turn.labels` does. An event without any lacks the key.
    """

    type: Literal["turn_ended"] = "turn_ended"
    status: Literal["done", "failed", "cancelled", "paused", "stopped"]
    text: str = ""
    code: str | None = None
    outputs: dict[str, Any] = _IF_ANY
    labels: dict[str, Any] = _IF_ANY


TurnEvent = Annotated[
    TurnStarted
    | RoleTierSkipped
    | TextDelta
    | ReasoningDelta
    | TextReplaced
    | StepEnded
    | PlanRejected
    | AnswerChecked
    | MessageTaken
    | HistorySummarised
    | MemoryRecalled
    | SummaryFailed
    | TaskStarted
    | TaskEnded
    | TaskTextDelta
    | TaskReasoningDelta
    | TaskArgumentsDelta
    | CallStarted
    | CallEnded
    | ResultHeld
    | CallDecided
    | CallRetried
    | ModelWaiting
    | CallProgress
    | PauseOpened
    | PauseNotified
    | BackgroundReported
    | StallFound
    | PauseClosed
    | AttachmentLeftOut
    | MessageSent
    | MessageRefused
    | Usage
    | RoleWithheld
    | TurnEnded,
    Field(discriminator="type"),
]
"""An event of a turn. The events of a workspace are another thing: `worldagent.members.Event`."""

_ADAPTER: TypeAdapter[Any] = TypeAdapter(TurnEvent)


def parse_event(data: str | bytes) -> TurnEvent | None:
    """Read one event from its JSON. Returns None for a kind that this version does not know.

    Raises:
        pydantic.ValidationError: The JSON is broken, or is not an event of version 1.
    """
    from pydantic import ValidationError

    try:
        event: TurnEvent = _ADAPTER.validate_json(data)
    except ValidationError as error:
        if any(item["type"] == "union_tag_invalid" for item in error.errors(include_input=False, include_url=False)):
            return None
        raise
    return event


Sink = Callable[[TurnEvent], None]
CaptureKind = Literal["inputs", "outputs", "prompts"]


class Capture(Protocol):
    """Receives the inputs and outputs of calls, which no event has. Only traces use them (H5)."""

    def wants(self, what: CaptureKind) -> bool:
        """Whether this kind of value is captured."""
        ...

    def keep(self, turn_id: str, call_id: str, what: CaptureKind, value: Any) -> None:
        """Receive a captured value, as JSON. It must not block."""
        ...


class Emitter:
    """Makes the events of one turn.

    Args:
        turn_id: The turn's id.
        clock: The source of the events' times.
        sink: Receives every event, in order; it must not block.
        capture: Receives inputs and outputs of calls; None captures nothing.
    """

    def __init__(self, turn_id: str, clock: Clock, sink: Sink, capture: Capture | None = None) -> None:
        self.turn_id = turn_id
        self._clock = clock
        self._sink = sink
        self._capture = capture
        self._seq = 0
        self._open_text = False

    @property
    def standing(self) -> bool:
        """Whether a client that follows the deltas shows any text at this point."""
        return self._open_text

    def continue_after(self, seq: int) -> None:
        """Number the next event `seq + 1`, after the events that earlier runs of the turn emitted."""
        self._seq = seq

    def ahead(self, sink: Sink) -> Emitter:
        """An emitter that continues from here into another sink, for events that may be dropped later."""
        other = Emitter(self.turn_id, self._clock, sink)
        other._seq, other._open_text = self._seq, self._open_text
        return other

    def give(self, event: TurnEvent) -> None:
        """Pass on an event that an emitter from `ahead` made."""
        self._seq = event.seq
        self._sink(event)

    def unnumbered(self, kind: type[Any], /, **fields: Any) -> None:
        """Emit an `UnnumberedEvent` of `kind`, and add the turn's id and the time."""
        self._sink(kind(turn_id=self.turn_id, at=self._clock.now(), **fields))

    def wants(self, what: CaptureKind) -> bool:
        """Whether this kind of value is captured."""
        return self._capture is not None and self._capture.wants(what)

    def keep(self, call_id: str, what: CaptureKind, value: Any) -> None:
        """Pass on a value of the call, task or turn `call_id`, if this kind of value is captured."""
        if self._capture is not None and self._capture.wants(what):
            self._capture.keep(self.turn_id, call_id, what, value)

    def __call__(self, kind: type[Any], /, **fields: Any) -> None:
        """Emit one event of `kind` and add the turn's id, the number and the time."""
        self._seq += 1
        event = kind(turn_id=self.turn_id, seq=self._seq, at=self._clock.now(), **fields)
        if kind is TextDelta:
            self._open_text = True
        elif kind is TextReplaced:
            self._open_text = bool(event.text)
        elif kind is StepEnded and event.interim:
            self._open_text = False
        self._sink(event)


def __getattr__(name: str) -> object:
    if name != "Event":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn("worldagent.core.events.Event is TurnEvent now", DeprecationWarning, stacklevel=2)
    return TurnEvent
