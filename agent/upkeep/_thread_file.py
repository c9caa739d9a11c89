"""The file of an exported thread: JSON Lines, whose last line tells that it is whole. All of it blocks.

The first line says what it is; then come the messages, the oldest first, and the contents of attachments; the last one
holds a checksum of all before it. What it means for a database is `_exchange`'s matter.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import AwareDatetime, Base64Bytes, BaseModel, ConfigDict, Field, ValidationError

from ...core.errors import ExportInvalid, StorageUnavailable
from ...core.validation import describe_failure
from ...memory import MessageKind
from ...memory.upkeep import ReadMessage

VERSION: Final = 1
_LONGEST: Final = 1 << 28  # bytes of a line
_AGAIN: Final = "export the thread again, or use a copy that is whole"


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


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
    version: int = VERSION
    workspace: str
    thread: str
    root: str
    head: str
    messages: int = Field(ge=1)
    exported: AwareDatetime


class _Said(_Line):
    id: str
    parent: str | None
    turn: str
    author: str
    kind: MessageKind
    body: dict[Any, Any]  # keys may hold half a surrogate pair, which pydantic's texts may not
    at: AwareDatetime


class _Piece(_Line):
    attachment: str = Field(pattern="^[0-9a-f]{64}$")
    data: Base64Bytes


class _End(_Line):
    kept: list[str]
    sha256: str


@dataclass(frozen=True, slots=True)
class Piece:
    """The content of an attachment.

    Attributes:
        sha256: Its hash.
        data: The content.
    """

    sha256: str
    data: bytes


@dataclass(frozen=True, slots=True)
class End:
    """The last line.

    Attributes:
        kept: The ids of the messages that the thread keeps word for word.
    """

    kept: tuple[str, ...]


class ThreadFileWriter:
    """Writes a file that appears under its name only once it is whole. Make it with `written`."""

    def __init__(self, handle: int) -> None:
        self._file = os.fdopen(handle, "wb")
        self._hash = hashlib.sha256()

    def header(self, header: Header) -> None:
        """Write the first line."""
        self._line(header.model_dump(mode="json"))

    def messages(self, messages: Sequence[ReadMessage]) -> None:
        """Write messages, behind those that they follow."""
        for message in messages:
            at = message.at.isoformat()
            self._line(
                {
                    "id": message.id,
                    "parent": message.parent,
                    "turn": message.turn_id,
                    "author": message.author,
                    "kind": message.kind,
                    "body": dict(message.body),
                    "at": at,
                }
            )

    def piece(self, piece: Piece) -> None:
        """Write the content of an attachment."""
        self._line({"attachment": piece.sha256, "data": base64.b64encode(piece.data).decode()})

    def end(self, kept: Sequence[str]) -> None:
        """Write the last line."""
        self._line({"kept": list(kept), "sha256": self._hash.hexdigest()})

    def close(self, *, whole: bool) -> None:
        """Close the file; one that is `whole` outlasts a power cut once this returns."""
        try:
            if whole:
                self._file.flush()
                os.fsync(self._file.fileno())
        finally:
            self._file.close()  # once more is no harm

    def _line(self, value: Mapping[str, Any]) -> None:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        with contextlib.suppress(UnicodeEncodeError):
            return self._write(text.encode())
        return self._write(json.dumps(value, allow_nan=False).encode())  # half a surrogate pair, which UTF-8 has not

    def _write(self, line: bytes) -> None:
        self._file.write(line + b"\n")
        self._hash.update(line + b"\n")


@contextmanager
def written(path: Path) -> Generator[ThreadFileWriter]:
    """Write the file at `path`, readable by its owner alone; it takes the place of one that is there.

    Raises:
        StorageUnavailable: It cannot be written; nothing is left of it.
    """
    problem = ""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:30]}.", dir=path.parent)  # a letter may be four bytes
        writer = ThreadFileWriter(handle)
        try:
            yield writer
            writer.close(whole=True)
            os.replace(name, path)
        finally:
            with contextlib.suppress(OSError):
                writer.close(whole=False)
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        problem = error.strerror or type(error).__name__
    if problem:
        raise StorageUnavailable(
            f"{str(path)!r} cannot be written ({problem})", remedy="give another place for the file"
        )


def lines(path: Path) -> Iterator[Header | ReadMessage | Piece | End]:
    """Read a file line by line; each is checked, and the last one against all before it.

    Raises:
        ExportInvalid: The file is not as it was written, or of a newer version; the text names the line.
        StorageUnavailable: It cannot be read.
    """
    problem = ""
    try:
        with path.open("rb") as file:
            yield from _lines(path, iter(lambda: file.readline(_LONGEST), b""))
    except OSError as error:
        problem = error.strerror or type(error).__name__
    if problem:
        raise StorageUnavailable(f"{str(path)!r} cannot be read ({problem})", remedy="give a file that can be read")


def _lines(path: Path, found: Iterator[bytes]) -> Iterator[Header | ReadMessage | Piece | End]:
    so_far = hashlib.sha256()
    state: Literal["header", "open", "ended"] = "header"
    for number, line in enumerate(found, 1):
        if state == "ended" or not line.endswith(b"\n"):
            raise _invalid(path, number, "is more than there should be" if state == "ended" else "is cut off")
        item = _parsed(path, number, line, first=state == "header")
        if isinstance(item, _End):
            if item.sha256 != so_far.hexdigest():
                raise _invalid(path, number, "has another checksum than the lines before it")
            state = "ended"
            yield End(tuple(item.kept))
        else:
            state = "open"
            yield item
        so_far.update(line)
    if state != "ended":
        raise ExportInvalid(f"{str(path)!r} ends before its last line", remedy=_AGAIN)


def _parsed(path: Path, number: int, line: bytes, *, first: bool) -> Header | ReadMessage | Piece | _End:
    value: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(line)
    if not isinstance(value, dict):
        raise _invalid(path, number, "is no JSON object")
    if first and value.get("worldagent") == "thread" and value.get("version") != VERSION:
        raise ExportInvalid(
            f"{str(path)!r} has version {str(value.get('version'))[:20]} of the format, and {VERSION} is known here",
            remedy="install the newer version of this package",
        )
    try:
        return _read(value, first)
    except ValidationError as failure:
        problem = describe_failure(failure)[:500]
    except (binascii.Error, RecursionError):
        problem = "it cannot be read"
    raise _invalid(path, number, f"is none that is written there: {problem}")


def _read(value: dict[str, Any], first: bool) -> Header | ReadMessage | Piece | _End:
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
        at=said.at.astimezone(UTC),
    )


def _invalid(path: Path, number: int, what: str) -> ExportInvalid:
    return ExportInvalid(f"line {number} of {str(path)!r} {what}", remedy=_AGAIN)


__all__ = ["End", "Header", "Piece", "ThreadFileWriter", "lines", "written"]
