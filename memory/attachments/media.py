"""Finds the media type of an attachment. The first bytes count more than the name, which can be wrong."""

from __future__ import annotations

import mimetypes
from typing import Final

from ...core.errors import AttachmentInvalid
from .attachment import is_media_type, is_textual

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


__all__ = ["ending_of", "media_type_of", "media_type_of_url"]
