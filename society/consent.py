"""Who is asked before an introduction: the lowest common superior, and the one that is introduced (C3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..storage import Transaction
from .brief import Language
from .mail import Letter, answering
from .members import members_of
from .messages import MESSAGE_TYPE, RoleMessage
from .roles import ROOT
from .workspace import WorkspacePolicy

INTRODUCTION: Final = "introduction"
"""The field of a payload that says which introduction is asked about, and what is answered if all agree."""

CONSENT: Final = "consent"
"""The field of the answer: true or false."""

_TEXTS: Final[Mapping[Language, str]] = {
    "en": "{asker} asks for an introduction to {target}. Reason: {reason} Answer with message_type"
    " collaboration_response and `consent`, true or false, in the payload.",
    "zh": "{asker} 请求介绍 {target}。原因：{reason} 请用 message_type collaboration_response 回答，"
    "并在 payload 中写明 consent：true 或 false。",
}


def to_ask(tx: Transaction, workspace: str, policy: WorkspacePolicy, answer: RoleMessage) -> list[str]:
    """Who has to agree to an introduction, in the order in which they are asked.

    Args:
        tx: The transaction.
        workspace: The workspace.
        policy: Its policy.
        answer: The introduction_response, with the id of the request that it answers.
    """
    target, asker, introducer = str(answer.payload["target_id"]), answer.to_id, answer.from_id
    found = []
    if policy.cross_branch == "confirm":
        superior = common_superior(tx, workspace, asker, target)
        found += [superior] if superior not in (asker, target, introducer) else []
    if policy.consent == "ask":
        found.append(target)
    return found


def common_superior(tx: Transaction, workspace: str, one: str, other: str) -> str:
    """The lowest member above two members, or one of them if it is above the other. The World Agent is above all."""
    above = _lineage(tx, workspace, other)
    return next(each for each in _lineage(tx, workspace, one) if each in above)


def _lineage(tx: Transaction, workspace: str, member: str) -> list[str]:
    line = [member]
    while line[-1] != ROOT:
        found = members_of(tx, workspace, [line[-1]]).get(line[-1])
        line.append(found.spec.parent_role_id or ROOT if found is not None else ROOT)
    return line


def question(answer: RoleMessage, who: str, reason: str, language: Language) -> RoleMessage:
    """The question to one that has to agree. Its id makes it one for each introduction, however often it is asked."""
    target = str(answer.payload["target_id"])
    payload = {
        MESSAGE_TYPE: "collaboration_request",
        INTRODUCTION: {"to": answer.to_id, "answer": answer.to_json()["payload"]},
    }
    return RoleMessage(
        id=f"{answer.correlation_id}.{who}",
        type="request",
        from_id=answer.from_id,
        to_id=who,
        content=_TEXTS[language].format(asker=answer.to_id, target=target, reason=reason),
        payload=payload,
        correlation_id=answer.correlation_id,
    )


def agreed(tx: Transaction, workspace: str, question_id: str) -> bool | None:
    """What was answered to a question; None if nothing was."""
    found = [each for each in answering(tx, workspace, question_id, "response") if CONSENT in each.message.payload]
    return found[0].message.payload[CONSENT] is True if found else None


def is_question(letter: Letter | None) -> bool:
    """Whether a message asks for consent to an introduction. Only the system makes one: its id says so."""
    return (
        letter is not None
        and INTRODUCTION in letter.message.payload
        and letter.message.id == f"{letter.message.correlation_id}.{letter.message.to_id}"
    )


def answer_of(letter: Letter) -> dict[str, Any]:
    """What the asker is answered if all agree, from a question about it."""
    given: dict[str, Any] = letter.message.to_json()["payload"][INTRODUCTION]["answer"]
    return given
