"""Turns as callers see them: what surfaces take besides text, and the turn that they return (T4)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal, Self

from pydantic_core import to_jsonable_python

from ..core import ModelUsage, Tier, canonical_json, check_id
from ..core.errors import InvalidArgument, NothingToResume, ThreadPaused, WorldAgentError
from ..core.events import RoleWithheld, TurnEvent
from ..core.pauses import Pause


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnUsage(ModelUsage):
    """The usage of all model calls of a turn so far, including those before a pause and those of its workers.

    Attributes:
        models: The usage of each model, by its name.
    """

    models: Mapping[str, ModelUsage] = field(default_factory=dict)

    @classmethod
    def of(cls, models: Mapping[str, ModelUsage]) -> Self:
        """Return the sum over models.

        Args:
            models: The usage of each model, by its name.
        """
        return cls(**asdict(sum(models.values(), ModelUsage())), models=dict(models))


@dataclass(frozen=True, slots=True)
class Withheld:
    """What was withheld from answers because they disclosed a role (R16); false if nothing was.

    Attributes:
        characters: How many characters.
        fields: The output fields that they were in; `reasoning` is the model's reasoning.
    """

    characters: int = 0
    fields: tuple[str, ...] = ()

    @classmethod
    def of(cls, events: Iterable[TurnEvent]) -> Self:
        """Return what was withheld according to the events of a turn."""
        found = [event for event in events if isinstance(event, RoleWithheld)]
        names = dict.fromkeys(name for event in found for name in event.fields)
        return cls(sum(event.characters for event in found), tuple(names))

    def __bool__(self) -> bool:
        return bool(self.characters)

    @property
    def note(self) -> str:
        """What hosts tell a person of it."""
        return f"{self.characters:,} characters were withheld, because they disclosed a role"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The state of one turn after this run.

    Attributes:
        id: Its id, which all its events carry.
        thread: The id of the thread it ran on; a replay creates a new one.
        kept_as: The id of the thread that keeps the messages from before an edit; empty if nothing was edited.
        status: `done`; `cancelled`; `paused` if it waits for a person; `stopped` if the process was shut down and the
            turn can be resumed. A repeated start with its key can also find it `abandoned`: the turn was interrupted,
            and new input on its thread replaced it. A turn that fails raises instead, and the error carries the id.
        text: The answer; if there is a `result`, that as JSON.
        result: The typed result of a task or a skill, or the answer as the type that `output=` asked for.
        outputs: The further outputs of the answer by name, if `WorldAgent(converse=...)` declares any (T20).
        labels: Where the parts of a guarded turn's answer come from that strangers can have written, by dotted paths
            such as `text` and `result.to`; each as in `Pause.labels`.
        role_tiers: The tiers whose roles reached a model, lowest precedence first.
        skipped_tiers: The tiers that were skipped because their source was down.
        usage: The usage of its model calls so far.
        withheld: What was withheld of its roles in this run; a start repeated with its key has that of all runs.
        pauses: The open pauses; `thread.resume()` takes the answers.
        recalled: The ids of the memory entries that fit its message, and that the model was shown (M2).
        roleless: For a turn of a member: the answer without anything of its roles, for what is remembered of it. None
            if it is not known, as for a turn that was over before.
    """

    id: str
    thread: str
    kept_as: str = ""
    status: Literal["done", "cancelled", "abandoned", "paused", "stopped"]
    text: str = ""
    result: Any = None
    outputs: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, Any] = field(default_factory=dict)
    role_tiers: tuple[Tier, ...] = ()
    skipped_tiers: tuple[Tier, ...] = ()
    usage: TurnUsage = field(default_factory=TurnUsage)
    withheld: Withheld = Withheld()
    pauses: tuple[Pause, ...] = ()
    recalled: tuple[str, ...] = ()
    roleless: str | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the turn as JSON, with the fields that the command line and the sidecar use.

        A turn without further outputs lacks the key `outputs`, one without labels `labels`, one of which nothing was
        withheld `withheld`, and usage without tools of services `service_calls`.
        """
        empty = {name for name in ("outputs", "labels", "withheld") if not getattr(self, name)}
        left_out = {"kept_as", "roleless", *empty}
        found: dict[str, Any] = to_jsonable_python(self, exclude=left_out)
        found["pauses"] = [pause.to_json() for pause in self.pauses]
        for used in (found["usage"], *found["usage"]["models"].values()):
            if not used["service_calls"]:
                del used["service_calls"]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """The reason for a scheduled run (T7).

    Attributes:
        schedule: The schedule's id.
        fired_at: When it fired; aware.
        payload: The schedule's data, as JSON.

    Raises:
        InvalidArgument: A field is invalid; the text names it.
    """

    schedule: str
    fired_at: datetime
    payload: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_id("schedule", self.schedule)
        if not isinstance(self.fired_at, datetime) or self.fired_at.tzinfo is None:
            raise InvalidArgument(
                f"`fired_at` of the schedule {self.schedule!r} must have a time zone", remedy="pass an aware datetime"
            )
        problem = None
        try:
            canonical_json(dict(self.payload)).encode()
        except (TypeError, ValueError) as error:
            problem = type(error).__name__
        if problem:
            raise InvalidArgument(
                f"the payload of the schedule {self.schedule!r} must be JSON ({problem})",
                remedy="pass a mapping of JSON values",
            )


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A turn that a stream has entered.

    Attributes:
        named: Returns the turn's id; another one, if another turn of the thread begins before it.
        thread: The id of the thread that it was begun on.
        task: Ends when the turn ends.
        next: Returns the next event; None after the last one.
        end: Cancels the turn, wherever it runs; returns False if there is nothing to cancel.
        behind: Returns how many events have not been taken yet.
        recorded: Whether the turn's events are stored.
        leave: Removes this stream; returns whether to cancel the turn, unless it is detached.
    """

    named: Callable[[], str]
    thread: str
    task: asyncio.Task[Turn]
    next: Callable[[], Awaitable[TurnEvent | None]]
    end: Callable[[], Awaitable[bool]]
    behind: Callable[[], int]
    recorded: bool
    leave: Callable[[], bool] = lambda: True


def not_done(turn: Turn) -> WorldAgentError:
    """Return the error for a caller that wants the answer of a turn that has none."""
    error: WorldAgentError
    if turn.status == "paused":
        waiting = ", ".join(f"{pause.id!r} ({pause.function or pause.kind})" for pause in turn.pauses)
        answer = f"Resume({{{turn.pauses[0].id!r}: Approve()}})"  # a paused turn has one
        error = ThreadPaused(
            f"the turn {turn.id!r} of thread {turn.thread!r} waits for a person: {waiting}",
            remedy=f"answer with agent.run_sync({answer}, thread={turn.thread!r}), or with Reject() or Answer(value)",
        )
    elif turn.status == "stopped":
        error = ThreadPaused(
            f"the turn {turn.id!r} of thread {turn.thread!r} was stopped",
            remedy=f"continue it with agent.run_sync(Resume(), thread={turn.thread!r})",
        )
    else:
        error = NothingToResume(f"the turn {turn.id!r} was {turn.status}", remedy="send a new message")
    error.turn_id = turn.id
    return error


def cancel_once(task: asyncio.Task[Any]) -> None:
    """Cancel a task unless it is being cancelled already: a second cancellation would interrupt its clean-up."""
    if not task.cancelling():
        task.cancel()
