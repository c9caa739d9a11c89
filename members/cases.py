"""A case: all that follows from one event, one message of a person, or one turn, as one trail (A17).

Messages keep the id of their case; the rest is found by their ids, because each event and each message starts its turn
with a key that is made of its id.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal

from ..agent.runtime.inside import inside
from ..agent.runtime.keys import so_far
from ..agent.stores import Stores
from ..core import ModelUsage, Scope, canonical_json
from ..core.checks import check_texts, to_json
from ..core.errors import UnknownCase
from ..core.scope import account_of, member_of
from ..harness.gate import CODE
from ..harness.journal import CallRecord
from ..memory import OPEN, TurnRecord, thread_key
from ..signatures import CONVERSE
from .data.accounts import case_of_turn, scope_of
from .data.roles import ROOT, USER
from .events.events import PostedEvent, part_of
from .mail.letters import Letter
from .society import Society

if TYPE_CHECKING:
    from ..agent import WorldAgent

StepKind = Literal["event", "decision", "message", "spawn", "turn", "call", "budget"]

MAX_MESSAGES: Final = 1000
"""How many messages of a case are shown, the oldest ones."""

_EVENT: Final = "event."
_MAX_LINE: Final = 200
_CALLS: Final = ("leaf", "flow", "task", "service")
_RESULTS: Final = {"started": "running", "withdrawn": "cancelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStep:
    """Something that happened in a case.

    Attributes:
        at: When it began.
        kind: What it is. A `call` is that of a function, with what became of it.
        who: The member, the person or the source that did it.
        what: What it did, in one line.
        authority: What allowed it, such as a rule of the policy or the person who approved it; empty is nothing.
        why: The reason that was given; empty is none.
        result: How it stands.
        id: The id of the event, the message, the turn or the call.
        turn_id: The turn in which it was done; empty is none.
        usage: What the models of a turn used, as far as its events are kept; None if it kept none, or for other steps.
    """

    at: datetime
    kind: StepKind
    who: str
    what: str
    authority: str = ""
    why: str = ""
    result: str = ""
    id: str = ""
    turn_id: str = ""
    usage: ModelUsage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case with its trail.

    Attributes:
        id: Its id: that of the message or the turn that began it, or `event.` and the id of the event.
        steps: What happened, in order.
        costs: What the models used, by the member or the account whose turns they were of.
        open: Whether something of it is still to be done, or waits for a person.
        cut: Whether it has more messages than are shown.
    """

    id: str
    steps: tuple[CaseStep, ...]
    costs: dict[str, ModelUsage] = field(default_factory=dict)
    open: bool = False
    cut: bool = False

    @property
    def usage(self) -> ModelUsage:
        """What all models used."""
        return sum(self.costs.values(), ModelUsage())

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return {**to_json(self), "usage": to_json(self.usage)}


async def case_of(agent: WorldAgent, id: str) -> Case:
    """The case of an event, a message or a turn of an open agent's workspace (A17).

    Args:
        agent: The agent.
        id: The id of the event, of the message, of the turn, or of the case.

    Raises:
        UnknownCase: The workspace has none of this id.
        InvalidArgument: `id` is not a text, or the agent has no society.
    """
    return await case_with(inside(agent).stores, agent.society, id)


async def case_with(stores: Stores, society: Society, id: str) -> Case:
    """As `case_of`, for the stores of a database and the members of a workspace."""
    check_texts(id=id)
    case, turn = await _found(stores, society, id), None
    letters = await society.mail.of_case(case, most=MAX_MESSAGES + 1)
    event = await _event_of(society, case, letters)
    if event is None:
        turn = await stores.turns.get(case)
        turn = None if turn is None or turn.scope.workspace != society.config.id else turn
    if not letters and event is None and turn is None:
        raise UnknownCase(
            f"there is no case {id[:80]!r}",
            remedy="use the id of an event, of a message or of a turn that sent one; `workspace events` lists events",
        )
    return await _Trail(stores, society).case(case, event, turn, letters)


async def _found(stores: Stores, society: Society, id: str) -> str:
    """The id of the case that something with an id belongs to."""
    event = await society.events.get(id)
    if event is not None:
        return event.case
    for letter in await society.mail.letters([id]):
        return letter.case or id
    turn = await stores.turns.get(id)
    if turn is None or turn.scope.workspace != society.config.id:
        return id
    member = member_of(turn.scope.workspace, turn.scope.account) or ROOT
    case = case_of_turn(turn.scope, member, id)
    key = None if case else await stores.events.key(id)
    for letter in [] if key is None else await society.mail.letters([key]):
        return letter.case or key or id
    return case or id


async def _event_of(society: Society, case: str, letters: Sequence[Letter]) -> PostedEvent | None:
    """The event that began a case. The id of a long one is in the messages about it."""
    if not case.startswith(_EVENT):
        return None
    about = (each.message.payload.get("event") for each in letters)
    ids = [case.removeprefix(_EVENT), *(str(each["id"]) for each in about if each is not None and "id" in each)]
    for id in dict.fromkeys(ids):
        found = await society.events.get(id)
        if found is not None and part_of(id) == case.removeprefix(_EVENT):
            return found
    return None


class _Trail:
    """Puts the trail of a case together.

    Args:
        stores: The stores of the database.
        society: The members of the workspace.
    """

    def __init__(self, stores: Stores, society: Society) -> None:
        self._stores = stores
        self._society = society
        self._steps: list[CaseStep] = []
        self._costs: dict[str, ModelUsage] = {}
        self._open = False

    async def case(
        self, case: str, event: PostedEvent | None, turn: TurnRecord | None, letters: Sequence[Letter]
    ) -> Case:
        """The case of an event or a turn, and of its messages."""
        workspace = self._society.config.id
        if event is not None:
            await self._add_event(event)
        if turn is not None:
            await self._add_turn(turn, turn.scope.account or ROOT)
        for letter in letters[:MAX_MESSAGES]:
            self._add_letter(letter)
            scope = scope_of(workspace, letter.message.to_id)
            await self._add_turn_of(scope, letter.message.id, letter.message.to_id)
        for held in await self._society.budgets.held():
            if held.case == case:
                what, why = f"waits with {held.work}", f"the budget of {held.holder} is reached"
                step = CaseStep(at=held.since, kind="budget", who=held.member, what=what, why=why, id=held.work)
                self._steps.append(step)
        steps = sorted(self._steps, key=lambda each: each.at)  # of the same time, in the order in which they are found
        cut = len(letters) > MAX_MESSAGES
        return Case(id=case, steps=tuple(steps), costs=self._costs, open=self._open, cut=cut)

    async def _add_event(self, posted: PostedEvent) -> None:
        event, decision = posted.event, posted.decision
        self._open |= posted.state != "done"
        self._steps.append(
            CaseStep(
                at=posted.posted,
                kind="event",
                who=event.source,
                what=f"{event.type} in {event.domain}",
                authority="verified source" if event.source_verified else "",
                result=f"{posted.result or posted.state}{f' ({posted.code})' if posted.code else ''}",
                id=event.id,
            )
        )
        for member, other in pairwise((*posted.trail, posted.member)):
            what = f"forwards it to {other}"
            self._steps.append(CaseStep(at=posted.posted, kind="decision", who=member, what=what, id=event.id))
        if decision is not None and decision.action != "forward":
            target = " ".join(
                filter(None, (decision.operator_id, decision.target_role_id and f"to {decision.target_role_id}"))
            )
            shown = {"capability": decision.capability, "watched": decision.monitoring}
            self._steps.append(
                CaseStep(
                    at=posted.posted,
                    kind="decision",
                    who=posted.member,
                    what=f"{decision.action} {target}".strip(),
                    authority=", ".join(f"{name} {value}" for name, value in shown.items() if value),
                    why=decision.reason,
                    id=event.id,
                )
            )
        account = account_of(self._society.config.id, posted.member) if posted.member else None
        scope = Scope(workspace=self._society.config.id, account=account, thread=posted.thread)
        await self._add_turn_of(scope, event.id, posted.member)

    def _add_letter(self, letter: Letter) -> None:
        message = letter.message
        assert message.timestamp is not None, "it is stored"
        self._open |= letter.state in ("waiting", "handling") and message.to_id != USER
        brief = message.payload.get("task_brief")
        text = str(brief["objective"]) if brief is not None else message.content
        kind: StepKind = "spawn" if brief is not None else "message"
        about = message.message_type or message.type
        what = f"makes {message.to_id}: {text}" if brief is not None else f"{about} to {message.to_id}: {text}"
        self._steps.append(
            CaseStep(
                at=message.timestamp,
                kind=kind,
                who=message.from_id,
                what=_line(what),
                why=_line(str(message.payload.get("reason") or "")),
                result=letter.state,
                id=message.id,
            )
        )

    async def _add_turn_of(self, scope: Scope, key: str, member: str) -> None:
        """Add the turn that an event or a message started, if it has."""
        recorded = await self._stores.events.find(thread_key(scope), key)
        turn = None if recorded is None else await self._stores.turns.get(recorded.turn)
        if turn is not None:
            await self._add_turn(turn, member)

    async def _add_turn(self, turn: TurnRecord, member: str) -> None:
        usage = None
        if await self._stores.events.last(turn.id) is not None:
            used, _ = await so_far(self._stores.events, turn.id)
            usage = sum(used.models.values(), ModelUsage())
            self._costs[member] = self._costs.get(member, ModelUsage()) + usage
        self._open |= turn.status in OPEN and turn.status != "failed"
        self._steps.append(
            CaseStep(
                at=turn.began,
                kind="turn",
                who=member,
                what=f"works on the thread {turn.scope.thread!r}",
                result=f"{turn.status}{f' ({turn.code})' if turn.code else ''}",
                id=turn.id,
                turn_id=turn.id,
                usage=usage,
            )
        )
        for record in (await self._stores.journal.load(turn.id)).values():
            if record.kind in _CALLS and (record.gate is not None or record.ask is not None):
                self._steps.append(_call(record, member, turn.began))


def _call(record: CallRecord, member: str, began: datetime) -> CaseStep:
    said = record.recorded_decision or {}
    caller = str(said.get("caller", member))
    by, person = str(said.get("by", "")), said.get("account")
    given = canonical_json(record.arguments) if record.arguments else ""
    asked = "waits for a person" if record.open else _RESULTS.get(record.state, record.state)
    return CaseStep(
        at=datetime.fromtimestamp(record.at, began.tzinfo),
        kind="call",
        who=member if caller in (member, CONVERSE, CODE.name) else f"{member} ({caller})",
        what=_line(f"calls {said.get('function', record.name)} {given}".strip()),
        authority=f"{said.get('decision', '')} by {by}{f' {person}' if person else ''}".strip() if by else "",
        why="" if record.ask is None else _line(str(json.loads(record.ask).get("reason", ""))),
        result="refused" if record.refused else asked,
        id=record.id,
        turn_id=record.turn,
    )


def _line(text: str) -> str:
    """A text as one line of the trail."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LINE else f"{line[: _MAX_LINE - 4]} ..."


__all__ = ["MAX_MESSAGES", "Case", "CaseStep", "case_of", "case_with"]
