"""Who in this process still holds a text: every object that the garbage collector knows, and what they refer to."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

from worldagent.core import ECHO_RUN


def holders(content: str) -> set[tuple[str, int]]:
    """The objects that refer to a text with a part of `content` in it, as their type's name and id.

    Parts of 40 characters from its beginning, middle and end count, in any case; a shorter content counts as a whole.
    """
    size = min(len(content), ECHO_RUN)
    # No comprehension: its closure would be one more holder.
    folded, middle = content.casefold(), (len(content) - size) // 2
    pieces = [folded[:size], folded[middle : middle + size], folded[-size:]]
    del folded
    gc.collect()
    found: set[tuple[str, int]] = set()
    for holder in gc.get_objects():
        if holder is pieces:
            continue
        for text in _texts(holder):
            if len(text) >= size:
                read = (text if isinstance(text, str) else text.decode("utf-8", "replace")).casefold()
                for piece in pieces:
                    if piece in read:
                        found.add((type(holder).__qualname__, id(holder)))
    return found


def _texts(holder: Any) -> Iterator[str | bytes]:
    for item in gc.get_referents(holder):
        if isinstance(item, str | bytes):
            yield item
        elif isinstance(item, dict | tuple) and not gc.is_tracked(item):  # it holds plain values alone
            yield from _texts(item)
