"""Finds the runs that two texts have in common, in the normal form of both (`normal`).

This module knows nothing of roles and streams. The echo guard in `echo` uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .normal import normalise

_BETWEEN = "\n"  # separates the texts of an index, because no normalised text contains it


class RunIndex:
    """Finds the runs of a text that occur in given texts.

    A known run consists only of known grams (pieces of `gram` characters). So a set first finds the pieces of a text
    whose grams are all known, and runs are searched only in those.
    """

    def __init__(self, texts: Iterable[str], *, run: int, gram: int) -> None:
        self._run, self._gram = run, gram
        self._text = text = _BETWEEN.join(normalise(one) for one in texts)
        self._grams = {text[at : at + gram] for at in range(len(text) - gram + 1)} if len(text) >= run else set()

    def starts(self, text: str) -> Iterator[range]:
        """Yield, in order, the ranges of positions in a normalised text at which a known run starts."""
        for begin, end in self._candidates(text):
            at = begin
            while at + self._run <= end:
                found = self._text.find(text[at : at + self._run])
                count = self._common(text[at:end], found) - self._run + 1 if found >= 0 else 0
                if count:
                    yield range(at, at + count)
                at += count or 1

    def reach(self, text: str) -> int:
        """The length of the longest end of a normalised text that could begin a known run."""
        if not self._grams:
            return 0
        keep, gram = self._gram - 1, self._gram
        limit = min(self._run - 1, len(text))
        while keep < limit and text[-keep - 1 :][:gram] in self._grams:
            keep += 1
        return min(keep, limit)

    def _candidates(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield begin and end of the pieces, at least as long as a run, whose grams are all known."""
        gram, grams = self._gram, self._grams
        step, last = self._run - gram + 1, len(text) - gram
        at = step - 1  # each run contains exactly one of the checked grams
        while at <= last:
            if text[at : at + gram] not in grams:
                at += step
                continue
            begin = at
            while begin and text[begin - 1 : begin - 1 + gram] in grams:
                begin -= 1
            while at < last and text[at + 1 : at + 1 + gram] in grams:
                at += 1
            if at + gram - begin >= self._run:
                yield begin, at + gram
            at += 1 + step

    def _common(self, text: str, found: int) -> int:
        """How far a text agrees with the indexed one from `found` on."""
        here = self._text[found : found + len(text)]
        if here == text:
            return len(text)
        return next(
            (size for size, (one, other) in enumerate(zip(text, here, strict=False)) if one != other), len(here)
        )
