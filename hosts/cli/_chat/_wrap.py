"""Breaks lines between words while a text is being written, so that a terminal need not break them inside of one."""

from __future__ import annotations

import shutil
from typing import Final
from unicodedata import category

from rich.cells import cell_len

_FENCE: Final = "```"
# Punctuation that does not begin a line, in scripts that write no spaces.
_CLOSING: Final = ("Pe", "Pf", "Po")
_TAB: Final = 8


class Wrap:
    """Takes a text in pieces and gives it back in lines that fit. Code between fences stays as it is."""

    def __init__(self) -> None:
        self._column = 0
        self._spaces = ""
        self._word = ""
        self._line = ""  # what tells a fence: the line so far, up to a few characters
        self._code = False

    @property
    def inside(self) -> bool:
        """Whether the last line has something on it."""
        return bool(self._column or self._word)

    def feed(self, text: str) -> str:
        """Give what can be written now; at most the last word is held back."""
        return "".join(self._put(character) for character in text)

    def end(self) -> str:
        """Give what was held back."""
        last = self._flush()
        self._spaces = ""
        return last

    def _put(self, character: str) -> str:
        if character == "\n":
            return self._break()
        if len(self._line) <= len(_FENCE):
            self._line = (self._line + character).lstrip()
        if self._code or self._line.startswith(_FENCE):
            self._column += 1
            return self._flush() + character
        if character in " \t":
            flushed = self._flush()
            self._spaces += character if character == " " else " " * (_TAB - self._column % _TAB)
            return flushed
        flushed = ""
        if self._ideographic(character) or (self._word and self._ideographic(self._word[-1])):
            flushed = "" if category(character) in _CLOSING else self._flush()
        self._word += character
        return flushed

    @staticmethod
    def _ideographic(character: str) -> bool:
        return cell_len(character) == 2 and ord(character) < 0x1F000  # emoji are parts of words

    def _break(self) -> str:
        flushed = self._flush()
        if self._line.startswith(_FENCE):
            self._code = not self._code
        self._column, self._spaces, self._line = 0, "", ""
        return flushed + "\n"

    def _flush(self) -> str:
        if not self._word:
            return ""
        spaces, word = self._spaces, self._word
        self._spaces = self._word = ""
        width = cell_len(word)
        if self._column and self._column + len(spaces) + width > shutil.get_terminal_size().columns:
            self._column = width
            return "\n" + word
        self._column += len(spaces) + width
        return spaces + word


__all__ = ["Wrap"]
