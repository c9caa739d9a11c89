"""How many values, levels and characters a JSON text can have, checked before it is parsed.

Reading JSON blocks the event loop for as long as it takes, and the bytes do not tell how long: 4 MiB of text take 5 ms
to parse, 4 MiB of `[],[],[]` half a second, and every walk over the values takes as long again. So texts from outside
are scanned first. The scan is linear and works in pieces, between which the loop runs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final

_PIECE: Final = 1 << 16  # bytes that are scanned at once; the worst ones take 5 ms
_LONGEST_ESCAPE: Final = len(r"\u0041")
_BYTES: Final = bytes(range(256))
_CONTINUED: Final = bytes(range(0x80, 0xC0))  # bytes of a character after its first
_BLANK_OR_MARK: Final = b" \t\r\n,:[]{}"
_VALUE_MARKS: Final = b",[{"
_NO_BRACKET: Final = bytes(set(_BYTES) - set(b"[]{}"))
_OPENING: Final = b"[{"
_HIGH: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}")
_PAIR: Final = re.compile(_HIGH.pattern + rb"\\u[dD][c-fC-F]")
_DIGITS: Final = 32  # of numbers and words for each of the values that are allowed
_MARK: Final = re.compile(rb'["\[\]{},]')
_MEMBER: Final = re.compile(rb'\s*:\s*("(?:[^"\\]|\\.){0,1000}"|-?[0-9]{1,18}(?=\s*[,}]))')
_WINDOW: Final = 1 << 16  # bytes that are searched in one step, which holds the interpreter


class OutOfBounds(ValueError):
    """A JSON text or value exceeds a bound. The text of the error says which, and quotes nothing.

    Args:
        problem: What there is too much of.
        remedy: What the sender can do.
    """

    def __init__(self, problem: str, *, remedy: str = "send less at once") -> None:
        super().__init__(problem)
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a JSON text can have. A text within bounds that are wide enough for people takes a few ms to read.

    Attributes:
        values: The most values. The scan counts each comma and each opening bracket outside of strings as one.
        levels: The most levels of lists and objects.
        characters: The most characters of all strings, numbers and words.
    """

    values: int
    levels: int
    characters: int

    async def check(self, data: bytes) -> None:
        """Scan a JSON text, and let the event loop run between the pieces.

        Args:
            data: The text in UTF-8. A text that is not JSON passes if a parser reads little of it before it fails.

        Raises:
            OutOfBounds: It exceeds a bound, or is in another encoding, in which the scan could not see its values.
        """
        for _ in self._scanned(data):
            await asyncio.sleep(0)

    def _scanned(self, data: bytes) -> Generator[None]:
        if b"\0" in data:  # no JSON in UTF-8 has one, and all JSON in UTF-16 and UTF-32 does
            raise OutOfBounds("characters that are not UTF-8", remedy="send JSON in UTF-8")
        values, levels, characters, digits, in_string, start = 1, 0, 0, 0, False, 0
        while start < len(data):
            end = _end_of_piece(data, start)
            piece = data[start:end]
            if b"\\" in piece:
                piece = piece.replace(b"\\\\", b".").replace(b'\\"', b".")
                characters -= piece.count(b"\\") + 4 * piece.count(b"\\u")  # `\n` and `\u0041` are one character
                characters -= len(_PAIR.findall(piece))  # so are the two escapes of a pair of surrogates
            parts = piece.split(b'"')
            outside, inside = b" ".join(parts[in_string::2]), b"".join(parts[not in_string :: 2])
            in_string ^= not len(parts) % 2
            literals = len(outside.translate(None, _BLANK_OR_MARK))
            characters += len(inside.translate(None, _CONTINUED)) + literals
            digits += literals
            values += len(outside) - len(outside.translate(None, _VALUE_MARKS))
            if values > self.values:
                raise OutOfBounds(f"more than {self.values:,} values")
            if characters > self.characters:
                raise OutOfBounds(f"more than {self.characters:,} characters")
            if digits > _DIGITS * self.values:  # reading a number takes the square of its digits
                raise OutOfBounds(f"more than {_DIGITS * self.values:,} digits")
            levels = self._levels(outside, levels)
            if levels < 0:
                return  # a bracket too many: no parser reads further
            start = end
            yield

    def _levels(self, outside: bytes, levels: int) -> int:
        """Return the number of levels after a piece; below 0 if more brackets were closed than opened."""
        for bracket in outside.translate(None, _NO_BRACKET):
            levels += 1 if bracket in _OPENING else -1
            if levels > self.levels:
                raise OutOfBounds(f"more than {self.levels:,} levels")
            if levels < 0:
                break
        return levels

    def count(self, value: object) -> int:
        """Count the values in a parsed JSON value, which can be nested deeper than recursion allows.

        Returns:
            The number of its values.

        Raises:
            OutOfBounds: There are more than `values`, or they are nested too deeply.
        """
        level, count = [value], 0
        for _ in range(self.levels):
            count += len(level)
            if count > self.values:
                raise OutOfBounds(f"more than {self.values:,} values")
            below: list[object] = []
            for each in level:
                if isinstance(each, dict):
                    below.extend(each.values())
                elif isinstance(each, list):
                    below.extend(each)
            if not below:
                return count
            level = below
        raise OutOfBounds(f"more than {self.levels:,} levels")


def _end_of_piece(data: bytes, start: int) -> int:
    """Return where a piece ends, so that no escape and no pair of escapes is cut in two."""
    end = start + _PIECE
    if end >= len(data):
        return len(data)
    last = data.rfind(b"\\", end - _LONGEST_ESCAPE, end)
    if last < 0:
        return end
    if not _escapes(data, start, last):
        return max(end, last + 1)
    high = last - _LONGEST_ESCAPE
    return high if high >= start and _HIGH.match(data, high) and _escapes(data, start, high) else last


def _escapes(data: bytes, start: int, place: int) -> bool:
    """Whether the backslash at a place begins an escape, and is not the second one of an escaped backslash."""
    before = data[start : place + 1]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1


def marks_of(message: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the brackets, commas and strings of JSON, each with its start and its end. Each step is short."""
    place = 0
    while place < len(message):
        found = _MARK.search(message, place, place + _WINDOW)
        if found is None:
            place += _WINDOW
            continue
        start, place = found.span()
        if found[0] == b'"':
            place = _end_of_string(message, place)
        yield found[0], start, place


def _end_of_string(message: bytes, place: int) -> int:
    """Return the place behind the quote that ends a string, or the end of the message."""
    while (end := message.find(b'"', place)) >= 0:
        inside = message[place:end]
        place = end + 1
        if (len(inside) - len(inside.rstrip(b"\\"))) % 2 == 0:
            return place
    return len(message)


def member_of(message: bytes, name: bytes) -> bytes | None:
    """Find a member of a JSON object that is not parsed, such as the id of a request that is too large to parse.

    Args:
        message: The object.
        name: The member's name, in ASCII.

    Returns:
        The JSON of its value, up to 1,000 bytes, if that is a string or a number; else None.
    """
    depth = 0
    for mark, start, end in marks_of(message):
        if mark == b'"' and depth == 1 and message[start:end] == b'"%s"' % name:
            found = _MEMBER.match(message, end)
            if found is not None:
                return found[1]
        depth += (mark in b"[{") - (mark in b"]}")
    return None
