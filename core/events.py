"""What a turn tells while it runs: a frozen, versioned, discriminated union (D14, T10).

Events are data for hosts in any language: `event.model_dump_json()` is the wire form, `parse_event()` reads it. Every
event has the turn's id and the time, and all but `ReasoningDelta` a sequence number that counts from 1 without gaps. A
reader must ignore kinds it does not know: new ones may come without a new version. No event ever carries the content or
the name of a role.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from .scope import Tier

Risk = Literal["read_only", "write", "network", "destructive"]
PauseKind = Literal["approval", "question", "uncertain"]
TurnKind = Literal["message", "task", "skill", "schedule"]


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    v: Literal[1] = 1
    turn_id: str
    seq: int = Field(ge=1)
    at: datetime


class TurnStarted(_Event):
    """The role is resolved and the turn begins; nothing has reached a model yet.

    Of the kind `call` is what begins outside any turn, with `agent.call`; traces alone get it.
    """

    type: Literal["turn_started"] = "turn_started"
    thread: str
    kind: TurnKind | Literal["call"]
    role_tiers: tuple[Tier, ...] = ()
    resumed: bool = False


class RoleTierSkipped(_Event):
    """A tier's source was down and the host chose to go on without it (R14)."""

    type: Literal["role_tier_skipped"] = "role_tier_skipped"
    tier: Tier
    code: str


class TextDelta(_Event):
    """More of what the model says at a step; append it to the text of that step.

    `step` counts from 0. The text of a step that ends in calls is interim; see `StepEnded`.
    """

    type: Literal["text_delta"] = "text_delta"
    text: str
    step: int = Field(default=0, ge=0)


class ReasoningDelta(_Event):
    """More of what the model thinks at a step, where its service shows that; append it to that step's.

    Only a client that streams the turn receives it. It is not recorded, so it has no number: `seq` is 0, and not in the
    JSON.
    """

    type: Literal["reasoning_delta"] = "reasoning_delta"
    seq: int = Field(default=0, exclude=True)
    text: str
    step: int = Field(default=0, ge=0)


class TextReplaced(_Event):
    """The text of a step, in place of all its deltas so far; the empty text means that it was withdrawn.

    `step` is None where the text is the turn's answer, whatever was said before.
    """

    type: Literal["text_replaced"] = "text_replaced"
    text: str
    step: int | None = None


class StepEnded(_Event):
    """A step of the conversation ended. An `interim` step ended in calls, or is corrected: its text is no answer."""

    type: Literal["step_ended"] = "step_ended"
    step: int = Field(default=0, ge=0)
    interim: bool


class PlanRejected(_Event):
    """A step of the conversation could not be used. That is reported to the model once, then it must answer."""

    type: Literal["plan_rejected"] = "plan_rejected"
    reason: str
    final: bool


class AnswerChecked(_Event):
    """An answer was judged: one that is found wanting is given anew, and after a `final` verdict none is judged.

    `check` counts from 1; `findings` says what was missing or wrong.
    """

    type: Literal["answer_checked"] = "answer_checked"
    check: int
    satisfied: bool
    findings: str = ""
    final: bool


class HistorySummarised(_Event):
    """The model would have seen too much: a summary stands for the oldest messages now, from `first` to `last`."""

    type: Literal["history_summarised"] = "history_summarised"
    message_id: str
    first: str
    last: str
    messages: int


class SummaryFailed(_Event):
    """The oldest messages could not be summed up; the model reads the newest ones."""

    type: Literal["summary_failed"] = "summary_failed"
    code: str


class TaskStarted(_Event):
    """A dispatched task begins. `task_id` is its path id; `parent` that of the call or task, or the turn, above it.

    `gate` and `arguments` are as in `CallStarted`.
    """

    type: Literal["task_started"] = "task_started"
    task_id: str
    shape: str
    label: str
    parent: str = ""
    risk: tuple[Risk, ...] = ()
    gate: str = ""
    arguments: dict[str, Any] | None = None


class TaskEnded(_Event):
    """A dispatched task ended; `code` is the error's where it failed."""

    type: Literal["task_ended"] = "task_ended"
    task_id: str
    status: Literal["done", "failed", "cancelled", "paused"]
    code: str | None = None


class CallStarted(_Event):
    """A Function is called inside the turn. `call_id` is its path id, `parent` that of the call, task or turn above it.

    `title` is the function's name for people, where it has one. `gate` says what let it through: `code` where no model
    had a say, `default`, `rule:NAME`, `always`, `approver` or `person`. `arguments` are there where the function is
    declared with `capture=True`.
    """

    type: Literal["call_started"] = "call_started"
    call_id: str
    function: str
    title: str = ""
    parent: str = ""
    risk: tuple[Risk, ...] = ()
    gate: str = ""
    arguments: dict[str, Any] | None = None


class CallEnded(_Event):
    """A Function's call ended; `code` is the error's where it failed."""

    type: Literal["call_ended"] = "call_ended"
    call_id: str
    status: Literal["done", "failed", "cancelled", "paused"]
    code: str | None = None


class CallDecided(_Event):
    """The gate did not simply let a call through: it asks, it refuses, or somebody has answered.

    `gate` is as in `CallStarted`, `limit`, `expired` where no answer came in time, or `unattended` where a turn refuses
    what a person would be asked; `account` is who answered, where that is known.
    """

    type: Literal["call_decided"] = "call_decided"
    call_id: str
    function: str
    decision: Literal["ask", "approve", "modify", "reject", "refuse"]
    gate: str
    account: str | None = None
    parent: str = ""


class CallRetried(_Event):
    """A Function's call failed for a passing reason and is tried again after `seconds`. `attempt` is the next one."""

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
    """How far the call of a tool of an MCP server is, as the server says. `total` is None where it does not know."""

    type: Literal["call_progress"] = "call_progress"
    call_id: str
    progress: float
    total: float | None = None
    message: str = ""


class AttachmentLeftOut(_Event):
    """The model gets the name of an attachment alone: it takes none of that kind or of that size, or it is gone."""

    type: Literal["attachment_left_out"] = "attachment_left_out"
    name: str
    reason: Literal["not_taken", "missing", "too_large"]


class Usage(_Event):
    """Tokens of one model call, counted as in `ModelUsage`, and its cost in US dollars; null is not known.

    `call_id` is the path id of the call, task or turn whose model call it is; `seconds` is how long it took.
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


class PauseOpened(_Event):
    """A person is asked; the turn will end as `paused` once nothing else in it can go on."""

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


class PauseNotified(_Event):
    """An unattended turn waits for a person, and its notifier, where there is one, was called for the pause.

    `thread` and `account` say whose turn it is. `agent.events(account=...)` gives these events, too.
    """

    type: Literal["pause_notified"] = "pause_notified"
    pause_id: str
    kind: PauseKind
    function: str
    thread: str
    account: str | None = None


class PauseClosed(_Event):
    """A person answered, and the turn goes on."""

    type: Literal["pause_closed"] = "pause_closed"
    pause_id: str


class TurnEnded(_Event):
    """The last event of a turn in this run. `code` is the error's where it failed.

    A turn that is `paused` waits for a person; one that is `stopped` can go on where it stood. Both are resumed.
    """

    type: Literal["turn_ended"] = "turn_ended"
    status: Literal["done", "failed", "cancelled", "paused", "stopped"]
    text: str = ""
    code: str | None = None


Event = Annotated[
    TurnStarted
    | RoleTierSkipped
    | TextDelta
    | ReasoningDelta
    | TextReplaced
    | StepEnded
    | PlanRejected
    | AnswerChecked
    | HistorySummarised
    | SummaryFailed
    | TaskStarted
    | TaskEnded
    | CallStarted
    | CallEnded
    | CallDecided
    | CallRetried
    | ModelWaiting
    | CallProgress
    | PauseOpened
    | PauseNotified
    | PauseClosed
    | AttachmentLeftOut
    | Usage
    | TurnEnded,
    Field(discriminator="type"),
]

_ADAPTER: TypeAdapter[Any] = TypeAdapter(Event)


def parse_event(data: str | bytes) -> Event | None:
    """Read one event from its JSON; None for a kind that this version does not know.

    Raises:
        pydantic.ValidationError: The JSON is broken, or not an event of version 1.
    """
    from pydantic import ValidationError

    try:
        event: Event = _ADAPTER.validate_json(data)
    except ValidationError as error:
        if any(item["type"] == "union_tag_invalid" for item in error.errors(include_input=False, include_url=False)):
            return None
        raise
    return event


__all__ = [
    "AnswerChecked",
    "AttachmentLeftOut",
    "CallDecided",
    "CallEnded",
    "CallProgress",
    "CallRetried",
    "CallStarted",
    "Event",
    "HistorySummarised",
    "ModelWaiting",
    "PauseClosed",
    "PauseKind",
    "PauseNotified",
    "PauseOpened",
    "PlanRejected",
    "ReasoningDelta",
    "Risk",
    "RoleTierSkipped",
    "StepEnded",
    "SummaryFailed",
    "TaskEnded",
    "TaskStarted",
    "TextDelta",
    "TextReplaced",
    "TurnEnded",
    "TurnKind",
    "TurnStarted",
    "Usage",
    "parse_event",
]
