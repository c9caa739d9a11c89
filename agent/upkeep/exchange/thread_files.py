"""The file of an exported thread: the content of its lines, and how to write and read them. All functions block.

The first line describes the export. Then come the messages, oldest first, and the contents of attachments; a long one
takes several lines. The last line holds a checksum of all lines before it. `importing` writes the database.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import IO, Annotated, Any, Final, Literal
from urllib.parse import unquote

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ....core import Scope
from ....core.errors import ExportInvalid, InvalidArgument
from ....core.files import storage_errors
from ....core.validation import describe_failure
from ....memory import thread_key
from ....memory.titles import is_title
from ....memory.upkeep import AwareMoment, ReadMessage, is_id

MAX_LINE_BYTES: Final = 1 << 28
"""Bytes of a line."""

PIECE_BYTES: Final = 3 << 18  # bytes of content on one line; as base64 they are 1 MiB
_VERSION: Final = 1
EXPORT_AGAIN_REMEDY: Final = "export the thread again, or use a complete copy"


def _only(accepted: Callable[[str], bool], problem: str) -> AfterValidator:
    def check(value: str) -> str:
        if accepted(value):
            return value
        raise ValueError(problem)

    return AfterValidator(check)


def _is_key(value: str) -> bool:
    workspace, _, thread = value.partition("/")
    with contextlib.suppress(InvalidArgument):
        return thread_key(Scope(workspace=unquote(workspace), thread=unquote(thread))) == value
    return False


def _decoded(value: object) -> bytes:
    if isinstance(value, str):
        return base64.b64decode(value, validate=True)
    raise ValueError("must be base64")


_Id = Annotated[str, _only(is_id, "must be a valid id")]


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)


class Header(_Line):
    """The first line.

    Attributes:
        version: The version of the format.
        workspace: The thread's workspace.
        thread: The thread's id.
        root: The key of the thread that the conversation began on.
        head: The id of the newest message.
        messages: The number of messages.
        exported: The time of the export.
    """

    worldagent: Literal["thread"] = "thread"
    version: int = Field(default=_VERSION, ge=_VERSION, le=_VERSION)
    workspace: _Id
    thread: _Id
    root: Annotated[str, _only(_is_key, "must be a thread key")]
    head: str
    messages: int = Field(ge=1)
    exported: AwareMoment


class Piece(_Line):
    """The content of an attachment.

    Attributes:
        attachment: Its SHA-256, which is not checked here.
        data: The content, as base64 on the line.
    """

    attachment: str = Field(pattern="^[0-9a-f]{64}$")
    data: Annotated[bytes, BeforeValidator(_decoded)]


class End(_Line):
    """The last line.

    Attributes:
        kept: The ids of the messages that the thread keeps word for word.
        title: The title that the host set, if any.
        sha256: The hash of all bytes before this line.
    """

    kept: list[str]
    title: Annotated[str, _only(is_title, "must be a valid title")] | None = None
    sha256: str


Item = Header | ReadMessage | Piece | End


class ThreadFileWriter:
    """Writes the lines of a thread. Call its methods in the order of their definition.

    Args:
        file: The file.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def header(self, header: Header) -> None:
        """Write the first line."""
        self._line(header.model_dump(mode="json"))

    def messages(self, messages: Sequence[ReadMessage]) -> None:
        """Write messages, each after the ones before it in the conversation.

        Raises:
            InvalidArgument: A message is too long to be read again.
        """
        for message in messages:
            self._line({**dict(message), "at": message.at.isoformat()})

    def attachment(self, sha256: str, data: bytes) -> None:
        """Write the content of an attachment, over as many lines as it takes."""
        for start in range(0, len(data), PIECE_BYTES):
            self._line({"attachment": sha256, "data": base64.b64encode(data[start : start + PIECE_BYTES]).decode()})

    def end(self, kept: Sequence[str], title: str | None) -> None:
        """Write the last line."""
        given = {} if title is None else {"title": title}
        self._line({"kept": list(kept), **given, "sha256": self._hash.hexdigest()})

    def _line(self, value: Mapping[str, Any]) -> None:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"
        line = text.encode(errors="backslashreplace")  # escapes half a surrogate pair as JSON does
        if len(line) > MAX_LINE_BYTES:
            raise InvalidArgument(
                f"a message is longer than {MAX_LINE_BYTES} bytes, the limit of an import",
                remedy="make a backup of the home instead",
            )
        self._file.write(line)
        self._hash.update(line)


class ThreadFile:
    """A file or a stream that is read more than once, from its current position.

    Args:
        file: The file, which must be seekable.
        name: Its name for errors.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.name = name
        self._file = file
        self._start = file.tell()

    def items(self) -> Iterator[tuple[int, Item]]:
        """Read the file; each line is validated, and the last one checked against all lines before it.

        Yields:
            The number of the line, or of the first of several, and its item.

        Raises:
            ExportInvalid: The file differs from what an export wrote, or is of a newer version; it names the line.
            StorageUnavailable: The file cannot be read.
        """
        with storage_errors(f"{self.name!r} cannot be read", remedy="name a readable file"):
            self._file.seek(self._start)
            for sha256, lines in groupby(self._lines(), lambda each: getattr(each[1], "attachment", None)):
                if sha256 is None:
                    yield from lines
                    continue
                numbers, pieces = zip(*lines, strict=True)
                yield numbers[0], Piece.model_construct(attachment=sha256, data=b"".join(one.data for one in pieces))

    def invalid(self, number: int, what: str) -> ExportInvalid:
        """Return the error for a line.

        Args:
            number: The number of the line.
            what: What is wrong with it, as the end of a sentence.
        """
        return ExportInvalid(f"line {number} of {self.name!r} {what}", remedy=EXPORT_AGAIN_REMEDY)

    def _lines(self) -> Iterator[tuple[int, Item]]:
        so_far, ended = hashlib.sha256(), False
        for number, line in enumerate(iter(lambda: self._file.readline(MAX_LINE_BYTES), b""), 1):
            if ended:
                raise self.invalid(number, "comes after the last line of an export")
            if not line.endswith(b"\n"):
                raise self.invalid(number, "is incomplete")
            item = self._parsed(number, line)
            ended = isinstance(item, End)
            if isinstance(item, End) and item.sha256 != so_far.hexdigest():
                raise self.invalid(number, "has a checksum that does not match the lines before it")
            yield number, item
            so_far.update(line)
        if not ended:
            raise ExportInvalid(f"{self.name!r} ends before its last line", remedy=EXPORT_AGAIN_REMEDY)

    def _parsed(self, number: int, line: bytes) -> Item:
        value: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
        if not isinstance(value, dict):
            raise self.invalid(number, "must be a JSON object")
        kind: type[Item] = End if "sha256" in value else ReadMessage
        if number == 1:
            self._check_version(value)
            kind = Header
        elif "attachment" in value:
            kind = Piece
        try:
            return kind.model_validate(value)
        except ValidationError as failure:
            problem = describe_failure(failure)[:500]
        except RecursionError:
            problem = "it cannot be read"
        raise self.invalid(number, f"is not a valid line of an export: {problem}")

    def _check_version(self, header: Mapping[str, Any]) -> None:
        version = header.get("version")
        if header.get("worldagent") == "thread" and type(version) is int and version > _VERSION:
            raise ExportInvalid(
                f"{self.name!r} has version {str(version)[:20]} of the format, and this package reads up to {_VERSION}",
                remedy="install a newer version of this package",
            )


__all__ = ["MAX_LINE_BYTES", "End", "Header", "Item", "Piece", "ThreadFile", "ThreadFileWriter"]
