"""What a message must be to be sent: lives, contacts, answers, chains and introductions (002)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from ..core import Clock, SystemClock
from ..core.errors import ChainTooLong, MessageInvalid, RoleExists, UnknownContact
from ..storage import Database, Transaction
from .brief import Language, interface_of
from .consent import CONSENT, agreed, is_question, question, to_ask
from .contacts import Contact, ContactRegistry, contact_of, contacts_of
from .delivery import Introduction
from .drafts import Drafts
from .events import Events
from .mail import Letter, asked_with, hold_mailbox, letter_of, post, unanswered
from .members import LIVE, Member, Members, hold_members, members_of, participant, unknown_member
from .messages import Envelope, RoleMessage
from .notices import Announcing, Notify
from .outcomes import Outcomes
from .recommendations import Recommendations
from .roles import ROOT, USER, Participant, RoleStatus
from .wakeups import DatabaseWakeups, Wakeups
from .workspace import WorkspaceConfig

MAX_HOPS: Final = 8
"""How many members can be asked after one another for one introduction."""

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
    """The rules by which messages of a workspace are sent or refused. `Society` says what its arguments are."""

    def __init__(
        self,
        config: WorkspaceConfig,
        database: Database,
        clock: Clock | None = None,
        *,
        notify: Notify | None = None,
        wakeups: Wakeups | None = None,
        is_taken: Callable[[str], bool] | None = None,
    ) -> None:
        self.config = config
        self.members = Members(database, owner=config.owner, policy=config.policy, clock=clock, is_taken=is_taken)
        self.contacts = ContactRegistry(database, config.id, clock)
        self.drafts = Drafts(database, config, clock)
        self.recommendations = Recommendations(database, config.id, clock)
        self.outcomes = Outcomes(database, config.id)
        self._wakeups = wakeups or DatabaseWakeups(database)
        self._announcing = Announcing(database, config.id, self._wakeups, notify)
        self.events = Events(config, database, self._announcing, clock)
        self._database = database
        self._clock = clock or SystemClock()

    def _contact(self, tx: Transaction, other: Participant, by: str, note: str = "") -> Contact:
        found = members_of(tx, self.config.id, [other.id]).get(other.id)
        interface = None if found is None else found.interface
        return Contact(id=other.id, role=other.name or other.id, introduced_by=by, interface=interface, note=note)

    def _language(self, tx: Transaction, id_: str) -> Language:
        """The language of a member; that of the workspace where it has none of its own (C10)."""
        found = members_of(tx, self.config.id, [id_]).get(id_)
        return (None if found is None else found.spec.language) or self.config.language

    def _alias(self, id_: str) -> str:
        return USER if id_ == self.config.owner else id_

    def _check_acting(self, tx: Transaction, id_: str) -> None:
        """Refuse to act for the owner by an id that a member has, too: it would have the rights of the owner.

        Raises:
            RoleExists: An earlier version let the member join, or it joined before the owner was called so.
        """
        if id_ == self.config.owner and id_ != USER and members_of(tx, self.config.id, [id_]):
            raise RoleExists(
                f"{id_!r} is the id of the owner and of a member",
                remedy="act as 'user' for the owner; remove the member, or give the owner another id",
            )

    def _held(self, tx: Transaction, role_id: str) -> Member:
        """A member whose life no other transaction changes before this one ends."""
        hold_members(tx, self.config.id)
        found = members_of(tx, self.config.id, [role_id]).get(role_id)
        if found is None:
            raise unknown_member(role_id, self.config.id)
        return found

    def _lives(self, tx: Transaction, id_: str) -> bool:
        """Whether one can still receive an answer: a person, or a member that is not terminated."""
        found = members_of(tx, self.config.id, [id_]).get(id_)
        if found is None:
            return participant(tx, self.config.id, id_, self.config.owner) is not None
        return found.life.status is not RoleStatus.TERMINATED

    def _done(self, tx: Transaction, message: RoleMessage) -> Member | None:
        """The sender of a message if it reports by it that the task is done for which it lives (A7)."""
        payload = message.payload
        if message.message_type != "status_report" or payload.get("done") is not True:
            return None
        hold_members(tx, self.config.id)
        member = members_of(tx, self.config.id, [message.from_id]).get(message.from_id)
        if member is None or member.spec.ttl != "task":
            return None
        above = (USER, member.spec.parent_role_id or ROOT, self._alias(member.spec.reports_to or USER))
        return member if message.to_id in above else None

    def _waits(self, tx: Transaction, message_id: str, answered: Sequence[Letter]) -> bool:
        """Whether a message still waits for its own kind of answer after a plain reply."""
        letter = letter_of(tx, self.config.id, message_id)
        question = is_question(letter) and message_id not in [each.message.id for each in answered]
        return question or self._is_request(tx, message_id)

    def _check_answers(self, tx: Transaction, message: RoleMessage) -> None:
        """Refuse an answer to a message of others. That a request is a referral is checked with its path."""
        if not message.correlation_id or message.message_type == "introduction_request":
            return
        letter = letter_of(tx, self.config.id, message.correlation_id)
        if letter is None or (letter.message.from_id, letter.message.to_id) != (message.to_id, message.from_id):
            raise MessageInvalid(
                f"`answers` is not the id of a message from {message.to_id!r} to {message.from_id!r}",
                remedy="leave `answers` out, or give the id of a message that you answer",
            )

    def _replied(self, tx: Transaction, sending: Sending) -> dict[str, Envelope]:
        """The messages that this one replies to, by their ids: a reply is always allowed (C5.6)."""
        message = sending.message
        found = unanswered(tx, self.config.id, message.to_id, message.from_id)
        if message.correlation_id:
            return {each: found[each] for each in (message.correlation_id,) if each in found}
        if message.type == "request":  # a question of one's own answers nothing
            return {}
        requests = [each for each, kind in found.items() if kind == "request"]
        if message.message_type == "introduction_response":
            open_ones = [each for each in requests if self._is_request(tx, each)]
        else:
            own = [each for each in requests if each.endswith(f".{message.from_id}")]  # as the ids of questions end
            questions = [each for each in own if is_question(letter_of(tx, self.config.id, each))]
            others = [each for each in found if each not in {*questions}] if questions else [*found]
            open_ones = questions if CONSENT in message.payload else others or questions
        return {each: found[each] for each in (open_ones[:1] if message.type == "response" else open_ones)}

    def _is_request(self, tx: Transaction, message_id: str) -> bool:
        letter = letter_of(tx, self.config.id, message_id)
        return letter is not None and letter.message.message_type == "introduction_request"

    def _check_lives(self, tx: Transaction, sending: Sending, replied: Mapping[str, Envelope]) -> bool:
        """Refuse a sender or receiver that takes part in nothing; return whether the sender is in testing.

        What a suspended member asked can be answered: its turn may wait for that, and does not ask again.
        """
        hold_mailbox(tx, self.config.id, sending.message.to_id)  # so that the receiver is not terminated meanwhile
        found = members_of(tx, self.config.id, [sending.message.from_id, sending.message.to_id])
        for member in found.values():
            if member.life.status in LIVE or _is_first_task(member, sending.message):
                continue
            answers = member.id == sending.message.to_id and "request" in replied.values()
            if member.life.status is not RoleStatus.SUSPENDED or not answers:
                raise MessageInvalid(
                    f"{member.id!r} is {member.life.status.value} and takes part in no conversation",
                    remedy="ask who made it, or the user",
                )
        sender = found.get(sending.message.from_id)
        return sender is not None and sender.life.status is RoleStatus.TESTING

    def _chain(self, sending: Sending) -> int:
        """How many messages led to this one, with itself. A person begins a new chain."""
        if sending.sender.type == "human" or sending.handling is None:
            return 1
        chain, most = sending.handling.chain + 1, self.config.policy.message_chain
        if chain > most:
            raise ChainTooLong(
                f"{most} messages led to one another without a person", remedy="report to the user what was reached"
            )
        return chain

    def _opening(self, sending: Sending, contact: Contact | None) -> Introduction | None:
        """What a first message tells about its sender; the receiver knows it from then on (C5)."""
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

    def _stranger(self, tx: Transaction, from_id: str, to_id: str) -> UnknownContact:
        """The refusal of a stranger, which names whom to ask (C11)."""
        known = [each.id for each in contacts_of(tx, self.config.id, from_id, self._clock.now())]
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

    def _introduced(
        self, tx: Transaction, sending: Sending, replied: Mapping[str, Envelope], marks: Sequence[str]
    ) -> tuple[RoleMessage, tuple[Contact, ...]]:
        """Check a request or answer about an introduction; returns it with the contact that an answer brings (C3)."""
        message = sending.message
        if message.message_type == "introduction_request":
            return self._referral(tx, sending), ()
        if message.message_type != "introduction_response":
            return message, ()
        asked = [each for each, kind in replied.items() if kind == "request" and self._is_request(tx, each)]
        if not asked:
            raise MessageInvalid(
                f"{message.to_id!r} has no open introduction_request to {message.from_id!r}",
                remedy="answer each request once; send a collaboration_request for anything else",
            )
        target, request = message.payload.get("target_id"), letter_of(tx, self.config.id, asked[0])
        reason = "" if request is None else str(request.message.payload["reason"])
        introduced = () if target is None else (self._introduce(tx, sending, str(target), reason, marks),)
        return replace(message, correlation_id=asked[0]), introduced

    def _introduce(self, tx: Transaction, sending: Sending, target: str, reason: str, marks: Sequence[str]) -> Contact:
        message, payload = sending.message, sending.message.payload
        contact = contact_of(tx, self.config.id, message.from_id, self._alias(target), sending.now)
        if contact is None:
            raise self._stranger(tx, message.from_id, target)
        if contact.id == message.to_id:
            raise MessageInvalid(f"{target!r} cannot be introduced to itself", remedy="name another member")
        return Contact(
            id=contact.id,
            role=contact.role,
            introduced_by=message.from_id,
            interface=contact.interface or interface_of(message.to_json()["payload"]["interface_spec"]),
            note=str(payload["usage_advice"]),
            reason=reason,
            marks=told_by(message.from_id, (*contact.marks, *marks)),
        )

    def _question(
        self, tx: Transaction, answer: RoleMessage, chain: int, marks: Sequence[str], now: datetime
    ) -> Letter | None:
        """Ask the next one that has to agree to an introduction; None if all have agreed.

        Raises:
            MessageInvalid: One has refused.
        """
        for who in to_ask(tx, self.config.id, self.config.policy, answer):
            request = letter_of(tx, self.config.id, answer.correlation_id)
            reason = "" if request is None else str(request.message.payload["reason"])
            asked = question(answer, who, reason, self._language(tx, who))
            said = agreed(tx, self.config.id, asked.id)
            if said is None:
                there = letter_of(tx, self.config.id, asked.id)
                return there or post(tx, self.config.id, asked, chain=chain, opening=None, marks=marks, now=now)
            if not said:
                raise MessageInvalid(f"{who!r} does not agree to the introduction", remedy="answer with `declined`")
        return None

    def _answered_questions(
        self, tx: Transaction, message: RoleMessage, replied: Mapping[str, Envelope]
    ) -> list[Letter]:
        """The questions for consent that a message answers.

        Raises:
            MessageInvalid: It is a collaboration_response to one, and does not say yes or no.
        """
        found = [letter_of(tx, self.config.id, each) for each, kind in replied.items() if kind == "request"]
        questions = [each for each in found if each is not None and is_question(each)]
        said = message.payload.get(CONSENT)
        if questions and message.type == "response" and not isinstance(said, bool):
            raise MessageInvalid(
                f"the answer to {message.to_id!r} lacks `consent`", remedy="say true or false in the payload"
            )
        return questions if isinstance(said, bool) else []

    def _referral(self, tx: Transaction, sending: Sending) -> RoleMessage:
        """Tie a request to the one that its sender is asked, and end loops and paths that are too long."""
        message, handling = sending.message, sending.handling
        origin = message.correlation_id
        if not origin and handling is not None:
            asked_for = self._origin(tx, handling)
            origin = "" if asked_for is None or asked_for.answered else asked_for.message.id
        path = self._path(tx, origin)
        if origin and (not path or path[0].message.to_id != message.from_id or path[0].answered):
            raise MessageInvalid(
                f"{message.from_id!r} is not asked for the introduction that `answers` names",
                remedy="leave `answers` out",
            )
        if path and message.to_id in (path[-1].message.from_id, *asked_with(tx, self.config.id, path[-1].message.id)):
            raise MessageInvalid(
                f"{message.to_id!r} was asked for this introduction already", remedy="ask another contact"
            )
        if len(path) >= MAX_HOPS:
            raise MessageInvalid(
                f"{len(path)} members were asked after one another for this introduction",
                remedy="answer with `declined` and say why",
            )
        return replace(message, correlation_id=origin)

    def _origin(self, tx: Transaction, letter: Letter) -> Letter | None:
        """The request for an introduction that a request is, or for which the receiver of an answer had asked on."""
        kind = letter.message.message_type
        if kind == "introduction_request":
            return letter
        request = letter_of(tx, self.config.id, letter.message.correlation_id)
        if request is None or request.message.message_type != "introduction_request":
            return None
        by_person = members_of(tx, self.config.id, [letter.message.from_id]) == {} and letter.message.from_id != ROOT
        if kind != "introduction_response" and not by_person:  # a remark, while the turn of the request is not over
            return None
        return letter_of(tx, self.config.id, request.message.correlation_id)

    def _path(self, tx: Transaction, origin: str) -> list[Letter]:
        """The requests that led to one another, the last first."""
        path: list[Letter] = []
        while origin and len(path) <= MAX_HOPS:
            letter = letter_of(tx, self.config.id, origin)
            if letter is None or letter.message.message_type != "introduction_request":
                break
            path.append(letter)
            origin = letter.message.correlation_id
        return path

    def _receives(self, tx: Transaction, id_: str) -> bool:
        found = members_of(tx, self.config.id, [id_]).get(id_)
        return found is None or found.life.status in LIVE


def told_by(member: str, marks: Sequence[str]) -> tuple[str, ...]:
    """The marks of what a member tells of another one, which had read what `marks` says."""
    return tuple(sorted({*marks} if member == USER else {*marks, f"{MESSAGE_MARK}{member}"}))


def _is_first_task(member: Member, message: RoleMessage) -> bool:
    """Whether a message gives a member its task from its parent: it waits with the member until that is approved."""
    above = member.spec.parent_role_id or ROOT
    given = message.message_type == "task_assignment" and (message.from_id, message.to_id) == (above, member.id)
    return given and member.life.status is RoleStatus.DRAFT
