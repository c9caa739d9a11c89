"""The reference to an attachment in a message. The content is in the store of attachments, or at an address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...core.errors import AttachmentInvalid, InvalidArgument, StorageInvalid
from ..conversation import Message

MOST: Final = 16
"""The most attachments of one message."""

_SHA256 = re.compile("[0-9a-f]{64}")
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,99}/[a-z0-9][a-z0-9!#$&^_.+-]{0,99}")
_NAME: Final = 200  # characters
_URL: Final = 2000  # characters
_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_TEXTS: Final = ("application/json", "application/xml", "application/yaml", "application/toml", "application/jsonl")

Kind = Literal["image", "file", "text", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A reference to an image or a file. Get one from `agent.attachments.add(...)` or `.of(message)`.

    Attributes:
        name: Its name, without a path.
        media_type: The media type, such as `image/png`, found from the content if possible.
        size: Its size in bytes; None for an address, whose content is not read.
        sha256: The hash of the content in the store, 64 hex digits; None for an address.
        url: The address, `http` or `https`; None for content in the store.

    Raises:
        AttachmentInvalid: A field is invalid; the text names it.
    """

    name: str
    media_type: str
    size: int | None = None
    sha256: str | None = None
    url: str | None = None

    def __post_init__(self) -> None:
        problem = _problem(self)
        if problem:
            raise AttachmentInvalid(
                f"an attachment {problem}", remedy="use one that agent.attachments.add() or of() returned"
            )

    @property
    def kind(self) -> Kind:
        """How a model gets it: `image`, `file` (PDF), `text` (for every model), or `other` (only the reference)."""
        if self.media_type in _IMAGES:
            return "image"
        if self.url is not None:
            return "other"  # it is not fetched, and models accept only the addresses of images
        if self.media_type == "application/pdf":
            return "file"
        return "text" if is_textual(self.media_type) else "other"

    @property
    def id(self) -> str:
        """Its id: the hash of its content, or its address."""
        return self.sha256 or str(self.url)

    def to_json(self) -> dict[str, Any]:
        """The reference as JSON, as the body of a message has it."""
        where = {"url": self.url} if self.sha256 is None else {"sha256": self.sha256, "bytes": self.size}
        return {"name": self.name, "media_type": self.media_type, **where}


class _Stored(BaseModel):
    """One reference in the body of a message."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)

    name: str
    media_type: str
    bytes: int | None = None
    sha256: str | None = None
    url: str | None = None


class _Body(BaseModel):
    attachments: list[_Stored] = Field(default=[], max_length=MOST)


def attachments_of(message: Message) -> tuple[Attachment, ...]:
    """The attachments of a message, in the order they were attached.

    Raises:
        StorageInvalid: The references in the message cannot be read; the text names the message.
    """
    if "attachments" not in message.body:
        return ()
    try:
        return read_references(message.body)
    except (ValidationError, AttachmentInvalid):
        pass
    raise StorageInvalid(
        f"the attachments of the message {message.id!r} cannot be read",
        remedy="restore the log from a copy, or continue on another thread",
    )


def read_references(body: Mapping[str, Any]) -> tuple[Attachment, ...]:
    """The attachments in the body of a message.

    Raises:
        pydantic.ValidationError, AttachmentInvalid: A reference is invalid.
    """
    found = _Body.model_validate({"attachments": body.get("attachments", [])}).attachments
    return tuple(
        Attachment(name=one.name, media_type=one.media_type, size=one.bytes, sha256=one.sha256, url=one.url)
        for one in found
    )


def is_textual(media_type: str) -> bool:
    """Whether content of this type can be part of a prompt as text."""
    return media_type.startswith("text/") or media_type in _TEXTS or media_type.endswith(("+json", "+xml"))


def is_media_type(value: object) -> bool:
    """Whether `value` is a media type in lower case, without parameters."""
    return isinstance(value, str) and _MEDIA_TYPE.fullmatch(value) is not None


def check_sha256(value: str) -> str:
    """Return `value` if it is a hash of content.

    Raises:
        InvalidArgument: It is not a hash.
    """
    if isinstance(value, str) and _SHA256.fullmatch(value):
        return value
    raise InvalidArgument("this is not an attachment", remedy="pass an Attachment, or its sha256 of 64 hex digits")


def clean_name(name: str, default: str = "attachment") -> str:
    """Make a valid name for a message: the last part of a path, printable, and not too long."""
    last = re.split(r"[/\\]", name.rstrip("/\\"))[-1]
    cleaned = "".join(mark if mark.isprintable() else "_" for mark in last).strip()
    if len(cleaned) > _NAME:
        stem, dot, ending = cleaned.rpartition(".")
        kept = f"{dot}{ending}" if stem and len(ending) < _NAME // 10 else ""
        cleaned = cleaned[: _NAME - len(kept)] + kept
    return cleaned or default


def url_problem(url: str) -> str:
    """The problem of an address, or an empty text. It never shows the address, which can contain a key."""
    if len(url) > _URL:
        return f"is longer than {_URL} characters"
    if not url.isascii() or not url.isprintable() or " " in url:
        return "has characters that are not printable ASCII"
    try:
        parts = urlsplit(url)
        host, who = parts.hostname, parts.username or parts.password
        _ = parts.port
    except ValueError:
        return "cannot be read"
    if parts.scheme not in ("http", "https") or not host:
        return "is neither http:// nor https:// with a host"
    return "contains a user or password" if who is not None else ""


def _problem(given: Attachment) -> str:
    if not isinstance(given.name, str) or given.name != clean_name(given.name):
        return "has a name that is not a plain file name"
    if not is_media_type(given.media_type):
        return f"{given.name!r} has no media type such as 'image/png'"
    if (given.sha256 is None) == (given.url is None):
        return f"{given.name!r} must have either a sha256 or a url"
    if given.url is not None:
        problem = url_problem(given.url) if isinstance(given.url, str) else "is not a string"
        return f"{given.name!r} has an address that {problem}" if problem else ""
    if not isinstance(given.sha256, str) or not _SHA256.fullmatch(given.sha256):
        return f"{given.name!r} has a sha256 that is not 64 hex digits"
    known = isinstance(given.size, int) and not isinstance(given.size, bool) and given.size > 0
    return "" if known else f"{given.name!r} has no size"


__all__ = [
    "MOST",
    "Attachment",
    "Kind",
    "attachments_of",
    "check_sha256",
    "clean_name",
    "is_media_type",
    "is_textual",
    "read_references",
    "url_problem",
]
