"""A message of a thread as a person reads it on the command line. Turns are for `_output`, pauses for `_pauses`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .attachments import attached_text

if TYPE_CHECKING:
    from ...memory import Message


def message_text(message: Message) -> str:
    """What a message says, with what is attached to it; of one that says nothing, its JSON."""
    text = message.body.get("text")
    told = f"{text.strip()} {attached_text(message)}".strip() if isinstance(text, str) else ""
    if not told:
        return f"[{message.kind}] {json.dumps(dict(message.body), ensure_ascii=False)}"
    return f"[summary] {told}" if message.kind == "summary" else told


def author_text(message: Message) -> str:
    """Who says a message: the account, behind the name where another one was given."""
    name = message.name
    return message.author if name is None or name == message.author else f"{name} ({message.author})"


__all__ = ["author_text", "message_text"]
