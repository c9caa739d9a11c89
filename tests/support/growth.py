"""What a process holds in objects, to tell what grows with each turn. Memory says less: databases fill their caches."""

from __future__ import annotations

import asyncio
import gc
import heapq
from collections import Counter, deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

_CONTAINERS = (dict, list, set, frozenset, tuple, deque)
_WEAK = "weakref.ReferenceType"  # sets of them are tidied up late; they hold nothing


def held() -> Counter[str]:
    """How many objects of each type the garbage collector knows, and how many entries are in the containers of each.

    Containers of plain values, which it does not follow, count as part of what refers to them.
    """
    tidy(asyncio.get_running_loop())
    for _ in range(2):  # what one round frees may have a finalizer that lets go of more
        gc.collect()
    found, seen = Counter[str](), set[int]()
    known = gc.get_objects()
    for each in known:
        if each is seen or each is known or isinstance(each, Counter):  # of this module, or of nobody else
            continue
        found[_name(each)] += 1
        _count(found, each)
        for below in gc.get_referents(each):
            if isinstance(below, dict | tuple) and not gc.is_tracked(below) and id(below) not in seen:
                seen.add(id(below))
                _count(found, below)
    return found


def growing(looks: Sequence[Counter[str]], turns: int) -> dict[str, list[int]]:
    """What there is more of at each look than at the one before, by at least one for each turn between them.

    What comes and goes is not more each time.
    """
    found = {}
    for name in looks[-1]:
        more = [after[name] - before[name] for before, after in pairwise(looks)]
        if min(more) >= turns and name != _WEAK:
            found[name] = more
    return found


def tidy(loop: Any) -> None:
    """Let go of timers that were cancelled, as the loop does itself once they are more than the others."""
    for timer in loop._scheduled:
        timer._scheduled &= not timer.cancelled()
    loop._scheduled[:] = [timer for timer in loop._scheduled if not timer.cancelled()]
    heapq.heapify(loop._scheduled)
    loop._timer_cancelled_count = 0


def _count(found: Counter[str], each: Any) -> None:
    if isinstance(each, _CONTAINERS):
        found[f"entries of {_name(each)}"] += len(each)


def _name(each: Any) -> str:
    kind = type(each)
    return f"{kind.__module__}.{kind.__qualname__}"


__all__ = ["growing", "held", "tidy"]
