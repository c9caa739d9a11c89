"""The lines of an exported thread: what each holds, and reading them one by one. All of it blocks.

The first line says what it is; then come the messages, the oldest first, and the contents of attachments, a long one
over several lines; the last one holds a checksum of all before it. What it means for a database is not decided here.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import IO, Annotated, Any, Final, Literal
from urllib.parse import unquote

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ....core import Scope, check_id
from ....core.errors import ExportInvalid, InvalidArgument, StorageUnavailable
from ....core.validation import describe_failure
from ....memory import MessageKind, thread_key
from ....memory.titles import is_title
from ....memory.upkeep import ReadMessage

LONGEST: Final = 1 << 28
"""Bytes of a line."""

_VERSION: Final = 1
_AGAIN: Final = "export the thread again, or use a copy that is whole"


def _checked_id(value: str) -> str:
    with contextlib.suppress(InvalidArgument):
        return check_id("id", value)
    raise ValueError("no id")


def _key(value: str) -> str:
    workspace, _, thread = value.partition("/")
    with contextlib.suppress(InvalidArgument):
        if thread_key(Scope(workspace=unquote(workspace), thread=unquote(thread))) == value:
            return value
    raise ValueError("no key of a thread")


def _moment(value: object) -> object:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _in_utc(value: datetime) -> datetime:
    with contextlib.suppress(OverflowError):
        return value.astimezone(UTC)
    raise ValueError("beyond the calendar")


def _decoded(value: object) -> bytes:
    if isinstance(value, str):
        return base64.b64decode(value, validate=True)
    raise ValueError("no base64")


def _title(value: str) -> str:
    if is_title(value):
        return value
    raise ValueError("no title")


_Id = Annotated[str, AfterValidator(_checked_id)]
_Moment = Annotated[AwareDatetime, BeforeValidator(_moment), AfterValidator(_in_utc)]


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)


class Header(_Line):
    """The first line.

    Attributes:
        version: Of the format.
        workspace: The thread's workspace.
        thread: Its id.
        root: The key of the thread that the conversation began on.
        head: The newest message.
        messages: How many there are.
        exported: When.
    """

    worldagent: Literal["thread"] = "thread"
    version: int = Field(default=_VERSION, ge=_VERSION, le=_VERSION)
    workspace: _Id
    thread: _Id
    root: Annotated[str, AfterValidator(_key)]
    head: str
    messages: int = Field(ge=1)
    exported: _Moment


class _Said(_Line):
    id: str
    parent: str | None
    turn: str
    author: str
    kind: MessageKind
    body: dict[Any, Any]  # keys may hold half a surrogate pair, which pydantic's texts may not
    at: _Moment


class _Piece(_Line):
    attachment: str = Field(pattern="^[0-9a-f]{64}$")
    data: Annotated[bytes, BeforeValidator(_decoded)]


class _End(_Line):
    kept: list[str]
    title: Annotated[str, AfterValidator(_title)] | None = None
    sha256: str


@dataclass(frozen=True, slots=True)
class Piece:
    """The content of an attachment.

    Attributes:
        sha256: Its hash, which is not compared with it here.
        data: The content.
    """

    sha256: str
    data: bytes


@dataclass(frozen=True, slots=True)
class End:
    """The last line.

    Attributes:
        kept: The ids of the messages that the thread keeps word for word.
        title: What the thread was called, if the host had set that.
    """

    kept: tuple[str, ...]
    title: str | None = None


Item = Header | ReadMessage | Piece | End


def lines(file: IO[bytes], name: str, *, start: int = 0) -> Iterator[tuple[int, Item]]:
    """Read a file; each line is checked, and the last one against all before it.

    Args:
        file: The file, which can be read again and again.
        name: What errors call it.
        start: Where its first line begins.

    Yields:
        The number of the line, or of the first of several, and what is there.

    Raises:
        ExportInvalid: The file is not as it was written, or of a newer version; the text names the line.
        StorageUnavailable: It cannot be read.
    """
    problem = ""
    try:
        file.seek(start)
        found = _lines(name, iter(lambda: file.readline(LONGEST), b""))
        for sha256, group in groupby(found, key=lambda each: each[1].sha256 if isinstance(each[1], Piece) else None):
            if sha256 is None:
                yield from group
                continue
            number, first = next(group)
            data = [each.data for _, each in [(number, first), *group] if isinstance(each, Piece)]
            yield number, Piece(sha256, b"".join(data))
    except OSError as error:
        problem = error.strerror or type(error).__name__
    if problem:
        raise StorageUnavailable(f"{name!r} cannot be read ({problem})", remedy="give a file that can be read")


def invalid(name: str, number: int, what: str) -> ExportInvalid:
    """The error for a line of a file.

    Args:
        name: What the file is called.
        number: The line.
        what: What of it is wrong, as the end of a sentence.
    """
    return ExportInvalid(f"line {number} of {name!r} {what}", remedy=_AGAIN)


def _lines(name: str, found: Iterator[bytes]) -> Iterator[tuple[int, Item]]:
    so_far = hashlib.sha256()
    state: Literal["header", "open", "ended"] = "header"
    for number, line in enumerate(found, 1):
        if state == "ended" or not line.endswith(b"\n"):
            raise invalid(name, number, "is more than there should be" if state == "ended" else "is cut off")
        item = _parsed(name, number, line, first=state == "header")
        if isinstance(item, _End):
            if item.sha256 != so_far.hexdigest():
                raise invalid(name, number, "has another checksum than the lines before it")
            state = "ended"
            yield number, End(tuple(item.kept), item.title)
        else:
            state = "open"
            yield number, item
        so_far.update(line)
    if state != "ended":
        raise ExportInvalid(f"{name!r} ends before its last line", remedy=_AGAIN)


def _parsed(name: str, number: int, line: bytes, *, first: bool) -> Header | ReadMessage | Piece | _End:
    value: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(line)
    if not isinstance(value, dict):
        raise invalid(name, number, "is no JSON object")
    version = value.get("version")
    if first and value.get("worldagent") == "thread" and type(version) is int and version > _VERSION:
        raise ExportInvalid(
            f"{name!r} has version {str(version)[:20]} of the format, and {_VERSION} is known here",
            remedy="install the newer version of this package",
        )
    try:
        return _item(value, first)
    except ValidationError as failure:
        problem = describe_failure(failure)[:500]
    except RecursionError:
        problem = "it cannot be read"
    raise invalid(name, number, f"is none that is written there: {problem}")


def _item(value: dict[str, Any], first: bool) -> Header | ReadMessage | Piece | _End:
    if first:
        return Header.model_validate(value)
    if "attachment" in value:
        piece = _Piece.model_validate(value)
        return Piece(piece.attachment, piece.data)
    if "sha256" in value:
        return _End.model_validate(value)
    said = _Said.model_validate(value)
    return ReadMessage(
        id=said.id,
        parent=said.parent,
        turn_id=said.turn,
        author=said.author,
        kind=said.kind,
        body=said.body,
        at=said.at,
    )


__all__ = ["LONGEST", "End", "Header", "Item", "Piece", "invalid", "lines"]
