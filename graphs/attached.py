"""Turns references in messages into model input: a list of names, texts word for word, images and documents.

Content that was shown once is shown again in later turns, byte for byte, as long as the newest attachments fit (R17).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

from ..core.errors import AttachmentInvalid, AttachmentMissing, AttachmentNotTaken
from ..core.events import AttachmentLeftOut
from ..harness.gate.labels import ATTACHMENT
from ..memory.attachments import Attachment, Attachments
from ..signatures.media import Media, MediaKind
from .context import TurnContext

ROOM: Final = 20 * 1024 * 1024
"""The limit of attachment bytes in one prompt, and of one attachment. Services refuse more than about 32 MiB, and
base64 adds a third."""

MEDIA: Final = 64
"""The limit of images and documents in one prompt. Services refuse more than about a hundred."""

MAX_TEXT_CHARACTERS: Final = 100_000
"""The limit of characters of one text in a prompt."""

_TEXT: Final = 4 * MAX_TEXT_CHARACTERS  # the limit of bytes for that many characters

_SHARE: Final = 4
"""The part of the characters that the model sees which texts of earlier messages can take."""

ATTACHED: Final = "attachments"
_Why = Literal["not_taken", "missing", "too_large"]
_GONE: Final = "its content is gone"
_NO_ROOM: Final = "not shown again"
_TOO_LARGE: Final = "not shown: the attachments are too large in all"


@dataclass(slots=True)
class _Room:
    """The space that is left in a prompt, and what can go into it.

    Attributes:
        takes: The kinds of media that the model accepts in addition to text.
        left: Bytes; below 0 if nothing more is shown.
        media: Images and documents.
        own: Whether these are the attachments of the turn's own message, which must be shown.
        text_characters: Characters of texts; None is unlimited.
    """

    takes: frozenset[MediaKind]
    left: int
    media: int
    own: bool
    text_characters: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A turn's message and the history before it, with their attachments.

    Attributes:
        message: The fields of the turn's message.
        history: The messages before it.
        heavy: Whether the history holds content of attachments.
    """

    message: Mapping[str, Any]
    history: list[dict[str, Any]]
    heavy: bool = False

    @classmethod
    async def of(
        cls,
        turn: TurnContext,
        message: Mapping[str, Any],
        history: Sequence[dict[str, Any]],
        *,
        light: bool,
        report: bool,
    ) -> Self:
        """Load the content of the attachments.

        Args:
            turn: The turn.
            message: Its message; `attachments` is a tuple of references, if there are any.
            history: The messages before it, in the same form.
            light: Whether only the names of attachments of earlier messages are shown.
            report: Whether events report what the model does not get.

        Raises:
            AttachmentMissing: An attachment of the turn's own message is gone, or differs from what was stored.
        """
        gather = _ContentLoader(turn, report)
        most_bytes = room_of(turn.services.attachments)
        room = _Room(takes=turn.services.caller.takes, left=most_bytes, media=MEDIA, own=True)
        if ATTACHED in message:
            message = await gather.fields(message, room)
        # If the context is known it is small, and then messages matter more than old attachments.
        light = light or turn.services.caller.history_characters is not None
        most = turn.services.options.history_characters
        left = -1 if light else room.left
        room = replace(room, left=left, own=False, text_characters=None if most is None else texts_of(most))
        shown = [*history]
        for place in range(len(shown) - 1, -1, -1):
            if ATTACHED in shown[place]:
                shown[place] = await gather.fields(shown[place], room)
        return cls(message=message, history=shown, heavy=gather.earlier)


class _ContentLoader:
    """Loads the content of attachments for one prompt.

    Attributes:
        earlier: Whether it holds content of an attachment of an earlier message.
    """

    def __init__(self, turn: TurnContext, report: bool) -> None:
        self._turn = turn
        self._report = report
        self.earlier = False

    async def fields(self, message: Mapping[str, Any], room: _Room) -> dict[str, Any]:
        """The fields of a message with attachments."""
        made, lines = dict(message), list[str]()
        for place, attachment in enumerate(message[ATTACHED], start=1):
            shown = await self._shown(attachment, room, made)
            lines.append(f"{place}. {_named(attachment)}{shown}")
        return made | {ATTACHED: "\n".join(lines)}

    async def _shown(self, attachment: Attachment, room: _Room, made: dict[str, Any]) -> str:
        """Add the content to its field, and return what the list says about it."""
        kind = attachment.kind
        if kind == "other":
            return ", by reference only"
        if kind != "text" and kind not in room.takes:
            if room.own:
                self._left_out(attachment, "not_taken")
            return f", not shown: the model takes no {kind}s"
        size = _bytes_of(attachment)
        if kind == "text" and room.text_characters is not None and size > room.text_characters:
            room.text_characters = 0
            return f", {_NO_ROOM}"
        if size > room.left or room.media <= 0:
            room.left = -1  # nothing older is shown either, so that content does not disappear and reappear
            if room.own:
                self._left_out(attachment, "too_large")
            return f", {_TOO_LARGE if room.own else _NO_ROOM}"
        content = await self._content(attachment, room)
        if content is None:
            return f", {_GONE}"
        self._turn.gate.mark(ATTACHMENT)  # a person can pass on a text that an untrusted party wrote
        if kind == "text":
            return self._in_words(content, room) if isinstance(content, bytes) else ""
        self._used(room, size)
        room.media -= 1
        media = content if isinstance(content, str) else Media.of(kind, content, attachment.media_type).url
        shown = made.setdefault(f"{kind}s", [])
        shown.append(Media(kind, media))
        return f", {kind} {len(shown)}"

    def _in_words(self, content: bytes, room: _Room) -> str:
        """The text as it appears in the list, if there is space for it."""
        text = _text(content)
        if room.text_characters is not None:
            if len(text) > room.text_characters:
                room.text_characters = 0
                return f", {_NO_ROOM}"
            room.text_characters -= len(text)
        self._used(room, min(len(content), _TEXT))
        return f":\n{text}"

    def _used(self, room: _Room, size: int) -> None:
        room.left -= size
        self.earlier = self.earlier or not room.own

    async def _content(self, attachment: Attachment, room: _Room) -> bytes | str | None:
        """The content, or the address if models fetch it themselves, or None if it is gone."""
        if attachment.url is not None:
            return attachment.url
        try:
            return await self._turn.services.attachments.read(attachment)
        except AttachmentMissing:
            if room.own:
                raise
        self._left_out(attachment, "missing")
        return None

    def _left_out(self, attachment: Attachment, why: _Why) -> None:
        if self._report:
            self._turn.emit(AttachmentLeftOut, name=attachment.name, reason=why)


def check_taken(attachments: Sequence[Attachment], takes: frozenset[MediaKind], *, model: str, room: int) -> None:
    """Refuse attachments that a model does not accept, before anything is written.

    Args:
        attachments: The attachments of one message.
        takes: The kinds of media that the model accepts in addition to text.
        model: The name of the model.
        room: The limit of their bytes in one prompt.

    Raises:
        AttachmentNotTaken: The model accepts no images, or no documents; the text names the first one.
        AttachmentInvalid: Their total size is too large.
    """
    for attachment in attachments:
        kind = attachment.kind
        if kind in ("image", "file") and kind not in takes:
            raise AttachmentNotTaken(
                f"the model {model!r} accepts no {kind}s, and {attachment.name!r} is of type {attachment.media_type!r}",
                remedy="use a model that does, or set attachment_fallback to 'note' to send only the name; "
                "if the model does accept them, set model_takes",
            )
    size = sum(_bytes_of(attachment) for attachment in attachments if attachment.kind != "other")
    if size > room:
        raise AttachmentInvalid(
            f"the attachments of one message must have at most {room} bytes in all, got {size}",
            remedy="spread them over messages, or set attachment_fallback to 'note' to send only the last names",
        )


def room_of(store: Attachments) -> int:
    """How many bytes of attachments one prompt can hold."""
    return max(ROOM, store.limit)


def _bytes_of(attachment: Attachment) -> int:
    """How many bytes of the attachment go into a prompt."""
    size = attachment.size or 0
    return min(size, _TEXT) if attachment.kind == "text" else size


def texts_of(most: int) -> int:
    """How many characters the texts of earlier messages can take, if the model sees `most`."""
    return most // _SHARE


def size_of(attachments: Sequence[Attachment], *, texts: int) -> int:
    """The approximate number of characters of a list of attachments.

    Args:
        attachments: The attachments of the list.
        texts: A text of at most so many characters is counted in addition to its name.
    """
    sizes = [_bytes_of(each) for each in attachments if each.kind == "text"]
    return sum(len(_named(each)) + len(_NO_ROOM) for each in attachments) + sum(size for size in sizes if size <= texts)


def _named(attachment: Attachment) -> str:
    what = f"{json.dumps(attachment.name, ensure_ascii=False)} ({attachment.media_type}"
    if attachment.url is not None:
        return f"{what}, {attachment.url})"
    return f"{what}, {attachment.size:,} bytes, sha256 {attachment.sha256})"


async def texts_in(attachments: Sequence[Attachment], store: Attachments) -> list[dict[str, Any]]:
    """Attachments as JSON: the name, the type and the text of each; null where it is not a text, or is gone.

    Args:
        attachments: The attachments.
        store: Has their content.
    """
    found = list[dict[str, Any]]()
    for each in attachments:
        text = None
        if each.kind == "text" and each.url is None:
            with suppress(AttachmentMissing):
                text = (await store.read(each)).decode("utf-8-sig", "replace")[:MAX_TEXT_CHARACTERS]
        found.append({"name": each.name, "type": each.media_type, "text": text})
    return found


def _text(content: bytes) -> str:
    """The text, indented so that no line of it looks like the next attachment."""
    text = content.decode("utf-8-sig", "replace")
    lines = text[:MAX_TEXT_CHARACTERS].splitlines(keepends=True)
    shown = "".join(("  ", "  ".join(lines))) if lines else ""
    return (
        shown
        if len(text) <= MAX_TEXT_CHARACTERS
        else f"{shown}\n[the first {MAX_TEXT_CHARACTERS:,} of {len(text):,} characters]"
    )
