"""Attachments as hosts pass them, and the references to them in messages. Content is in `store` or at an address."""

from __future__ import annotations

import errno
import hashlib
import mimetypes
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, Field, ValidationError

from ...core.errors import AttachmentInvalid, InvalidArgument, StorageInvalid
from ...core.files import read_regular
from ...core.validation import ClosedModel
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


class _Stored(ClosedModel, strict=True):
    """One reference in the body of a message."""

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


_BEGINNINGS: Final = (
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/gif", b"GIF87a"),
    ("image/gif", b"GIF89a"),
    ("application/pdf", b"%PDF-"),
)
_SURE: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"})
# The standard library's table without this machine's files, so that a name has the same type on every machine.
_NAMES: Final = mimetypes.MimeTypes()
_MORE: Final = {
    ".jsonl": "application/jsonl",
    ".md": "text/markdown",
    ".toml": "application/toml",
    ".webp": "image/webp",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


def media_type_of(data: bytes, *, name: str, declared: str | None) -> str:
    """The media type of some content.

    Args:
        data: The content.
        name: Its name.
        declared: The media type that the caller declares; None finds it from content and name.

    Raises:
        AttachmentInvalid: It does not match its declared type, or is a text that is not UTF-8.
    """
    found = _seen(data)
    said = _checked(declared, name) if declared is not None else _by_name(name)
    if found is not None:
        if declared is not None and said != found:
            raise AttachmentInvalid(
                f"{name!r} is declared as {said!r}, but its content is {found!r}", remedy="leave media_type out"
            )
        return found
    if said in _SURE:
        raise AttachmentInvalid(
            f"{name!r} should be {said!r}, but its content does not begin as one",
            remedy="attach the complete file, or pass another media_type",
        )
    text = _is_text(data)
    if said is not None and is_textual(said) and not text:
        raise AttachmentInvalid(f"{name!r} is {said!r} but not UTF-8", remedy="convert it to UTF-8")
    return said or ("text/plain" if text else "application/octet-stream")


def media_type_of_url(path: str, *, name: str, declared: str | None) -> str:
    """The media type of the content at an address, which is not fetched.

    Raises:
        AttachmentInvalid: The caller declares no type, and the address does not show it.
    """
    said = _checked(declared, name) if declared is not None else _by_name(path)
    if said is None:
        raise AttachmentInvalid(
            f"the address of {name!r} does not show its media type",
            remedy="give an address that ends like a file name, such as .png; in Python, use "
            "agent.attachments.add(url, media_type=...)",
        )
    return said


def ending_of(media_type: str) -> str:
    """The usual extension of a file name, with its dot, or an empty text."""
    return _NAMES.guess_extension(media_type) or ""


def _seen(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for kind, beginning in _BEGINNINGS if data.startswith(beginning)), None)


def _by_name(name: str) -> str | None:
    ending = f".{name.rpartition('.')[2].lower()}" if "." in name else ""
    return _MORE.get(ending) or _NAMES.types_map[True].get(ending)


def _checked(declared: str, name: str) -> str:
    if is_media_type(declared):
        return declared
    raise AttachmentInvalid(
        f"the media type of {name!r} is invalid",
        remedy="write it in lower case without parameters, such as 'image/png'",
    )


def _is_text(data: bytes) -> bool:
    if b"\0" in data:
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


AttachmentSource: TypeAlias = Attachment | Path | bytes | str
"""What can be attached: a path, bytes, an address (`http` or `https`, as text), or an existing attachment.

A text is never a path. Otherwise a host that passes on a person's text would give that person access to its files.
"""

_NAMELESS: Final = "attachment"


@dataclass(frozen=True, slots=True)
class Loaded:
    """An attachment that was read and is not stored yet.

    Attributes:
        attachment: The reference.
        data: The content; None if it is stored already or is at an address.
    """

    attachment: Attachment
    data: bytes | None = field(default=None, repr=False)


def check_source(source: object) -> None:
    """Refuse a source that cannot be attached, before anything is read.

    Raises:
        AttachmentInvalid: It has another type, or it is a text but not an address.
    """
    if isinstance(source, str):
        problem = url_problem(source)
        if problem:
            raise AttachmentInvalid(
                f"an attachment that is text {problem}",
                remedy="give an address as 'https://...'; in Python, pass a file as pathlib.Path and content as bytes",
            )
    elif not isinstance(source, Attachment | Path | bytes):
        raise AttachmentInvalid(
            f"an attachment must be a pathlib.Path, bytes, an address as text or an Attachment, "
            f"got {type(source).__name__}",
            remedy="pass one of these",
        )


def load(source: AttachmentSource, *, limit: int, name: str | None = None, media_type: str | None = None) -> Loaded:
    """Read a source. It reads files, so call it on a thread.

    Args:
        source: The source to attach.
        limit: The most bytes that it can have.
        name: Its name; None uses the name of the file or the address.
        media_type: Its media type; None finds it from content and name.

    Raises:
        AttachmentInvalid: It cannot be read, is empty or too large, or does not match its declared type.
    """
    check_source(source)
    if name is not None and not isinstance(name, str):
        raise AttachmentInvalid(
            f"the name of an attachment must be a string, got {type(name).__name__}", remedy="pass the name as text"
        )
    if isinstance(source, Attachment):
        return Loaded(source)
    if isinstance(source, str):
        return Loaded(_linked(source, name, media_type))
    data = _read(source, limit) if isinstance(source, Path) else source
    called = clean_name(name if name is not None else source.name if isinstance(source, Path) else _NAMELESS, _NAMELESS)
    if not data:
        raise AttachmentInvalid(f"{called!r} is empty", remedy="attach a file with content")
    if len(data) > limit:
        raise _too_large(called, limit)
    kind = media_type_of(data, name=called, declared=media_type)
    if name is None and isinstance(source, bytes):
        called += ending_of(kind)
    sha256 = hashlib.sha256(data).hexdigest()
    return Loaded(Attachment(name=called, media_type=kind, size=len(data), sha256=sha256), data)


def _linked(url: str, name: str | None, media_type: str | None) -> Attachment:
    parts = urlsplit(url)
    called = clean_name(name if name is not None else unquote(parts.path), parts.hostname or _NAMELESS)
    kind = media_type_of_url(parts.path, name=called, declared=media_type)
    return Attachment(name=called, media_type=kind, url=url)


def _read(path: Path, limit: int) -> bytes:
    problem = ""
    try:
        data = read_regular(path, limit + 1)
        if data is not None:
            return data
        problem = os.strerror(errno.EISDIR) if path.is_dir() else "it is not a regular file"
    except OSError as error:
        problem = error.strerror or type(error).__name__
    except ValueError:  # a null byte
        problem = "it is not a file name"
    raise AttachmentInvalid(f"{str(path)!r} cannot be attached: {problem}", remedy="attach a readable file")


def _too_large(name: str, limit: int) -> AttachmentInvalid:
    return AttachmentInvalid(
        f"{name!r} has more than {limit} bytes", remedy="attach a smaller file, or raise the setting attachment_limit"
    )
