"""Text of files as a model reads and edits it: numbered lines, and replacing a text."""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from ...core.errors import ToolFailed
from .roots import shown
from .walk import Search

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
        continue_reading: Called regularly; False ends the iteration.

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


LARGEST: Final = 10_000_000
"""The maximum bytes of a file that is written or edited."""
_NUMBERS: Final = re.compile(r"(?m)^\d+\t")
_COUNTED: Final = 1000


def numbered(file: BinaryIO, given: str, *, offset: int, lines: int, limit: int, search: Search) -> str:
    """Return lines of a file, each as its number, a tab and its text.

    Args:
        file: The file.
        given: Its path as the caller gave it.
        offset: How many lines to skip first.
        lines: How many lines to return at most.
        limit: How many characters the result can have.
        search: The limits of the search.

    Raises:
        ToolFailed: It is not text in UTF-8, has fewer lines, or the lines are not reached within the time limit.
    """
    text = Text(limit)
    number = 0
    for number, (line, more) in enumerate(lines_of(file, limit, search.check_limits), 1):
        if number <= offset:
            continue
        if number > offset + lines:
            return text.ended(f"the file continues: read with offset={number - 1}")
        read = _decoded(line, given, complete=not more, first=number == 1)
        if not more and text.add(f"{number}\t{read}"):
            continue
        if text:
            return text.ended(f"cut at {limit:,} characters; the file continues: read with offset={number - 1}")
        text.add(f"{number}\t{read[: text.room - 20]}")
        return text.ended(
            f"cut: line {number} is longer than {limit:,} characters, and only grep_content searches the omitted "
            f"part; what comes after it: read with offset={number}"
        )
    if text:
        return text.ended(f"{search.stopped}; the file continues: read with offset={number}" if search.stopped else "")
    if search.stopped:
        raise ToolFailed(
            f"line {offset + 1:,} of {shown(given)} was not reached: {search.stopped}", remedy="use a lower offset"
        )
    if number:
        raise ToolFailed(f"{shown(given)} has only {number:,} lines", remedy="use a lower offset")
    return text.ended("the file is empty")


def _decoded(line: bytes, given: str, *, complete: bool, first: bool) -> str:
    try:
        # A cut part can end in the middle of a character.
        text = line.decode() if complete else codecs.getincrementaldecoder("utf-8")().decode(line)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise not_text_error(given)
    return text.removeprefix("\ufeff") if first else text


def not_text_error(given: str) -> ToolFailed:
    """Return the error for a file that is not text."""
    return ToolFailed(f"{shown(given)} is not text in UTF-8", remedy="it cannot be read as text; name another file")


@dataclass(frozen=True, slots=True)
class Edited:
    """A text after an edit.

    Attributes:
        content: The new content.
        count: How often the old text occurred.
        line: The line of its first occurrence.
    """

    content: bytes
    count: int
    line: int


def edited(content: bytes, given: str, *, old: str, new: str, replace_all: bool) -> Edited:
    """Replace `old` by `new`, with the line ends that the file has.

    Args:
        content: The content of the file.
        given: Its path as the caller gave it.
        old: The text that must occur once, or at least once with `replace_all`.
        new: The new text.
        replace_all: Whether to replace all occurrences.

    Raises:
        ToolFailed: `old` does not occur, or too often; or the file is not text in UTF-8.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise not_text_error(given)
    if text.count("\r\n") == text.count("\n"):
        old, new = (each.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in text else each for each in (old, new))
    if old == new:
        raise ToolFailed("the old text and the new one are the same", remedy="pass the text that must replace it")
    places = _places(text, old)
    if not places:
        numbers = _NUMBERS.sub("", old) in text
        raise ToolFailed(
            f"the old text is not in {shown(given)}",
            remedy="omit the line numbers that read_file puts before lines"
            if numbers
            else "read the file, and pass the text exactly as it is there, with its spaces and line ends",
        )
    count = text.count(old)
    if len(places) > 1 and not replace_all:
        lines = ", ".join(str(text.count("\n", 0, at) + 1) for at in places[:10])
        more = ", ..." if len(places) > 10 else ""
        raise ToolFailed(
            f"the old text occurs {max(len(places), count):,} times in {shown(given)}: in line {lines}{more}",
            remedy="include more of the text around it, or set replace_all",
        )
    if len(text) + count * (len(new) - len(old)) > LARGEST:
        raise too_large_error(given)
    return Edited(text.replace(old, new).encode(), count, text.count("\n", 0, places[0]) + 1)


def too_large_error(given: str) -> ToolFailed:
    """Return the error for a file that is too large to be edited."""
    return ToolFailed(f"{shown(given)} is, or would be, larger than {LARGEST:,} bytes", remedy="work on a smaller file")


def _places(text: str, old: str) -> list[int]:
    """Return the positions of a text, including overlapping ones. Their number is limited."""
    places: list[int] = []
    at = text.find(old)
    while at >= 0 and len(places) < _COUNTED:
        places.append(at)
        at = text.find(old, at + 1)
    return places
