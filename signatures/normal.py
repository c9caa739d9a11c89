r"""The normal form in which texts are compared, with the text behind each of its characters.

Letters are folded as in Unicode's NFKC with case folding. Diacritics, invisible characters and control characters are
left out, each run of white space is one blank, and typographic quotes and dashes become plain ones.

Backslashes are left out, and the escapes of JSON count as the characters they encode, however often a text was encoded.
So a text, the same text as JSON, and that JSON in JSON again have one normal form, with and without ASCII escapes. The
escapes that `escape` adds to a prompt are backslashes too.

One character of a text can produce zero, one or several characters of the normal form. This module knows nothing of
roles.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from .steps import SLICE, Steps, at_once

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


def normal_text(text: str) -> str:
    """The normal form of a complete text."""
    return at_once(normalising(text))


def normalising(text: str) -> Steps[str]:
    """As `normal_text`, in steps."""
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
    return normal_text(text).strip()


def _form_of_escape(escape: str) -> str:
    """The normal form of backslashes and the characters that they escape."""
    units = [chr(int(digits[:4], 16)) for digits in escape.split("u")[1:]]
    if units:
        return _form("".join(units).encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return " " if escape[-1] in _WHITE_SPACE else ""
