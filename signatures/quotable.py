"""What an answer may say of a role, because the role asks for it or quotes it (R16).

These are quotations, code, tables, short template lines, addresses, and what comes after a command such as "end with:".
`disclosure` counts only the other words.
"""

from __future__ import annotations

import re
from typing import Final

from .asked import asked

_QUOTED: Final = re.compile(
    r"“[^“”]{2,600}”|(?<!\d)\"[^\"\n]{2,600}\"|„[^„“”]{2,600}[“”]|«[^«»]{2,600}»|»[^«»]{2,600}«|「[^「」]{1,600}」"
    r"|『[^『』]{1,600}』|《[^《》]{1,100}》|‘[^‘’\n]{2,300}’|(?<![^\W_])'[^'\n]{2,300}'(?![^\W_])"
)
_FENCED: Final = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
_TABLE: Final = re.compile(r"(?m)\|[^\n]*\||^>[^\n]*$")  # and block quotes
_TEMPLATE: Final = re.compile(
    r"(?m)^(?=[^\n]{1,120}$)[^\n]*(?:\{[^{}\n]{1,40}\}|<(?!br>|li>)(?P<tag>[A-Za-z_ ]{2,30})>(?![^\n]*</(?P=tag)>)"
    r"|\[[A-Za-z_ ]{2,40}\](?!\())[^\n]*$"
)  # with a placeholder, which is neither a tag nor a link
_NEXT: Final = r"[^\s\u3000-\u9fff\uff00-\uffef]"  # of an address, behind which Chinese goes on without a space
_ADDRESS: Final = re.compile(
    rf"(?:https?://|www\.){_NEXT}+|(?<![\w.+-])[\w.+-]{{1,64}}@[\w-]{{1,63}}\.[\w.-]{{1,100}}"
    rf"|(?<![\w.-])(?:[\w-]{{1,63}}\.){{1,8}}(?:example|com|org|net|de|cn)\b{_NEXT}*",
    re.ASCII,
)
_JSON: Final = re.compile(r"\s*(?:\{\s*\"|\[\s*[\"{\[]).*[\]}]\s*", re.DOTALL)
_JSON_STRING: Final = re.compile(r"(?<!\\)\"")


def quotable(role: str, *, blocks: bool = True) -> list[tuple[int, int]]:
    """Begin and end of each stretch of a role that an answer may say, in no order.

    Args:
        role: The text of a tier.
        blocks: Whether code, tables, block quotes and templates count. A role that consists only of them is written so.
    """
    if _JSON.fullmatch(role):
        role = _JSON_STRING.sub(" ", role)  # its strings are not quotations
    patterns = (_QUOTED, _ADDRESS, *((_FENCED, _TABLE, _TEMPLATE) if blocks else ()))
    spans = [found.span() for pattern in patterns for found in pattern.finditer(role)]
    return [*spans, *asked(role)]
