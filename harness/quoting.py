"""Puts parts of results into an answer in Markdown, as code in which nothing is a link, an image or HTML (H11).

The text around a part decides whether its quotes are quotes, so the Markdown of that text is kept only where it ends
before the part begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_TICKS: Final = re.compile("`+")
_FENCE: Final = re.compile(r"(`{3,}|~{3,})([^`\n]*)\Z")
_TILDES: Final = re.compile("~{3,}")
_TAG: Final = re.compile("<(?=[A-Za-z/!?])")
_LINK: Final = re.compile(r'\]\((?![^()\s<>`]*(?:[ ]"[^"()`]*")?\))')  # one that does not end there
_LINE: Final = re.compile(r"\r\n|\r|\n")


def with_quoted(own: Sequence[str], parts: Iterable[str]) -> str:
    """Join pieces of a text with a quoted part between each two of them.

    Args:
        own: The pieces, one more than parts.
        parts: The parts.
    """
    ticks = max((len(run) for piece in own for run in _TICKS.findall(piece)), default=0)
    columns = any("|" in piece for piece in own)
    *pieces, last = own  # nothing after the last part changes what it is
    made, *others = [*(_alone(piece, begins=not place) for place, piece in enumerate(pieces)), last]
    for part, after in zip(parts, others, strict=True):
        if _LINE.search(part) or (columns and "|" in part):  # a `|` ends a cell of a table, also in code
            fence = "`" * max(3, 1 + _longest(part))
            made += f"\n{fence}\n{part}\n{fence}\n{after}"
            continue
        fence = "`" * (1 + max(ticks, _longest(part)))
        pad = " " if part.startswith("`") or part.endswith("`") or not part.strip() else ""
        before = " " if made.endswith(("`", "\\")) else ""
        made += f"{before}{fence}{pad}{part}{pad}{fence}{' ' if after.startswith('`') else ''}{after}"
    return made


def _longest(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0)


def _alone(piece: str, *, begins: bool) -> str:
    """A piece of the text without the Markdown that can reach beyond it: code, links and HTML that do not end in it."""
    return "\n".join(_lines(_LINE.split(piece), begins=begins))


def _lines(lines: Sequence[str], *, begins: bool) -> Iterator[str]:
    at = 0
    while at < len(lines):
        opened = _FENCE.match(lines[at]) if begins or at else None
        end = None if opened is None else _end_of(lines, at, opened[1])
        if end is not None:
            yield from lines[at : end + 1]
            at = end + 1
            continue
        yield _line(lines[at]) if opened is None else ""  # a fence that does not end here is left out
        at += 1


def _end_of(lines: Sequence[str], at: int, fence: str) -> int | None:
    """The line that closes a fence; None if no whole line of the piece does."""
    for place in range(at + 1, len(lines) - 1):  # the last one can go on behind a part
        line = lines[place].rstrip(" \t")
        if line.startswith(fence) and not line.strip(fence[0]):
            return place
    return None


def _line(line: str) -> str:
    line = _TILDES.sub("", _LINK.sub("] (", _TAG.sub("&lt;", line))).replace("]:", "] :")
    if "`" in line and ("\\`" in line or "](" in line or not _are_pairs(_TICKS.findall(line))):
        line = _TICKS.sub("", line)
    return line


def _are_pairs(runs: list[str]) -> bool:
    """Whether each run of backticks that opens code is closed by the next one of its length."""
    while runs:
        first, *others = runs
        if first not in others:
            return False
        runs = others[others.index(first) + 1 :]
    return True
