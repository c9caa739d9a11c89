"""The required fields of the body of each kind of message. `graphs` defines their meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .names import is_name

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


__all__ = ["validation_errors"]
