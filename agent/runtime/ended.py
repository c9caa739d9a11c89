"""Reads the outcome of a turn that no longer runs, for a caller that starts it a second time with its key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Final, Literal

from ...core import ModelUsage, Tier
from ...core import events as ev
from ...core.errors import EventsGone, WorldAgentError
from ...core.events import Event
from ...harness.journal import pause_of
from ...memory import TurnRecord
from ..following import EventFollower
from ..turns import Turn, TurnUsage
from .work import RunnerParts

_COUNTED: Final = tuple(field.name for field in fields(ModelUsage) if field.name != "calls")


async def outcome_of(parts: RunnerParts, record: TurnRecord) -> Turn:
    """Return the `Turn` of a turn that is over or waits. This calls no model and counts against no limit.

    Raises:
        WorldAgentError: The turn failed. The type is that of its error; the error's text is not stored.
        UnknownShape, StorageInvalid: The turn's result cannot be read.
    """
    told = await _usage_events(parts, record)
    given: dict[str, Any] = {
        "id": record.id,
        "thread": record.scope.thread or "",
        "role_tiers": tuple(map(Tier, record.role["tiers"])),
        "skipped_tiers": tuple(event.tier for event in told if isinstance(event, ev.RoleTierSkipped)),
        "usage": _usage(told),
    }
    match record.status:
        case "done":
            _, work = await parts.engine.load_opening_message(record.asked, record.kind)
            [last] = await parts.upkeep.log.of_turn(record.thread, record.id, limit=1)
            outcome = await parts.engine.ended(record.thread, work, head=last.id)
            text = outcome.text or ("" if outcome.result is None else outcome.result.model_dump_json())
            return Turn(status="done", text=text, result=outcome.result, **given)
        case "paused":
            records = await parts.journal.load(record.id)
            pauses = tuple(pause_of(entry) for entry in records.values() if entry.open)
            return Turn(status="paused", pauses=pauses, **given)
        case "failed":
            raise _error(record)
        case ended:
            status: Literal["cancelled", "abandoned"] = "abandoned" if ended == "abandoned" else "cancelled"
            return Turn(id=record.id, thread=given["thread"], status=status)


async def _usage_events(parts: RunnerParts, record: TurnRecord) -> list[Event]:
    """Read the turn's events that report its usage and its skipped tiers; empty once the events have been removed."""
    follower = EventFollower(parts.recorder, record.id, workspace=record.scope.workspace)
    found: list[Event] = []
    try:
        async for event in follower:
            if isinstance(event, ev.Usage | ev.RoleTierSkipped):
                found.append(event)
    except EventsGone:
        pass
    return found


def _usage(told: Iterable[Event]) -> TurnUsage:
    models: dict[str, ModelUsage] = {}
    for event in told:
        if isinstance(event, ev.Usage):
            used = ModelUsage(calls=1, **{name: getattr(event, name) for name in _COUNTED})
            models[event.model] = models.get(event.model, ModelUsage()) + used
    return TurnUsage.of(models)


def may_succeed_later(record: TurnRecord) -> bool:
    """Whether a turn that failed can succeed later without a change."""
    return record.status == "failed" and WorldAgentError.kind_of(record.code or "").retryable


def _error(record: TurnRecord) -> WorldAgentError:
    error = WorldAgentError.kind_of(record.code or "")(
        f"the turn {record.id!r} failed before with {record.code!r}",
        remedy="look at its events, or begin another turn with another key",
    )
    error.turn_id = record.id
    return error


__all__ = ["may_succeed_later", "outcome_of"]
