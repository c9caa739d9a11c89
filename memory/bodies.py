"""The required fields of the body of each kind of message. `graphs` defines their meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..core.errors import InvalidArgument

_LONGEST: Final = 80


def is_name(value: object) -> bool:
    """Whether a person can have this name: 1 to 80 printable characters in one line, not only blanks."""
    return isinstance(value, str) and 0 < len(value) <= _LONGEST and value.isprintable() and bool(value.strip())


def check_name(value: str) -> str:
    """Return `value` if a person can have this name.

    Raises:
        InvalidArgument: It is not a valid name; the error does not show the value.
    """
    if is_name(value):
        return value
    given = f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
    raise InvalidArgument(
        f"`name` must be 1 to {_LONGEST} printable characters in one line, not only blanks, got {given}",
        remedy="shorten it, or leave it out",
    )


REQUIRED_FIELDS: Final[Mapping[str, Mapping[str, type]]] = {
    "message": {"text": str},
    "answer": {"text": str},
    "schedule": {"schedule": str, "fired_at": str, "payload": dict},
    "task": {"shape": str, "params": dict},
    "skill": {"shape": str, "params": dict},
    "result": {"to": str, "status": str},
    "summary": {"text": str, "first": str, "last": str, "messages": int, "results": list},
    "done": {"result": dict},
    "failed": {"error": dict},
}
"""The required fields by kind of message, and by status of a result, for a turn to continue from it."""


NAMED_KINDS: Final = ("message", "task", "skill")
"""The kinds of messages that can have the name of the person who speaks."""


def validation_errors(kind: str, body: Mapping[str, Any]) -> list[str]:
    """The names of the invalid fields of a body; empty if it is valid.

    Args:
        kind: The message's kind.
        body: Its body. Attachments are not checked.
    """
    kinds = [kind, str(body.get("status"))] if kind == "result" else [kind]
    needed = {name: wanted for each in kinds for name, wanted in REQUIRED_FIELDS.get(each, {}).items()}
    wrong = [name for name, wanted in needed.items() if not isinstance(body.get(name), wanted)]
    if kind in NAMED_KINDS and not is_name(body.get("name", "nobody")):
        wrong.append("name")
    if kind == "result" and kinds[-1] not in ("done", "failed"):
        wrong.append("status")
    return wrong
