"""Messages between members: their types, what each type must carry, and who may be their sender (C8, C9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, get_args

from ...core import check_id
from ...core.checks import MAX_TEXT, check_choice, check_text, check_time, json_object, thawed, to_json
from ...core.errors import BriefInvalid, InvalidArgument, MessageInvalid
from ..data.brief import TaskBrief, interface_of

Envelope = Literal["request", "response", "notification"]
"""The kinds of messages: one that wants an answer, an answer, and one that wants none."""

MessageType = Literal[
    "task_assignment",
    "status_report",
    "introduction_request",
    "introduction_response",
    "collaboration_request",
    "collaboration_response",
]
"""The types of messages. A message without one is plain text."""

MESSAGE_TYPE: Final = "message_type"
"""The field of a payload that holds its type."""

ASSIGNMENT: Final = "task_assignment"
REPORT: Final = "status_report"

MAX_CONTENT: Final = MAX_TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleMessage:
    """One message. Its sender is stamped by the system: no model and no payload sets it (C9).

    Attributes:
        id: Its id. A second delivery with this id has no effect.
        type: A `request` wants an answer, a `response` is one, and a `notification` is neither.
        from_id: Who sent it.
        to_id: Who receives it.
        content: Its text.
        payload: What comes with it, as JSON; `message_type` says what it must hold.
        correlation_id: The id of the message that it answers; empty for none.
        timestamp: When it was sent; None before that.

    Raises:
        MessageInvalid: The payload does not fit its type.
        InvalidArgument: Another field is invalid.
    """

    id: str
    type: Envelope
    from_id: str
    to_id: str
    content: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    correlation_id: str = ""
    timestamp: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("id", "from_id", "to_id"):
            check_id(f"the {name} of a message", getattr(self, name))
        check_choice("type", self.type, get_args(Envelope))
        object.__setattr__(self, "payload", checked_payload(self.payload))
        if self.message_type is None and isinstance(self.content, str) and not self.content.strip():
            raise MessageInvalid("the message is empty", remedy="write a text")
        check_text("content", self.content, most=MAX_CONTENT, empty=True)
        if self.correlation_id:
            check_id("correlation_id", self.correlation_id)
        check_time("timestamp", self.timestamp, optional=True)
        if self.from_id == self.to_id:
            raise MessageInvalid(f"{self.from_id!r} cannot write to itself", remedy="name another receiver")
        if self.type != envelope_of(self.message_type, self.type):
            raise MessageInvalid(
                f"a message of the type {self.message_type!r} is not a {self.type}",
                remedy=f"send it as a {envelope_of(self.message_type, self.type)}",
            )

    @property
    def message_type(self) -> MessageType | None:
        """Its type; None for plain text."""
        found: MessageType | None = self.payload.get(MESSAGE_TYPE)
        return found

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON; the sender is `from`, the receiver `to`."""
        given: dict[str, Any] = to_json(self)
        return {"from": given.pop("from_id"), "to": given.pop("to_id"), **given}


def envelope_of(message_type: MessageType | None, plain: Envelope = "notification") -> Envelope:
    """Which kind of message a type travels as (A4).

    Args:
        message_type: The type.
        plain: The kind of a message without a type.
    """
    if message_type is None:
        return plain
    kind = message_type.rpartition("_")[2]
    return "request" if kind == "request" else "response" if kind == "response" else "notification"


def checked_payload(payload: object) -> Mapping[str, Any]:
    """Return a read-only copy of a payload that fits its type (C8).

    Raises:
        MessageInvalid: Its type is not known, a field that the type needs is missing, or one is invalid.
    """
    problem, remedy = "", "correct this field and send the message again"
    try:
        given = json_object("payload", payload)
        if _has_null(given):
            raise InvalidArgument("`payload` has a null character in a text", remedy="leave it out")
        if MESSAGE_TYPE in given:
            check_choice(MESSAGE_TYPE, given[MESSAGE_TYPE], get_args(MessageType))
            if given[MESSAGE_TYPE] in _NEEDS:  # a collaboration asks for what its receiver's interface spec says (C4)
                _NEEDS[given[MESSAGE_TYPE]](given)
        return given
    except (BriefInvalid, InvalidArgument) as error:
        problem, remedy = error.problem, error.remedy
    raise MessageInvalid(f"the message cannot be sent: {problem}", remedy=remedy)


def _has_null(value: object) -> bool:
    """Whether a text in a JSON value has a null character: no text column of Postgres holds one."""
    if isinstance(value, Mapping):
        return any(map(_has_null, (*value, *value.values())))
    return any(map(_has_null, value)) if isinstance(value, tuple) else isinstance(value, str) and "\0" in value


TASK: Final = "task"
"""The field of a payload with the id of a brief: the one that a `task_assignment` gives again, or that a
`status_report` is about (A19)."""


def _assignment(payload: Mapping[str, Any]) -> None:
    if "task_brief" not in payload:
        if TASK in payload:
            check_id(TASK, payload[TASK])
            return
        raise InvalidArgument(
            "a task_assignment lacks `task_brief`",
            remedy=f"add the task brief to the payload; to give one again, its id as `{TASK}`",
        )
    TaskBrief.from_json(thawed(payload["task_brief"]))


def _report(payload: Mapping[str, Any]) -> None:
    if not isinstance(payload.get("done", False), bool):
        raise InvalidArgument("`done` must be true or false", remedy="omit it until the work is done")


def _introduction_request(payload: Mapping[str, Any]) -> None:
    for name in ("reason", "required_capability"):
        if payload.get(name) in (None, ""):
            raise InvalidArgument(f"an introduction_request lacks `{name}`", remedy=f"add `{name}` as a text")
        check_text(name, payload[name])


def _introduction_response(payload: Mapping[str, Any]) -> None:
    """Either who it is, or, in `declined`, why no member was found."""
    if "declined" in payload:
        check_text("declined", payload["declined"])
        return
    for name in ("target_id", "role_name", "usage_advice"):
        if payload.get(name) in (None, ""):
            raise InvalidArgument(
                f"an introduction_response lacks `{name}`",
                remedy="say who it is with `target_id`, `role_name`, `interface_spec` and `usage_advice`,"
                " or in `declined` why you know of none",
            )
        check_text(name, payload[name])
    check_id("target_id", payload["target_id"])
    if "interface_spec" not in payload:
        raise InvalidArgument(
            "an introduction_response lacks `interface_spec`", remedy="add it; null where there is none"
        )
    interface_of(thawed(payload["interface_spec"]))


_NEEDS: Final = {
    "task_assignment": _assignment,
    "status_report": _report,
    "introduction_request": _introduction_request,
    "introduction_response": _introduction_response,
}
