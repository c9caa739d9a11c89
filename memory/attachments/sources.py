"""Reads what a caller attaches and makes its reference: name, type, size and hash. It writes and fetches nothing."""

from __future__ import annotations

import errno
import hashlib
import mimetypes
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from ...core.errors import AttachmentInvalid
from ...core.files import read_regular
from .attachment import Attachment, clean_name, is_media_type, is_textual, url_problem

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
