"""Where an exported thread is written to and read from: a file by its name, or a stream. All of it blocks.

A file appears under its name, and on a stream, only once it is complete. It takes the place of an export alone, and
never that of a file of the home's own. What can be read only once is copied first, since an import reads it twice.
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

_FIRST_LINE: Final = 1 << 16  # bytes; that of an export is far shorter
_IN_MEMORY: Final = 1 << 23  # bytes of a copy; what is longer is in a file without a name
_ELSEWHERE: Final = "give another place for the file"
_READABLE: Final = "give a file that can be read"


def check_target(storage: Storage, path: Path) -> None:
    """Refuse a place for an export that would cost something else.

    Args:
        storage: Where the home is.
        path: The place.

    Raises:
        InvalidArgument: The home needs the name itself, or what is there is no export.
        StorageUnavailable: What is there cannot be read.
    """
    if not _is_name(path):
        raise InvalidArgument(
            f"{str(path)!r} holds what no name of a file can: a NUL character, or half a surrogate pair",
            remedy="give the path of a file",
        )
    if _is_own(storage, path):
        raise InvalidArgument(f"{str(path)!r} is one of the home's own", remedy="name a file outside the home")
    if os.path.lexists(path) and not _is_export(path):
        raise InvalidArgument(
            f"what is at {str(path)!r} is no export of a thread", remedy="name a file that is not there yet"
        )


@contextmanager
def drafted(target: Path | IO[bytes]) -> Generator[IO[bytes]]:
    """A file on its way to `target`, for its owner alone; `publish` puts it in its place.

    Raises:
        StorageUnavailable: It cannot be written; nothing is left of it.
    """
    with storage_errors(f"{name_of(target)!r} cannot be written", remedy=_ELSEWHERE):
        if not isinstance(target, Path):
            with _copy() as file:
                yield file
            return
        beginning = f".{target.name[:30]}."  # a letter may be four bytes
        draft = tempfile.NamedTemporaryFile(prefix=beginning, dir=target.parent, delete=False)  # noqa: SIM115 -- below
        try:
            yield cast("IO[bytes]", draft)
        finally:
            with contextlib.suppress(OSError):
                draft.close()
            Path(draft.name).unlink(missing_ok=True)


def publish(draft: IO[bytes], target: Path | IO[bytes]) -> None:
    """Put a file that is complete in its place; one with a name outlasts a power cut once this returns."""
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
    """Open what can be read again and again: the file or the stream itself, or a copy of a pipe.

    Raises:
        InvalidArgument: The stream gives text, not bytes.
        StorageUnavailable: It cannot be read.
    """
    name = name_of(source)
    if isinstance(source, Path) and not _is_name(source):
        raise StorageUnavailable(f"{name!r} cannot be read (it is no file name)", remedy=_READABLE)
    with contextlib.ExitStack() as opened:
        with storage_errors(f"{name!r} cannot be read", remedy=_READABLE):
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
    """What errors call a file or a stream."""
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
    place = Path(os.path.realpath(path.parent), path.name)  # a link there would be replaced itself
    if not place.is_relative_to(home) or place == Path(home):
        return False
    first = place.relative_to(home).parts[0].casefold()
    # A database, and what was typed, have files beside them whose names begin with theirs.
    beginnings = (storage.database, storage.roles, storage.role_key, storage.typed, storage.traces)
    return first.startswith(tuple(one.name for one in beginnings)) or first in (
        storage.locks.name,
        storage.attachments.name,
    )


def _is_export(path: Path) -> bool:
    """Whether a file begins as an export does, whole or not, and of whatever version."""
    line = b""
    with storage_errors(f"{str(path)!r} cannot be read", remedy=_ELSEWHERE):
        if path.is_file():
            with path.open("rb") as file:
                line = file.readline(_FIRST_LINE)
    value: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(line)
    return isinstance(value, dict) and value.get("worldagent") == "thread"


__all__ = ["check_target", "drafted", "name_of", "publish", "readable"]
