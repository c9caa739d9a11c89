"""Suggestions for a misspelt name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: object, known: Iterable[str]) -> str:
    """The begin of a remedy, "did you mean ...", if a known name is similar; otherwise an empty text."""
    wanted, names = str(name), list(known)
    # A name that is a prefix of the other is closer than one with similar letters: explore for explore_context.
    shared = [each for each in names if wanted.startswith(each) or each.startswith(wanted)]
    close = sorted(shared, key=lambda each: abs(len(each) - len(wanted))) or difflib.get_close_matches(wanted, names, 1)
    return f"did you mean {close[0]!r}? " if close else ""


__all__ = ["near"]
