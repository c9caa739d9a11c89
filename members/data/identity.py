"""Which ids and names mean somebody else: the owner, the user, the World Agent, a function, or who is there already."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from ...core.lookalikes import letters_of, odd_word, skeleton

_RESERVED: Final[Mapping[str, str]] = {
    letters_of(word): whom
    for whom, words in {
        "the user": ("user", "the user", "owner", "the owner", "用户", "所有者"),
        "the World Agent": ("root", "World Agent", "the World Agent"),
        "the system": ("system", "the system", "系统", "系统通知"),
    }.items()
    for word in words
}
"""Words that mean somebody in the form in which messages are delivered, and whom."""

_FIRST: Final[Mapping[str, str]] = {
    skeleton(words): whom for words, whom in {"World Agent": "the World Agent", "the user": "the user"}.items()
}
"""Words with which no id and no name can begin."""

_PARTS: Final = re.compile(r"[^\w\s.'’&$-]|\s[-–—]\s")  # noqa: RUF001 -- an apostrophe and dashes
"""What separates the parts of a name: `World Agent (root)` has two. What stands inside words does not."""

Looks = Mapping[str, str]
"""Whose id or name looks so, by its skeleton."""


def looks_of(given: Iterable[tuple[str, str]]) -> Looks:
    """How the ids and names of members and people look.

    Args:
        given: The id and the name of each. The first of two that look alike counts.
    """
    found: dict[str, str] = {}
    for id_, name in given:
        for text in (id_, name):
            found.setdefault(skeleton(text), id_)
    found.pop("", None)  # punctuation alone looks like nobody
    return found


def mistakable(id_: str, name: str, *, owner: str, others: Looks) -> str:
    """Say for whom a member or a person would be taken by its id or its name; empty if for nobody else (C2, C9).

    Look-alikes of other alphabets count as the letters that they look like. Case, accents and punctuation do not count.
    A text that could look like any other one is refused too: with letters of several alphabets in a word, or lines.

    Args:
        id_: Its id.
        name: Its name; empty for none.
        owner: The id of the owner of the workspace.
        others: How the other members and people of the workspace look.
    """
    for what, text in (("id", id_), ("name", name)):
        whom = _meant(text, owner)
        if not whom and (holder := others.get(skeleton(text), id_)) != id_:
            whom = repr(holder)
        if whom:
            return f"the {what} {text[:80]!r} would be taken for {whom}"
        if odd := odd_word(text):
            return f"the {what} {text[:80]!r} has letters of several or of rare alphabets in the word {odd[:80]!r}"
        if not _SEEN.sub("", text).isprintable():
            return f"the {what} {text[:80]!r} has a line break or another character that is not seen"
    return ""


_SEEN: Final = re.compile("[\xa0\u3000\u200c\u200d]")  # wide blanks; what Persian words and pictures are joined with


@lru_cache(maxsize=16_384)  # each message asks for its sender and its receiver
def _meant(text: str, owner: str) -> str:
    letters = letters_of(text)
    if letters and letters == letters_of(owner):
        return f"the owner {owner[:80]!r}"
    words = f"{skeleton(text)} "
    begun = next((whom for first, whom in _FIRST.items() if words.startswith(f"{first} ")), "")
    return begun or next(
        (_RESERVED[found] for each in (text, *_PARTS.split(text)) if (found := letters_of(each)) in _RESERVED), ""
    )
