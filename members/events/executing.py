"""Executes what members decide about events: runs their operators, makes members, and settles them (A2, A12).

Each step has a key that is made of the event's id. A gateway that is killed between two of them, or two gateways that
take the same event, do nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...agent.runtime.inside import inside
from ...agent.runtime.keys import may_succeed_later, outcome_of
from ...agent.runtime.stale import find_stale
from ...agent.thread import Thread, as_member
from ...agent.turns import Turn
from ...core import canonical_json
from ...core.checks import thawed
from ...core.errors import (
    AgentClosed,
    BudgetReached,
    CallRefused,
    LeaseLost,
    NothingToResume,
    PauseExpired,
    VersionTooOld,
    WorldAgentError,
)
from ...core.scope import account_of
from ...graphs.shape import OPERATOR
from ...memory import OPEN, thread_key
from ...memory.entries import Episode
from ..capability import Members
from ..data.workspace import Event, RoutingDecision
from ..life.members import LIVE
from ..life.memory import AgentMemory
from ..life.outcomes import Outcome
from ..responding import workers_of
from .events import EventResult, PostedEvent, part_of
from .routing import SPAWN, Roster, escalation, route, unrouted

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ..role import AutonomousRole
    from ..society import Society

_MAX_PAYLOAD: Final = 50_000  # characters of a payload that an episode keeps
_MAX_PAUSED: Final = 100  # events that one look takes of those that wait for people
_MAX_TAG: Final = 60
_MAX_TAGS: Final = 20

_LOG: Final = logging.getLogger("worldagent.gateway")


class EventRunner:
    """Decides about the events of a society that wait, and executes the decisions.

    Args:
        agent: An open agent with a society.
        slots: How many turns run at once.
        roles: Classes of members, whose code decides in place of the routes of their definitions.
    """

    def __init__(
        self,
        agent: WorldAgent,
        slots: asyncio.Semaphore,
        roles: Iterable[AutonomousRole] = (),
    ) -> None:
        self._agent = agent
        self._slots = slots
        self._roles: Mapping[str, AutonomousRole] = {each.role_id: each for each in roles}
        self._looked_at = 0

    async def run(self) -> int:
        """Move all of `waiting`, and wait for their turns; returns how many moved on."""
        moved = await asyncio.gather(*map(self.move, await self.waiting()))
        return sum(moved)

    async def waiting(self) -> list[PostedEvent]:
        """The first event of each member's line, and those whose person has answered.

        An event that waits for a person holds up no later one.
        """
        return [*await self._answered(), *await self._society.events.next()]

    async def _answered(self) -> list[PostedEvent]:
        """The events that waited for a person and no longer do. Each look takes some of those that wait."""
        paused = await self._society.events.paused(self._looked_at, _MAX_PAUSED)
        self._looked_at = paused[-1].place if len(paused) == _MAX_PAUSED else 0
        return [each for each in paused if await self._can_resume(each)]

    async def _can_resume(self, posted: PostedEvent) -> bool:
        thread = self.thread(posted)
        if await self._is_stale(posted, thread):
            return False
        state = await thread.state()
        if state is None or state.status != "paused" or state.answers:  # an answer whose process was killed
            return True
        now = inside(self._agent).clock.now()
        return all(each.expires is not None and each.expires <= now for each in await thread.pauses())

    async def _is_stale(self, posted: PostedEvent, thread: Thread) -> bool:
        """Whether the turn of an event can never resume. The owner is told at once; the event ends with the turn."""
        found = await find_stale(inside(self._agent).parts, thread.scope)
        if found is not None and found.may_end and found.turn.stale is None:
            text = f"The turn of the event {posted.event.id} of {posted.member} can never resume."
            name, case = f"event.{part_of(posted.event.id)}.stuck", posted.case
            await self._society.mail.notify_owner(name, text, found.error, case=case)
            await inside(self._agent).stores.turns.note_stale(found.turn.id)
        return found is not None

    async def move(self, posted: PostedEvent) -> bool:
        """Route an event and execute the decision; returns whether it moved on."""
        async with self._slots:
            if await self._society.budgets.waits(posted.case):
                return False
            try:
                routed = posted if posted.state != "waiting" else await self._routed(posted)
                if routed is None or routed.state not in ("decided", "paused"):
                    return True
                return await self._executed(routed)
            except BudgetReached as error:  # it goes on once the budget is extended or begins again
                _LOG.warning("the event %s waits for a budget: %s", posted.event.id, error)
                await self._society.budgets.hold(posted.case, posted.member, posted.case)
                return False
            except WorldAgentError as error:  # such as a database that is down, or a full mailbox: it is tried again
                _LOG.warning("the event %s is handled again later: %s; %s", posted.event.id, error.code, error.remedy)
                return False

    # --- routing ------------------------------------------------------------------------------------------------------

    async def _routed(self, posted: PostedEvent) -> PostedEvent | None:
        """Route an event. None if it went to another member instead."""
        roster = await self._roster(posted)
        member = roster.members.get(posted.member)
        if not posted.named and (member is None or member.life.status not in LIVE):
            found = roster.find_by_domain(posted.event.domain)
            if found:
                await self._society.events.assign(posted.event.id, found[0].id)
                return None
        return await self._society.events.route(posted, self._decision(posted, roster))

    async def _roster(self, posted: PostedEvent) -> Roster:
        """What the decision can depend on: of all members, its own one and the first of the event's domain."""
        around = await self._society.members.around(self._agent.workspace, posted.member, posted.event.domain)
        return Roster.of(self._society.config, around)

    def _decision(self, posted: PostedEvent, roster: Roster) -> RoutingDecision:
        event, member = posted.event, roster.members.get(posted.member)
        if member is not None and (posted.named or member.life.status in LIVE):
            role = self._roles.get(member.id)
            try:
                made = route(member, event, roster) if role is None else role.handle(event, roster)
                if not isinstance(made, RoutingDecision):
                    raise TypeError(f"handle() returned {type(made).__name__}, not a RoutingDecision")
                return made
            except Exception as error:  # broad: handle() is the embedder's code, which can raise anything
                _LOG.exception("the role %r could not decide about the event %s", member.id, event.id)
                reason = f"the code of {member.id!r} could not decide ({type(error).__name__})"
                return escalation(roster.owner, event, reason)
        return unrouted(event, posted.member if posted.named else "", roster.owner)

    # --- executing ----------------------------------------------------------------------------------------------------

    async def _executed(self, posted: PostedEvent) -> bool:
        decision = posted.decision
        assert decision is not None
        if decision.operator_id == SPAWN:
            return await self._spawned(posted, decision.input_data or {})
        thread = self.thread(posted)
        try:
            await workers_of(self._agent).enlist(posted.member)
            turn = await asyncio.shield(self._turn(posted, decision, thread))
        except WorldAgentError as error:
            if isinstance(error, BudgetReached):  # later events of the member can have a budget of their own
                await self._society.events.pause(posted.event.id)
            if _is_passing(error):
                raise
            if await self._is_stale(posted, thread):
                await self._society.events.pause(posted.event.id)
                return posted.state != "paused"
            refused = isinstance(error, CallRefused | PauseExpired) or await thread.state() is None
            return await self._ended(posted, "refused" if refused else "failed", error.code, detail=error.remedy or "")
        if turn.status == "stopped":
            return False
        if turn.status == "paused":
            await self._society.events.pause(posted.event.id)
            return posted.state != "paused"
        return await self._ended(posted, "done" if turn.status == "done" else "cancelled")

    async def _turn(self, posted: PostedEvent, decision: RoutingDecision, thread: Thread) -> Turn:
        """Start the turn of an event, continue it if it was interrupted or answered, or return its result.

        A turn that began is not started again with its key: its operator can be declared in another way since, and its
        input would be read with other defaults.
        """
        parts = inside(self._agent).parts
        found = await parts.recorder.log.find(thread_key(thread.scope), posted.event.id)
        record = None if found is None else await parts.stores.turns.get(found.turn)
        if record is None:
            given = thawed(decision.input_data or {})
            params = {"worker": decision.operator_id, "request": given, "review": decision.action == "escalate"}
            return await thread.task(OPERATOR, params, key=posted.event.id)
        waits = record.status == "paused" and posted.state != "paused"
        if waits or record.status not in OPEN or (record.status == "failed" and not may_succeed_later(record)):
            return await outcome_of(parts, record)
        return await thread.resume({})

    async def _spawned(self, posted: PostedEvent, given: Mapping[str, Any]) -> bool:
        name, params = str(given.get("template_id")), thawed(given.get("params", {}))
        brief, task = thawed(given.get("brief")), f"event.{part_of(posted.event.id)}.spawn"
        try:
            await self._society.spawn(
                posted.member,
                name,
                params,
                brief,
                message_id=task,
                marks=posted.untrusted,
                by_event=True,
                case=posted.case,
            )
        except WorldAgentError as error:
            if _is_passing(error):
                raise
            return await self._ended(posted, "failed", error.code, detail=error.problem)
        return await self._ended(posted, "done")

    async def _ended(self, posted: PostedEvent, result: EventResult, code: str = "", *, detail: str = "") -> bool:
        """Settle an event, with the outcome of its operator if that ran."""
        decision, event = posted.decision, posted.event
        assert decision is not None
        outcome = None
        if decision.operator_id != SPAWN and result in ("done", "failed"):
            outcome = await self._remembered(posted, decision, code, succeeded=result == "done")
        report = f"{decision.operator_id} for {event.type}: {result}{f' ({code})' if code else ''}"
        reported = decision.monitoring == "report" or result == "failed"
        await self._society.events.settle(
            event.id,
            result,
            code=code,
            outcome=outcome,
            report=(f"{report}: {detail}" if detail else report) if reported else "",
        )
        return True

    async def _remembered(
        self, posted: PostedEvent, decision: RoutingDecision, code: str, *, succeeded: bool
    ) -> Outcome:
        """Keep the episode of an operator's run, and return its outcome. The id of both is made of the event's."""
        event, now, state = posted.event, inside(self._agent).clock.now(), await self.thread(posted).state()
        turn = None if state is None else await inside(self._agent).stores.turns.get(state.turn_id)
        episode = Episode(
            id=f"event.{part_of(event.id)}",
            role_id=posted.member,
            action=decision.capability or event.type,
            outcome={"success": succeeded, "event": event.type, "operator": decision.operator_id, "code": code},
            text=f"{decision.operator_id} for {event.type}: {'done' if succeeded else f'failed ({code})'}",
            domain=event.domain,
            tags=_tags(event),
            payload=event.payload if len(canonical_json(thawed(event.payload))) <= _MAX_PAYLOAD else {},
            # The time of a run that a person approved is mostly the time that it waited.
            seconds=0 if turn is None or decision.action != "delegate" else (turn.changed - turn.began).total_seconds(),
            at=now,
            untrusted=posted.untrusted,
        )
        return await AgentMemory(self._agent, posted.member).remember(episode, "" if turn is None else turn.id)

    def thread(self, posted: PostedEvent) -> Thread:
        """The thread in which an event's operator runs."""
        # Each event has a thread of its own, so that one that waits for a person holds up neither events nor messages.
        thread = self._agent.thread(posted.thread, account=account_of(self._agent.workspace, posted.member))
        return as_member(thread, posted.member, marks=posted.untrusted)

    @property
    def _society(self) -> Society:
        return self._agent.get(Members)


def _tags(event: Event) -> dict[str, str]:
    """The tags of an event's episode: those of its metadata, and the short texts at the top of its payload."""
    named = event.metadata.get("tags", {})
    given = {**event.payload, **(named if isinstance(named, Mapping) else {})}
    short = {name: text for name, text in given.items() if isinstance(text, str) and len(text) <= _MAX_TAG}
    return dict(list(short.items())[:_MAX_TAGS])


def _is_passing(error: WorldAgentError) -> bool:
    """Whether an error says nothing about the event, so that the event is tried again."""
    return error.retryable or isinstance(
        error, AgentClosed | BudgetReached | LeaseLost | NothingToResume | VersionTooOld
    )
