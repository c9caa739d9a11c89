"""Which of several equal calls of a body is which, when the body runs again. What becomes of a call is `_frame`'s.

Calls of one function with equal input have one name and are numbered as they come. Branches that run side by side may
come in another order when results are there at once, so a number alone would hand one branch the result of another.
What tells them apart is the site: the call that the same branch made last, and how many equal ones it made after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextvars import ContextVar

from ._records import CallRecord

_LAST: ContextVar[tuple[object, str] | None] = ContextVar("worldagent_last_call", default=None)
# A run of a body, and the call that this branch of it made last. A task gets what the one that makes it has.


class Sites:
    """The calls of one body, by where they are made.

    Args:
        path: The path id of the call whose body it is.
        records: The calls that it made before this run.
    """

    def __init__(self, path: str, records: Iterable[CallRecord]) -> None:
        self._path = path
        self._run = object()
        self._asked: Counter[tuple[str, str]] = Counter()
        self._numbers: Counter[str] = Counter()
        self._known: set[str] = set()
        self._left: dict[str, dict[str, CallRecord]] = {}
        split = [(*_split(record.id), record) for record in records]
        for base, number, record in sorted(split, key=lambda item: item[:2]):
            self._known.add(record.id)
            left = self._left.setdefault(base, {})
            left[f"#{number}" if record.site is None or record.site in left else record.site] = record

    def here(self, base: str) -> str:
        """Where the caller stands that now asks for a call named `base`."""
        last = self.last()
        count = self._asked[base, last]
        self._asked[base, last] += 1
        return f"{count}:{last}"

    def last(self) -> str:
        """The call of this body that the caller's branch made last, below the body's path; empty if none."""
        last = _LAST.get()
        return last[1] if last is not None and last[0] is self._run else ""

    def take(self, base: str, site: str, *, any_left: bool = False) -> str | None:
        """The path id of the call named `base` that is made at `site`.

        Args:
            base: The id without its number.
            site: What `here` gave.
            any_left: Whether an equal call that was made elsewhere will do.

        Returns:
            None if equal calls are recorded, and none of them at this site: it may be one of them all the same.
        """
        left = self._left.get(base, {})
        found = left.pop(site, None)
        if found is None:
            # Those of an older version do not know their site.
            other = next((key for key, record in left.items() if any_left or record.site is None), None)
            if other is None and any(record.made for record in left.values()):
                return None
            found = None if other is None else left.pop(other)
        taken = self._new(base) if found is None else found.id
        _LAST.set((self._run, taken.removeprefix(f"{self._path}/")))
        return taken

    def _new(self, base: str) -> str:
        while True:
            count = self._numbers[base]
            self._numbers[base] += 1
            made = f"{base}.{count}" if count else base
            if made not in self._known:
                return made


def _split(call_id: str) -> tuple[str, int]:
    """A path id without its number, and the number. Digests and keys have no dot, names may."""
    head, colon, mark = call_id.rpartition(":")
    mark, _, number = mark.partition(".")
    return f"{head}{colon}{mark}", int(number) if number.isdecimal() else 0


__all__ = ["Sites"]
