"""Unicode's normal forms, in a time that grows as the text does."""

from __future__ import annotations

import unicodedata
from typing import Final, Literal

_MOST: Final = 30


def normal_form(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """Return a text in a normal form of Unicode, without the marks of a letter after its 30th.

    `unicodedata.normalize` sorts the marks in a row, which takes the square of their number: a minute for 260,000. No
    word of a language has 30; Unicode's Stream-Safe Text Format has the same limit.

    Args:
        form: The normal form.
        text: Any text.
    """
    if not text.isascii() and sum(map(unicodedata.combining, text)) > _MOST:  # the sum is at least their number
        text = _with_few_marks(text)
    return unicodedata.normalize(form, text)


def _with_few_marks(text: str) -> str:
    kept: list[str] = []
    row = 0
    for char in text:
        row = row + 1 if unicodedata.combining(char) else 0
        if row <= _MOST:
            kept.append(char)
    return "".join(kept)
