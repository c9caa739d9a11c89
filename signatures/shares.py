"""Finds the words of a text in an answer, in their order, with any text between them.

A list with short lines shares no long run with the same list under other bullets. But its words are the same, in the
same order. So this module counts pieces of `GRAM` words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from .normal import normalising
from .steps import Steps, at_once

GRAM = 8
"""The number of words in a piece."""

MAX_REPEATED_PIECES = 32
"""This many pieces are a repetition, however small their share of a long text."""

# Words of scripts that separate words, and single characters of other scripts.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
# Numbers and single letters mark the lines of lists, so they are ignored.
_MARKER = re.compile(r"\d+|[ivx]+|[^\u3040-\u30ff\u3400-\u9fff]")

_STEP = 1000  # words per step

Passage = tuple[int, int]
"""Begin and end in a normalised text."""


class ShareIndex:
    """Holds the pieces of given texts that occur in no other texts.

    Args:
        texts: The texts that must not be repeated.
        others: The texts that can be repeated.
        run: The minimum length of a repetition in characters.
    """

    def __init__(self, texts: Iterable[str], others: Iterable[str], *, run: int) -> None:
        at_once(self._build(texts, others, run))

    @classmethod
    def built(cls, texts: Iterable[str], others: Iterable[str], *, run: int) -> Steps[ShareIndex]:
        """Make one in steps."""
        made = cls.__new__(cls)
        yield from made._build(texts, others, run)
        return made

    def _build(self, texts: Iterable[str], others: Iterable[str], run: int) -> Steps[None]:
        self._run = run
        known = yield from _all_grams(texts)
        in_others = (yield from _all_grams(others)) if known else set[str]()
        self._allowed, self._grams = known & in_others, known - in_others
        self._need = min(-(-len(self._grams) // 2), MAX_REPEATED_PIECES)

    def passages(self, texts: Sequence[str]) -> list[list[Passage]] | None:
        """Where the texts of one answer repeat too much in sum; None if they do not.

        The limit is half of the pieces, or `MAX_REPEATED_PIECES` of them, with `run` characters in all.

        Args:
            texts: Normalised texts.

        Returns:
            For each text the passages of its repeated words, in order.
        """
        return at_once(self.finding(texts))

    def finding(self, texts: Sequence[str]) -> Steps[list[list[Passage]] | None]:
        """As `passages`, in steps."""
        if not self._grams:
            return None
        words: list[str] = []
        places: list[tuple[int, int, int]] = []
        for number, text in enumerate(texts):
            found_words, found_places = yield from _words(text, number)
            words += found_words
            places += found_places
        found, allowed, seen = set[int](), set[int](), set[str]()
        for place, gram in enumerate(_grams(words)):
            if gram in self._grams:
                seen.add(gram)
                found.update(range(place, place + GRAM))
            elif gram in self._allowed:
                allowed.update(range(place, place + GRAM))
            if place % _STEP == 0:
                yield
        if len(seen) < self._need:
            return None
        passages = yield from _joined(sorted(found - allowed), places, len(texts))
        covered = sum(end - begin for each in passages for begin, end in each)
        return passages if covered >= self._run else None


def _joined(words: Iterable[int], places: Sequence[tuple[int, int, int]], count: int) -> Steps[list[list[Passage]]]:
    """The passages of words in each of `count` texts. Neighbours are one passage."""
    passages: list[list[Passage]] = [[] for _ in range(count)]
    last = (-1, -1)
    for step, place in enumerate(words):
        number, begin, end = places[place]
        if last == (place - 1, number):
            passages[number][-1] = (passages[number][-1][0], end)
        else:
            passages[number].append((begin, end))
        last = (place, number)
        if step % _STEP == 0:
            yield
    return passages


def _all_grams(texts: Iterable[str]) -> Steps[set[str]]:
    found = set[str]()
    for text in texts:
        normal = yield from normalising(text)
        words, _ = yield from _words(normal, 0)
        for place, gram in enumerate(_grams(words)):
            found.add(gram)
            if place % _STEP == 0:
                yield
    return found


def _words(text: str, number: int) -> Steps[tuple[list[str], list[tuple[int, int, int]]]]:
    """The words of a text, and for each one the text's number, its begin and its end."""
    words: list[str] = []
    places: list[tuple[int, int, int]] = []
    for step, found in enumerate(_WORD.finditer(text)):
        if not _MARKER.fullmatch(found[0]):
            words.append(found[0])
            places.append((number, *found.span()))
        if step % _STEP == 0:
            yield
    return words, places


def _grams(words: Sequence[str]) -> Iterator[str]:
    """The pieces as texts, because no word contains a blank."""
    return map(" ".join, zip(*(words[step:] for step in range(GRAM)), strict=False))
