"""What an attachment is, told by its first bytes before its name: a name can lie, and a model would be sent the lie."""

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
# The standard library's own table without the files of this machine, so that one name means the same everywhere.
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
        name: What it is called.
        declared: What the caller says that it is; None leaves it to content and name.

    Raises:
        AttachmentInvalid: It is not what it is said to be, or a text that is not UTF-8.
    """
    found = _seen(data)
    said = _checked(declared, name) if declared is not None else _by_name(name)
    if found is not None:
        if declared is not None and said != found:
            raise AttachmentInvalid(f"{name!r} is given as {said!r} and is {found!r}", remedy="leave media_type out")
        return found
    if said in _SURE:
        raise AttachmentInvalid(
            f"{name!r} should be {said!r} and does not begin as one",
            remedy="give the whole file, or another media_type",
        )
    text = _is_text(data)
    if said is not None and is_textual(said) and not text:
        raise AttachmentInvalid(f"{name!r} is {said!r} and not UTF-8", remedy="convert it to UTF-8")
    return said or ("text/plain" if text else "application/octet-stream")


def media_type_of_url(path: str, *, name: str, declared: str | None) -> str:
    """The media type of what is at an address, which nobody here looks into.

    Raises:
        AttachmentInvalid: Neither the caller nor the address tells it.
    """
    said = _checked(declared, name) if declared is not None else _by_name(path)
    if said is None:
        raise AttachmentInvalid(
            f"the address of {name!r} does not tell what is there",
            remedy="give an address that ends as a file's name does, such as .png; in Python, what "
            "agent.attachments.add(url, media_type=...) gives",
        )
    return said


def ending_of(media_type: str) -> str:
    """The usual ending of a file's name, with its dot, or the empty text."""
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
        f"the media type of {name!r} is none", remedy="write it in lower case without parameters, such as 'image/png'"
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
