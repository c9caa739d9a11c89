"""Messages and attachments on the command line: what `--attach` names, and how a person reads a message."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...core.errors import InvalidArgument
from ...core.events import AttachmentLeftOut

if TYPE_CHECKING:
    from ...memory import Message
    from ...memory.attachments import AttachmentSource

_WHY: Final = {
    "missing": "its content is gone",
    "not_taken": "the model does not take this kind",
    "too_large": "with the other attachments it is too large",
}


def attachments(given: Iterable[str] | None) -> tuple[Path | str, ...]:
    """The files and addresses that `--attach FILE|URL` names. They are read when the turn begins.

    Raises:
        InvalidArgument: One of them is empty.
    """
    return tuple(attachment(item) for item in given or ())


def attachment(given: str, option: str = "--attach") -> Path | str:
    """A file or an address.

    Raises:
        InvalidArgument: It is empty, or begins with an unknown user.
    """
    if given.lower().startswith(("http://", "https://")):
        return given
    path = None
    if given.strip():
        with suppress(RuntimeError):
            path = Path(given).expanduser()
    if path is None:
        raise InvalidArgument(f"{option} names no file", remedy="give the path of a file, or https://...")
    return path


def named(source: AttachmentSource) -> str:
    """The name of an attachment, for a person."""
    if isinstance(source, Path):
        return source.name
    return getattr(source, "name", None) or str(source)


def attached_text(message: Message) -> str:
    """A line that names what is attached to a message, or the empty text."""
    from ...memory.attachments import attachments_of

    found = attachments_of(message)
    return f"[attached: {', '.join(f'{one.name} ({one.media_type})' for one in found)}]" if found else ""


def left_out_text(event: AttachmentLeftOut) -> str:
    """The line about an attachment that the model does not get."""
    return f"not shown to the model, because {_WHY[event.reason]}: {event.name}"


def message_text(message: Message) -> str:
    """The text of a message with its attachments. A message without either is shown as JSON."""
    text = message.body.get("text")
    shown = f"{text.strip()} {attached_text(message)}".strip() if isinstance(text, str) else ""
    if not shown:
        return f"[{message.kind}] {json.dumps(dict(message.body), ensure_ascii=False)}"
    return f"[summary] {shown}" if message.kind == "summary" else shown


def author_text(message: Message) -> str:
    """The author of a message: the account, after the name if another name was given."""
    name = message.name
    return message.author if name is None or name == message.author else f"{name} ({message.author})"
