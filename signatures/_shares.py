"""Finds in an answer the words of a text in their order, whatever stands between them.

A list whose lines are short has no long run in common with the same list under other bullets. Its words are the same,
in the same order: what is counted here are pieces of `GRAM` words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ._normal import normal_text

GRAM = 8
"""Words in a piece."""

MOST = 32
"""So many pieces are a repetition, however small their share of a long text is."""

# Words of scripts that part them, and single characters of those that do not.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
# Numbers and single letters mark the lines of lists, so they are passed over everywhere.
_MARKER = re.compile(r"\d+|[ivx]+|[^\u3040-\u30ff\u3400-\u9fff]")

Passage = tuple[int, int]
"""Begin and end in a normalised text."""


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    begin: int
    end: int


class ShareIndex:
    """Knows the pieces of given texts that stand in no others.

    Args:
        texts: What must not be repeated.
        others: What may be.
        run: How many characters a repetition has at least.
    """

    def __init__(self, texts: Iterable[str], others: Iterable[str], *, run: int) -> None:
        self._run = run
        known = {gram for text in texts for gram in _grams(_words(normal_text(text)))}
        in_others = known and {gram for text in others for gram in _grams(_words(normal_text(text)))}
        self._allowed, self._grams = known & in_others, known - in_others
        self._need = min(-(-len(self._grams) // 2), MOST)

    def passages(self, texts: Sequence[str]) -> list[list[Passage]] | None:
        """Where the texts of one answer repeat too much, all of them together; None where they do not.

        Too much is half of the pieces, or `MOST` of them, with `run` characters in all.

        Args:
            texts: Normalised texts.

        Returns:
            For each text what its repeated words span, in order.
        """
        if not self._grams:
            return None
        words = [(number, word) for number, text in enumerate(texts) for word in _words(text)]
        grams = _grams([word for _, word in words])
        places = [place for place, gram in enumerate(grams) if gram in self._grams]
        if len({grams[place] for place in places}) < self._need:
            return None
        allowed = [place for place, gram in enumerate(grams) if gram in self._allowed]
        repeated = sorted(_covered(places) - _covered(allowed))
        found: list[list[Passage]] = [[] for _ in texts]
        last = (-1, -1)
        for place in repeated:
            number, word = words[place]
            if last == (place - 1, number):
                found[number][-1] = (found[number][-1][0], word.end)
            else:
                found[number].append((word.begin, word.end))
            last = (place, number)
        covered = sum(end - begin for each in found for begin, end in each)
        return found if covered >= self._run else None


def _covered(places: Iterable[int]) -> set[int]:
    return {place + step for place in places for step in range(GRAM)}


def _words(text: str) -> list[_Word]:
    return [
        _Word(found[0], found.start(), found.end()) for found in _WORD.finditer(text) if not _MARKER.fullmatch(found[0])
    ]


def _grams(words: Sequence[_Word]) -> list[tuple[str, ...]]:
    texts = [word.text for word in words]
    return list(zip(*(texts[step:] for step in range(GRAM)), strict=False))
