"""The events of a workspace: posted once, dispatched to a member, decided once, and kept with their results (A12).

An event waits in the line of its member. A gateway decides about the first of each line and executes the decision. What
needs no turn is done in the transaction that stores the decision: forwarding, and messages to members and people.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, Literal, get_args

from pydantic import Json

from ...core import canonical_json, check_id, digest
from ...core.checks import check_choice, check_number, check_texts, check_time, to_json
from ...core.errors import InvalidArgument, KeyReused, MailboxFull, WorldAgentError
from ...core.validation import check_integer
from ...storage import Row, Time, Transaction, portions
from ..budgets import Budgets
from ..data.limits import limits_of, put_limits
from ..data.roles import ROOT, USER, RoleStatus, check_kind
from ..data.rows import read, read_as, seconds
from ..data.store import WorkspaceStore
from ..data.workspace import Event, RoutingDecision
from ..life.members import LIVE, Member, first_of_domain, one_member, participant, unknown_member
from ..life.outcomes import Outcome, record_outcome
from ..mail.contacts import FIRST_MESSAGE, Contact, add_contact, contact_of
from ..mail.letters import post as post_mail
from ..mail.messages import RoleMessage
from .routing import SPAWN, bounded

EventState = Literal["waiting", "decided", "paused", "done"]
"""An event waits for a decision, its decision is executed, that waits for a person, or it is over."""

EventResult = Literal["done", "failed", "refused", "cancelled", "escalated", "ignored"]
"""What came of an event that is over."""

MAX_EVENTS: Final = 10_000
"""How many events of a workspace can be open."""

_MAX_LISTED: Final = MAX_EVENTS

_LATER: Final = 2**62  # a place that no event has

_LOOKED_AT: Final = 4
"""How many open events are looked at for each line that is wanted, before the lines are looked for one by one."""

UNTRUSTED: Final = "untrusted"
"""The key of an event's metadata with the names of the untrusted sources that its payload has text of."""

MESSAGES: Final = ("report", "escalation", "spawn")
"""What ends the ids of messages that an event makes; `event.` and its id begin them."""

_LOG: Final = logging.getLogger("worldagent.gateway")
_MAX_PART: Final = 150
_MAX_EVENT_CHARACTERS: Final = 90_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PostedEvent:
    """An event as it is stored.

    Attributes:
        event: The event.
        place: Its place in the order of all events; a forwarded one gets a new place.
        member: The member that has it; empty if no live member has its domain.
        named: Whether the host named the member, so that its domain does not count.
        state: How far it is.
        trail: The members that forwarded it, the first one first.
        decision: The last decision about it.
        result: Its result; None until it is over.
        code: The code of the error, if it failed or was refused.
        posted: When it was posted.
        ended: When it was over.
    """

    event: Event
    place: int
    member: str
    named: bool
    state: EventState
    trail: tuple[str, ...]
    decision: RoutingDecision | None
    result: EventResult | None
    code: str
    posted: datetime
    ended: datetime | None

    @property
    def untrusted(self) -> tuple[str, ...]:
        """The names of the untrusted sources that its payload has text of."""
        return tuple(self.event.metadata.get(UNTRUSTED, ()))

    @property
    def thread(self) -> str:
        """The thread of its operator's turn."""
        return f"event {part_of(self.event.id)}"

    @property
    def case(self) -> str:
        """The case of what follows from it (A17)."""
        return f"event.{part_of(self.event.id)}"

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return {**to_json(self), "thread": self.thread, "case": self.case}


class _Stored(Row):
    workspace: str
    id: str
    place: int
    member: str
    named: bool
    state: EventState
    trail: Json[tuple[str, ...]]
    event: Json[dict[str, Any]]
    decision: Json[dict[str, Any]] | None
    result: EventResult | None
    code: str
    posted: Time
    ended: Time | None


_COLUMNS: Final = ", ".join(_Stored.model_fields)
_ONE: Final = f"SELECT {_COLUMNS} FROM wa_occurrence WHERE workspace=? AND id=?"
_INSERT: Final = f"INSERT INTO wa_occurrence({_COLUMNS}) VALUES({', '.join('?' * 13)})"
_UPDATE: Final = """UPDATE wa_occurrence SET place=?, member=?, state=?, trail=?, decision=?, result=?, code=?, ended=?
                    WHERE workspace=? AND id=?"""
_EVERY: Final = f"SELECT {_COLUMNS}, decided FROM wa_occurrence WHERE workspace=? ORDER BY place"
_OF_MEMBER: Final = f"""SELECT {_COLUMNS} FROM wa_occurrence WHERE workspace=? AND member=? AND state <> 'done'
                        ORDER BY place LIMIT ?"""
_DECIDED: Final = "UPDATE wa_occurrence SET decided=? WHERE workspace=? AND id=?"
_FIRST: Final = "INSERT INTO wa_occurrence_count(workspace, waiting, last) VALUES(?, 0, 0) ON CONFLICT DO NOTHING"
# Whether something has limits is read along, so that it costs no query of its own.
_COUNTER: Final = """SELECT waiting, last, EXISTS(SELECT 1 FROM wa_limit AS l WHERE l.workspace=c.workspace)
                     FROM wa_occurrence_count AS c WHERE workspace=?"""
_COUNT: Final = "UPDATE wa_occurrence_count SET waiting=?, last=? WHERE workspace=?"
_OPEN: Final = "state <> 'done' AND state <> 'paused'"
_FRONT: Final = f"SELECT place, member FROM wa_occurrence WHERE workspace=? AND {_OPEN} ORDER BY place LIMIT ?"
# One event of each member that has one, without a look at the others that wait behind it.
_FIRSTS: Final = f"""WITH RECURSIVE line(member) AS (
                       SELECT MIN(member) FROM wa_occurrence WHERE workspace=? AND {_OPEN} UNION ALL
                       SELECT (SELECT MIN(member) FROM wa_occurrence WHERE workspace=? AND member > l.member
                               AND {_OPEN})
                       FROM line AS l WHERE l.member IS NOT NULL)
                     SELECT (SELECT MIN(place) FROM wa_occurrence WHERE workspace=? AND member=l.member AND {_OPEN})
                     FROM line AS l WHERE l.member IS NOT NULL"""
_AT: Final = f"SELECT {_COLUMNS} FROM wa_occurrence WHERE workspace=? AND place IN ({{}}) AND {_OPEN} ORDER BY place"
# `state <> 'done'` lets SQLite use the index of open events.
_PAUSED: Final = f"""SELECT {_COLUMNS} FROM wa_occurrence WHERE workspace=? AND state <> 'done' AND state = 'paused'
                     AND place > ? ORDER BY place LIMIT ?"""
_ANY: Final = "(CAST(? AS TEXT) IS NULL OR {0}=?)"
_LAST: Final = f"""SELECT {_COLUMNS} FROM wa_occurrence WHERE workspace=? AND {_ANY.format("state")}
                   AND {_ANY.format("member")} AND {_ANY.format("result")} AND posted >= ? AND place < ?
                   ORDER BY place DESC LIMIT ?"""


def read_event(given: object, *, now: datetime, verified: bool = False) -> Event:
    """Read an event from JSON that came from outside.

    Args:
        given: The JSON. `payload`, `metadata` and `timestamp` can be left out.
        now: When it happened, if it does not say.
        verified: Whether the caller knows that it is from its `source`. The JSON cannot say so.

    Raises:
        InvalidArgument: It is not an event; the text names the field.
    """
    known = [each.name for each in fields(Event) if each.name != "source_verified"]
    if not isinstance(given, Mapping):
        raise InvalidArgument("an event must be a JSON object", remedy=f"give it the fields {', '.join(known)}")
    wrong = [str(name)[:60] for name in given if name not in known]
    if wrong:
        raise InvalidArgument(f"an event has no field {wrong[0]!r}", remedy=f"its fields are: {', '.join(known)}")
    missing = [name for name in ("id", "type", "source", "domain") if given.get(name) in (None, "")]
    if missing:
        raise InvalidArgument(f"the event lacks `{missing[0]}`", remedy="add it as a text")
    time = given.get("timestamp")
    return Event(
        **{name: given[name] for name in ("id", "type", "source", "domain")},
        payload=given.get("payload", {}),
        metadata=given.get("metadata", {}),
        timestamp=now if time is None else _read_time(time),
        source_verified=verified,
        limits=limits_of(given.get("limits")),
    )


def _read_time(given: object) -> datetime:
    try:
        return datetime.fromisoformat(given if isinstance(given, str) else "")
    except ValueError:
        pass
    raise InvalidArgument(
        "the `timestamp` of an event must be a text such as '2026-02-18T03:53:00Z'", remedy="or omit it"
    )


def part_of(event_id: str) -> str:
    """What stands for an event in the ids of its turn and its messages: its id, or the digest of a long one."""
    return event_id if len(event_id) <= _MAX_PART else digest(event_id)


class Events:
    """The events of a workspace.

    Args:
        store: The database of the workspace.
        budgets: Its budgets.
    """

    def __init__(self, store: WorkspaceStore, budgets: Budgets) -> None:
        self._store = store
        self._budgets = budgets
        self._workspace = store.id
        self._owner = store.config.owner

    async def post(self, event: Event, *, to: str | None = None) -> PostedEvent:
        """Store an event and dispatch it to the first live member of its domain, in the order of registration.

        A second call with the same id and content returns the event of the first. Its time can be another.

        Args:
            event: The event.
            to: The member that gets it, whatever its domain is.

        Raises:
            KeyReused: An event with this id has other content.
            MailboxFull: As many events are open as a workspace can have.
            UnknownMember: There is no member `to`.
            InvalidArgument: It is no `Event`, `to` is not a text, or the `untrusted` of its metadata is not a list of
                names.
        """
        check_kind("event", event, Event)
        marks = event.metadata.get(UNTRUSTED, ())
        if not isinstance(marks, tuple):
            raise InvalidArgument("`untrusted` in an event's metadata must be a list of names", remedy="pass a list")
        for each in marks:
            check_id(UNTRUSTED, each)
        if to is not None:
            check_texts(to=to)

        def work(tx: Transaction) -> PostedEvent:
            waiting, last = self._hold(tx)
            there = self._one(tx, event.id)
            if there is not None:
                self._check_same(there, event, to)
                return there
            if to is not None and one_member(tx, self._workspace, to) is None:
                raise unknown_member(to, self._workspace)
            if waiting >= MAX_EVENTS:
                raise MailboxFull(
                    f"the workspace has {waiting:,} open events, and it holds no more", remedy="post the event later"
                )
            member = to or first_of_domain(tx, self._workspace, event.domain) or ""
            body, now = canonical_json(to_json(event)), self._store.clock.now().timestamp()
            given = (self._workspace, event.id, last + 1, member, int(to is not None), "waiting", "[]", body)
            tx.execute(_INSERT, (*given, None, None, "", now, None))
            tx.execute(_COUNT, (waiting + 1, last + 1, self._workspace))
            posted = self._known(tx, event.id)
            if event.limits is not None:
                put_limits(tx, self._workspace, f"case {posted.case}", event.limits, member=member)
            return posted

        return await self._store.transact(work, wakes=True)

    @staticmethod
    def _check_same(there: PostedEvent, event: Event, to: str | None) -> None:
        named = (there.trail[0] if there.trail else there.member) if there.named else None
        first, second = (to_json(replace(each, timestamp=event.timestamp)) for each in (there.event, event))
        if first != second or named != to:
            raise KeyReused(
                f"the event {event.id[:60]!r} was posted with other content",
                remedy="give each event an id of its own",
            )

    async def receive(self) -> None:
        """Post the events that come over the broker until this is cancelled. Without a broker it returns at once.

        What is not an event, or repeats the id of another one, is dropped with a warning.
        """
        await self._store.wakeups.receive_events(self._workspace, self._received)

    async def _received(self, data: bytes) -> bool:
        try:
            given = json.loads(data)
        except ValueError:  # also what is not UTF-8
            given = None
        try:
            await self.post(read_event(given, now=self._store.clock.now()))
        except (InvalidArgument, KeyReused) as error:
            _LOG.warning("an event from the broker is dropped: %s", error)
        except WorldAgentError as error:  # such as a database that is down, or too many open events
            _LOG.warning("an event from the broker is posted again later: %s", error.code)
            return False
        return True

    async def get(self, event_id: str) -> PostedEvent | None:
        """The event with an id; None if there is none."""
        check_texts(event_id=event_id)
        return await self._store.read(lambda tx: self._one(tx, event_id))

    async def list(
        self,
        *,
        state: str | None = None,
        member: str | None = None,
        type: str | None = None,
        result: str | None = None,
        since: datetime | None = None,
        limit: int = 100,
    ) -> tuple[PostedEvent, ...]:
        """The last events, the oldest of them first.

        Args:
            state: Only those with this state: `waiting`, `decided`, `paused` or `done`.
            member: Only those that this member has.
            type: Only those of these types, a glob such as `lead.*`.
            result: Only those with this result: `done`, `failed`, `refused`, `cancelled`, `escalated` or `ignored`.
            since: Only those that were posted then or later.
            limit: The most to return, 1 to 10,000.

        Raises:
            InvalidArgument: `state` or `result` is not known, `since` has no zone, or `limit` is out of bounds.
        """
        check_integer("limit", limit, _MAX_LISTED, remedy="choose another number")
        for name, one, known in (("state", state, EventState), ("result", result, EventResult)):
            if one is not None:
                check_choice(name, one, get_args(known))
        check_texts(**{name: one for name, one in (("member", member), ("type", type)) if one is not None})
        check_time("since", since, optional=True)
        given = (state, state, member, member, result, result, 0.0 if since is None else since.timestamp())
        found, before = list[PostedEvent](), _LATER
        while len(found) < limit:  # the type is in the body of an event
            page = [_posted(row) for row in await self._store.read(partial(self._page, given, before, limit))]
            found += [each for each in page if type is None or fnmatchcase(each.event.type, type)]
            if len(page) < limit:
                break
            before = page[-1].place
        return tuple(reversed(found[:limit]))

    def _page(self, given: Sequence[object], before: int, most: int, tx: Transaction) -> Sequence[Sequence[Any]]:
        return tx.execute(_LAST, (self._workspace, *given, before, most))

    async def next(self, most: int = 100) -> tuple[PostedEvent, ...]:
        """The first event of each member's line that is not over and does not wait for a person.

        Args:
            most: The most to return, 1 to 10,000.

        Raises:
            InvalidArgument: `most` is out of bounds.
        """
        check_integer("most", most, _MAX_LISTED, remedy="choose another number")

        def work(tx: Transaction) -> list[Sequence[Any]]:
            places = self._heads(tx, most)
            return [
                row
                for marks, some in portions(places)
                for row in tx.execute(_AT.format(marks), (self._workspace, *some))
            ]

        return tuple(_posted(row) for row in await self._store.read(work))

    async def paused(self, after: int = 0, most: int = 100) -> tuple[PostedEvent, ...]:
        """Events whose operator waits for a person, by their places.

        Args:
            after: Only those with a higher place.
            most: The most to return, 1 to 10,000.

        Raises:
            InvalidArgument: `after` is not a number, or `most` is out of bounds.
        """
        check_number("after", after)
        check_integer("most", most, _MAX_LISTED, remedy="choose another number")
        rows = await self._store.read(lambda tx: tx.execute(_PAUSED, (self._workspace, after, most)))
        return tuple(_posted(row) for row in rows)

    async def assign(self, event_id: str, member: str) -> None:
        """Give an event that waits to another member, because its own one is no longer live.

        Args:
            event_id: The event.
            member: The member.
        """
        check_texts(event_id=event_id, member=member)

        def work(tx: Transaction) -> None:
            waiting, last = self._hold(tx)
            posted = self._known(tx, event_id)
            if posted.state == "waiting" and not posted.named:
                tx.execute(_COUNT, (waiting, last + 1, self._workspace))
                self._write(tx, replace(posted, member=member, place=last + 1))

        await self._store.transact(work)

    async def route(self, before: PostedEvent, decision: RoutingDecision) -> PostedEvent:
        """Store the decision about an event, and do what needs no turn. A decision is made once.

        Ignored events and escalations are then over, unless an escalation has an operator: a person can release that. A
        forwarded event waits in the line of the next member. A full inbox stops none of them: the message is left out.

        Args:
            before: The event as the decision was made about it.
            decision: The decision.

        Returns:
            The event after it, or as it is if another gateway was faster.

        Raises:
            BudgetReached: A budget is used up; the event waits (A16).
        """

        def work(tx: Transaction) -> PostedEvent:
            waiting, last = self._hold(tx)
            posted = self._known(tx, before.event.id)
            if (posted.state, posted.place) != ("waiting", before.place):
                return posted
            taken = bounded(decision, posted.event, posted.member, posted.trail, self._owner)
            if taken.action == "forward":
                target = str(taken.target_role_id)
                trail = (*posted.trail, posted.member)
                tx.execute(_COUNT, (waiting, last + 1, self._workspace))
                return self._write(tx, replace(posted, decision=taken, member=target, trail=trail, place=last + 1))
            tx.execute(_DECIDED, (self._store.clock.now().timestamp(), self._workspace, posted.event.id))
            decided = replace(posted, decision=taken, state="decided")
            if taken.action == "escalate":
                self._escalate(tx, decided)
            if taken.action == "delegate" or (taken.action == "escalate" and taken.operator_id):
                self._write(tx, decided)
                if self._store.limited and taken.operator_id != SPAWN:
                    self._budgets.begin(tx, posted.case, posted.member, posted.case, own=f"case {posted.case}")
                return decided
            return self._end(tx, decided, "escalated" if taken.action == "escalate" else "ignored", "")

        return await self._store.transact(work)

    async def pause(self, event_id: str) -> None:
        """Note that the operator of an event waits for a person. Later events of its member do not wait for it."""
        check_texts(event_id=event_id)

        def work(tx: Transaction) -> None:
            self._hold(tx)
            posted = self._known(tx, event_id)
            if posted.state == "decided":
                self._write(tx, replace(posted, state="paused"))

        await self._store.transact(work)

    async def settle(
        self, event_id: str, result: EventResult, *, code: str = "", outcome: Outcome | None = None, report: str = ""
    ) -> None:
        """Settle an event: store its result, and what its member did. Repeating the call has no effect.

        Args:
            event_id: The event.
            result: Its result.
            code: The code of the error, if it failed or was refused.
            outcome: The outcome of its operator, if that ran.
            report: What is sent to the owner; empty sends nothing. It is left out if the owner's inbox is full.
        """
        check_texts(event_id=event_id)

        def work(tx: Transaction) -> None:
            self._hold(tx)
            posted = self._known(tx, event_id)
            if posted.state == "done":
                return
            self._end(tx, posted, result, code)
            if outcome is not None:
                record_outcome(tx, self._workspace, outcome)
            if report:
                with suppress(MailboxFull):  # the event itself is kept, and says the same
                    self._notify(tx, posted, USER, "report", report)
            if self._store.limited:
                self._budgets.close(tx, posted.case)

        await self._store.transact(work)

    # --- in a transaction ---------------------------------------------------------------------------------------------

    def _hold(self, tx: Transaction) -> tuple[int, int]:
        """Hold the events until the transaction ends; returns how many are open, and the last place."""
        tx.execute(_FIRST, (self._workspace,))
        [(waiting, last, limited)] = tx.hold(_COUNTER, (self._workspace,), alone=True)
        self._store.limited = bool(limited)
        return waiting, last

    def _heads(self, tx: Transaction, most: int) -> Sequence[int]:
        """The places of the first events of lines, in their order."""
        looked = _LOOKED_AT * most
        front = tx.execute(_FRONT, (self._workspace, looked))
        heads: dict[str, int] = {}
        for place, member in front:
            heads.setdefault(member, place)
        found = [*heads.values()]
        if len(found) < most and len(front) == looked:  # some lines are long, and others begin behind them
            found = sorted(place for (place,) in tx.execute(_FIRSTS, 3 * (self._workspace,)))
        return found[:most]

    def _one(self, tx: Transaction, event_id: str) -> PostedEvent | None:
        rows = tx.execute(_ONE, (self._workspace, event_id))
        return _posted(rows[0]) if rows else None

    def _known(self, tx: Transaction, event_id: str) -> PostedEvent:
        found = self._one(tx, event_id)
        if found is None:
            raise InvalidArgument(f"there is no event {event_id[:60]!r}", remedy="post it first")
        return found

    def _write(self, tx: Transaction, posted: PostedEvent) -> PostedEvent:
        decision = None if posted.decision is None else canonical_json(to_json(posted.decision))
        given = (posted.place, posted.member, posted.state, canonical_json([*posted.trail]), decision)
        tx.execute(
            _UPDATE, (*given, posted.result, posted.code, seconds(posted.ended), self._workspace, posted.event.id)
        )
        return posted

    def _end(self, tx: Transaction, posted: PostedEvent, result: EventResult, code: str) -> PostedEvent:
        waiting, last = self._hold(tx)
        tx.execute(_COUNT, (waiting - 1, last, self._workspace))
        ended = self._store.clock.now()
        return self._write(tx, replace(posted, state="done", result=result, code=code, ended=ended))

    def _escalate(self, tx: Transaction, posted: PostedEvent) -> None:
        """Notify the target of an escalation. An approval that the owner gives is a pause of the turn."""
        decision = posted.decision
        assert decision is not None
        target = decision.target_role_id or USER
        target = USER if target == self._owner else target
        other = participant(tx, self._workspace, target, self._owner)
        member = one_member(tx, self._workspace, target)
        if other is None or target == posted.member or (member is not None and member.life.status not in LIVE):
            target = USER
        if target == USER and decision.operator_id:
            return
        text = decision.message or decision.reason
        try:
            self._notify(tx, posted, target, "escalation", text)
        except MailboxFull:
            with suppress(MailboxFull):  # the event itself is kept, and says the same
                self._notify(tx, posted, USER, "escalation", f"{target!r} has no room for this: {text}")

    def _notify(self, tx: Transaction, posted: PostedEvent, target: str, what: str, text: str) -> None:
        """Put a message about an event into a mailbox. It is from its member, so that a reply reaches that."""
        event = posted.event
        about: dict[str, Any] = {name: getattr(event, name) for name in ("id", "type", "source", "domain")}
        whole = {**about, "payload": to_json(event.payload)}
        message = RoleMessage(
            id=f"event.{part_of(event.id)}.{what}",
            type="notification",
            from_id=posted.member or ROOT,
            to_id=target,
            content=text[:_MAX_TEXT],
            payload={"event": whole if len(canonical_json(whole)) <= _MAX_EVENT_CHARACTERS else about},
        )
        member = one_member(tx, self._workspace, posted.member)
        testing = member is not None and member.life.status is RoleStatus.TESTING
        post_mail(
            tx,
            self._workspace,
            message,
            marks=posted.untrusted,
            now=self._store.clock.now(),
            recorded=testing,  # it reaches no one (A7)
            case=posted.case,
        )
        if testing:
            self._tell_of_test(tx, message, posted)
        elif member is not None:
            self._acquaint(tx, target, member)

    def _tell_of_test(self, tx: Transaction, recorded: RoleMessage, posted: PostedEvent) -> None:
        """Tell the owner, who runs the test, what a member in testing would have sent about an event."""
        text = f"A test, recorded for {recorded.to_id!r}: {recorded.content}"[:_MAX_TEXT]
        told, now = replace(recorded, id=f"{recorded.id}.test", to_id=USER, content=text), self._store.clock.now()
        with suppress(MailboxFull):  # the event and the recorded message are kept
            post_mail(tx, self._workspace, told, marks=posted.untrusted, now=now, case=posted.case)

    def _acquaint(self, tx: Transaction, target: str, member: Member) -> None:
        """Make a member a contact of the one that its message goes to, as a first message does (C5)."""
        now = self._store.clock.now()
        if contact_of(tx, self._workspace, target, member.id, now) is not None:
            return
        marks = () if member.spec.remote is None else (member.spec.remote.mark,)
        contact = Contact(
            id=member.id, role=member.name, introduced_by=FIRST_MESSAGE, interface=member.interface, marks=marks
        )
        add_contact(tx, self._workspace, target, contact, now)


_MAX_TEXT: Final = 2000


def open_events(tx: Transaction, workspace: str, member: str, most: int) -> list[PostedEvent]:
    """The events of a member that are not over, in their order."""
    return [_posted(row) for row in tx.execute(_OF_MEMBER, (workspace, member, most))]


def all_events(tx: Transaction, workspace: str) -> list[tuple[PostedEvent, datetime | None]]:
    """All events of a workspace that are kept, by their places, each with the time of the last decision about it."""
    rows = tx.execute(_EVERY, (workspace,))
    return [(_posted(row), None if at is None else datetime.fromtimestamp(at, UTC)) for *row, at in rows]


def _posted(row: Sequence[Any]) -> PostedEvent:
    kept = read(_Stored, row, f"the event {row[1]!r}")
    given = kept.model_dump(exclude={"workspace", "id"})
    read_ones = {"event": read_as(Event, kept.event), "decision": read_as(RoutingDecision, kept.decision)}
    return PostedEvent(**given | read_ones)
