"""The file of an exported thread: the content of its lines, and how to write and read them. All functions block.

The first line describes the export. Then come the messages, oldest first, and the contents of attachments; a long one
takes several lines. The last line holds a checksum of all lines before it. `exchange` reads and writes the database.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal, cast
from urllib.parse import unquote

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from ...core import Scope
from ...core.errors import ExportInvalid, InvalidArgument, StorageUnavailable
from ...core.files import storage_errors
from ...core.scope import is_id
from ...core.validation import ClosedModel, describe_failure
from ...memory import thread_key
from ...memory.titles import is_title
from ...memory.upkeep import AwareMoment, ReadMessage
from ...storage import Storage

_FIRST_LINE: Final = 1 << 16  # bytes; the first line of an export is far shorter
_IN_MEMORY: Final = 1 << 23  # bytes of a copy in memory; a longer one is in an unnamed file
OTHER_PLACE_REMEDY: Final = "name another place for the file"
READABLE_FILE_REMEDY: Final = "name a readable file"


def check_target(storage: Storage, path: Path) -> None:
    """Refuse a path where an export would overwrite something else.

    Args:
        storage: The home.
        path: The path.

    Raises:
        InvalidArgument: The home uses this name, or the existing file is not an export.
        StorageUnavailable: The existing file cannot be read.
    """
    if not _is_name(path):
        raise InvalidArgument(
            f"{str(path)!r} must not contain a NUL character or half a surrogate pair",
            remedy="pass the path of a file",
        )
    if _is_own(storage, path):
        raise InvalidArgument(f"{str(path)!r} belongs to the home", remedy="name a file outside the home")
    if os.path.lexists(path) and not _is_export(path):
        raise InvalidArgument(
            f"{str(path)!r} exists and is not an export of a thread", remedy="name a file that does not exist yet"
        )


@contextmanager
def drafted(target: Path | IO[bytes]) -> Generator[IO[bytes]]:
    """Yield a temporary file for `target` that only its owner can read; `publish` moves it to its place.

    Raises:
        StorageUnavailable: The file cannot be written; nothing is left of it.
    """
    with storage_errors(f"{name_of(target)!r} cannot be written", remedy=OTHER_PLACE_REMEDY):
        if not isinstance(target, Path):
            with _copy() as file:
                yield file
            return
        beginning = f".{target.name[:30]}."  # a character can have four bytes
        draft = tempfile.NamedTemporaryFile(prefix=beginning, dir=target.parent, delete=False)  # noqa: SIM115 -- below
        try:
            yield cast("IO[bytes]", draft)
        finally:
            with contextlib.suppress(OSError):
                draft.close()
            Path(draft.name).unlink(missing_ok=True)


def publish(draft: IO[bytes], target: Path | IO[bytes]) -> None:
    """Move a complete file to its place; a named file is durable once this returns."""
    if isinstance(target, Path):
        draft.flush()
        os.fsync(draft.fileno())
        draft.close()
        os.replace(draft.name, target)
    else:
        draft.seek(0)
        shutil.copyfileobj(draft, target)
        target.flush()


@contextmanager
def readable(source: Path | IO[bytes]) -> Generator[IO[bytes]]:
    """Open a source that can be read repeatedly: the file or the stream itself, or a copy of a pipe.

    Raises:
        InvalidArgument: The stream gives text, not bytes.
        StorageUnavailable: The source cannot be read.
    """
    name = name_of(source)
    if isinstance(source, Path) and not _is_name(source):
        raise StorageUnavailable(f"{name!r} cannot be read (it is not a valid file name)", remedy=READABLE_FILE_REMEDY)
    with contextlib.ExitStack() as opened:
        with storage_errors(f"{name!r} cannot be read", remedy=READABLE_FILE_REMEDY):
            file = opened.enter_context(source.open("rb")) if isinstance(source, Path) else source
            if not isinstance(file.read(0), bytes):
                raise InvalidArgument("the stream gives text", remedy="open it for reading bytes")
            if not file.seekable():
                copy = opened.enter_context(_copy())
                shutil.copyfileobj(file, copy)
                copy.seek(0)
                file = copy
        yield file


def name_of(place: Path | IO[bytes]) -> str:
    """Return the name of a file or a stream for errors."""
    name = place if isinstance(place, Path) else getattr(place, "name", None)
    return str(name) if isinstance(name, Path | str) else "the stream"


def _copy() -> IO[bytes]:
    return cast("IO[bytes]", tempfile.SpooledTemporaryFile(_IN_MEMORY))


def _is_name(path: Path) -> bool:
    with contextlib.suppress(UnicodeEncodeError):
        return b"\0" not in os.fsencode(path)
    return False


def _is_own(storage: Storage, path: Path) -> bool:
    home = os.path.realpath(storage.resolve())
    place = Path(os.path.realpath(path.parent), path.name)  # an export would replace a link itself
    if not place.is_relative_to(home) or place == Path(home):
        return False
    first = place.relative_to(home).parts[0].casefold()
    # The names of files that belong to a database, or to the chat's history, begin with the name of the main file.
    beginnings = (storage.database, storage.queue, storage.roles, storage.role_key, storage.typed, storage.traces)
    return first.startswith(tuple(one.name for one in beginnings)) or first in (
        storage.locks.name,
        storage.attachments.name,
        storage.evals.name,
    )


def _is_export(path: Path) -> bool:
    """Whether a file begins like an export, complete or not, and of any version."""
    line = b""
    with storage_errors(f"{str(path)!r} cannot be read", remedy=OTHER_PLACE_REMEDY):
        if path.is_file():
            with path.open("rb") as file:
                line = file.readline(_FIRST_LINE)
    value: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(line)
    return isinstance(value, dict) and value.get("worldagent") == "thread"


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


class _Line(ClosedModel, strict=True):
    """A line of the file."""


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
