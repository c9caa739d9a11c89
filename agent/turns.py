"""The values that surfaces take besides text, and the turn that they return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal, Self

from pydantic_core import to_jsonable_python

from ..core import ModelUsage, Tier, canonical_json, check_id
from ..core.errors import InvalidArgument
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
        role_tiers: The tiers that were active, lowest precedence first.
        skipped_tiers: The tiers that were skipped because their source was down.
        usage: The usage of its model calls so far.
        pauses: The open pauses; `thread.resume()` takes the answers.
    """

    id: str
    thread: str
    kept_as: str = ""
    status: Literal["done", "cancelled", "abandoned", "paused", "stopped"]
    text: str = ""
    result: Any = None
    role_tiers: tuple[Tier, ...] = ()
    skipped_tiers: tuple[Tier, ...] = ()
    usage: TurnUsage = field(default_factory=TurnUsage)
    pauses: tuple[Pause, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the turn as JSON, with the fields that the command line and the sidecar use."""
        return {
            "id": self.id,
            "thread": self.thread,
            "status": self.status,
            "text": self.text,
            "result": to_jsonable_python(self.result),
            "role_tiers": [tier.value for tier in self.role_tiers],
            "skipped_tiers": [tier.value for tier in self.skipped_tiers],
            "usage": asdict(self.usage),
            "pauses": [pause.to_json() for pause in self.pauses],
        }


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
