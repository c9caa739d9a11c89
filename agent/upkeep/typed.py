"""What was typed in chats, without what was said on a thread that is removed. The chat writes it, a line at a time.

A line names the thread that it was typed on. Those of older versions do not, and what an edit kept under another name
was typed on the thread that was edited: there the texts tell.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from ...core.files import storage_errors

_NAMING: Final = ("/thread", "/fork", "/new")  # commands that a thread's name follows


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What persons said on a thread that is removed.

    Attributes:
        thread: The thread's key.
        threads: The keys of the threads on which it was said.
        texts: Messages, and answers that are texts.
        values: Answers that are something else, such as the fields of a form.
    """

    thread: str
    threads: AbstractSet[str]
    texts: AbstractSet[str]
    values: Sequence[Any]


def forget_typed(file: Path, said: Said) -> None:
    """Write the file anew without the lines that were typed on a thread.

    Args:
        file: The file; there may be none.
        said: What was said on the thread.

    Raises:
        StorageUnavailable: It cannot be read or written; it is as it was.
    """
    problem = f"nothing is removed: {str(file)!r} may hold what was said on the thread and cannot be changed"
    remedy = "make it writable for this user, or delete it, and remove the thread again"
    with storage_errors(problem, remedy=remedy), contextlib.suppress(FileNotFoundError):
        lines = file.read_bytes().splitlines(keepends=True)
        left = [line for line in lines if not _holds(line, said)]
        if len(left) < len(lines):
            _replace(file, b"".join(left))


def _holds(line: bytes, said: Said) -> bool:
    thread, typed = _read(line)
    if thread == said.thread:
        return True
    workspace, _, name = said.thread.partition("/")
    command, _, given = typed.strip().partition(" ")
    if command in _NAMING and given.strip() == unquote(name):
        return thread is None or thread.partition("/")[0] == workspace
    return (thread is None or thread in said.threads) and _says(typed, said)


def _read(line: bytes) -> tuple[str | None, str]:
    """The thread that a line was typed on, as far as it is known, and what was typed."""
    found: object = None
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(line)
    match found:
        case {"thread": str(thread), "text": str(text)}:
            return thread, text
        case str(text):
            return None, text
        case _:
            return None, ""


def _says(typed: str, said: Said) -> bool:
    # After a command, such as /edit or no; a slash that is doubled stands for one.
    _, _, given = typed.strip().partition(" ")
    message = typed[1:] if typed.startswith("//") else typed
    if not said.texts.isdisjoint({typed, typed.strip(), message.strip(), given.strip()} - {""}):
        return True
    return any(_gives(part, value) for value in said.values for part in (typed, given))


def _gives(typed: str, value: Any) -> bool:
    """Whether somebody who typed this gave a value: as JSON, or each of its fields."""
    with contextlib.suppress(ValueError, RecursionError):
        return bool(json.loads(typed) == value)
    if not isinstance(value, dict) or not value:
        return False
    parts = [f"{name}=" for name in value] + [entry for entry in value.values() if isinstance(entry, str)]
    return all(part in typed or json.dumps(part, ensure_ascii=False)[1:-1] in typed for part in parts)


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


__all__ = ["Said", "forget_typed"]
