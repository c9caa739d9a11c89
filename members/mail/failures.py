"""What the sender of a message receives if the turn of the message fails: the code of the error and its remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...core.errors import WorldAgentError
from ..data.brief import Language
from ..data.roles import USER
from .letters import Letter
from .messages import RoleMessage

_TEXTS: Final[Mapping[Language, str]] = {
    "en": "From the system: the turn of {receiver} on your message failed.",
    "zh": "系统通知：{receiver} 处理你的消息时失败。",
}


def failure_text(letter: Letter, error: WorldAgentError, language: Language) -> str:
    """Why an introduction is declined if the turn of the request for it failed."""
    return f"{_TEXTS[language].format(receiver=letter.message.to_id)} {error.code}: {error.remedy}"


def failed(letter: Letter, error: WorldAgentError, language: Language) -> RoleMessage:
    """The notification of a sender that a turn failed. It asks for no reply, and its id makes it one for each message.

    Args:
        letter: The message whose turn failed.
        error: What it failed with.
        language: The language of the sender.
    """
    return RoleMessage(
        id=_id_of(letter.message.id),
        type="response",
        from_id=letter.message.to_id,
        to_id=letter.message.from_id,
        content=_TEXTS[language].format(receiver=letter.message.to_id),
        payload={"error": error.code, "remedy": error.remedy},
        correlation_id=letter.message.id,
    )


_STUCK: Final[Mapping[Language, str]] = {
    "en": "From the system: the turn of {receiver} on the message {message} of {sender} can never resume.",
    "zh": "系统通知：{receiver} 处理 {sender} 的消息 {message} 的运行无法继续。",
}


def not_resumed(letter: Letter, error: WorldAgentError, language: Language) -> RoleMessage:
    """The notification of the owner that the turn of a message can never resume, one for each message.

    Args:
        letter: The message.
        error: Why it cannot.
        language: The language of the owner.
    """
    message = letter.message
    text = _STUCK[language].format(receiver=message.to_id, message=message.id, sender=message.from_id)
    return stuck(f"{message.id}.stuck", message.to_id, text, error)


def stuck(message_id: str, from_id: str, text: str, error: WorldAgentError) -> RoleMessage:
    """A notification of the owner that something cannot go on, with the error and its remedy."""
    payload = {"error": error.code, "problem": error.problem, "remedy": error.remedy}
    return RoleMessage(id=message_id, type="notification", from_id=from_id, to_id=USER, content=text, payload=payload)


def is_failure(letter: Letter) -> bool:
    """Whether a message is such a notification. Only the system makes one: its id says so."""
    message = letter.message
    return bool(message.correlation_id) and message.id == _id_of(message.correlation_id)


def _id_of(message_id: str) -> str:
    return f"{message_id}.failed"
