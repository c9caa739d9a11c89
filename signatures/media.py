"""One image or file for a model, before it is converted to one of dspy's types."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import dspy

MediaKind = Literal["image", "file"]

MEDIA_FIELDS: Final = ("attachments", "images", "files")
"""The input fields that a message with attachments has after its text, if they have values.

`attachments` is a text with the names, and the content of text attachments. `images` and `files` are lists of `Media`.
"""


@dataclass(frozen=True, slots=True)
class Media:
    """One image or file.

    Attributes:
        kind: The dspy type that it becomes.
        url: An address, or the content as a data URI. The repr omits it, because a repr can be logged.
    """

    kind: MediaKind
    url: str = field(repr=False)

    @classmethod
    def of(cls, kind: MediaKind, data: bytes, media_type: str) -> Media:
        """Encode content for models."""
        return cls(kind, f"data:{media_type};base64,{b64encode(data).decode('ascii')}")


def parts_of(value: Any) -> list[dict[str, Any]] | None:
    """The message parts for a value that is an image or a file, or a list of them; None for anything else.

    dspy would write a marker into the text and search for markers later, so a user's text could imitate one.
    """
    items: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if not items or not all(isinstance(item, Media | dspy.Image | dspy.File) for item in items):
        return None
    return [part for item in items for part in _parts(item)]


def _parts(item: Media | dspy.Image | dspy.File) -> list[dict[str, Any]]:
    if isinstance(item, Media):
        item = dspy.Image(item.url) if item.kind == "image" else dspy.File(file_data=item.url)
    if isinstance(item, dspy.Image):
        # not its own `format`, which keeps the last 32 images of the process
        return [{"type": "image_url", "image_url": {"url": item.url}}]
    return list(item.format())
