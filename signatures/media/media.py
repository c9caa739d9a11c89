"""One image or file for a model, before it is converted to one of dspy's types."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import Final, Literal

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


__all__ = ["MEDIA_FIELDS", "Media", "MediaKind"]
