"""Names that somebody may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: object, known: Iterable[str]) -> str:
    """What a remedy begins with where one of the known names is like this one; else nothing."""
    wanted, names = str(name), list(known)
    # A name that the other one begins with is nearer than one that shares letters: explore for explore_context.
    shared = [each for each in names if wanted.startswith(each) or each.startswith(wanted)]
    close = sorted(shared, key=lambda each: abs(len(each) - len(wanted))) or difflib.get_close_matches(wanted, names, 1)
    return f"did you mean {close[0]!r}? " if close else ""


__all__ = ["near"]
