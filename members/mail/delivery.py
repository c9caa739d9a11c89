"""The form in which a member reads a message: who sent it, its text, and how to reply (C10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...core import canonical_json
from ...core.lookalikes import letters_of
from ..data.brief import Language, TaskBrief
from .messages import RoleMessage


@dataclass(frozen=True, slots=True)
class _Form:
    """The lines of one language."""

    from_user: str
    from_role: str
    from_id: str
    asked: str
    reply: str
    introduced: str


_FORMS: Final[Mapping[Language, _Form]] = {
    "en": _Form(
        from_user="[Message from the user]",
        from_role="[Message from {role} ({id})]",
        from_id="[Message from {id}]",
        asked="Asked for by {account}, who is not the owner",
        reply="To reply, use send_message(to='{id}', ...)",
        introduced="First contact. Role: {role}. Duties: {duties}. Reason: {reason}",
    ),
    "zh": _Form(
        from_user="【来自用户的消息】",
        from_role="【来自 {role}（{id}）的消息】",
        from_id="【来自 {id} 的消息】",
        asked="请求者：{account}（不是所有者）",
        reply="如需回复，请使用 send_message(to='{id}', ...)",
        introduced="首次联系。角色：{role}。职责：{duties}。联系原因：{reason}",
    ),
}

_LINES: Final = ("Message from", "来自", "Asked for by", "请求者", "To reply", "如需回复", "First contact", "首次联系")
_STARTS: Final = tuple(map(letters_of, _LINES))
"""How the lines above begin, in letters and digits alone. No line of a text may begin so."""

_LONGEST: Final = max(map(len, _STARTS))
_BEGINNING: Final = 80  # characters of a line that mostly have as many letters


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """What a first message tells about its sender (C5).

    Attributes:
        role: What it is.
        duties: What it is responsible for.
        reason: Why it writes.
    """

    role: str
    duties: str
    reason: str


def delivered(
    message: RoleMessage,
    *,
    language: Language = "en",
    role: str = "",
    from_user: bool = False,
    can_reply: bool = True,
    introduction: Introduction | None = None,
    asked_by: Sequence[str] = (),
) -> str:
    """Write a message as its receiver reads it.

    Args:
        message: The message.
        language: The language of the receiver.
        role: The name of the sender's role; empty where it is not known.
        from_user: Whether the owner of the workspace sent it.
        can_reply: Whether the receiver has `send_message`. A response and a message of the user get no hint (C10).
        introduction: What a first message tells about its sender.
        asked_by: The accounts other than the owner's for which the World Agent sent it.
    """
    form = _FORMS[language]
    lines = [form.from_user if from_user else (form.from_role if role else form.from_id).format(
        role=_in_brackets(role), id=_in_line(message.from_id)
    )]  # fmt: skip
    lines += [form.asked.format(account=_in_line(each)) for each in asked_by]
    if introduction is not None:
        given = {name: _in_line(getattr(introduction, name)) for name in ("role", "duties", "reason")}
        lines.append(form.introduced.format(**given))
    if message.content:
        lines.append(quoted(message.content))
    lines += _payload_lines(message, language, introduction)
    if can_reply and not from_user and message.type != "response":
        lines.append(form.reply.format(id=_in_line(message.from_id)))
    return "\n".join(lines)


def quoted(text: str) -> str:
    """A text whose lines cannot be taken for those of the form: `> ` stands before each that could."""
    return "\n".join(f"> {line}" if _is_forged(line) else line for line in text.splitlines())


def _payload_lines(message: RoleMessage, language: Language, introduction: Introduction | None) -> list[str]:
    if message.message_type == "task_assignment":
        return [quoted(TaskBrief.from_json(message.to_json()["payload"]["task_brief"]).to_text(language))]
    given = {name: value for name, value in message.to_json()["payload"].items() if name != "message_type"}
    if introduction is not None and given.get("reason") == introduction.reason:
        del given["reason"]  # the introduction has it
    return [quoted(f"{_in_line(name)}: {_in_line(_as_text(value))}") for name, value in given.items()]


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else canonical_json(value)


def _in_line(text: str) -> str:
    """A text in one line."""
    return " ".join(text.split())


def _in_brackets(name: str) -> str:
    """A name in one line that does not end the brackets it stands in: a param of a template can be part of it."""
    return _in_line("".join(" " if each in "[]【】［］()（）" else each for each in name))  # the id has round ones


def _is_forged(line: str) -> bool:
    # Neither brackets, white space, invisible characters nor letters of other alphabets hide a line.
    begun = letters_of(line[:_BEGINNING])
    if len(begun) < _LONGEST and len(line) > _BEGINNING:
        begun = letters_of(line)
    return begun.startswith(_STARTS)
