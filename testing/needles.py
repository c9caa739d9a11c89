"""The ways to write a text: every encoding that the scan looks for, and how many characters a match covers.

A needle is one canary in one encoding. `scan` finds a few bytes of a needle; the needle itself then measures exactly
how many complete characters of the canary occur there in a row.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

_LAST_DIGITS = (b"+/", b"-_")  # standard and URL-safe
_FIRST_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_VALUES = {byte: value for last in _LAST_DIGITS for value, byte in enumerate(_FIRST_DIGITS + last)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Needle:
    """One canary in one encoding.

    Attributes:
        canary: The canary's number.
        encoding: The encoding's name.
        data: The encoded text.
        bounds: The position in `data` where each character begins, and the end of the last.
        need: How many characters in a row are a finding.
    """

    canary: int
    encoding: str
    data: bytes
    bounds: tuple[int, ...]
    need: int

    def certain(self) -> range:
        """The part of `data` that does not depend on the surrounding text."""
        return range(len(self.data))

    def run(self, text: bytes, at: int, own: int) -> tuple[int, int]:
        """Extend the match of `text[at]` with `data[own]` to both sides.

        Returns:
            The position in `text` where the match begins, and how many complete characters of the canary it has.
        """
        left, right = _grow(text, at, self.data, own)
        return at - left, _complete_characters(self.bounds, own - left, own + right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base64Needle(Needle):
    """A canary in base64, `pad` bytes after a multiple of three. `bounds` count bytes of the canary, not of `data`.

    A digit holds six bits, so the first and last digits of a run share their bits with the surrounding text.
    """

    pad: int

    def certain(self) -> range:
        bits = 8 * self.pad, 8 * (self.pad + self.bounds[-1])
        return range(-(-bits[0] // 6), bits[1] // 6)

    def run(self, text: bytes, at: int, own: int) -> tuple[int, int]:
        left, right = _grow(text, at, self.data, own)
        first, end = 6 * (own - left), 6 * (own + right)
        before = self._differing(text, at - left - 1, own - left - 1)
        if before:
            first -= (before & -before).bit_length() - 1
        after = self._differing(text, at + right, own + right)
        if after:
            end += 6 - after.bit_length()
        return at - left, _complete_characters(self.bounds, -(-first // 8) - self.pad, end // 8 - self.pad)

    def _differing(self, text: bytes, at: int, own: int) -> int | None:
        """Return the bits in which two digits differ; None if one of them is not a digit."""
        if not (0 <= at < len(text) and 0 <= own < len(self.data)):
            return None
        there = _VALUES.get(text[at])
        return None if there is None else there ^ _VALUES[self.data[own]]


def needles(canary: str, number: int, need: int) -> list[Needle]:
    """Return `canary` in every encoding, without duplicates."""
    found: dict[bytes, Needle] = {}
    for encoding, encode in _ENCODERS:
        data, bounds = _encode(canary, encode)
        found.setdefault(data, Needle(canary=number, encoding=encoding, data=data, bounds=bounds, need=need))
    raw, bounds = _encode(canary, _utf8)
    for pad in range(3):
        for last in _LAST_DIGITS:
            data = base64.b64encode(bytes(pad) + raw + bytes(-(pad + len(raw)) % 3), altchars=last)
            fresh = Base64Needle(canary=number, encoding="base64", data=data, bounds=bounds, need=need, pad=pad)
            found.setdefault(data, fresh)
    return list(found.values())


def _utf8(character: str) -> bytes:
    return character.encode("utf-8", "surrogatepass")


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _json_ascii(text: str) -> str:
    return json.dumps(text)[1:-1]


def _json_ascii_upper(text: str) -> str:
    return re.sub(r"(?<=\\u)[0-9a-f]{4}", lambda found: found[0].upper(), _json_ascii(text))


def _repr(text: str) -> str:
    return "".join(each if each in "'\"" else repr(each)[1:-1] for each in text)


def _repr_of_both(text: str) -> str:
    """Like `repr` of a text with both kinds of quotes, which JSON is as soon as it contains single quotes."""
    return "".join("\\'" if each == "'" else _repr(each) for each in text)


def _chain(*steps: Callable[[str], str]) -> Callable[[str], bytes]:
    """Apply encodings one after the other. All work on single characters, so the positions of each remain known."""

    def encode(character: str) -> bytes:
        for step in steps:
            character = step(character)
        return _utf8(character)

    return encode


def _nested_json() -> Iterator[Callable[[str], bytes]]:
    """JSON up to `JSON_DEPTH` deep. After the first step with ASCII escapes nothing is left to escape like that."""
    for depth in range(1, JSON_DEPTH + 1):
        yield _chain(*[_json] * depth)
        for first in (_json_ascii, _json_ascii_upper):
            for before in range(depth):
                yield _chain(*[_json] * before, first, *[_json] * (depth - before - 1))


JSON_DEPTH = 3
"""How deeply nested JSON is found."""

LONGEST_CHARACTER = 18
"""The bytes of a character outside the basic plane, in JSON of that depth."""

_ENCODERS: tuple[tuple[str, Callable[[str], bytes]], ...] = (
    ("utf-8", _utf8),
    *(("json", encode) for encode in _nested_json()),
    ("repr", _chain(_repr)),
    ("repr", _chain(_repr_of_both)),
    *(("json", _chain(written, encode)) for written in (_repr, _repr_of_both) for encode in (_json, _json_ascii)),
    *(("repr", _chain(encode, _repr_of_both)) for encode in (_json, _json_ascii)),
    ("utf-16-le", lambda character: character.encode("utf-16-le", "surrogatepass")),
    ("utf-16-be", lambda character: character.encode("utf-16-be", "surrogatepass")),
    ("hex", lambda character: _utf8(character).hex().encode()),
    ("hex", lambda character: _utf8(character).hex().upper().encode()),
)


def _encode(text: str, encode: Callable[[str], bytes]) -> tuple[bytes, tuple[int, ...]]:
    known = {character: _encoded(encode, character) for character in set(text)}  # a text repeats most of them
    parts = [known[character] for character in text]
    return b"".join(parts), tuple(accumulate(map(len, parts), initial=0))


@lru_cache(1 << 14)  # each scan encodes the same letters
def _encoded(encode: Callable[[str], bytes], character: str) -> bytes:
    return encode(character)


def _grow(text: bytes, at: int, data: bytes, own: int) -> tuple[int, int]:
    """Return how many bytes agree before `at` and `own`, and from there on."""
    left = _agreeing(text[max(0, at - own) : at][::-1], data[:own][::-1])
    right = _agreeing(text[at : at + len(data) - own], data[own:])
    return left, right


def _agreeing(one: bytes, other: bytes) -> int:
    """Return how many bytes two texts have in common at their beginnings."""
    common = min(len(one), len(other))
    return next((at for at in range(common) if one[at] != other[at]), common)


def _complete_characters(bounds: tuple[int, ...], start: int, end: int) -> int:
    """Return how many characters lie completely between `start` and `end`."""
    return max(0, bisect_right(bounds, end) - 1 - bisect_left(bounds, start))
