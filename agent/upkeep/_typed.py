"""What was typed in chats, without what was said on a thread that is removed. The chat writes it, a line at a time."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Set as AbstractSet
from pathlib import Path

from ...core.errors import StorageUnavailable


def forget_typed(file: Path, said: AbstractSet[str]) -> None:
    """Write the file anew without the lines in which somebody typed one of some texts.

    Args:
        file: The file; there may be none.
        said: The texts.

    Raises:
        StorageUnavailable: It cannot be read or written; it is as it was.
    """
    problem = ""
    try:
        lines = file.read_bytes().splitlines(keepends=True)
        left = [line for line in lines if not _holds(line, said)]
        if len(left) < len(lines):
            _replace(file, b"".join(left))
    except FileNotFoundError:
        return
    except OSError as error:
        problem = error.strerror or type(error).__name__
    if problem:
        raise StorageUnavailable(
            f"{str(file)!r} may hold what was said on the thread, and cannot be changed ({problem})",
            remedy="delete it, or take out what was said",
        )


def _holds(line: bytes, said: AbstractSet[str]) -> bool:
    typed: object = None
    with contextlib.suppress(ValueError):
        typed = json.loads(line)
    if not isinstance(typed, str):
        return False
    if typed.strip() in said or typed in said:
        return True
    # After a command, such as /edit or no; a slash that is doubled stands for one; a form has several fields.
    _, _, rest = typed.strip().partition(" ")
    if rest.strip() in said or (typed.startswith("//") and typed[1:].strip() in said):
        return True
    return any("=" in word and word in said for word in typed.split())


def _replace(file: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # for its owner alone
    try:
        with os.fdopen(handle, "wb") as new:
            new.write(data)
            new.flush()
            os.fsync(new.fileno())
        os.replace(name, file)
    finally:
        Path(name).unlink(missing_ok=True)


__all__ = ["forget_typed"]
