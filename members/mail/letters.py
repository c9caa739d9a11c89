"""The messages of a society in the database: numbered per receiver, counted, and each stored once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from pydantic import Json

from ...core import canonical_json
from ...core.errors import MailboxFull
from ...storage import Row, Time, Transaction, portions
from ..data.limits import limits_of, put_limits
from ..data.roles import ROOT, USER
from ..data.rows import read
from ..data.store import note
from .delivery import Introduction
from .messages import ASSIGNMENT, Envelope, RoleMessage, envelope_of

State = Literal["waiting", "handling", "handled", "recorded", "held"]
"""A message waits, its receiver handles it in a turn or a person reads it, or that is over.

One that a member in testing sent is recorded: it is never delivered (A7). A task brief that depends on others is held
until they are done (A19).
"""

INTRODUCTION: Final = "introduction"
"""The field of a payload that says which introduction is asked about, and what is answered if all agree."""

CONSENT: Final = "consent"
"""The field of the answer: true or false."""

MAX_WAITING: Final = 1000
"""How many messages can wait for one receiver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A message as it is stored.

    Attributes:
        message: The message.
        place: Its number in the mailbox of its receiver.
        chain: How many messages led to it since the last of a person or event, with itself.
        opening: What it tells about its sender, if it is the first that the receiver gets from it.
        marks: The untrusted functions and senders whose content its sender had read.
        state: Whether it waits, is handled or was handled.
        answered: Whether its receiver replied.
        case: The case that it belongs to (A17); empty in messages of versions before 0.3.
    """

    message: RoleMessage
    place: int
    chain: int
    opening: Introduction | None
    marks: tuple[str, ...]
    state: State
    answered: bool
    case: str = ""

    def marks_for(self, reader: str) -> tuple[str, ...]:
        """What marks a turn that is shown it: its marks and who sent it, unless that is the reader or the owner.

        Args:
            reader: The member.
        """
        sender = self.message.from_id
        return self.marks if sender in (reader, USER) else (*self.marks, f"message:{sender}")


class _Stored(Row):
    workspace: str
    id: str
    place: int
    sender: str
    receiver: str
    kind: Envelope
    content: str
    payload: Json[dict[str, Any]]
    answers: str
    chain: int
    opening: Json[dict[str, str]] | None
    marks: Json[tuple[str, ...]]
    sent: Time
    state: State
    answered: bool
    case_id: str


_COLUMNS: Final = ", ".join(_Stored.model_fields)
_ONE: Final = f"SELECT {_COLUMNS} FROM wa_mail WHERE workspace=? AND id=?"
_OPEN_MAILBOX: Final = """INSERT INTO wa_mailbox(workspace, member, waiting, last) VALUES(?, ?, 0, 0)
                          ON CONFLICT DO NOTHING"""
_MAILBOX: Final = "SELECT waiting, last FROM wa_mailbox WHERE workspace=? AND member=?"
_COUNT: Final = "UPDATE wa_mailbox SET waiting=?, last=? WHERE workspace=? AND member=?"
_INSERT: Final = f"INSERT INTO wa_mail({_COLUMNS}) VALUES({', '.join('?' * 16)})"
_STATE: Final = "UPDATE wa_mail SET state=? WHERE workspace=? AND id=?"
_OPEN: Final = "state IN ('waiting', 'handling')"
_HEADS: Final = f"""SELECT {_COLUMNS} FROM wa_mail WHERE workspace=? AND id IN (
                      SELECT (SELECT id FROM wa_mail AS o WHERE o.workspace=b.workspace AND o.receiver=b.member
                              AND {_OPEN.replace("state", "o.state")} ORDER BY o.place LIMIT 1)
                      FROM wa_mailbox AS b WHERE b.workspace=? AND b.waiting > 0 AND b.member <> '{USER}'
                      AND NOT EXISTS (SELECT 1 FROM wa_person AS p WHERE p.workspace=b.workspace AND p.id=b.member)
                      AND NOT EXISTS (SELECT 1 FROM wa_member AS w WHERE w.workspace=b.workspace AND w.id=b.member
                                      AND w.status NOT IN ('active', 'testing')))
                    AND (sent > ? OR (sent = ? AND id > ?)) ORDER BY sent, id LIMIT ?"""
_OF: Final = f"SELECT {_COLUMNS} FROM wa_mail WHERE workspace=? AND receiver=? AND {_OPEN} ORDER BY place LIMIT ?"
_RECORDED: Final = f"""SELECT {_COLUMNS} FROM wa_mail WHERE workspace=? AND sender=? AND state='recorded'
                       ORDER BY sent, id"""
_LAST: Final = f"""SELECT {_COLUMNS} FROM wa_mail WHERE workspace=? AND id IN (
                     SELECT id FROM (SELECT id FROM wa_mail WHERE workspace=? AND receiver=? AND state <> 'recorded'
                                     ORDER BY sent DESC, id DESC LIMIT ?) AS received UNION ALL
                     SELECT id FROM (SELECT id FROM wa_mail WHERE workspace=? AND sender=?
                                     ORDER BY sent DESC, id DESC LIMIT ?) AS given)
                   ORDER BY sent DESC, id DESC LIMIT ?"""
_TASK: Final = f"""SELECT {_COLUMNS} FROM wa_mail WHERE workspace=? AND id = (
                     SELECT task FROM wa_mailbox WHERE workspace=? AND member=?)"""
_TASKED: Final = "UPDATE wa_mailbox SET task=? WHERE workspace=? AND member=?"
_NO_TASK: Final = "UPDATE wa_mailbox SET task='' WHERE workspace=? AND member=? AND task=?"
_RELEASE: Final = "UPDATE wa_mail SET state='waiting', place=? WHERE workspace=? AND id=?"
_HANDLING: Final = f"SELECT {_COLUMNS} FROM wa_mail WHERE workspace=? AND receiver=? AND state='handling'"
_UNANSWERED: Final = """SELECT id, kind FROM wa_mail WHERE workspace=? AND sender=? AND receiver=? AND answered=0
                        ORDER BY place"""
_REQUESTS: Final = f"""SELECT {_COLUMNS} FROM wa_mail WHERE workspace=? AND receiver=? AND kind='request' AND answered=0
                       ORDER BY place"""
_CLOSE: Final = """UPDATE wa_mail SET state='handled' WHERE workspace=? AND receiver=?
                   AND state IN ('waiting', 'handling', 'held')"""
_EMPTY: Final = "UPDATE wa_mailbox SET waiting=0 WHERE workspace=? AND member=?"
_ANSWERED: Final = "UPDATE wa_mail SET answered=1 WHERE workspace=? AND id IN ({})"
_ASKED: Final = """WITH RECURSIVE asked(id) AS (
                     SELECT id FROM wa_mail WHERE workspace=? AND id=? UNION
                     SELECT m.id FROM wa_mail AS m JOIN asked AS a ON m.answers=a.id
                     WHERE m.workspace=? AND m.kind='request')
                   SELECT receiver FROM wa_mail WHERE workspace=? AND id IN (SELECT id FROM asked)"""
_CASE: Final = f"""SELECT {_COLUMNS} FROM wa_mail WHERE workspace=? AND case_id=? AND case_id <> ''
                   ORDER BY sent, id LIMIT ?"""
_WAIT: Final = "UPDATE wa_mail SET waits=?, during=? WHERE workspace=? AND id=?"
_END_WAITS: Final = "UPDATE wa_mail SET waits=0 WHERE workspace=? AND id IN ({})"
_TAKE: Final = "UPDATE wa_mail SET during=? WHERE workspace=? AND id=?"
_TAKEN: Final = "SELECT id, during FROM wa_mail WHERE workspace=? AND during IS NOT NULL AND waits IS NULL"
# A wait is over with its time, with the turn that it is in, and with the first reply.
_NO_REPLY: Final = """NOT EXISTS (SELECT 1 FROM wa_mail AS a WHERE a.workspace=m.workspace AND a.answers=m.id
                                   AND a.answers <> '' AND a.kind <> 'request' AND a.state <> 'recorded')"""
_UNREPLIED: Final = f"""SELECT m.sender, m.receiver, m.id, m.sent FROM wa_mail AS m WHERE m.workspace=?
                        AND m.id IN ({{}}) AND {_NO_REPLY}"""
_WAITS_FOR: Final = f"""SELECT DISTINCT receiver FROM wa_mail AS m WHERE workspace=? AND sender=? AND waits > ?
                       AND (during='' OR EXISTS (SELECT 1 FROM wa_mail AS d WHERE d.workspace=m.workspace
                                                 AND d.id=m.during AND d.state='handling'))
                       AND {_NO_REPLY} ORDER BY receiver"""
_ANSWERING: Final = f"""SELECT {_COLUMNS} FROM wa_mail WHERE workspace=? AND answers=? AND kind=?
                        AND state <> 'recorded'"""

_THERE: Final = "SELECT id FROM wa_mail WHERE workspace=? AND id IN ({})"
_FIRST: Final = f"""SELECT {_COLUMNS} FROM wa_mail WHERE workspace=? AND answers IN ({{}})
                    AND kind IN ('response', 'notification') AND state <> 'recorded' ORDER BY place"""


def letter_of(tx: Transaction, workspace: str, message_id: str) -> Letter | None:
    """A message, in a transaction; None if there is none."""
    rows = tx.execute(_ONE, (workspace, message_id))
    return _letter(rows[0]) if rows else None


def held(tx: Transaction, workspace: str, message_id: str) -> Letter | None:
    """A message as it is once its mailbox is held: until the transaction ends no other one changes how far it is."""
    letter = letter_of(tx, workspace, message_id)
    if letter is None:
        return None
    if letter.message.message_type == ASSIGNMENT:
        lock_briefs(tx, workspace)
    tx.hold(_MAILBOX, (workspace, letter.message.to_id), alone=True)
    return letter_of(tx, workspace, message_id)


def lock_briefs(tx: Transaction, workspace: str) -> None:
    """Hold the board of a workspace until the transaction ends. Mailboxes are held after it, members before it."""
    tx.lock(f"briefs of {workspace}")


def hold_mailbox(tx: Transaction, workspace: str, member: str) -> None:
    """Hold a mailbox: until the transaction ends no other one puts a message into it or closes it."""
    tx.execute(_OPEN_MAILBOX, (workspace, member))
    tx.hold(_MAILBOX, (workspace, member), alone=True)


def close_mailbox(tx: Transaction, workspace: str, member: str) -> list[Letter]:
    """Close a mailbox that is held: nothing waits in it any more; returns the requests without a reply."""
    tx.execute(_CLOSE, (workspace, member))
    tx.execute(_EMPTY, (workspace, member))
    return [_letter(row) for row in tx.execute(_REQUESTS, (workspace, member))]


def handled_by(tx: Transaction, workspace: str, member: str) -> Letter | None:
    """The message that a member handles at the moment; None if it handles none."""
    rows = tx.execute(_HANDLING, (workspace, member))
    return _letter(rows[0]) if rows else None


def heads(tx: Transaction, workspace: str, most: int, after: Letter | None = None) -> list[Letter]:
    """The oldest message that is not handled yet of each member that receives messages, the oldest first.

    Args:
        tx: The transaction.
        workspace: The workspace.
        most: The most to return.
        after: Only those that were sent after this one.
    """
    sent = 0.0 if after is None or after.message.timestamp is None else after.message.timestamp.timestamp()
    place = (sent, sent, "" if after is None else after.message.id)
    return [_letter(row) for row in tx.execute(_HEADS, (workspace, workspace, *place, most))]


def waiting_for(tx: Transaction, workspace: str, receiver: str, most: int) -> list[Letter]:
    """The messages of one mailbox that are not handled yet, the oldest first."""
    return [_letter(row) for row in tx.execute(_OF, (workspace, receiver, most))]


def recorded_of(tx: Transaction, workspace: str, sender: str) -> list[Letter]:
    """The messages that a member sent while it was in testing, the oldest first."""
    return [_letter(row) for row in tx.execute(_RECORDED, (workspace, sender))]


def letters_of(tx: Transaction, workspace: str, member: str, most: int) -> list[Letter]:
    """The last messages that a member received and sent, the oldest first."""
    half = (workspace, member, most)
    return [_letter(row) for row in reversed(tx.execute(_LAST, (workspace, *half, *half, most)))]


def task_of(tx: Transaction, workspace: str, member: str) -> Letter | None:
    """The message with the last task that a member was given; None if it was given none."""
    rows = tx.execute(_TASK, (workspace, workspace, member))
    return _letter(rows[0]) if rows else None


def unanswered(tx: Transaction, workspace: str, sender: str, receiver: str) -> dict[str, Envelope]:
    """The ids and kinds of the messages from a sender to which a receiver has not replied, the oldest first."""
    return dict(tx.execute(_UNANSWERED, (workspace, sender, receiver)))


def letters_of_case(tx: Transaction, workspace: str, case: str, most: int) -> list[Letter]:
    """The messages of a case, the oldest first."""
    return [_letter(row) for row in tx.execute(_CASE, (workspace, case, most))]


def answering(tx: Transaction, workspace: str, message_id: str, kind: Envelope) -> list[Letter]:
    """The messages of a kind that refer to a message."""
    return [_letter(row) for row in tx.execute(_ANSWERING, (workspace, message_id, kind))]


def replies_to(tx: Transaction, workspace: str, message_id: str) -> list[Letter]:
    """The messages that answer a message, also those of plain text."""
    responses = answering(tx, workspace, message_id, "response")
    return [*responses, *answering(tx, workspace, message_id, "notification")]


def first_replies(tx: Transaction, workspace: str, message_ids: Sequence[str]) -> dict[str, Letter | None]:
    """The first reply to each message that has one, and None for each message that was removed, in a transaction."""
    found: dict[str, Letter | None] = dict.fromkeys(message_ids)
    for marks, some in portions(message_ids):
        for (id_,) in tx.execute(_THERE.format(marks), (workspace, *some)):
            del found[id_]
        for row in tx.execute(_FIRST.format(marks), (workspace, *some)):
            letter = _letter(row)
            found.setdefault(letter.message.correlation_id, letter)
    return found


def take_for(tx: Transaction, workspace: str, message_id: str, turn: str | None) -> None:
    """Note the turn that a reply is kept for while it waits for others as well; None ends that."""
    tx.execute(_TAKE, (turn, workspace, message_id))


def taken(tx: Transaction, workspace: str) -> dict[str, str]:
    """The turns that replies are kept for, by the ids of these replies."""
    return dict(tx.execute(_TAKEN, (workspace,)))


def end_waits(tx: Transaction, workspace: str, message_ids: Sequence[str]) -> None:
    """Note that the sender of messages no longer waits for replies to them."""
    for marks, some in portions(message_ids):
        tx.execute(_END_WAITS.format(marks), (workspace, *some))


def waits_between(tx: Transaction, workspace: str, first: str, last: str, now: datetime) -> tuple[str, ...]:
    """The members from one to another each of which waits in its turn for the next; empty if there is no such path."""
    before, looked = {first: ""}, [first]
    for here in looked:
        if here == last:
            path = [here]
            while before[path[0]]:
                path.insert(0, before[path[0]])
            return tuple(path)
        for (other,) in tx.execute(_WAITS_FOR, (workspace, here, now.timestamp())):
            if other not in before:
                before[other] = here
                looked.append(other)
    return ()


def unreplied(tx: Transaction, workspace: str, message_ids: Sequence[str]) -> list[tuple[str, str, str, datetime]]:
    """Sender, receiver, id and time of those of some messages to which no reply is there."""
    return [
        (sender, receiver, id_, datetime.fromtimestamp(sent, UTC))
        for marks, some in portions(message_ids)
        for sender, receiver, id_, sent in tx.execute(_UNREPLIED.format(marks), (workspace, *some))
    ]


def note_wait(tx: Transaction, letter: Letter, workspace: str, until: datetime, during: Letter | None) -> None:
    """Note that the turn of a message's sender waits for the reply to it.

    Args:
        tx: The transaction.
        letter: The message.
        workspace: The workspace.
        until: When the wait ends without a reply.
        during: The message that the turn is on, with which the wait ends too.
    """
    on = "" if during is None else during.message.id
    tx.execute(_WAIT, (until.timestamp(), on, workspace, letter.message.id))


def is_question(letter: Letter | None) -> bool:
    """Whether a message asks for consent to an introduction. Only the system makes one: its id says so."""
    return (
        letter is not None
        and INTRODUCTION in letter.message.payload
        and letter.message.id == f"{letter.message.correlation_id}.{letter.message.to_id}"
    )


def asked_with(tx: Transaction, workspace: str, message_id: str) -> set[str]:
    """Who received a request, and who received each request that was made because of it."""
    return {id_ for (id_,) in tx.execute(_ASKED, (workspace, message_id, workspace, workspace))}


def mark_answered(tx: Transaction, workspace: str, *message_ids: str) -> None:
    """Note that messages were replied to."""
    for marks, some in portions(message_ids):
        tx.execute(_ANSWERED.format(marks), (workspace, *some))


def post(
    tx: Transaction,
    workspace: str,
    message: RoleMessage,
    *,
    now: datetime,
    chain: int = 1,
    opening: Introduction | None = None,
    marks: Sequence[str] = (),
    recorded: bool = False,
    held: bool = False,
    case: str = "",
) -> Letter:
    """Put a message into the mailbox of its receiver, or only record it or hold it back, in a transaction.

    `case` is the case that it belongs to; empty begins a case with its id (A17).

    Raises:
        MailboxFull: As many messages wait there as it holds.
    """
    place = 0 if recorded or held else _next_place(tx, workspace, message.to_id)
    state: State = "recorded" if recorded else "held" if held else "waiting"
    introduction = None if opening is None else canonical_json({name: getattr(opening, name) for name in _OPENING})
    tx.execute(
        _INSERT,
        (
            *(workspace, message.id, place, message.from_id, message.to_id, message.type, message.content),
            *(canonical_json(message.to_json()["payload"]), message.correlation_id, chain, introduction),
            *(canonical_json([*dict.fromkeys(marks)]), now.timestamp()),
            *(state, int(recorded), case or message.id),
        ),
    )
    if message.message_type == ASSIGNMENT and state == "waiting":
        tx.execute(_TASKED, (message.id, workspace, message.to_id))
        limits = limits_of(message.to_json()["payload"].get("task_brief", {}).get("limits"))
        if limits is not None:
            put_limits(tx, workspace, f"brief {message.id}", limits, member=message.to_id)
    posted = letter_of(tx, workspace, message.id)
    assert posted is not None
    note(tx, posted)
    return posted


def release(tx: Transaction, workspace: str, message_id: str) -> None:
    """Put a task brief that was held into the mailbox of its receiver, also if that is full."""
    letter = held(tx, workspace, message_id)
    if letter is not None and letter.state == "held":
        receiver = letter.message.to_id
        tx.execute(_RELEASE, (_next_place(tx, workspace, receiver, full=True), workspace, message_id))
        tx.execute(_TASKED, (message_id, workspace, receiver))


def withdraw(tx: Transaction, workspace: str, message_id: str) -> Letter | None:
    """Take a task brief back: it is not delivered any more, and no longer its receiver's task; returns what it was."""
    letter = held(tx, workspace, message_id)
    if letter is not None:
        tx.execute(_NO_TASK, (workspace, letter.message.to_id, message_id))
        if letter.state == "waiting":
            set_state(tx, workspace, message_id, "handled")
        elif letter.state == "held":
            tx.execute(_STATE, ("handled", workspace, message_id))
    return letter


def _next_place(tx: Transaction, workspace: str, receiver: str, *, full: bool = False) -> int:
    """Count one more message in a mailbox, and return its number."""
    tx.execute(_OPEN_MAILBOX, (workspace, receiver))
    [(waiting, last)] = tx.hold(_MAILBOX, (workspace, receiver), alone=True)
    if waiting >= MAX_WAITING and not full:
        raise mailbox_full(receiver, waiting)
    tx.execute(_COUNT, (waiting + 1, last + 1, workspace, receiver))
    return int(last) + 1


def mailbox_full(receiver: str, waiting: int) -> MailboxFull:
    """The error of a mailbox that holds no more."""
    return MailboxFull(
        f"{receiver!r} has {waiting:,} messages waiting, and its mailbox holds no more",
        remedy="send it later, or ask another member",
    )


_ANSWERS: Final = f"""SELECT {_COLUMNS} FROM wa_mail AS a WHERE workspace=? AND sender=? AND {_OPEN} AND EXISTS (
                        SELECT 1 FROM wa_mail AS q WHERE q.workspace=a.workspace AND q.id=a.answers
                        AND q.kind='request')"""
_KEEP: Final = "UPDATE wa_mail SET sender=?, content=?, payload=? WHERE workspace=? AND id=?"
_KEEP_QUESTION: Final = """UPDATE wa_mail SET receiver=?, content=?, payload='{}', prepared=NULL, state='handled',
                           answered=1 WHERE workspace=? AND id=?"""
_PREPARE: Final = "UPDATE wa_mail SET prepared=? WHERE workspace=? AND id=? AND prepared IS NULL"
_PREPARED: Final = "SELECT prepared FROM wa_mail WHERE workspace=? AND id=? AND prepared IS NOT NULL"
_OPENING: Final = ("role", "duties", "reason")


def prepared_of(tx: Transaction, workspace: str, message_id: str) -> tuple[str, tuple[str, ...]] | None:
    """What the turn of a message is given, and the marks of that; None if it is not stored yet."""
    rows = tx.execute(_PREPARED, (workspace, message_id))
    if not rows:
        return None
    text, marks = json.loads(rows[0][0])
    return text, tuple(marks)


def prepare(
    tx: Transaction, workspace: str, message_id: str, text: str, marks: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    """Store what the turn of a message is given with its marks, unless that was done, and return what is stored."""
    tx.execute(_PREPARE, (canonical_json([text, [*marks]]), workspace, message_id))
    return prepared_of(tx, workspace, message_id) or (text, tuple(marks))


def keep_answers(tx: Transaction, workspace: str, member: str) -> None:
    """Let those that wait for an answer of a member get one, before all that it sent is removed.

    An answer that is not handled yet becomes one of the World Agent. Of the question its id stays, for the turn that
    waits: it asks again when it resumes.
    """
    for letter in (_letter(row) for row in tx.execute(_ANSWERS, (workspace, member))):
        message = letter.message
        content, payload = message.content, canonical_json(message.to_json()["payload"])
        if message.id != f"{message.correlation_id}.reply":
            content, payload = f"From the system: {member} was removed, and its answer with it.", "{}"
        tx.execute(_KEEP, (ROOT, content, payload, workspace, message.id))
        instead = USER if message.to_id == ROOT else ROOT
        tx.execute(_KEEP_QUESTION, (instead, "removed", workspace, message.correlation_id))


def set_state(tx: Transaction, workspace: str, message_id: str, state: State) -> None:
    """Note how far a message is; one that is handled no longer counts in its mailbox."""
    letter = held(tx, workspace, message_id)
    if letter is None or letter.state in (state, "handled", "recorded"):
        return
    receiver = letter.message.to_id
    [(waiting, last)] = tx.hold(_MAILBOX, (workspace, receiver), alone=True)
    tx.execute(_STATE, (state, workspace, message_id))
    if state == "handled":
        tx.execute(_COUNT, (waiting - 1, last, workspace, receiver))


def reopen(tx: Transaction, workspace: str, message_id: str) -> None:
    """Let a message that is handled wait again, at its place."""
    letter = held(tx, workspace, message_id)
    if letter is None or letter.state != "handled":
        return
    receiver = letter.message.to_id
    [(waiting, last)] = tx.hold(_MAILBOX, (workspace, receiver), alone=True)
    tx.execute(_STATE, ("waiting", workspace, message_id))
    tx.execute(_COUNT, (waiting + 1, last, workspace, receiver))


def _letter(row: Sequence[Any]) -> Letter:
    kept = read(_Stored, row, f"the message {row[1]!r}")
    message = RoleMessage(
        id=kept.id,
        type=envelope_of(kept.payload.get("message_type"), kept.kind),
        from_id=kept.sender,
        to_id=kept.receiver,
        content=kept.content,
        payload=kept.payload,
        correlation_id=kept.answers,
        timestamp=kept.sent,
    )
    opening = None if kept.opening is None else Introduction(**kept.opening)
    given = kept.model_dump(include={"place", "chain", "marks", "state", "answered"})
    return Letter(message=message, opening=opening, case=kept.case_id, **given)
