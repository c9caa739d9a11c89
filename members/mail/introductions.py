"""Introductions: requests for them, who is asked on and who has to agree, and what the asker learns (C3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from ...core.errors import MessageInvalid
from ...memory.entries.words import question_words
from ...storage import Transaction
from ..data.brief import Language, interface_of
from ..data.roles import ROOT, USER
from ..data.store import WorkspaceStore
from ..life.members import one_member
from .contacts import Contact, contact_of, contact_words
from .letters import CONSENT, INTRODUCTION, Letter, answering, asked_with, is_question, letter_of, post, replies_to
from .messages import MESSAGE_TYPE, Envelope, RoleMessage
from .rules import MessageRules, Sending, told_by

MAX_HOPS: Final = 8
"""How many members can be asked after one another for one introduction."""

_NONE_KNOWN: Final = "I know of none."
_TEXTS: Final[Mapping[Language, str]] = {
    "en": "{asker} asks for an introduction to {target}. Reason: {reason} Answer with message_type"
    " collaboration_response and `consent`, true or false, in the payload.",
    "zh": "{asker} 请求介绍 {target}。原因：{reason} 请用 message_type collaboration_response 回答，"
    "并在 payload 中写明 consent：true 或 false。",
}


class Introductions:
    """The introductions of a workspace, in a transaction.

    Args:
        store: The database of the workspace.
        rules: Its rules.
    """

    def __init__(self, store: WorkspaceStore, rules: MessageRules) -> None:
        self._store = store
        self._workspace = store.id
        self._rules = rules

    # --- what is sent about one ---------------------------------------------------------------------------------------

    def introduced(
        self, tx: Transaction, sending: Sending, replied: Mapping[str, Envelope], marks: Sequence[str]
    ) -> tuple[RoleMessage, tuple[Contact, ...]]:
        """Check a request or answer about an introduction; returns it with the contact that an answer brings.

        Raises:
            MessageInvalid: The request leads in a circle or too far, or nothing is answered.
            UnknownContact: The one that is introduced is not known.
        """
        message = sending.message
        if message.message_type == "introduction_request":
            return self._referral(tx, sending), ()
        if message.message_type != "introduction_response":
            return message, ()
        requests = [each for each, kind in replied.items() if kind == "request"]
        asked = [each for each in requests if self._rules.is_introduction_request(tx, each)]
        if not asked:
            raise MessageInvalid(
                f"{message.to_id!r} has no open introduction_request to {message.from_id!r}",
                remedy="answer each request once; send a collaboration_request for anything else",
            )
        target, (reason, _) = message.payload.get("target_id"), self._reason(tx, asked[0], message.to_id)
        introduced = () if target is None else (self._introduce(tx, sending, str(target), reason, marks),)
        return replace(message, correlation_id=asked[0]), introduced

    def _introduce(self, tx: Transaction, sending: Sending, target: str, reason: str, marks: Sequence[str]) -> Contact:
        message, payload = sending.message, sending.message.payload
        contact = contact_of(tx, self._workspace, message.from_id, self._rules.alias(target), sending.now)
        if contact is None:
            raise self._rules.stranger(tx, message.from_id, target)
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

    def _referral(self, tx: Transaction, sending: Sending) -> RoleMessage:
        """Tie a request to the one that its sender is asked, and end loops and paths that are too long."""
        message, handling = sending.message, sending.handling
        origin = message.correlation_id
        if not origin and handling is not None:
            asked_for = self.origin(tx, handling)
            origin = "" if asked_for is None or asked_for.answered else asked_for.message.id
        path = self._path(tx, origin)
        if origin and (not path or path[0].message.to_id != message.from_id or path[0].answered):
            raise MessageInvalid(
                f"{message.from_id!r} is not asked for the introduction that `answers` names",
                remedy="leave `answers` out",
            )
        if path and message.to_id in (path[-1].message.from_id, *asked_with(tx, self._workspace, path[-1].message.id)):
            raise MessageInvalid(
                f"{message.to_id!r} was asked for this introduction already", remedy="ask another contact"
            )
        if len(path) >= MAX_HOPS:
            raise MessageInvalid(
                f"{len(path)} members were asked after one another for this introduction",
                remedy="answer with `declined` and say why",
            )
        return replace(message, correlation_id=origin)

    def _path(self, tx: Transaction, origin: str) -> list[Letter]:
        """The requests that led to one another, the last first."""
        path: list[Letter] = []
        while origin and len(path) <= MAX_HOPS:
            letter = letter_of(tx, self._workspace, origin)
            if letter is None or letter.message.message_type != "introduction_request":
                break
            path.append(letter)
            origin = letter.message.correlation_id
        return path

    # --- who has to agree ---------------------------------------------------------------------------------------------

    def question(
        self, tx: Transaction, answer: RoleMessage, chain: int, marks: Sequence[str], now: datetime, case: str
    ) -> Letter | None:
        """Ask the next one that has to agree to an introduction; None if all have agreed.

        Raises:
            MessageInvalid: One has refused.
        """
        for who in self._to_ask(tx, answer):
            reason, read = self._reason(tx, answer.correlation_id, who)
            language = self._rules.language(tx, who)
            asked = _question(answer, who, reason, language)
            responses = answering(tx, self._workspace, asked.id, "response")
            said = [each.message.payload[CONSENT] for each in responses if CONSENT in each.message.payload]
            if not said:
                there = letter_of(tx, self._workspace, asked.id)
                about: dict[str, Any] = {"chain": chain, "marks": sorted({*marks, *read}), "case": case}
                return there or post(tx, self._workspace, asked, now=now, **about)
            if said[0] is not True:
                raise MessageInvalid(f"{who!r} does not agree to the introduction", remedy="answer with `declined`")
        return None

    def _to_ask(self, tx: Transaction, answer: RoleMessage) -> list[str]:
        """Who has to agree, in the order in which they are asked: the lowest common superior, then the target."""
        target, policy, found = str(answer.payload["target_id"]), self._store.config.policy, list[str]()
        if policy.cross_branch == "confirm":
            above = self._lineage(tx, target)
            superior = next(each for each in self._lineage(tx, answer.to_id) if each in above)
            found += [superior] if superior not in (answer.to_id, target, answer.from_id) else []
        return [*found, target] if policy.consent == "ask" else found

    def _lineage(self, tx: Transaction, member: str) -> list[str]:
        """A member and all above it. The World Agent is above all."""
        line = [member]
        while line[-1] != ROOT:
            found = one_member(tx, self._workspace, line[-1])
            line.append(found.spec.parent_role_id or ROOT if found is not None else ROOT)
        return line

    def answered_questions(
        self, tx: Transaction, message: RoleMessage, replied: Mapping[str, Envelope]
    ) -> list[Letter]:
        """The questions for consent that a message answers.

        Raises:
            MessageInvalid: It is a collaboration_response to one, and does not say yes or no.
        """
        found = [letter_of(tx, self._workspace, each) for each, kind in replied.items() if kind == "request"]
        questions = [each for each in found if each is not None and is_question(each)]
        said = message.payload.get(CONSENT)
        if questions and message.type == "response" and not isinstance(said, bool):
            raise MessageInvalid(
                f"the answer to {message.to_id!r} lacks `consent`", remedy="say true or false in the payload"
            )
        return questions if isinstance(said, bool) else []

    # --- what comes of one --------------------------------------------------------------------------------------------

    def found(self, tx: Transaction, request: Letter) -> Contact | None:
        """The contact of the member that is asked, if exactly one fits all words of the request."""
        asked, asker = request.message.to_id, request.message.from_id
        wanted, now = {*question_words(str(request.message.payload["required_capability"]))}, self._store.clock.now()
        known = contact_words(tx, self._workspace, asked, now)
        others = [id_ for id_, words in known.items() if id_ not in (asker, USER, ROOT) and wanted and wanted <= words]
        fitting = [id_ for id_ in others if self._rules.receives(tx, id_)]
        return contact_of(tx, self._workspace, asked, fitting[0], now) if len(fitting) == 1 else None

    def origin(self, tx: Transaction, letter: Letter) -> Letter | None:
        """The request for an introduction that a request is, or for which the receiver of an answer had asked on."""
        kind = letter.message.message_type
        if kind == "introduction_request":
            return letter
        request = letter_of(tx, self._workspace, letter.message.correlation_id)
        if request is None or request.message.message_type != "introduction_request":
            return None
        sender = letter.message.from_id
        by_person = sender != ROOT and one_member(tx, self._workspace, sender) is None
        if kind != "introduction_response" and not by_person:  # a remark, while the turn of the request is not over
            return None
        return letter_of(tx, self._workspace, request.message.correlation_id)

    def is_open(self, tx: Transaction, request: Letter, over: Letter) -> bool:
        """Whether a request is answered, or can be by an answer to a referral that is still to come or to be handled.

        Args:
            tx: The transaction.
            request: The request.
            over: The message whose turn is over.
        """
        for referral in answering(tx, self._workspace, request.message.id, "request"):
            answers = replies_to(tx, self._workspace, referral.message.id)
            left = [each for each in answers if each.state != "handled" and each.message.id != over.message.id]
            if left or not referral.answered:
                return True
        return request.answered

    def why_declined(self, tx: Transaction, origin: Letter, over: Letter) -> tuple[str, tuple[str, ...]]:
        """What the member that was asked said or received without an introduction, and what that is marked with."""
        told = over
        if over.message.id == origin.message.id:
            replies = replies_to(tx, self._workspace, origin.message.id)
            plain = [each for each in replies if each.message.message_type is None]
            told = max(plain, key=lambda each: each.place, default=over)
        text = told.message.content if told.message.message_type is None else ""
        said = told.message.payload.get("declined") or text
        return (str(said), told.marks_for(origin.message.from_id)) if said else (_NONE_KNOWN, ())

    def _reason(self, tx: Transaction, request_id: str, reader: str) -> tuple[str, tuple[str, ...]]:
        """Why a member asked for an introduction, and what marks a turn that is shown it."""
        request = letter_of(tx, self._workspace, request_id)
        if request is None:
            return "", ()
        return str(request.message.payload["reason"]), request.marks_for(reader)


def _question(answer: RoleMessage, who: str, reason: str, language: Language) -> RoleMessage:
    """The question to one that has to agree. Its id makes it one for each introduction, however often it is asked."""
    target = str(answer.payload["target_id"])
    return RoleMessage(
        id=f"{answer.correlation_id}.{who}",
        type="request",
        from_id=answer.from_id,
        to_id=who,
        content=_TEXTS[language].format(asker=answer.to_id, target=target, reason=reason),
        payload={
            MESSAGE_TYPE: "collaboration_request",
            INTRODUCTION: {"to": answer.to_id, "answer": answer.to_json()["payload"]},
        },
        correlation_id=answer.correlation_id,
    )


def answer_in(question: Letter) -> dict[str, Any]:
    """What the asker is answered if all agree, from a question about it."""
    given: dict[str, Any] = question.message.to_json()["payload"][INTRODUCTION]["answer"]
    return given


def response_with(contact: Contact) -> dict[str, Any]:
    """The payload of an introduction_response that introduces a contact."""
    interface = contact.interface
    advice = contact.note or ("" if interface is None else interface.input_format)
    return {
        MESSAGE_TYPE: "introduction_response",
        "target_id": contact.id,
        "role_name": contact.role,
        "interface_spec": None if interface is None else interface.to_json(),
        "usage_advice": advice or "Say what you need and why.",
    }
