"""Marks: what is kept with a text that a turn writes (H11, M5).

A mark is the name of an untrusted function or of a sender whose text it was made of, or it says who may see it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .scope import is_id

_READERS: Final = "readers:"
_OR: Final = "|"  # between globs


def mark_of(readers: tuple[str, ...]) -> str:
    """The mark of a text that only these may see; nobody, if the globs do not fit in an id.

    Args:
        readers: Globs over recipients, of which one must fit.
    """
    mark = f"{_READERS}{_OR.join(readers)}"
    return mark if is_id(mark) and all(each and _OR not in each for each in readers) else _READERS


def sources_in(marks: Iterable[str]) -> list[str]:
    """The functions and senders that marks name, sorted."""
    return sorted(mark for mark in marks if not mark.startswith(_READERS))


def readers_in(marks: Iterable[str]) -> frozenset[tuple[str, ...]]:
    """Who may see a text with these marks, as in a label."""
    globs = (mark.removeprefix(_READERS) for mark in marks if mark.startswith(_READERS))
    return frozenset(tuple(each.split(_OR)) if each else () for each in globs)
