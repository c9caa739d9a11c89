"""The history of typed input: a bounded file that only its owner can read. It never holds a role (R7).

Each line names the thread that it was typed on, so that it is removed with the thread. Older versions wrote only the
text.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable, Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit.history import History

ENTRIES: Final = 1000  # entries that are kept
LENGTH: Final = 10_000  # characters of one entry; longer ones are not kept


class FileHistory(History):
    """One JSON object per line, oldest first. Input that is typed before the file is known is written later.

    Args:
        kept: Whether a text can be kept at all, in the file and in memory.
        thread: Gives the id of the current thread.
    """

    def __init__(self, kept: Callable[[str], bool], thread: Callable[[], str]) -> None:
        super().__init__()
        self._kept, self._thread = kept, thread
        self._key: Callable[[str], str] = str
        self._early: list[tuple[str, str]] = []
        self._file: Path | None = None
        self._opened = asyncio.Event()
        self._lines = 0  # in the file

    def open(self, file: Path, key: Callable[[str], str]) -> None:
        """Read `file` and write to it from now on. A file that cannot be used is ignored.

        Args:
            file: The file.
            key: Gives the key of a thread's id in this workspace.
        """
        self._file, self._key = file, key
        found = _read(file)
        self._lines = len(found)
        if self._lines > ENTRIES:
            self._shorten(file)
        self._loaded_strings += [_text(line) for line in found[: -ENTRIES - 1 : -1]]
        for thread, text in self._early:
            self._write(file, thread, text)
        self._opened.set()

    async def load(self) -> AsyncGenerator[str, None]:
        """Yield the kept entries, newest first, once the file is known."""
        await self._opened.wait()
        for text in list(self._loaded_strings):
            yield text

    def load_history_strings(self) -> Iterable[str]:
        """Return nothing, since `open` reads the file."""
        return ()

    def append_string(self, string: str) -> None:
        """Keep a text, if it can be kept."""
        if self._kept(string) and len(string) <= LENGTH:
            super().append_string(string)

    def store_string(self, string: str) -> None:
        """Write a text to the file, once the file is known."""
        if self._file is None:
            self._early.append((self._thread(), string))
        else:
            self._write(self._file, self._thread(), string)

    def _write(self, file: Path, thread: str, text: str) -> None:
        if self._lines >= 2 * ENTRIES:
            self._shorten(file)
        if _save(file, os.O_APPEND, [json.dumps({"thread": self._key(thread), "text": text}).encode()]):
            self._lines += 1

    def _shorten(self, file: Path) -> None:
        lines = _read(file)[-ENTRIES:]
        new = file.with_name(f"{file.name}.{os.getpid()}")
        if _save(new, os.O_TRUNC, lines):
            new.replace(file)
            self._lines = len(lines)


def _read(file: Path) -> list[bytes]:
    """The lines that hold a text."""
    try:
        return [line for line in file.read_bytes().splitlines() if _text(line)]
    except OSError:  # there is none yet, or it cannot be read
        return []


def _text(line: bytes) -> str:
    """The typed text of a line; empty if the line is not an entry."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):  # such as the half line that a full disk leaves
        return ""
    text = found.get("text") if isinstance(found, dict) else found
    return text if isinstance(text, str) else ""


def _save(file: Path, how: int, lines: Iterable[bytes]) -> bool:
    """Write lines to a file that only its owner can read; False if that fails, since it must not end the chat."""
    data = b"".join(line + b"\n" for line in lines)
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | how, 0o600)
        with open(handle, "wb", buffering=0) as opened:
            if hasattr(os, "fchmod"):  # Windows lacks it
                os.fchmod(handle, 0o600)
            return opened.write(data) == len(data)
    except OSError:
        return False


__all__ = ["ENTRIES", "LENGTH", "FileHistory"]
