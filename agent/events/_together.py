"""Several things to do in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


def together(*works: Callable[P, object] | None) -> Callable[P, None]:
    """Do all of `works` that there are, in their order."""

    def all_of_them(*given: P.args, **named: P.kwargs) -> None:
        for work in works:
            if work is not None:
                work(*given, **named)

    return all_of_them


__all__ = ["together"]
