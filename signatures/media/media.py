"""One image or file for a model, before it becomes one of dspy's types."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import Final, Literal

MediaKind = Literal["image", "file"]

MEDIA_FIELDS: Final = ("attachments", "images", "files")
"""The input fields that a message with attachments has behind its text, where there is something for them.

`attachments` is a text that names each and holds the texts among them; `images` and `files` are lists of `Media`.
"""


@dataclass(frozen=True, slots=True)
class Media:
    """One image or file.

    Attributes:
        kind: Which type of dspy it becomes.
        url: An address, or the content as a data URI. Not in its repr, which may be logged.
    """

    kind: MediaKind
    url: str = field(repr=False)

    @classmethod
    def of(cls, kind: MediaKind, data: bytes, media_type: str) -> Media:
        """What models take content as."""
        return cls(kind, f"data:{media_type};base64,{b64encode(data).decode('ascii')}")


__all__ = ["MEDIA_FIELDS", "Media", "MediaKind"]
