"""Finds where a program awaits the value of a call, from its text. The sandbox itself reports only a plain `await`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_monty import SourceRange

# Functions that take a call and await it later: the text before the call, and the text after it.
_TAKES = r"\b(?:asyncio\.run|gather|create_task|ensure_future|shield|wait_for)\s*\("
_AWAITED = re.compile(r"\bawait[\s(]*\Z")
_HANDED = re.compile(_TAKES + r"\s*(?:\*\s*[\[(]\s*)?\Z")
_ENDED = re.compile(r"\s*(?:[,)\]]|for\b|if\b)")
# A program that awaits a variable.
_LATER = re.compile(r"\bawait[\s(]+[^\W\d][\w.]*\b(?!\w|[ \t]*[.(])")
_LATER_IN_ASYNCIO = re.compile(_TAKES + r"(?:[^()]*,)?\s*(?:\*\s*)?[^\W\d]\w*\s*[,)\[]")
MAX_CHARACTERS_BEFORE_CALL = 2000  # how many characters before a call are read


class AwaitAnalysis:
    """The awaits that the text of a program shows.

    Args:
        code: The program.

    Attributes:
        later: Whether it awaits a variable.
    """

    def __init__(self, code: str) -> None:
        self._code = code.encode("utf-8", "surrogatepass")
        self._asyncio = "asyncio" in code
        self.later = bool(_LATER.search(code) or (self._asyncio and _LATER_IN_ASYNCIO.search(code)))

    def takes(self, position: SourceRange) -> bool:
        """Whether a call is in a place that needs an awaitable, not the value of the call."""
        if not position.filename.startswith("<python-input-"):
            return False  # in a text that the program evaluates itself
        before = self._code[: position.start].decode("utf-8", "replace")
        if _AWAITED.search(before):
            return True
        after = self._code[position.end :].decode("utf-8", "replace")
        if not self._asyncio or not _ENDED.match(after):
            return False
        return _HANDED.search(_up_to_argument(before[-MAX_CHARACTERS_BEFORE_CALL:])) is not None


def _up_to_argument(before: str) -> str:
    """The text before an argument, without the arguments before it; empty if it is not an argument."""
    if before.rstrip()[-1:] not in tuple("([,*"):
        return ""
    depth = 0
    for at in range(len(before) - 1, -1, -1):
        depth += (before[at] in ")]}") - (before[at] in "([{")
        if depth < 0:
            return before[: at + 1]
    return ""


__all__ = ["AwaitAnalysis"]
