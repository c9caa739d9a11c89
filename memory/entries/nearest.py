"""The nearest vectors in a SQLite file, exactly, with numpy (M3).

To read a vector from the file takes far longer than to compare it. So vectors stay in memory, and a search reads only
those that were written since the last one. Each has the time when it was written as its number, and count and sums of
these numbers show whether the vectors in memory are those of the file.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ...storage import Transaction

MAX_KEPT_BYTES: Final = 256 << 20
"""How much memory the vectors of one agent take. Those of the accounts that searched least recently go first."""

_PAGE: Final = 4096  # vectors that are read at once
_MAX_BLOCKS: Final = 100  # before they become one
_LOW: Final = (1 << 32) - 1
_STAMP: Final = f"""SELECT COUNT(*), COALESCE(SUM(made & {_LOW}), 0), COALESCE(SUM(made >> 32), 0)
                    FROM wa_entry_vector WHERE place=?"""
_ROWS: Final = f"""SELECT made, entry, vector FROM wa_entry_vector WHERE place=? AND made > ?
                   ORDER BY made LIMIT {_PAGE}"""


class _Block(NamedTuple):
    """Some vectors, one a row, with their numbers and the keys of their entries."""

    made: Any
    entries: Any
    vectors: Any


@dataclass(frozen=True, slots=True)
class _Kept:
    """The vectors of a place, with the count and the sums of their numbers."""

    stamp: tuple[int, int, int]
    blocks: list[_Block]


class NearestInFile:
    """Searches the vectors of a file. It is used by one thread, that of the reads.

    Args:
        numpy: The module.
    """

    def __init__(self, numpy: Any) -> None:
        self._np = numpy
        self._kept: OrderedDict[int, _Kept] = OrderedDict()

    def rank(
        self, transaction: Transaction, places: list[int], question: list[float], most: int
    ) -> list[tuple[int, float]]:
        """The entries whose vectors are nearest to a question, with the inner products.

        Args:
            transaction: The transaction.
            places: Where the vectors are.
            question: The vector of the question, as long as they are.
            most: The most to return.
        """
        np, best = self._np, list[tuple[int, float]]()
        asked = np.asarray(question, dtype="<f4")
        for place in places:
            for block in self._blocks(transaction, place, len(question)):
                near = block.vectors @ asked
                top = np.argsort(-near, kind="stable")[:most]
                best += zip(block.entries[top].tolist(), near[top].tolist(), strict=True)
        return sorted(best, key=lambda each: (-each[1], each[0]))[:most]

    def _blocks(self, transaction: Transaction, place: int, dimension: int) -> Iterable[_Block]:
        """The vectors of a place. If they are too many to keep, they are read page by page."""
        [stamp] = transaction.execute(_STAMP, (place,))
        kept = self._kept.pop(place, None)
        if stamp[0] * dimension * 4 > MAX_KEPT_BYTES:
            return self._pages(transaction, place, -1)
        if kept is None or kept.stamp != stamp:
            kept = self._updated(transaction, place, [] if kept is None else kept.blocks, stamp)
        self._kept[place] = kept
        while sum(block.vectors.nbytes for each in self._kept.values() for block in each.blocks) > MAX_KEPT_BYTES:
            self._kept.popitem(last=False)
        return kept.blocks

    def _updated(self, transaction: Transaction, place: int, old: list[_Block], stamp: tuple[int, int, int]) -> _Kept:
        """The vectors in memory with those that were written since, or all anew if one of them is gone."""
        newest = max((int(block.made[-1]) for block in old), default=-1)
        blocks = [*old, *self._pages(transaction, place, newest)]
        if _stamp_of(blocks) != stamp:
            blocks = [*self._pages(transaction, place, -1)]
        if len(blocks) > min(len(old) + 1, _MAX_BLOCKS):  # numpy is faster with few large blocks
            blocks = [_Block(*map(self._np.concatenate, zip(*blocks, strict=True)))]
        return _Kept(stamp, blocks)

    def _pages(self, transaction: Transaction, place: int, after: int) -> Iterator[_Block]:
        np = self._np
        while rows := transaction.execute(_ROWS, (place, after)):
            after = rows[-1][0]
            vectors = np.frombuffer(b"".join(vector for *_, vector in rows), dtype="<f4").reshape(len(rows), -1)
            made, entries = (np.asarray([row[column] for row in rows], dtype="i8") for column in (0, 1))
            yield _Block(made, entries, vectors)


def _stamp_of(blocks: Iterable[_Block]) -> tuple[int, int, int]:
    made = [block.made for block in blocks]
    return (
        sum(map(len, made)),
        sum(int((each & _LOW).sum()) for each in made),
        sum(int((each >> 32).sum()) for each in made),
    )
