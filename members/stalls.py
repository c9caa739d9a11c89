"""What stands still in a workspace: long waits, mailboxes that do not move, ping-pong, circles of forwards (A18).

A circle of waits is not among them: it is refused where it would close.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from ..core import digest
from ..harness.journal import Journal
from ..memory import thread_key
from ..storage import Transaction
from .data.accounts import scope_of, thread_of
from .data.roles import ROOT, USER
from .data.workspace import WorkspacePolicy
from .mail.letters import heads, unreplied
from .mail.messages import RoleMessage

StallKind = Literal["long_wait", "mailbox", "ping_pong", "forwards"]
"""A turn waits long for a reply, a mailbox does not move, two members exchange message after message, or members
forward events to each other."""

_MOST: Final = 1000
"""How many waits, mailboxes and events are looked at."""

_SHOWN: Final = 5
"""How many members of a group are named."""

_TIMES: Final = 2
"""How many messages of two members are looked at for each of a chain: some are of other chains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Something that stands still, or goes round.

    Attributes:
        kind: What it is.
        members: The members and people that it is about.
        since: Since when.
        what: What it is, in a sentence.
        remedy: What a person can do.
    """

    kind: StallKind
    members: tuple[str, ...]
    since: datetime
    what: str
    remedy: str

    @property
    def id(self) -> str:
        """The id of the message that tells the owner. A stall that is gone and comes back has another one.

        Circles of forwards have one for each day.
        """
        since = self.since.date() if self.kind == "forwards" else self.since
        members = self.members[:1] if self.kind == "long_wait" else self.members  # of a group some reply meanwhile
        return f"stall.{digest([self.kind, members, since.isoformat()])}"

    def as_message(self) -> RoleMessage:
        """The message that tells the owner of it."""
        payload = {"stall": self.kind, "since": f"{self.since:%Y-%m-%d %H:%M} UTC", "remedy": self.remedy}
        text = f"From the system: {self.what}."
        return RoleMessage(id=self.id, type="notification", from_id=ROOT, to_id=USER, content=text, payload=payload)


class Wait(NamedTuple):
    """A turn of a member that waits for the replies to one message, or to those to a group."""

    asker: str
    asked: tuple[str, ...]
    since: datetime


class Mailbox(NamedTuple):
    """A mailbox with messages, and since when neither its oldest one nor the turn of its member has changed."""

    member: str
    since: datetime


class Sent(NamedTuple):
    """A message between two members."""

    sender: str
    receiver: str
    chain: int
    at: datetime


class Forwarded(NamedTuple):
    """The members that an event went to, the first one first."""

    path: tuple[str, ...]
    posted: datetime


class Snapshot(NamedTuple):
    """What stalls are looked for in.

    Attributes:
        now: The time.
        waits: The turns that wait for a reply which is not there.
        mailboxes: The mailboxes with messages of members whose turn does not wait for a reply.
        exchanges: What two members wrote to each other, the newest first, which waits or is handled.
        forwarded: The events of the day that were forwarded, in their order.
    """

    now: datetime
    waits: tuple[Wait, ...] = ()
    mailboxes: tuple[Mailbox, ...] = ()
    exchanges: tuple[tuple[Sent, ...], ...] = ()
    forwarded: tuple[Forwarded, ...] = ()


def find_stalls(seen: Snapshot, policy: WorkspacePolicy) -> tuple[Stall, ...]:
    """The stalls in a snapshot: long waits first, then mailboxes, ping-pong and circles of forwards.

    Args:
        seen: The snapshot.
        policy: From when on something is a stall.
    """
    return (
        *_long_waits(seen, policy),
        *_standing(seen, policy),
        *_ping_pong(seen, policy),
        *_going_round(seen),
    )


def _long_waits(seen: Snapshot, policy: WorkspacePolicy) -> Iterator[Stall]:
    for wait in seen.waits:
        if _seconds(wait.since, seen.now) >= policy.wait_alarm:
            asked, replies = _joined(wait.asked), "reply" if len(wait.asked) == 1 else "replies"
            yield Stall(
                kind="long_wait",
                members=(wait.asker, *wait.asked),
                since=wait.since,
                what=f"{wait.asker} waits for the {replies} of {asked}",
                remedy=f"see what keeps {asked} from replying, or cancel the turn of {wait.asker}",
            )


def _standing(seen: Snapshot, policy: WorkspacePolicy) -> Iterator[Stall]:
    for mailbox in seen.mailboxes:
        if _seconds(mailbox.since, seen.now) >= policy.mailbox_alarm:
            yield Stall(
                kind="mailbox",
                members=(mailbox.member,),
                since=mailbox.since,
                what=f"the mailbox of {mailbox.member} does not move",
                remedy="answer the approvals and questions of its turn, run a gateway, or cancel the turn",
            )


def _ping_pong(seen: Snapshot, policy: WorkspacePolicy) -> Iterator[Stall]:
    for last, *before in seen.exchanges:
        first, number = last, 1
        for each in before:
            if (each.sender, each.receiver, each.chain) == (first.receiver, first.sender, first.chain - 1):
                first, number = each, number + 1
        if number > policy.exchange_alarm:
            one, other = sorted((last.sender, last.receiver))
            yield Stall(
                kind="ping_pong",
                members=(one, other),
                since=first.at,
                what=f"{one} and {other} have sent each other {number} messages in a row",
                remedy="write to one of them what is decided, or suspend one; the policy's `message_chain` ends it",
            )


def _going_round(seen: Snapshot) -> Iterator[Stall]:
    circles: dict[tuple[str, ...], list[datetime]] = {}
    for event in seen.forwarded:
        again = next((place for place, each in enumerate(event.path) if each in event.path[:place]), None)
        if again is not None:
            first = event.path.index(event.path[again])
            circles.setdefault(tuple(sorted(event.path[first:again])), []).append(event.posted)
    for members, posted in circles.items():
        yield Stall(
            kind="forwards",
            members=members,
            since=posted[0],
            what=f"{' and '.join(members)} forward events in a circle: {len(posted)} today",
            remedy="let one of them decide about these events: change their domains or routes",
        )


# --- the snapshot -----------------------------------------------------------------------------------------------------

_CHANGED: Final = "SELECT changed FROM wa_turn WHERE thread=? ORDER BY id DESC LIMIT 1"
_FROM: Final = """SELECT sender, receiver, chain, sent FROM wa_mail
                  WHERE workspace=? AND sender=? AND receiver=? AND sent <= ? AND chain < ?"""
_BETWEEN: Final = f"{_FROM} UNION ALL {_FROM} ORDER BY sent DESC, chain DESC LIMIT ?"
_FORWARDED: Final = f"""SELECT member, trail, posted FROM (
                          SELECT member, trail, posted, place FROM wa_occurrence WHERE workspace=?
                          ORDER BY place DESC LIMIT {_MOST}) AS last
                        WHERE trail <> '[]' AND posted >= ? ORDER BY place"""


def look(tx: Transaction, workspace: str, policy: WorkspacePolicy, now: datetime) -> Snapshot:
    """What stalls are looked for in, in a transaction that reads an agent's database.

    Args:
        tx: The transaction.
        workspace: The workspace.
        policy: From when on something is a stall.
        now: The time.
    """
    replies = Journal.replies_in(tx, workspace, _MOST)
    running = [each for each in replies if not each.expires or each.expires > now]
    unread = {each[2]: each for each in unreplied(tx, workspace, [id_ for one in running for id_ in one.message_ids])}
    asking = {each.scope.thread for each in replies}
    mailboxes, exchanges = list[Mailbox](), list[tuple[Sent, ...]]()
    for letter in heads(tx, workspace, _MOST):
        one, other, sent = letter.message.from_id, letter.message.to_id, letter.message.timestamp
        assert sent is not None
        if thread_of(other) not in asking and _seconds(sent, now) >= policy.mailbox_alarm:
            changed = [_time(at) for (at,) in tx.execute(_CHANGED, (thread_key(scope_of(workspace, other)),))]
            mailboxes.append(Mailbox(other, max([sent, *changed])))
        if letter.chain > policy.exchange_alarm:
            until = (sent.timestamp(), letter.chain)
            pair = (workspace, one, other, *until, workspace, other, one, *until)
            rows = tx.execute(_BETWEEN, (*pair, _TIMES * letter.chain))
            before = (Sent(by, to, chain, _time(at)) for by, to, chain, at in rows)
            exchanges.append((Sent(one, other, letter.chain, sent), *before))
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    forwarded = tuple(
        Forwarded((*json.loads(trail), member), _time(posted))
        for member, trail, posted in tx.execute(_FORWARDED, (workspace, day.timestamp()))
    )
    open_ = ([unread[id_] for id_ in each.message_ids if id_ in unread] for each in running)
    waits = (Wait(each[0][0], tuple(one[1] for one in each), min(one[3] for one in each)) for each in open_ if each)
    return Snapshot(
        now, tuple(sorted(waits, key=lambda wait: wait.since)), tuple(mailboxes), tuple(exchanges), forwarded
    )


def _joined(members: Sequence[str]) -> str:
    shown = [*members[:_SHOWN], *([f"{len(members) - _SHOWN} more"] if len(members) > _SHOWN else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _seconds(since: datetime, now: datetime) -> float:
    return (now - since).total_seconds()
