"""Results that fit into a number of characters, and lines of files of any size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

NOTES: Final = 400
"""How many characters of a result are kept for what is said about it."""
_CHUNK: Final = 1 << 20


class Text:
    """A result that is put together line by line, as long as there is room.

    Args:
        limit: How many characters it may have with the notes at its end.
    """

    def __init__(self, limit: int) -> None:
        self.room = limit - NOTES
        self._lines: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, *lines: str) -> bool:
        """Add lines, all or none; whether there was room."""
        needed = sum(map(len, lines)) + len(lines)
        if needed > self.room:
            return False
        self.room -= needed
        self._lines += lines
        return True

    def ended(self, *notes: str) -> str:
        """The result, with notes in brackets at its end; empty ones are left out."""
        return "\n".join([*self._lines, *(f"[{note}]" for note in notes if note)])


def lines_of(file: BinaryIO, most: int, goes_on: Callable[[], bool]) -> Iterator[tuple[bytes, bool]]:
    """The lines of a file, without their ends.

    Args:
        file: The file.
        most: How many bytes of a line are given.
        goes_on: Asked now and then whether somebody still wants them.

    Yields:
        A line, and whether there is more of it.
    """
    for count in itertools.count():
        line = last = file.readline(most)
        if not line or (count % 1000 == 999 and not goes_on()):
            return
        yield line.removesuffix(b"\n").removesuffix(b"\r"), len(line) == most and not line.endswith(b"\n")
        while last and not last.endswith(b"\n"):
            last = file.readline(_CHUNK)
            if len(last) == _CHUNK and not goes_on():
                return


__all__ = ["NOTES", "Text", "lines_of"]
