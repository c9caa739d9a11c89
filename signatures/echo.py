"""The echo guard: a role repeated word for word does not leave the model's answer (R16).

A character is withheld if it lies in a run of `ECHO_RUN` characters of the normal form (see `normal`) that stands in
the role and in no other input of the same call; each connected stretch of such characters becomes one `MARK`. Shorter
pieces, paraphrase, translation and encodings are out of reach.

Not here: what happens when something was withheld (`allow`, `fail`, the event) is decided by the caller; the scanner in
`testing` looks for leaks of our own plumbing. The answer reaches the filter through `fields`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NoReturn, SupportsIndex

from ..core import ECHO_RUN
from .normal import NormalText, normalising
from .runs import RunIndex
from .shares import Passage, ShareIndex
from .steps import SLICE, Steps, at_once
from .texts import with_texts

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
        self._shares: ShareIndex | None = None

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
        """Withhold the role in all texts of one answer, keys included; `with_texts` says what it looks through.

        Where the texts together repeat a large share of the role's words in their order (see `_shares`), those words
        are withheld too, however short the runs are.

        Args:
            value: An output field's value, or several fields; it is not changed.

        Returns:
            The value as it may be shown (the very same object where nothing was withheld), and how many stretches were
            withheld.
        """
        return at_once(self.scrubbing(value))

    def scrubbing(self, value: Any) -> Steps[tuple[Any, int]]:
        """As `scrub_value`, in steps."""
        texts: list[tuple[bool, str]] = []

        def collect(text: str, in_key: bool) -> str:
            texts.append((in_key, text))
            return text

        value = with_texts(value, collect)
        yield
        passages = yield from self._repeated(texts)
        scrubbed: list[str] = []
        withheld = 0
        for place, (_, text) in enumerate(texts):
            scrub = self._filtering(text) if passages is None else self._withholding(text, passages[place])
            shown, count = yield from scrub
            scrubbed.append(shown)
            withheld += count
        if not withheld:
            return value, 0
        done = iter(scrubbed)
        return with_texts(value, lambda text, in_key: next(done)), withheld

    def _filtering(self, text: str) -> Steps[tuple[str, int]]:
        echo = self.filter()
        shown: list[str] = []
        for begin in range(0, len(text), SLICE):
            shown.append(echo.feed(text[begin : begin + SLICE]))
            yield
        return "".join([*shown, echo.close()]), echo.withheld

    def _repeated(self, texts: Sequence[tuple[bool, str]]) -> Steps[Sequence[Sequence[Passage]] | None]:
        """The passages of each text where all of them repeat too much; else None."""
        if not any(len(text) >= self._run for text in self._texts):
            return None
        if self._shares is None:
            self._shares = yield from ShareIndex.built(self._texts, self._other_texts, run=self._run)
        # Lines of a list may each stand under a key of their own, so the keys are read apart from the values.
        order = sorted(range(len(texts)), key=lambda place: texts[place][0])
        normal: list[str] = []
        for place in order:
            normal.append((yield from normalising(texts[place][1])))
        found = yield from self._shares.finding(normal)
        if found is None:
            return None
        placed = dict(zip(order, found, strict=True))
        return [placed[place] for place in range(len(texts))]

    def _withholding(self, text: str, passages: Sequence[Passage]) -> Steps[tuple[str, int]]:
        """Withhold the runs of a text and further passages of its normal form."""
        made = NormalText()
        out: list[str] = []
        for begin in range(0, len(text), SLICE):
            out.append(made.add(text[begin : begin + SLICE]))
            yield
        out.append(made.add("", last=True))
        spans = list(passages)
        for stretch in self.stretches(made.normal):
            spans.append(stretch)
            yield
        at = withheld = 0
        for begin, end in sorted(spans):
            if not withheld or begin > at:
                out += [made.raw(at, begin), MARK]
                withheld += 1
            at = max(at, end)
        return "".join([*out, made.raw(at, len(made.normal))]), withheld

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

    def __getstate__(self) -> NoReturn:
        self.__reduce_ex__(0)


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

    def __getstate__(self) -> NoReturn:
        self.__reduce_ex__(0)
