"""Reads all that is recorded of the events of a workspace from its database, for a replay (A23)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ..agent.stores import Stores
from ..core import Scope
from ..core.scope import account_of
from ..harness.trace import Traces
from ..memory import thread_key
from ..storage import Transaction
from .data.roles import RoleStatus
from .data.rows import read_as
from .data.workspace import RoleTemplate
from .events.events import PostedEvent, all_events, part_of
from .events.recorded import (
    Recorded,
    RecordedDecision,
    RecordedEvent,
    RecordedFeedback,
    RecordedMember,
    RecordedOutcome,
    RecordedStep,
    RecordedSum,
    RecordedTemplate,
    in_order,
)
from .life.lives import steps_since
from .life.members import Member, all_members

_TEMPLATES: Final = "SELECT body FROM wa_template WHERE workspace=? ORDER BY id"
_SUMS: Final = "SELECT member, capability, shift, low, high FROM wa_outcome_sum WHERE workspace=? ORDER BY member"
_OUTCOMES: Final = """SELECT episode, member, capability, succeeded, feedback, at, rated FROM wa_outcome
                      WHERE workspace=? ORDER BY member, place"""
_SPAWNED: Final = "SELECT id, receiver FROM wa_mail WHERE workspace=? AND id LIKE 'event.%.spawn'"
_PEOPLE: Final = ("person", "approver")
_BEFORE: Final[Mapping[RoleStatus | None, RoleStatus]] = {
    RoleStatus.TESTING: RoleStatus.DRAFT,
    RoleStatus.ACTIVE: RoleStatus.TESTING,
    RoleStatus.SUSPENDED: RoleStatus.ACTIVE,
}
"""In which state a member began, by the first that it reached after it."""
_ALL: Final = 1 << 62


async def recorded(stores: Stores, workspace: str, traces: Traces) -> list[Recorded]:
    """All that is kept of the events of a workspace, of its members and of what they did, in the order of it.

    Args:
        stores: The stores of the home.
        workspace: The workspace.
        traces: The traces of the workspace, which have the costs.
    """
    lines, decided = await stores.database.read(lambda tx: _stored(tx, workspace))
    lines += [await _decision(stores, workspace, traces, *each) for each in decided]
    return in_order(lines)


def _stored(tx: Transaction, workspace: str) -> tuple[list[Recorded], list[tuple[PostedEvent, datetime]]]:
    """The lines, and the events with decisions with the time of each."""
    lines: list[Recorded] = [
        RecordedTemplate(template=read_as(RoleTemplate, json.loads(body)))
        for (body,) in tx.execute(_TEMPLATES, (workspace,))
    ]
    for id_, capability, shift, low, high in tx.execute(_SUMS, (workspace,)):
        lines.append(RecordedSum(member=id_, capability=capability, shift=shift, low=low, high=high))
    events = all_events(tx, workspace)
    by_part = {part_of(posted.event.id): posted.event.id for posted, _ in events}
    for posted, _ in events:
        to = (*posted.trail, posted.member)[0] if posted.named else None
        lines.append(RecordedEvent(at=posted.posted, event=posted.event, to=to))
    made = {
        child: by_part.get(id_[len("event.") : -len(".spawn")], "") for id_, child in tx.execute(_SPAWNED, (workspace,))
    }
    first = dict[str, RoleStatus]()
    for step in steps_since(tx, workspace, 0, _ALL):
        first.setdefault(step.member, step.status)
        lines.append(RecordedStep(at=step.at, member=step.member, status=step.status, reason=step.reason))
    for member in all_members(tx, workspace):
        began = _BEFORE.get(first.get(member.id), member.life.status)
        lines.append(_member(member, began, made.get(member.id, "")))
    for row in tx.execute(_OUTCOMES, (workspace,)):
        lines += _outcome(row, by_part)
    return lines, [(posted, at or posted.ended or posted.posted) for posted, at in events if posted.state != "waiting"]


def _member(member: Member, began: RoleStatus, by_event: str) -> RecordedMember:
    return RecordedMember(
        at=member.life.created_at,
        spec=member.spec,
        name=member.name,
        began=began,
        status=member.life.status,
        trust=member.trust,
        by_event=by_event,
    )


def _outcome(row: Sequence[Any], by_part: dict[str, str]) -> list[Recorded]:
    episode, member, capability, succeeded, feedback, at, rated = row
    ended = datetime.fromtimestamp(at, UTC)
    found: list[Recorded] = [
        RecordedOutcome(
            at=ended,
            episode=episode,
            member=member,
            capability=capability,
            succeeded=bool(succeeded),
            event=by_part.get(episode.removeprefix("event."), "") if episode.startswith("event.") else "",
        )
    ]
    if feedback is not None:
        then = ended if rated is None else datetime.fromtimestamp(rated, UTC)
        found.append(RecordedFeedback(at=then, episode=episode, feedback=feedback))
    return found


async def _decision(
    stores: Stores, workspace: str, traces: Traces, posted: PostedEvent, at: datetime
) -> RecordedDecision:
    """The decision about an event, with what people answered in its turn and what that cost."""
    assert posted.decision is not None
    approvals, cost = list[dict[str, Any]](), None
    scope = Scope(workspace=workspace, account=account_of(workspace, posted.member), thread=posted.thread)
    turn = await stores.turns.latest(thread_key(scope)) if posted.decision.operator_id else None
    if turn is not None:
        for call in (await stores.journal.load(turn.id)).values():
            gate = call.recorded_decision or {}
            if gate.get("by") in _PEOPLE:
                approvals.append({"function": call.name, "decision": gate["decision"]})
        costs = [each.cost for each in await traces.list(thread=posted.thread) if each.cost is not None]
        cost = sum(costs) if costs else None
    return RecordedDecision(
        at=at,
        event=posted.event.id,
        member=posted.member,
        trail=posted.trail,
        decision=posted.decision,
        state=posted.state,
        result=posted.result,
        code=posted.code,
        ended=posted.ended,
        approvals=tuple(approvals),
        cost=cost,
    )
