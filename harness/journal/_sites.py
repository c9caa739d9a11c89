"""Which of several equal calls of a body is which, when the body runs again. What becomes of a call is `_frame`'s.

Calls of one function with equal input have one name and are numbered as they come. Branches that run side by side may
come in another order when results are there at once, so a number alone would hand one branch the result of another.
What tells them apart is the site: the call that the same branch made last, and how many equal ones it made after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Final

from ._records import CallRecord

_BRANCH: Final = "+"
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
        self._known: dict[str, CallRecord] = {}
        self._left: dict[str, dict[str, CallRecord]] = {}
        self._made: Counter[str] = Counter()
        self._unplaced: Counter[str] = Counter()
        split = [(*_split(record.id), record) for record in records]
        for base, number, record in sorted(split, key=lambda item: item[:2]):
            self._known[record.id] = record
            self._made[base] += record.made
            self._unplaced[base] += record.site is None
            left = self._left.setdefault(base, {})
            left[f"#{number}" if record.site is None or record.site in left else record.site] = record

    def here(self, base: str, *, aside: bool) -> str:
        """Where the caller stands that now asks for a call named `base`.

        Args:
            base: The id without its number.
            aside: Whether the caller is a task that the body has made.
        """
        found = _LAST.get()
        last = found[1] if found is not None and found[0] is self._run else ""
        count = self._asked[base, last]
        self._asked[base, last] += 1
        return f"{count}{_BRANCH if aside else ''}:{last}"

    def any_aside(self, call_ids: Iterable[str]) -> bool:
        """Whether any of these recorded calls was made by a task of the body's."""
        sites = (self._known[call_id].site or "" for call_id in call_ids)
        return any(site.partition(":")[0].endswith(_BRANCH) for site in sites)

    def left(self, base: str) -> bool:
        """Whether a call named `base` is recorded that nobody has asked for again."""
        return self._made.get(base, 0) > 0

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
        if found is None and (any_left or self._unplaced.get(base)):  # those of an older version do not know their site
            other = next((key for key, record in left.items() if any_left or record.site is None), None)
            found = None if other is None else left.pop(other)
        if found is None and self.left(base):
            return None
        if found is not None:
            self._made[base] -= found.made
            self._unplaced[base] -= found.site is None
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
