"""Turns as values: what a surface takes beside text, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel

from ..core import Tier, canonical_json, check_id
from ..core.errors import InvalidArgument
from ..core.pauses import Pause


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnUsage:
    """Tokens of a turn, as the model's service counts them.

    Attributes:
        input_tokens: Sent, over all model calls of the turn.
        output_tokens: Received.
        calls: How many model calls there were.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0


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
        text: The answer; for a task or a skill its result as JSON.
        result: The typed result of a task or a skill.
        role_tiers: The tiers that were active, lowest precedence first.
        skipped_tiers: The tiers that were left out because their source was down.
        usage: Its tokens.
        pauses: What waits for a person; `thread.resume()` takes the answers.
    """

    id: str
    thread: str
    kept_as: str = ""
    status: Literal["done", "cancelled", "abandoned", "paused", "stopped"]
    text: str = ""
    result: BaseModel | None = None
    role_tiers: tuple[Tier, ...] = ()
    skipped_tiers: tuple[Tier, ...] = ()
    usage: TurnUsage = field(default_factory=TurnUsage)
    pauses: tuple[Pause, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The turn as JSON, with the fields that the command line and the sidecar give."""
        usage = self.usage
        return {
            "id": self.id,
            "thread": self.thread,
            "status": self.status,
            "text": self.text,
            "result": None if self.result is None else self.result.model_dump(mode="json"),
            "role_tiers": [tier.value for tier in self.role_tiers],
            "skipped_tiers": [tier.value for tier in self.skipped_tiers],
            "usage": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "calls": usage.calls},
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
