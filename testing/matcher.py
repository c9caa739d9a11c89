"""Finds any long enough run of a canary in bytes, fast. It knows no files or objects; `needles` knows the encodings.

A run of `need` characters has at least `need` bytes in every encoding. So with grams of g bytes it is enough to look at
every `need - g + 1`th position of the data: any run contains the gram at one of these positions, and the index of all
needles' grams has it. A hit is then measured exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..core import ECHO_RUN
from ..core.errors import InvalidArgument
from .needles import LONGEST_CHARACTER, Needle, needles

SHORTEST_CANARY = 4
# A chunk of a long text must begin this many bytes before the end of the previous one: more than any relevant run in
# its longest encoding.
OVERLAP = LONGEST_CHARACTER * ECHO_RUN + 32

_SHORTEST_GRAM = 8
# Shorter runs would need a look-up every few bytes, and a plain search for each complete needle is faster.
_SHORTEST_SAMPLED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A relevant run: the needle, how many characters, and where in the data it begins."""

    needle: Needle
    length: int
    offset: int


class Matcher:
    """Searches bytes for a set of canaries."""

    def __init__(self, canaries: Sequence[str]) -> None:
        """Prepare the search.

        Raises:
            InvalidArgument: `canaries` is empty, or one is not a string of at least 4 characters.
        """
        if not canaries:
            raise InvalidArgument("`canaries` must not be empty", remedy="pass the texts to look for")
        groups: dict[int, list[Needle]] = {}
        for number, canary in enumerate(canaries):
            if not isinstance(canary, str) or len(canary) < SHORTEST_CANARY:
                raise InvalidArgument(
                    f"canary {number} must be a string of {SHORTEST_CANARY} characters or more",
                    remedy="pass a longer one; shorter ones are found everywhere by chance",
                )
            need = min(len(canary), ECHO_RUN)
            groups.setdefault(need, []).extend(needles(canary, number, need))
        self.shortest = min(groups)
        self._searches = [
            _Sampled(need, group) if need >= _SHORTEST_SAMPLED else _PlainSearch(group)
            for need, group in groups.items()
        ]

    def search(self, data: bytes, known: set[tuple[int, str]]) -> Iterator[Hit]:
        """Yield runs in `data`, one for each canary and encoding that is not in `known`, and add these to `known`."""
        for search in self._searches:
            for at, own, needle in search.candidates(data):
                key = (needle.canary, needle.encoding)
                if key in known:
                    continue
                offset, length = needle.run(data, at, own)
                if length >= needle.need:
                    known.add(key)
                    yield Hit(needle=needle, length=length, offset=offset)


class _Sampled:
    """Looks up the bytes at every nth position."""

    def __init__(self, need: int, group: list[Needle]) -> None:
        # Long grams seldom match by chance; short ones allow long steps.
        self._gram = max(_SHORTEST_GRAM, need // 2)
        self._step = need - self._gram + 1
        holders: dict[bytes, tuple[int, ...]] = {}
        shared: dict[tuple[int, ...], tuple[int, ...]] = {}
        for number, needle in enumerate(group):
            part = needle.certain()
            for at in range(part.start, part.stop - self._gram + 1):
                gram = needle.data[at : at + self._gram]
                before = holders.get(gram, ())
                if not before or before[-1] != number:
                    after = (*before, number)
                    holders[gram] = shared.setdefault(after, after)
        self._holders, self._group = holders, group

    def candidates(self, data: bytes) -> Iterator[tuple[int, int, Needle]]:
        look_up, size = self._holders.get, self._gram
        for at in range(0, len(data) - size + 1, self._step):
            gram = data[at : at + size]
            numbers = look_up(gram)
            if numbers is not None:
                for number in numbers:
                    needle = self._group[number]
                    for own in _places(needle.data, gram, needle.certain()):
                        yield at, own, needle


class _PlainSearch:
    """Searches for each complete needle."""

    def __init__(self, group: list[Needle]) -> None:
        self._group = group

    def candidates(self, data: bytes) -> Iterator[tuple[int, int, Needle]]:
        for needle in self._group:
            part = needle.certain()
            for at in _places(data, needle.data[part.start : part.stop], range(len(data))):
                yield at, part.start, needle


def _places(data: bytes, piece: bytes, part: range) -> Iterator[int]:
    at = data.find(piece, part.start, part.stop)
    while at >= 0:
        yield at
        at = data.find(piece, at + 1, part.stop)
