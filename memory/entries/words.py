"""How texts are cut into words for search. Both databases get the same words, so both rank alike (M3)."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# Scripts that put no spaces between words: their runs become overlapping pairs of characters.
_UNSPACED: Final = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u1100-\u11ff\uac00-\ud7af"  # Korean
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese characters
)
_RUN: Final = re.compile(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])(?:[^\W_]|[\u0900-\u0dff]))+")
_ACCENTS: Final = re.compile("[\u0300-\u036f]")
_FIRST_UNSPACED: Final = re.compile(f"[{_UNSPACED}]")


def words_of(text: str) -> list[str]:
    """Cut a text into the words that search compares, in their order, with repetitions.

    A word is a run of letters and digits without case and accents. Runs of scripts without spaces, such as Chinese,
    become all pairs of neighbours; a run of one character is a word.

    Args:
        text: Any text.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    # Only accents of European scripts are left out: in others such marks are vowels.
    folded = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", folded)))
    found: list[str] = []
    for run in _RUN.findall(folded):
        if len(run) > 1 and _FIRST_UNSPACED.match(run):
            found.extend(run[place : place + 2] for place in range(len(run) - 1))
        else:
            found.append(run)
    return found


__all__ = ["words_of"]
