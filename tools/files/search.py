"""Finds the lines that a regular expression matches, in one file or many.

The expressions are RE2's: their time grows with the length of the text and not with its content, so that none can hang
a thread. A match never crosses the end of a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from ...core.errors import ToolFailed
from .roots import shown
from .text import Text, lines_of
from .walk import Search

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


__all__ = ["Expression", "Hits"]
