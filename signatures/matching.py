r"""Compares texts: their normal form, with the text behind each of its characters, and the words that two texts share.

Letters are folded as in Unicode's NFKC with case folding. Diacritics, invisible characters and control characters are
left out, each run of white space is one blank, and typographic quotes and dashes become plain ones.

Backslashes are left out, and the escapes of JSON count as the characters they encode, however often a text was encoded.
So a text, the same text as JSON, and that JSON in JSON again have one normal form, with and without ASCII escapes. The
escapes that `escape` adds to a prompt are backslashes too.

One character of a text can produce zero, one or several characters of the normal form. Long texts are compared in small
steps, so that the event loop does other work in between. This module knows nothing of roles.
"""

from __future__ import annotations

import asyncio
import re
import time
import unicodedata
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeVar

_T = TypeVar("_T")

SLICE: Final = 1024
"""Characters of a text that are processed in one step: at most about 10 ms."""

_TURN = 0.005  # seconds after which the loop gets a chance for other work

Steps = Generator[None, None, _T]
"""Work that yields between its steps and returns its result."""


class Pause:
    """Awaited between steps, it lets the loop do other work after the steps have taken long enough."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def __call__(self) -> None:
        """Let the loop do other work if it is time."""
        if time.perf_counter() - self._began >= _TURN:
            await asyncio.sleep(0)
            self._began = time.perf_counter()


def at_once(steps: Steps[_T]) -> _T:
    """Do all steps without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: _T = done.value
            return made


async def in_turns(steps: Steps[_T]) -> _T:
    """Do the steps with pauses. If it is cancelled, the traceback keeps no frame of the work."""
    try:
        await asyncio.sleep(0)  # the work before this took time too
        pause = Pause()
        while True:
            next(steps)
            await pause()
    except StopIteration as done:
        made: _T = done.value
        return made
    finally:
        steps.close()


# --- the normal form --------------------------------------------------------------------------------------------------

_ODD = "\0"  # in a folded text: a character that does not produce exactly one on its own
_WHITE_SPACE = "nrtf"  # escapes of JSON for white space
_HEX = "[0-9a-fA-F]"
_SLASHES = r"\\{1,64}"  # limited, so that little is delayed of a text that is all backslashes
_HIGH, _LOW = f"u[dD][89abAB]{_HEX}{{2}}", f"u[dD][c-fC-F]{_HEX}{{2}}"
_INITIAL, _MEDIAL, _FINAL = "[\u1100-\u1112]", "[\u1161-\u1175]", "[\u11a8-\u11c2]"  # parts of a Hangul syllable
_PIECE = rf"{_SLASHES}(?:{_HIGH}{_SLASHES}{_LOW}|u{_HEX}{{4}}|[bfnrt]|)|{_INITIAL}{_MEDIAL}{_FINAL}?|[^\\]"
# The possible beginning of a syllable, of an escape, or of the second half of a surrogate pair.
_UNFINISHED = (
    rf"{_INITIAL}{_MEDIAL}?\Z|{_SLASHES}(?:u(?:{_HEX}{{0,3}}"
    rf"|[dD][89abAB]{_HEX}{{2}}(?:{_SLASHES}(?:u(?:[dD](?:[c-fC-F]{_HEX}?)?)?)?)?)?)?\Z"
)
_LAST_PIECES = re.compile(_PIECE, re.DOTALL)
_PIECES = re.compile(f"(?P<rest>{_UNFINISHED})|{_PIECE}", re.DOTALL)


class _Folds(dict[int, str]):
    """The normal form of a character by its code point, for `str.translate`; `_ODD` if it is not one character."""

    def __missing__(self, code: int) -> str:
        form = _form(chr(code))
        return form if len(form) == 1 else _ODD


@lru_cache(maxsize=8192)
def _form(char: str) -> str:
    """The normal form of one character, or of one syllable in parts."""
    if char.isspace():
        return " "
    char = unicodedata.normalize("NFC", char)
    if "\uac00" <= char <= "\ud7a3":  # a Hangul syllable counts as one character, not as its parts
        return char
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
    return "".join(_PLAIN.get(each) or (" " if each.isspace() else each) for each in folded if not _is_left_out(each))


def _is_left_out(char: str) -> bool:
    return char == "\\" or unicodedata.category(char) in ("Cc", "Cf") or _LEFT_OUT.match(char) is not None


# Diacritics of any script, the marks of voiced kana, variation selectors, fillers. Marks that are letters of their
# script, such as vowels in Thai or Hindi, are kept.
_LEFT_OUT = re.compile(
    "[\u0300-\u036f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a\ufe00-\ufe0f"
    "\ufe20-\ufe2f\U000e0000-\U000e0fff]"
)
_PLAIN = {
    **dict.fromkeys(map(chr, range(0x2018, 0x201C)), "'"),
    **dict.fromkeys(map(chr, range(0x201C, 0x2020)), '"'),
    **dict.fromkeys(map(chr, [*range(0x2010, 0x2016), 0x2212]), "-"),
}
_FOLDS = _Folds()
_FOLDS.update({code: _FOLDS[code] for code in [*range(0x250), *range(0x2010, 0x2020)]})
_FOLDS.update(dict.fromkeys(range(0x1100, 0x1113), _ODD))  # possibly the beginning of a syllable


class NormalText:
    """A text that arrives in chunks, in normal form.

    Attributes:
        normal: The normal form of the text so far, without dropped parts.
    """

    __slots__ = ("_more", "_raw", "_rest", "normal")

    def __init__(self) -> None:
        self.normal = ""
        self._raw: list[str] = []  # the text behind each character of the normal form
        self._more: list[str] = []  # further text behind the last of them; joined once, because it can be long
        self._rest = ""  # an incomplete escape

    def add(self, text: str, *, last: bool = False) -> str:
        """Take the next chunk. The result does not depend on where the text is split.

        Args:
            text: The chunk.
            last: Whether the text ends with it.

        Returns:
            The text before the first character of the normal form that produces no character; it is not kept.
        """
        if not self._rest:
            folded = text.translate(_FOLDS)
            blanks = folded.startswith(" ") and self.normal.endswith(" ")
            if _ODD not in folded and "  " not in folded and not blanks:
                if text:
                    self._join()
                self.normal += folded
                self._raw.extend(text)
                return ""
        return self._add_slowly(self._rest + text, _LAST_PIECES if last else _PIECES)

    def _add_slowly(self, text: str, pieces: re.Pattern[str]) -> str:
        raw, normal = self._raw, [self.normal]
        before: list[str] = []
        tail, self._rest = self.normal[-1:], ""
        for piece in pieces.finditer(text):
            source = piece[0]
            if piece.lastgroup is not None:
                self._rest = source
                break
            for char in _form_of_escape(source) if source[0] == "\\" else _form(source):
                if char == tail == " ":  # a longer run of white space is still one blank
                    continue
                self._join()
                normal.append(char)
                raw.append(source)
                tail, source = char, ""
            if source:
                (self._more if raw else before).append(source)
        self.normal = "".join(normal)
        return "".join(before)

    def raw(self, begin: int, end: int) -> str:
        """The text behind the characters from `begin` to `end` of the normal form."""
        if end == len(self._raw):
            self._join()
        return "".join(self._raw[begin:end])

    def sizes(self) -> Iterator[int]:
        """The length of the text behind each character of the normal form."""
        self._join()
        return map(len, self._raw)

    def drop(self, count: int) -> None:
        """Drop the first `count` characters of the normal form and the text behind them."""
        if count == len(self._raw):
            self._more = []
        del self._raw[:count]
        self.normal = self.normal[count:]

    def _join(self) -> None:
        if self._more:
            self._raw[-1] += "".join(self._more)
            self._more = []


def normalising(text: str) -> Steps[str]:
    """The normal form of a complete text, in steps."""
    normal: list[str] = []
    made = NormalText()
    for begin in range(0, len(text), SLICE):
        made.add(text[begin : begin + SLICE])
        # Everything but its end, which decides whether the first blank of the next slice counts.
        settled = max(0, len(made.normal) - 1)
        normal.append(made.normal[:settled])
        made.drop(settled)
        yield
    made.add("", last=True)
    return "".join([*normal, made.normal])


def normalise(text: str) -> str:
    """The normal form of a complete text, without blanks at its ends."""
    return at_once(normalising(text)).strip()


def _form_of_escape(escape: str) -> str:
    """The normal form of backslashes and the characters that they escape."""
    units = [chr(int(digits[:4], 16)) for digits in escape.split("u")[1:]]
    if units:
        return _form("".join(units).encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return " " if escape[-1] in _WHITE_SPACE else ""


# --- words in common --------------------------------------------------------------------------------------------------

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
    """Holds the pieces of given texts that occur in no other texts; see `built`.

    Args:
        grams: The pieces.
        allowed: The pieces of the given texts that occur in other texts too.
        run: The minimum length of a repetition in characters.
    """

    def __init__(self, grams: set[str], allowed: set[str], *, run: int) -> None:
        self._grams, self._allowed, self._run = grams, allowed, run
        self._need = min(-(-len(grams) // 2), MAX_REPEATED_PIECES)

    @classmethod
    def built(cls, texts: Iterable[str], others: Iterable[str], *, run: int) -> Steps[ShareIndex]:
        """Make one in steps.

        Args:
            texts: The texts that must not be repeated.
            others: The texts that can be repeated.
            run: The minimum length of a repetition in characters.
        """
        known = yield from _all_grams(texts)
        in_others = (yield from _all_grams(others)) if known else set[str]()
        return cls(known - in_others, known & in_others, run=run)

    def finding(self, texts: Sequence[str]) -> Steps[list[list[Passage]] | None]:
        """Where the texts of one answer repeat too much in sum; None if they do not.

        The limit is half of the pieces, or `MAX_REPEATED_PIECES` of them, with `run` characters in all.

        Args:
            texts: Normalised texts.

        Returns:
            For each text the passages of its repeated words, in order.
        """
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
