"""How a turn, what to do next and an error are answered, as it stands in `structuredContent`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from .words import Wire

Status = Literal["done", "paused", "stopped", "cancelled", "failed", "running", "cut_off", "abandoned"]


class NextStep(Wire):
    """A call that goes on from here."""

    tool: str = Field(description="the tool to call", examples=["resume"])
    arguments: dict[str, Any] = Field(description="its arguments, as far as they are known")
    why: str = Field(description="what it is for, and what has to be filled in")
    needs: list[str] = Field(
        default_factory=list,
        description="names of arguments that the caller must add or fill in: `answers` of a person, and the `role` and "
        "the `skill` that the turn began with, which are stored nowhere",
    )


class ModelUsageRecord(Wire):
    """Tokens and cost of model calls, counted alike for all services; null is not known."""

    calls: int
    input_tokens: int | None = Field(description="sent, with `cached_tokens`")
    output_tokens: int | None = Field(description="received, with `reasoning_tokens`")
    cached_tokens: int
    reasoning_tokens: int
    cost: float | None = Field(description="US dollars")


class TurnUsageRecord(ModelUsageRecord):
    """What all model calls of a turn used so far."""

    models: dict[str, ModelUsageRecord] = Field(description="the same of each model, by its name")


class TurnRecord(Wire):
    """A turn as the call left it. What `events` does not know is null there."""

    id: str
    thread: str
    status: Status = Field(
        description="cancelled: somebody ended it; abandoned: it was cut off, and new input on its thread let go of it"
    )
    text: str | None = Field(default=None, description="the answer")
    result: Any = Field(default=None, description="the result of a task or a skill, or of `converse` with `output`")
    role_tiers: list[str] | None = Field(default=None, description="the tiers of the role, lowest precedence first")
    skipped_tiers: list[str] | None = Field(default=None, description="the tiers whose source was down")
    usage: TurnUsageRecord | None = None
    pauses: list[dict[str, Any]] = Field(default_factory=list, description="what waits for a person")


class Answer(Wire):
    """What all answers have in common."""

    contract: Literal[1] = 1


class TurnAnswer(Answer):
    """Of the surfaces and of `resume`."""

    turn: TurnRecord
    seq: int = Field(description="the number of the turn's last event that this call, or its client before, has seen")
    next: list[NextStep] = Field(default_factory=list, description="what to call to go on")


class EventsAnswer(TurnAnswer):
    """Of `events`."""

    events: list[dict[str, Any]] = Field(
        default_factory=list, description="the events after `after`; empty where they went out as progress"
    )


class ErrorRecord(Wire):
    """Why a call was not done."""

    code: str = Field(examples=["thread_busy"])
    problem: str
    remedy: str
    retryable: bool = Field(description="whether the same call may succeed later")
    turn_id: str | None = None
    pauses: list[dict[str, Any]] | None = Field(default=None, description="with thread_paused: what waits for a person")
    next: list[NextStep] | None = Field(default=None, description="where the turn can go on: what the caller may call")


class ErrorAnswer(Answer):
    """Of a tool error."""

    error: ErrorRecord


__all__ = [
    "Answer",
    "ErrorAnswer",
    "ErrorRecord",
    "EventsAnswer",
    "NextStep",
    "Status",
    "TurnAnswer",
    "TurnRecord",
    "TurnUsageRecord",
]
