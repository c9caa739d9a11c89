"""Where an export may be written: never over what is no export, and never in the place of a file of the home's own."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, Final

from ....core.errors import InvalidArgument, StorageUnavailable
from ....storage import Storage

_FIRST_LINE: Final = 1 << 16  # bytes; that of an export is far shorter


def check_target(storage: Storage, path: Path) -> None:
    """Refuse a place for an export that would cost something else; it blocks.

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
    problem, line = "", b""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            line = file.readline(_FIRST_LINE)
    except OSError as error:
        problem = error.strerror or type(error).__name__
    if problem:
        raise StorageUnavailable(f"{str(path)!r} cannot be read ({problem})", remedy="give another place for the file")
    value: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(line)
    return isinstance(value, dict) and value.get("worldagent") == "thread"


__all__ = ["check_target"]
