"""Names that somebody may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: object, known: Iterable[str]) -> str:
    """What a remedy begins with where one of the known names is like this one; else nothing."""
    close = difflib.get_close_matches(str(name), list(known), 1)
    return f"did you mean {close[0]!r}? " if close else ""


__all__ = ["near"]
