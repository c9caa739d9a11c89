"""Where an exported thread is written to and read from: a file by its name, or a stream. All of it blocks.

A file appears under its name, and on a stream, only once it is whole. What can be read only once is copied first, since
an import reads it more than once.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, cast

from ....core.errors import InvalidArgument, StorageUnavailable
from ....memory.upkeep import ReadMessage
from ._lines import LONGEST, Header, Piece

_AT_ONCE: Final = 3 << 18  # bytes of content on one line; as base64 they are 1 MiB
_IN_MEMORY: Final = 1 << 23  # bytes of a copy; what is longer is in a file without a name


class ThreadFileWriter:
    """Writes the lines of a thread. Make it with `drafted`.

    Args:
        file: Where to.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def header(self, header: Header) -> None:
        """Write the first line."""
        self._line(header.model_dump(mode="json"))

    def messages(self, messages: Sequence[ReadMessage]) -> None:
        """Write messages, behind those that they follow.

        Raises:
            InvalidArgument: One is too long to be read again.
        """
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
        """Write the content of an attachment, over as many lines as it takes."""
        for start in range(0, len(piece.data), _AT_ONCE):
            some = base64.b64encode(piece.data[start : start + _AT_ONCE])
            self._line({"attachment": piece.sha256, "data": some.decode()})

    def end(self, kept: Sequence[str], title: str | None) -> None:
        """Write the last line."""
        given = {} if title is None else {"title": title}
        self._line({"kept": list(kept), **given, "sha256": self._hash.hexdigest()})

    def _line(self, value: Mapping[str, Any]) -> None:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        with contextlib.suppress(UnicodeEncodeError):
            return self._write(text.encode())
        return self._write(json.dumps(value, allow_nan=False).encode())  # half a surrogate pair, which UTF-8 has not

    def _write(self, line: bytes) -> None:
        if len(line) >= LONGEST:
            raise InvalidArgument(
                f"a message has more than {LONGEST} bytes, and no import reads it", remedy="copy the home with a backup"
            )
        self._file.write(line + b"\n")
        self._hash.update(line + b"\n")


class Draft:
    """A file on its way to where it belongs.

    Attributes:
        writer: Writes it.
    """

    def __init__(self, target: Path | IO[bytes], file: IO[bytes], name: str) -> None:
        self.writer = ThreadFileWriter(file)
        self._target = target
        self._file = file
        self._name = name

    def publish(self) -> None:
        """Put the file, which is whole, in its place; one with a name outlasts a power cut once this returns."""
        if isinstance(self._target, Path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._name, self._target)
        else:
            self._file.seek(0)
            shutil.copyfileobj(self._file, self._target)
            self._target.flush()


@contextmanager
def drafted(target: Path | IO[bytes]) -> Generator[Draft]:
    """Begin a file for `target`; its owner alone can read it, and it takes the place of one that is there.

    Raises:
        StorageUnavailable: It cannot be written; nothing is left of it.
    """
    problem = ""
    try:
        with _draft(target) as draft:
            yield draft
    except OSError as error:
        problem = error.strerror or type(error).__name__
    if problem:
        raise StorageUnavailable(
            f"{name_of(target)!r} cannot be written ({problem})", remedy="give another place for the file"
        )


@contextmanager
def _draft(target: Path | IO[bytes]) -> Generator[Draft]:
    if not isinstance(target, Path):
        with _copy() as file:
            yield Draft(target, file, "")
        return
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:30]}.", dir=target.parent)  # a letter may be four bytes
    file = os.fdopen(handle, "wb")
    try:
        yield Draft(target, file, name)
    finally:
        with contextlib.suppress(OSError):
            file.close()
        Path(name).unlink(missing_ok=True)


@contextmanager
def readable(source: Path | IO[bytes]) -> Generator[IO[bytes]]:
    """Open what can be read again and again: the file or the stream itself, or a copy of a pipe.

    Raises:
        InvalidArgument: The stream gives text, not bytes.
        StorageUnavailable: It cannot be read.
    """
    with contextlib.ExitStack() as opened:
        problem = ""
        try:
            file = opened.enter_context(source.open("rb")) if isinstance(source, Path) else source
            if not isinstance(file.read(0), bytes):
                raise InvalidArgument("the stream gives text", remedy="open it for reading bytes")
            if not file.seekable():
                copy = opened.enter_context(_copy())
                shutil.copyfileobj(file, copy)
                copy.seek(0)
                file = copy
            usable: IO[bytes] | None = file
        except OSError as error:
            usable, problem = None, error.strerror or type(error).__name__
        except ValueError:  # a NUL character, or half a surrogate pair
            usable, problem = None, "it is no file name"
        if usable is None:
            raise StorageUnavailable(
                f"{name_of(source)!r} cannot be read ({problem})", remedy="give a file that can be read"
            )
        yield usable


def name_of(place: Path | IO[bytes]) -> str:
    """What errors call a file or a stream."""
    name = place if isinstance(place, Path) else getattr(place, "name", None)
    return str(name) if isinstance(name, Path | str) else "the stream"


def _copy() -> IO[bytes]:
    return cast("IO[bytes]", tempfile.SpooledTemporaryFile(_IN_MEMORY))


__all__ = ["Draft", "ThreadFileWriter", "drafted", "name_of", "readable"]
