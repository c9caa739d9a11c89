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
    """Takes a text in pieces and gives it back in lines that fit. Code between fences stays as it is.

    A word is held back until it is known on which line it stands: at most what is left of one.
    """

    def __init__(self) -> None:
        self._column = 0
        self._spaces = ""
        self._word = ""
        self._last = ""  # character of the word, held back or not; empty between words
        self._placed = False  # the word has its line, and what comes of it goes there
        self._line = ""  # what tells a fence: the line so far, up to a few characters
        self._code = False

    @property
    def inside(self) -> bool:
        """Whether the last line has something on it."""
        return bool(self._column or self._last)

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
        if self._ideographic(character) or self._ideographic(self._last):
            flushed = "" if category(character) in _CLOSING else self._flush()
        self._last = character
        return flushed + self._hold(character)

    @staticmethod
    def _ideographic(character: str) -> bool:
        return cell_len(character) == 2 and ord(character) < 0x1F000  # emoji are parts of words

    def _hold(self, character: str) -> str:
        columns = shutil.get_terminal_size().columns
        if self._placed:
            width = cell_len(character)
            # The terminal breaks a word that no line can hold.
            self._column = self._column + width if self._column + width <= columns else width
            return character
        self._word += character
        # Marks that take no cell of their own end nowhere, so these are counted too.
        fits = self._column + len(self._spaces) + cell_len(self._word) <= columns and len(self._word) <= 2 * columns
        return "" if self._column and fits else self._place(columns)

    def _break(self) -> str:
        flushed = self._flush()
        if self._line.startswith(_FENCE):
            self._code = not self._code
        self._column, self._spaces, self._line = 0, "", ""
        return flushed + "\n"

    def _flush(self) -> str:
        placed = self._place(shutil.get_terminal_size().columns) if self._word else ""
        self._last, self._placed = "", False
        return placed

    def _place(self, columns: int) -> str:
        spaces, word, width = self._spaces, self._word, cell_len(self._word)
        self._spaces, self._word, self._placed = "", "", True
        if self._column and self._column + len(spaces) + width > columns:
            self._column = width
            return "\n" + word
        self._column += len(spaces) + width
        return spaces + word


__all__ = ["Wrap"]
