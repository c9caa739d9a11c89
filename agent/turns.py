"""Turns as values: what a surface takes beside text, and what it gives."""

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
    """What all model calls of a turn used so far, those before a pause and those of its workers too.

    Attributes:
        models: The same of each model, by its name.
    """

    models: Mapping[str, ModelUsage] = field(default_factory=dict)

    @classmethod
    def of(cls, models: Mapping[str, ModelUsage]) -> Self:
        """The sum over models.

        Args:
            models: What each used, by its name.
        """
        return cls(**asdict(sum(models.values(), ModelUsage())), models=dict(models))


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn as this run left it.

    Attributes:
        id: Its id, which every event of it carries.
        thread: The id of the thread it ran on; a replay makes a new one.
        kept_as: The id of the thread that keeps what an edit said otherwise; empty where nothing was edited.
        status: `done`, `cancelled` where somebody ended it, `paused` where it waits for a person, `stopped` where it
            was to stop and can go on later. A start that is repeated under its key may also find it `abandoned`: it was
            cut off, and new input on its thread let go of it. A turn that fails raises instead, and the error carries
            the id.
        text: The answer; where there is a `result`, that as JSON.
        result: The typed result of a task or a skill, or the answer as the type that `output=` asked for.
        role_tiers: The tiers that were active, lowest precedence first.
        skipped_tiers: The tiers that were left out because their source was down.
        usage: What its model calls used so far.
        pauses: What waits for a person; `thread.resume()` takes the answers.
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
        """The turn as JSON, with the fields that the command line and the sidecar give."""
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
    """Why a scheduled run runs (T7).

    Attributes:
        schedule: The schedule's id.
        fired_at: When it fired; aware.
        payload: What it brings along, as JSON.

    Raises:
        InvalidArgument: A field does not fit; the text names it.
    """

    schedule: str
    fired_at: datetime
    payload: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_id("schedule", self.schedule)
        if not isinstance(self.fired_at, datetime) or self.fired_at.tzinfo is None:
            raise InvalidArgument(
                f"fired_at of the schedule {self.schedule!r} has no time zone", remedy="give an aware datetime"
            )
        problem = None
        try:
            canonical_json(dict(self.payload)).encode()
        except (TypeError, ValueError) as error:
            problem = type(error).__name__
        if problem:
            raise InvalidArgument(
                f"the payload of the schedule {self.schedule!r} is not JSON ({problem})",
                remedy="give a mapping of JSON values",
            )
