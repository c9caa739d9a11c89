"""From what a caller gives to what is kept: read, measured and named. Nothing is written and nothing fetched here."""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from ...core.errors import AttachmentInvalid
from ...core.files import read_regular
from .attachment import Attachment, clean_name, url_problem
from .media import ending_of, media_type_of, media_type_of_url

AttachmentSource: TypeAlias = Attachment | Path | bytes | str
"""What can be attached: a path, bytes, an address (`http` or `https`, as text), or what is attached elsewhere already.

A text is never a path: a host that hands on what a person wrote would open its own files to them.
"""

_NAMELESS: Final = "attachment"


@dataclass(frozen=True, slots=True)
class Loaded:
    """An attachment on its way into the store.

    Attributes:
        attachment: The reference.
        data: The content; None where it is in the store already, or at an address.
    """

    attachment: Attachment
    data: bytes | None = field(default=None, repr=False)


def check_source(source: object) -> None:
    """Refuse what cannot be attached, before anything is read.

    Raises:
        AttachmentInvalid: It is of another type, or a text that is no address.
    """
    if isinstance(source, str):
        problem = url_problem(source)
        if problem:
            raise AttachmentInvalid(
                f"an attachment that is text {problem}",
                remedy="give an address as 'https://...'; in Python, a file as pathlib.Path, content as bytes",
            )
    elif not isinstance(source, Attachment | Path | bytes):
        raise AttachmentInvalid(
            f"an attachment is of type {type(source).__name__!r}",
            remedy="give pathlib.Path, bytes, an address as text, or an Attachment",
        )


def load(source: AttachmentSource, *, limit: int, name: str | None = None, media_type: str | None = None) -> Loaded:
    """Read what is attached. It reads files, so it is called on a thread.

    Args:
        source: What is attached.
        limit: How many bytes it may have.
        name: What it is called, if not as the file or the address.
        media_type: What it is, if content and name do not tell.

    Raises:
        AttachmentInvalid: It cannot be read, is empty or too large, or is not what it is said to be.
    """
    check_source(source)
    if name is not None and not isinstance(name, str):
        raise AttachmentInvalid(
            f"the name of an attachment is of type {type(name).__name__!r}", remedy="give the name as text"
        )
    if isinstance(source, Attachment):
        return Loaded(source)
    if isinstance(source, str):
        return Loaded(_linked(source, name, media_type))
    data = _read(source, limit) if isinstance(source, Path) else source
    called = clean_name(name if name is not None else source.name if isinstance(source, Path) else _NAMELESS, _NAMELESS)
    if not data:
        raise AttachmentInvalid(f"{called!r} is empty", remedy="attach something with content")
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
        problem = os.strerror(errno.EISDIR) if path.is_dir() else "it is no file"
    except OSError as error:
        problem = error.strerror or type(error).__name__
    except ValueError:  # a null byte
        problem = "it is no file name"
    raise AttachmentInvalid(f"{str(path)!r} cannot be attached: {problem}", remedy="give a file that can be read")


def _too_large(name: str, limit: int) -> AttachmentInvalid:
    return AttachmentInvalid(
        f"{name!r} has more than {limit} bytes", remedy="attach less, or raise the setting attachment_limit"
    )


__all__ = ["AttachmentSource", "Loaded", "check_source", "load"]
