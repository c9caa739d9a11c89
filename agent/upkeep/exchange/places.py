"""The places of an exported thread: a file by its name, or a stream. All functions block.

A file appears under its name, and on a stream, only once it is complete. It replaces only another export, and never a
file of the home. A stream that can be read only once is copied first, since an import reads it twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, cast

from ....core.errors import InvalidArgument, StorageUnavailable
from ....core.files import storage_errors
from ....storage import Storage

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
    beginnings = (storage.database, storage.roles, storage.role_key, storage.typed, storage.traces)
    return first.startswith(tuple(one.name for one in beginnings)) or first in (
        storage.locks.name,
        storage.attachments.name,
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


__all__ = ["check_target", "drafted", "name_of", "publish", "readable"]
