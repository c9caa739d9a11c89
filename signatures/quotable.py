"""What an answer may say of a role, because the role asks for it or quotes it (R16).

These are quotations, code, tables, short template lines, addresses, and what comes after a command such as "end with:".
`disclosure` counts only the other words.
"""

from __future__ import annotations

import re
from typing import Final

from .asked import asked

_LONG_LINE: Final = 160  # of a longer line that is asked for, only the first sentence is quotable, and only so much
_END: Final = re.compile(r"[.!?](?=\s)|[。！？]")
_QUOTED: Final = re.compile(
    r"“[^“”]{2,600}”|\"[^\"\n]{2,600}\"|„[^„“”]{2,600}[“”]|«[^«»]{2,600}»|»[^«»]{2,600}«|「[^「」]{1,600}」|『[^『』]{1,600}』"
    r"|《[^《》]{1,100}》|‘[^‘’\n]{2,300}’|(?<![^\W_])'[^'\n]{2,300}'(?![^\W_])"
)
_FENCED: Final = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
_TABLE: Final = re.compile(r"(?m)\|[^\n]*\||^>[^\n]*$")  # and block quotes
_TEMPLATE: Final = re.compile(
    r"(?m)^(?=[^\n]{1,120}$)[^\n]*(?:\{[^{}\n]{1,40}\}|<[A-Za-z_ ]{2,30}>|\[[A-Za-z_ ]{2,40}\])[^\n]*$"
)
_ADDRESS: Final = re.compile(
    r"(?:https?://|www\.)\S+|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{1,100}"
    r"|(?<![\w.-])(?:[\w-]{1,63}\.){1,8}(?:example|com|org|net|de|cn)\b\S*"
)


def quotable(role: str, *, blocks: bool = True) -> list[tuple[int, int]]:
    """Begin and end of each stretch of a role that an answer may say, in no order.

    Args:
        role: The text of a tier.
        blocks: Whether code, tables, block quotes and templates count. A role that consists only of them is written so.
    """
    patterns = (_QUOTED, _ADDRESS, *((_FENCED, _TABLE, _TEMPLATE) if blocks else ()))
    spans = [found.span() for pattern in patterns for found in pattern.finditer(role)]
    for begin, end in asked(role):
        stop = _END.search(role, begin, end) if end - begin > _LONG_LINE else None
        spans.append((begin, min(end, begin + _LONG_LINE) if stop is None else min(stop.end(), begin + 2 * _LONG_LINE)))
    return spans
