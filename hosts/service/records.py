"""The answers of the tools that read or change a thread, as `structuredContent` holds them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ...agent.threads import ThreadStatus
from .validation import Wire

Status = Literal["done", "paused", "stopped", "cancelled", "failed", "running", "cut_off", "abandoned"]


class NextStep(Wire):
    """A call that the client can make next."""

    tool: str = Field(description="the tool to call", examples=["resume"])
    arguments: dict[str, Any] = Field(description="its arguments, as far as they are known")
    why: str = Field(description="what it is for, and what has to be filled in")
    needs: list[str] = Field(
        default_factory=list,
        description="names of arguments that the caller must add or fill in: `answers` of a person, and the `role` and "
        "the `skill` that the turn began with, which are stored nowhere",
    )


class ModelUsageRecord(Wire):
    """Tokens and cost of model calls, counted the same way for all services; null means unknown."""

    calls: int
    input_tokens: int | None = Field(description="sent, with `cached_tokens`")
    output_tokens: int | None = Field(description="received, with `reasoning_tokens`")
    cached_tokens: int
    reasoning_tokens: int
    cost: float | None = Field(description="US dollars")
    service_calls: int = Field(
        default=0, exclude_if=lambda calls: not calls, description="runs of tools of the service; omitted if 0"
    )


class TurnUsageRecord(ModelUsageRecord):
    """The usage of all model calls of a turn so far."""

    models: dict[str, ModelUsageRecord] = Field(description="the same of each model, by its name")


class WithheldRecord(Wire):
    """What was withheld from answers because they disclosed a role."""

    characters: int
    fields: list[str] = Field(description="the output fields that they were in")


class TurnRecord(Wire):
    """A turn at the end of the call. In an answer of `events`, unknown fields are null."""

    id: str
    thread: str
    status: Status = Field(
        description="cancelled: a caller ended it; abandoned: it was interrupted, and new input on its thread took its "
        "place"
    )
    text: str | None = Field(default=None, description="the answer")
    result: Any = Field(default=None, description="the result of a task or a skill, or of `converse` with `output`")
    outputs: dict[str, Any] = Field(
        default_factory=dict,
        description="the further outputs of the answer; left out if there are none",
        exclude_if=lambda outputs: not outputs,
    )
    labels: dict[str, Any] = Field(
        default_factory=dict,
        description="where the parts of a guarded answer come from that strangers can have written, by dotted paths; "
        "left out if there are none",
        exclude_if=lambda labels: not labels,
    )
    role_tiers: list[str] | None = Field(default=None, description="the tiers of the role, lowest precedence first")
    skipped_tiers: list[str] | None = Field(default=None, description="the tiers whose source was down")
    usage: TurnUsageRecord | None = None
    withheld: WithheldRecord | None = Field(
        default=None,
        description="what was withheld of its roles; left out if that is nothing, or unknown",
        exclude_if=lambda withheld: withheld is None,
    )
    pauses: list[dict[str, Any]] = Field(default_factory=list, description="what waits for a person")
    recalled: list[str] | None = Field(default=None, description="the ids of the memory entries that fit its message")


class Answer(Wire):
    """The base of all answers."""

    contract: Literal[1] = 1


class TurnAnswer(Answer):
    """Answer of the tools that begin a turn and of `resume`."""

    turn: TurnRecord
    seq: int = Field(description="the number of the turn's last event that this call, or its client before, has seen")
    next: list[NextStep] = Field(default_factory=list, description="what to call next")


class EventsAnswer(TurnAnswer):
    """Answer of `events`."""

    events: list[dict[str, Any]] = Field(
        default_factory=list, description="the events after `after`; empty where they went out as progress"
    )


class ErrorRecord(Wire):
    """Why a call failed."""

    code: str = Field(examples=["thread_busy"])
    problem: str
    remedy: str
    retryable: bool = Field(description="whether the same call may succeed later")
    turn_id: str | None = None
    pauses: list[dict[str, Any]] | None = Field(default=None, description="with thread_paused: what waits for a person")
    next: list[NextStep] | None = Field(default=None, description="if the turn can continue: what the caller can call")


class ErrorAnswer(Answer):
    """Answer of a tool that fails."""

    error: ErrorRecord


class PausesAnswer(Answer):
    """Answer of `pauses`."""

    thread: str
    turn_id: str | None = None
    status: ThreadStatus | None = Field(default=None, description="null where the thread has no turn")
    pauses: list[dict[str, Any]] = Field(default_factory=list)
    next: list[NextStep] = Field(default_factory=list)


class CancelAnswer(Answer):
    """Answer of `cancel`."""

    cancelled: bool = Field(description="false where there was no turn to cancel")


class TurnFeedbackAnswer(Answer):
    """Answer of `turn_feedback`."""

    rated: Literal[True] = True


class MessageRecord(Wire):
    """A message of a conversation."""

    id: str
    parent: str | None
    turn_id: str
    author: str
    kind: str
    body: dict[str, Any]
    at: str


class HistoryAnswer(Answer):
    """Answer of `history`."""

    messages: list[MessageRecord] = Field(description="oldest first")


class ForkAnswer(Answer):
    """Answer of `fork`."""

    thread: str = Field(description="the new thread")


class RoleSetAnswer(Answer):
    """Answer of `thread_role_set`."""

    set: Literal[True] = True


class RoleClearAnswer(Answer):
    """Answer of `thread_role_clear`."""

    cleared: bool = Field(description="false where there was none")


class TierRecord(Wire):
    """A tier in an explanation: a name and a length, never a content."""

    tier: str
    state: str
    name: str | None
    length: int
    signatures: list[str]


class ExplainAnswer(Answer):
    """Answer of `explain_role`."""

    policy: str
    tiers: list[TierRecord] = Field(description="all five, lowest precedence first")


class ThreadRecord(Wire):
    """The state of a thread: its newest turn."""

    thread: str
    title: str | None = Field(description="what the host set, else the first words; null without messages")
    account: str | None
    channel: str | None
    turn_id: str | None = Field(description="null where none has run on the thread")
    kind: str | None
    status: ThreadStatus
    since: str
    pauses: int
    answers: int
    resumable: bool
    page_key: str = Field(description="`before` takes it: the threads behind this one")
    archived: bool
    speaker: str | None = Field(description="the member that speaks from the next turn on; null is the World Agent")


class RenameAnswer(Answer):
    """Answer of `thread_rename`."""

    title: str | None = Field(description="what the thread is called now; null without messages")


class HandedAnswer(Answer):
    """Answer of `thread_hand_over` and `thread_hand_back`."""

    speaker: str | None = Field(description="the member that speaks from the next turn on; null is the World Agent")


class ArchiveAnswer(Answer):
    """Answer of `thread_archive`."""

    archived: bool = Field(description="whether the thread is archived now")


class ThreadsAnswer(Answer):
    """Answer of `threads`."""

    threads: list[ThreadRecord] = Field(description="the one with the newest turn first")
