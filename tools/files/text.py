"""Text of files as a model reads and edits it: numbered lines, replacing a text, and the lines of a search."""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

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


# --- reading and editing ----------------------------------------------------------------------------------------------

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


# --- matching lines ---------------------------------------------------------------------------------------------------

_BLOCK: Final = 1 << 16
"""How many bytes are searched at once; the slowest expression needs a few seconds for them."""
_MEMORY: Final = 1 << 20
SNIFFED_BYTES: Final = 8192
"""The bytes at a file's beginning in which a null byte means that it is not text, as in git."""
_WIDEST: Final = 500
"""The maximum bytes of a line that are shown."""


class Expression:
    """A regular expression for lines.

    Args:
        text: The expression.

    Raises:
        ToolFailed: It is invalid, or uses something that RE2 does not have.
    """

    def __init__(self, text: str) -> None:
        import re2  # an extra, needed only to search text

        options: Any = re2.Options()
        options.never_nl = True
        options.log_errors = False
        options.max_mem = _MEMORY
        try:
            # `^` and `$` match at the ends of a line.
            self._search: Callable[[bytes, int], Any] = re2.compile(f"(?m){text}".encode(), options).search
            return
        except re2.error as error:
            problem = _said(error.args)
        raise ToolFailed(
            f"the expression {text[:200]!r} cannot be used: {problem}",
            remedy="put a backslash before special characters; look-around and back-references are not available",
        )

    def lines(self, file: BinaryIO, continue_reading: Callable[[], bool]) -> Iterator[tuple[int, str]]:
        """Yield the matching lines: their numbers, from 1, and their texts, cut around the match."""
        number, last = 1, 0
        while (block := file.read(_BLOCK)) and continue_reading():
            block = (block + file.readline(_BLOCK)).replace(b"\r\n", b"\n")
            at = 0
            while at < len(block) and (match := self._search(block, at)):
                start = int(match.start())
                if start == len(block) and block.endswith(b"\n"):  # nothing follows the end of the last line
                    break
                number += block.count(b"\n", at, start)
                if number > last:  # a line that is longer than a block is read in parts
                    last = number
                    yield number, _around(block, start)
                end = block.find(b"\n", start)
                at = end + 1 if end >= 0 else len(block)
                number += end >= 0
            number += block.count(b"\n", at)


@dataclass(slots=True)
class Hits:
    """Collects matches as text: a path, then its lines as `NUMBER:LINE`, or `NUMBER-LINE` for those around a match.

    Attributes:
        text: Collects them.
        context: How many lines around each match are shown.
        left: How many more matches to take.
        files: How many files were searched.
        binary: How many files were skipped because they are not text.
        full: Whether some matches are not shown.
    """

    text: Text
    context: int
    left: int
    files: int = 0
    binary: int = 0
    full: bool = False

    def look(self, name: str, file: BinaryIO, expression: Expression, continue_reading: Callable[[], bool]) -> None:
        """Search one file."""
        if b"\0" in file.read(SNIFFED_BYTES):
            self.binary += 1
            return
        self.files += 1
        file.seek(0)
        hits: dict[int, str] = {}
        for number, line in expression.lines(file, continue_reading):
            if self.left == 0:
                self.full = True
                break
            self.left -= 1
            hits[number] = line
        if hits:
            shown = self._with_context(file, hits, continue_reading) if self.context else _plain(hits)
            self._show(name, shown)

    def result(self, path: str, search: Search) -> str:
        """Return the result, with notes for its reader.

        Raises:
            ToolFailed: Nothing was found, and the search was incomplete.
        """
        if not self.text and search.stopped:
            raise ToolFailed(
                f"nothing was found in {self.files:,} files: {search.stopped}",
                remedy="name a folder further down, a narrower glob or a simpler expression",
            )
        return self.text.ended(
            "there are more matches: use a narrower expression, path or glob" if self.full else "",
            "" if self.text or self.full else f"no line matches in {self.files:,} files below {shown(path)}",
            f"files skipped because they are not text: {self.binary:,}" if self.binary else "",
            *search.notes,
        )

    def _with_context(
        self, file: BinaryIO, hits: dict[int, str], continue_reading: Callable[[], bool]
    ) -> Iterator[str]:
        near = {line for hit in hits for line in range(hit - self.context, hit + self.context + 1)}
        last, before = max(near), 0
        file.seek(0)
        for number, (line, more) in enumerate(lines_of(file, _WIDEST, continue_reading), 1):
            if number > last:
                return
            if number in near:
                if before and number > before + 1:
                    yield "--"
                yield f"{number}:{hits[number]}" if number in hits else f"{number}-{_text(line)}{'...' if more else ''}"
                before = number

    def _show(self, name: str, lines: Iterator[str]) -> None:
        """Add lines while there is room, beginning with the file's name."""
        head = ["", name] if self.text else [name]
        for line in lines:
            if not self.text.add(*head, line):
                self.full, self.left = True, 0
                return
            head = []


def _plain(hits: dict[int, str]) -> Iterator[str]:
    return (f"{number}:{line}" for number, line in hits.items())


def _around(block: bytes, at: int) -> str:
    """Return the line at a position, or the part around it that is shown."""
    start = block.rfind(b"\n", 0, at) + 1
    found = block.find(b"\n", at)
    end = found if found >= 0 else len(block)
    first = start if end - start <= _WIDEST else max(start, min(at - _WIDEST // 4, end - _WIDEST))
    last = min(end, first + _WIDEST)
    return f"{'...' if first > start else ''}{_text(block[first:last])}{'...' if last < end else ''}"


def _text(line: bytes) -> str:
    return line.decode(errors="replace").replace("\0", "\ufffd")


def _said(args: tuple[object, ...]) -> str:
    result = args[0] if args else ""
    return result.decode(errors="replace") if isinstance(result, bytes) else str(result)
