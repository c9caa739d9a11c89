"""What a message must be to be sent: who there is, lives, contacts, answers and chains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from ...core.errors import ChainTooLong, MessageInvalid, RoleExists, UnknownContact, WaitInCircle
from ...storage import Transaction
from ..data.brief import Language
from ..data.roles import ROOT, USER, Participant, RoleStatus
from ..data.store import WorkspaceStore
from ..life.members import LIVE, Member, hold_members, members_of, one_member, participant, unknown_member
from .contacts import Contact, contacts_of
from .delivery import Introduction
from .letters import (
    CONSENT,
    Letter,
    handled_by,
    hold_mailbox,
    is_question,
    letter_of,
    note_wait,
    unanswered,
    waits_between,
)
from .messages import Envelope, RoleMessage

MESSAGE_MARK: Final = "message:"
"""Begins the mark of what was read in a message of a member. What that member had read has marks of its own."""

ACCOUNT_MARK: Final = "account:"
"""Begins the mark of what the World Agent was asked for by an account that is not the owner's."""

_MAX_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Sending:
    """What is known of a message while it is checked."""

    message: RoleMessage
    sender: Participant
    receiver: Participant
    handling: Letter | None
    now: datetime


class MessageRules:
    """Who there is in a workspace, and the rules by which messages are sent or refused, in a transaction.

    Args:
        store: The database of the workspace.
    """

    def __init__(self, store: WorkspaceStore) -> None:
        self._store = store
        self._workspace = store.id
        self._config = store.config

    # --- who there is -------------------------------------------------------------------------------------------------

    def alias(self, id_: str) -> str:
        """The id under which a person or a member is stored: that of the owner is `user`."""
        return USER if id_ == self._config.owner else id_

    def participant(self, tx: Transaction, id_: str) -> Participant | None:
        """The member or person with an id; None if there is none."""
        return participant(tx, self._workspace, id_, self._config.owner)

    def as_contact(self, tx: Transaction, other: Participant, by: str) -> Contact:
        """One as a contact of another one, introduced by `by`."""
        found = one_member(tx, self._workspace, other.id)
        interface = None if found is None else found.interface
        marks = (found.spec.remote.mark,) if found is not None and found.spec.remote is not None else ()
        return Contact(id=other.id, role=other.name or other.id, introduced_by=by, interface=interface, marks=marks)

    def language(self, tx: Transaction, id_: str) -> Language:
        """The language of a member; that of the workspace where it has none of its own (C10)."""
        found = one_member(tx, self._workspace, id_)
        return (None if found is None else found.spec.language) or self._config.language

    def check_acting(self, tx: Transaction, id_: str) -> None:
        """Refuse to act for the owner by an id that a member has, too: it would have the rights of the owner.

        Raises:
            RoleExists: An earlier version let the member join, or it joined before the owner was called so.
        """
        if id_ == self._config.owner and id_ != USER and one_member(tx, self._workspace, id_) is not None:
            raise RoleExists(
                f"{id_!r} is the id of the owner and of a member",
                remedy="act as 'user' for the owner; remove the member, or give the owner another id",
            )

    def held(self, tx: Transaction, role_id: str) -> Member:
        """A member whose life no other transaction changes before this one ends.

        Raises:
            UnknownMember: There is no such member.
        """
        hold_members(tx, self._workspace)
        found = one_member(tx, self._workspace, role_id)
        if found is None:
            raise unknown_member(role_id, self._workspace)
        return found

    def lives(self, tx: Transaction, id_: str) -> bool:
        """Whether one can still receive an answer: a person, or a member that is not terminated."""
        found = one_member(tx, self._workspace, id_)
        if found is None:
            return self.participant(tx, id_) is not None
        return found.life.status is not RoleStatus.TERMINATED

    def receives(self, tx: Transaction, id_: str) -> bool:
        """Whether one receives messages now: a member does while it is active or in testing, and a person always."""
        found = one_member(tx, self._workspace, id_)
        return found is None or found.life.status in LIVE

    # --- what a message must be ---------------------------------------------------------------------------------------

    def reporting_done(self, tx: Transaction, message: RoleMessage) -> Member | None:
        """The sender of a message if it reports by it that the task is done for which it lives (A7)."""
        if message.message_type != "status_report" or message.payload.get("done") is not True:
            return None
        hold_members(tx, self._workspace)
        member = one_member(tx, self._workspace, message.from_id)
        if member is None or member.spec.ttl != "task":
            return None
        above = (USER, member.spec.parent_role_id or ROOT, self.alias(member.spec.reports_to or USER))
        return member if message.to_id in above else None

    def check_answers(self, tx: Transaction, message: RoleMessage) -> None:
        """Refuse an answer to a message of others. That a request is a referral is checked with its path.

        Raises:
            MessageInvalid: It is one.
        """
        if not message.correlation_id or message.message_type == "introduction_request":
            return
        letter = letter_of(tx, self._workspace, message.correlation_id)
        if letter is None or (letter.message.from_id, letter.message.to_id) != (message.to_id, message.from_id):
            raise MessageInvalid(
                f"`answers` is not the id of a message from {message.to_id!r} to {message.from_id!r}",
                remedy="leave `answers` out, or give the id of a message that you answer",
            )

    def replied(self, tx: Transaction, message: RoleMessage, handling: Letter | None) -> dict[str, Envelope]:
        """The messages that this one replies to, by their ids: a reply is always allowed (C5.6).

        Args:
            tx: The transaction.
            message: The message.
            handling: What its sender handles. If that is a request, other requests still wait for replies of their own.
        """
        found = unanswered(tx, self._workspace, message.to_id, message.from_id)
        if message.correlation_id:
            return {each: found[each] for each in (message.correlation_id,) if each in found}
        if message.type == "request":  # a question of one's own answers nothing
            return {}
        requests = [each for each, kind in found.items() if kind == "request"]
        if message.message_type == "introduction_response":
            open_ones = [each for each in requests if self.is_introduction_request(tx, each)]
        else:
            own = [each for each in requests if each.endswith(f".{message.from_id}")]  # as the ids of questions end
            questions = [each for each in own if is_question(letter_of(tx, self._workspace, each))]
            others = [each for each in found if each not in {*questions}] if questions else [*found]
            open_ones = questions if CONSENT in message.payload else others or questions
        if handling is not None and handling.message.id in {*open_ones} & {*requests}:
            open_ones = [handling.message.id, *(each for each in open_ones if each not in requests)]
        return {each: found[each] for each in (open_ones[:1] if message.type == "response" else open_ones)}

    def is_introduction_request(self, tx: Transaction, message_id: str) -> bool:
        """Whether a message asks for an introduction."""
        letter = letter_of(tx, self._workspace, message_id)
        return letter is not None and letter.message.message_type == "introduction_request"

    def check_lives(self, tx: Transaction, message: RoleMessage, replied: Mapping[str, Envelope]) -> bool:
        """Refuse a sender or receiver that takes part in nothing; return whether the sender is in testing.

        What a suspended member asked can be answered: its turn may wait for that, and does not ask again.

        Raises:
            MessageInvalid: One of them takes part in nothing.
        """
        hold_mailbox(tx, self._workspace, message.to_id)  # so that the receiver is not terminated meanwhile
        found = members_of(tx, self._workspace, [message.from_id, message.to_id])
        for member in found.values():
            if member.life.status in LIVE or _is_first_task(member, message):
                continue
            answers = member.id == message.to_id and "request" in replied.values()
            if member.life.status is not RoleStatus.SUSPENDED or not answers:
                raise not_live(member)
        sender = found.get(message.from_id)
        return sender is not None and sender.life.status is RoleStatus.TESTING

    def chain(self, sending: Sending) -> int:
        """How many messages led to this one, with itself. A person begins a new chain.

        Raises:
            ChainTooLong: There are more than the policy allows.
        """
        if sending.sender.type == "human" or sending.handling is None:
            return 1
        chain, most = sending.handling.chain + 1, self._config.policy.message_chain
        if chain > most:
            raise ChainTooLong(
                f"{most} messages led to one another without a person", remedy="report to the user what was reached"
            )
        return chain

    def begin_wait(self, tx: Transaction, letter: Letter, seconds: float) -> None:
        """Note that the turn of a message's sender waits for the reply. The waits of the workspace must be locked.

        A member answers nothing before its turn is over, so it cannot wait for one that waits for it.

        Raises:
            WaitInCircle: The receiver waits for the sender, directly or through others (A18).
        """
        sender, receiver, now = letter.message.from_id, letter.message.to_id, self._store.clock.now()
        path = waits_between(tx, self._workspace, receiver, sender, now)
        if path:
            raise WaitInCircle(
                f"{receiver!r} waits for your reply, directly or through others: {' -> '.join((sender, *path))}",
                remedy="answer what you were asked, or use send_message and finish without the reply",
            )
        until = now + timedelta(seconds=seconds)
        note_wait(tx, letter, self._workspace, until, handled_by(tx, self._workspace, sender))

    def opening(self, sending: Sending, contact: Contact | None) -> Introduction | None:
        """What a first message tells about its sender; the receiver knows it from then on (C5).

        Raises:
            MessageInvalid: It does not say why it is sent.
        """
        message = sending.message
        if sending.sender.type == "human" or sending.receiver.type == "human":
            return None
        reason = message.payload.get("reason") or ("" if contact is None else contact.reason or contact.note)
        if not isinstance(reason, str) or not reason.strip():
            raise MessageInvalid(
                f"the first message to {message.to_id!r} lacks `reason`",
                remedy="say in the payload's `reason` why you write to it",
            )
        role = sending.sender.name or sending.sender.id
        return Introduction(role=role, duties=", ".join(sending.sender.domains) or role, reason=reason)

    def stranger(self, tx: Transaction, from_id: str, to_id: str) -> UnknownContact:
        """The refusal of a stranger, which names whom to ask (C11)."""
        known = [each.id for each in contacts_of(tx, self._workspace, from_id, self._store.clock.now())]
        if from_id == USER:
            return UnknownContact(
                f"{str(to_id)[:60]!r} is not a contact of {from_id!r}, whose contacts are: {', '.join(known)}",
                remedy="write to one of them, or add the contact with agent.society.contacts.add('user', ...)",
            )
        shown = ", ".join(known[:_MAX_SHOWN]) or USER
        return UnknownContact(
            f"{str(to_id)[:60]!r} is not a contact of {from_id!r}",
            remedy=f"ask a contact for an introduction with the message_type introduction_request: {shown}",
        )


def not_live(member: Member) -> MessageInvalid:
    """The error that a member is not in a state in which it takes part in conversations."""
    return MessageInvalid(
        f"{member.id!r} is {member.life.status.value} and takes part in no conversation",
        remedy="ask who made it, or the user",
    )


def told_by(member: str, marks: Sequence[str]) -> tuple[str, ...]:
    """The marks of what a member tells of another one, which had read what `marks` says."""
    return tuple(sorted({*marks} if member == USER else {*marks, f"{MESSAGE_MARK}{member}"}))


def _is_first_task(member: Member, message: RoleMessage) -> bool:
    """Whether a message gives a member its task from its parent: it waits with the member until that is approved."""
    above = member.spec.parent_role_id or ROOT
    given = message.message_type == "task_assignment" and (message.from_id, message.to_id) == (above, member.id)
    return given and member.life.status is RoleStatus.DRAFT
