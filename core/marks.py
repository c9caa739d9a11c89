"""Marks: what is kept with a text that a turn writes (H11, M5).

A mark is the name of an untrusted function or of a sender whose text it was made of, or it says who may see it, or how
it is classified.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .scope import is_id

_READERS: Final = "readers:"
_CLASS: Final = "classified:"
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
    return sorted(mark for mark in marks if not mark.startswith((_READERS, _CLASS)))


def class_mark(level: str, domain: str = "") -> str:
    """The mark of a text that was made of what is classified so.

    Args:
        level: The classification.
        domain: The area that it is of; empty is any.
    """
    mark = f"{_CLASS}{level}:{domain}"
    return mark if is_id(mark) else f"{_CLASS}secret:"


def is_class(mark: str) -> bool:
    """Whether a mark says how a text is classified."""
    return mark.startswith(_CLASS)


def classes_in(marks: Iterable[str]) -> frozenset[tuple[str, str]]:
    """The classifications that marks name, each with its domain."""
    given = (mark.removeprefix(_CLASS).partition(":") for mark in marks if is_class(mark))
    return frozenset((level, domain) for level, _, domain in given)


def readers_in(marks: Iterable[str]) -> frozenset[tuple[str, ...]]:
    """Who may see a text with these marks, as in a label."""
    globs = (mark.removeprefix(_READERS) for mark in marks if mark.startswith(_READERS))
    return frozenset(tuple(each.split(_OR)) if each else () for each in globs)
