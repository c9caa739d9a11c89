"""The echo guard: a role repeated word for word does not leave the model's answer (R16).

A character is withheld if it lies in a run of `ECHO_RUN` characters of the normal form (see `_normal`) that stands in
the role and in no other input of the same call; each connected stretch of such characters becomes one `MARK`. Shorter
pieces, paraphrase, translation and encodings are out of reach.

Not here: what happens when something was withheld (`allow`, `fail`, the event) is decided by the caller; the scanner in
`testing` looks for leaks of our own plumbing. The answer reaches the filter through `_fields`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, NoReturn, SupportsIndex

from pydantic import BaseModel

from ..core import ECHO_RUN
from ._normal import NormalText
from ._runs import RunIndex

MARK = "[role withheld]"
"""What stands in an answer where a run was withheld."""

_GRAM = 8


class EchoGuard:
    """Knows one call's role and its other inputs; makes filters for the outputs of that call (R16).

    It holds role text: its repr shows none, and it refuses to be pickled or copied. The indexes are built at the first
    output, that of the other inputs only once a part of the role was seen.
    """

    def __init__(self, *role: str, others: Sequence[str] = (), run: int = ECHO_RUN, gram: int = _GRAM) -> None:
        """Take the texts of the call; nothing is computed yet.

        Args:
            role: The role, and each further text that counts as a repetition.
            others: The other inputs of the same call, as the model sees them.
            run: The shortest repetition that is withheld, in normalised characters.
            gram: The size of the pieces by which repetitions are found, from 2 to `run`. It changes speed only.
        """
        self._texts, self._other_texts = role, others
        self._run, self._gram = run, gram

    @cached_property
    def _role(self) -> RunIndex:
        return RunIndex(self._texts, run=self._run, gram=self._gram)

    @cached_property
    def _others(self) -> RunIndex:
        return RunIndex(self._other_texts, run=self._run, gram=self._gram)

    def filter(self) -> EchoFilter:
        """Start a filter for one output field."""
        return EchoFilter(self)

    def scrub(self, text: str) -> tuple[str, int]:
        """Withhold the role in a finished text, exactly as a filter does over its chunks.

        Args:
            text: One output of the model.

        Returns:
            The text as it may be shown, and how many stretches were withheld.
        """
        echo = self.filter()
        return echo.feed(text) + echo.close(), echo.withheld

    def scrub_value(self, value: Any) -> tuple[Any, int]:
        """Withhold the role in every string of a value, keys included.

        Goes through mappings, lists, tuples, sets, dataclasses and pydantic models; anything else is returned as it is.
        Models are copied, not validated again: a mark must not turn an answer into an error. A run that is spread
        over several strings is not found.

        Args:
            value: An output field's value; it is not changed.

        Returns:
            The value as it may be shown (the very same object where nothing was withheld), and how many stretches were
            withheld.
        """
        scrubber = _Scrubber(self)
        return scrubber.clean(value), scrubber.withheld

    def stretches(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield begin and end of what a normalised text repeats, in order; neighbours may overlap."""
        for starts in self._role.starts(text):
            for allowed in self._not_in_others(text, starts):
                yield allowed.start, allowed.stop - 1 + self._run

    def reach(self, text: str) -> int:
        """How many characters at the end of a normalised text a run that is still to come could begin with."""
        return self._role.reach(text)

    def _not_in_others(self, text: str, starts: range) -> Iterator[range]:
        if not self._other_texts:
            yield starts
            return
        at = starts.start
        for known in self._others.starts(text[starts.start : starts.stop - 1 + self._run]):
            if at < starts.start + known.start:
                yield range(at, starts.start + known.start)
            at = starts.start + known.stop
        if at < starts.stop:
            yield range(at, starts.stop)

    def __repr__(self) -> str:
        return "EchoGuard(<hidden>)"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("an EchoGuard holds role text and is never serialised or copied; build one for each call")


class EchoFilter:
    """Withholds the role in one output that comes in chunks.

    It holds back the last characters of what came, since they may be the beginning of a run: seven of them, and more
    only while they go on matching the role. The parts add up to `EchoGuard.scrub` of the whole, wherever it is cut.

    Attributes:
        withheld: How many stretches were withheld up to now.
    """

    def __init__(self, guard: EchoGuard) -> None:
        self.withheld = 0
        self._guard = guard
        self._text = NormalText()  # what is not settled
        self._gone = 0  # how many of them are withheld already and kept only to be compared
        self._marked = False  # whether the last thing put out is a mark

    def feed(self, chunk: str) -> str:
        """Take the next chunk and return what may be shown now."""
        shown = self._text.add(chunk)
        return shown + self._settle(len(self._text.normal) - self._guard.reach(self._text.normal))

    def close(self) -> str:
        """Return what was held back; the output ends here."""
        shown = self._text.add("", last=True)
        return shown + self._settle(len(self._text.normal))

    def _settle(self, upto: int) -> str:
        """Put out or withhold everything before `upto`, and what is withheld already behind it."""
        out: list[str] = []
        at = self._gone
        for begin, end in self._guard.stretches(self._text.normal):
            at = self._release(out, at, begin)
            if not self._marked:
                out.append(MARK)
                self._marked = True
                self.withheld += 1
            at = max(at, end)
        at = self._release(out, at, upto)
        self._text.drop(upto)
        self._gone = at - upto
        return "".join(out)

    def _release(self, out: list[str], begin: int, end: int) -> int:
        if begin >= end:
            return begin
        out.append(self._text.raw(begin, end))
        self._marked = False
        return end

    def __repr__(self) -> str:
        return "EchoFilter(<hidden>)"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("an EchoFilter holds text of an answer and is never serialised or copied")


class _Scrubber:
    """Rebuilds a value with every string scrubbed."""

    def __init__(self, guard: EchoGuard) -> None:
        self.withheld = 0
        self._guard = guard

    def clean(self, value: Any) -> Any:
        match value:
            case str():
                text, count = self._guard.scrub(value)
                self.withheld += count
                return text if count else value
            case Mapping():
                return self._mapping(value)
            case list() | tuple() | set() | frozenset():
                return self._sequence(value)
            case BaseModel():
                changed = self._changes({**dict(value), **(value.model_extra or {})})
                return value.model_copy(update=changed) if changed else value
            case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
                return self._dataclass(value)
            case _:
                return value

    def _sequence(self, value: Any) -> Any:
        before = self.withheld
        cleaned = [self.clean(item) for item in value]
        if self.withheld == before:
            return value
        make = getattr(type(value), "_make", type(value))  # named tuples take their fields one by one
        return make(cleaned)

    def _mapping(self, value: Mapping[Any, Any]) -> Mapping[Any, Any]:
        before = self.withheld
        cleaned: dict[Any, Any] = {}
        for key, item in value.items():
            name = self.clean(key)
            while name in cleaned:  # two keys may become the same mark; neither value may be lost
                name = f"{name}+"
            cleaned[name] = self.clean(item)
        return value if self.withheld == before else cleaned

    def _dataclass(self, value: Any) -> Any:
        changed = self._changes({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
        if not changed:
            return value
        made = copy(value)
        for name, item in changed.items():
            object.__setattr__(made, name, item)
        return made

    def _changes(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        cleaned = {name: self.clean(item) for name, item in fields.items()}
        return {name: item for name, item in cleaned.items() if item is not fields[name]}
