"""Removes the lines of a removed thread from the chat's input history. The chat writes that file, one line an entry.

A line names the thread that it was typed on. Lines of older versions do not. Lines whose messages an edit keeps on
another thread name the edited thread. Both are found by their texts.
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

_NAMING: Final = ("/thread", "/fork", "/new")  # commands that take a thread's name


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedTexts:
    """The messages and answers of persons on a removed thread.

    Attributes:
        thread: The thread's key.
        threads: The keys of the threads that they were typed on.
        texts: Messages, and answers that are strings.
        values: Other answers, such as the fields of a form.
    """

    thread: str
    threads: AbstractSet[str]
    texts: AbstractSet[str]
    values: Sequence[Any]


def forget_typed(file: Path, said: TypedTexts) -> None:
    """Rewrite the file without the lines that were typed on a thread.

    Args:
        file: The file; it need not exist.
        said: The messages and answers on the thread.

    Raises:
        StorageUnavailable: The file cannot be read or written; it is unchanged.
    """
    problem = f"nothing is removed: {str(file)!r} can contain messages of the thread and cannot be changed"
    remedy = "make it writable for this user, or delete it, and remove the thread again"
    with storage_errors(problem, remedy=remedy), contextlib.suppress(FileNotFoundError):
        lines = file.read_bytes().splitlines(keepends=True)
        left = [line for line in lines if not _holds(line, said)]
        if len(left) < len(lines):
            _replace(file, b"".join(left))


def _holds(line: bytes, said: TypedTexts) -> bool:
    thread, typed = _read(line)
    if thread == said.thread:
        return True
    workspace, _, name = said.thread.partition("/")
    command, _, given = typed.strip().partition(" ")
    if command in _NAMING and given.strip() == unquote(name):
        return thread is None or thread.partition("/")[0] == workspace
    return (thread is None or thread in said.threads) and _matches_text(typed, said)


def _read(line: bytes) -> tuple[str | None, str]:
    """Return the thread that a line was typed on, if it is known, and the typed text."""
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


def _matches_text(typed: str, said: TypedTexts) -> bool:
    # The message can follow a command, such as /edit or no; a doubled slash is an escaped one.
    _, _, given = typed.strip().partition(" ")
    message = typed[1:] if typed.startswith("//") else typed
    if not said.texts.isdisjoint({typed, typed.strip(), message.strip(), given.strip()} - {""}):
        return True
    return any(_matches_value(part, value) for value in said.values for part in (typed, given))


def _matches_value(typed: str, value: Any) -> bool:
    """Whether the typed text gives this value: as JSON, or each of its fields."""
    with contextlib.suppress(ValueError, RecursionError):
        return bool(json.loads(typed) == value)
    if not isinstance(value, dict) or not value:
        return False
    parts = [f"{name}=" for name in value] + [entry for entry in value.values() if isinstance(entry, str)]
    return all(part in typed or json.dumps(part, ensure_ascii=False)[1:-1] in typed for part in parts)


def _replace(file: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # only its owner can read it
    try:
        with os.fdopen(handle, "wb") as new:
            new.write(data)
            new.flush()
            os.fsync(new.fileno())
        os.replace(name, file)
    finally:
        Path(name).unlink(missing_ok=True)


__all__ = ["TypedTexts", "forget_typed"]
