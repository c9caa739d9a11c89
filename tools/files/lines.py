"""Results with a limited number of characters, and lines of files of any size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

NOTES: Final = 400
"""The characters of a result that are reserved for notes."""
_CHUNK: Final = 1 << 20


class Text:
    """A result that is built line by line while there is room.

    Args:
        limit: How many characters it can have, including the notes at its end.
    """

    def __init__(self, limit: int) -> None:
        self.room = limit - NOTES
        self._lines: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, *lines: str) -> bool:
        """Add lines, all or none; returns whether there was room."""
        needed = sum(map(len, lines)) + len(lines)
        if needed > self.room:
            return False
        self.room -= needed
        self._lines += lines
        return True

    def ended(self, *notes: str) -> str:
        """Return the result, with notes in brackets at its end; empty notes are omitted."""
        return "\n".join([*self._lines, *(f"[{note}]" for note in notes if note)])


def lines_of(file: BinaryIO, most: int, continue_reading: Callable[[], bool]) -> Iterator[tuple[bytes, bool]]:
    """Yield the lines of a file, without their ends.

    Args:
        file: The file.
        most: The maximum bytes of a line.
        goes_on: Called regularly; False ends the iteration.

    Yields:
        A line, and whether there is more of it.
    """
    for count in itertools.count():
        line = last = file.readline(most)
        if not line or (count % 1000 == 999 and not continue_reading()):
            return
        yield line.removesuffix(b"\n").removesuffix(b"\r"), len(line) == most and not line.endswith(b"\n")
        while last and not last.endswith(b"\n"):
            last = file.readline(_CHUNK)
            if len(last) == _CHUNK and not continue_reading():
                return


__all__ = ["NOTES", "Text", "lines_of"]
