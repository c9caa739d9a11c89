"""The echo guard: it withholds a role that the model repeats word for word in its answer (R16).

A character is withheld if it is in a run of `ECHO_RUN` characters of the normal form (`matching`) that occurs in the
role and in no other input of the same call. Each connected stretch of such characters becomes one `MARK`. The guard
does not detect shorter pieces, paraphrases, translations or encodings.

The caller decides what happens after something was withheld (`allow`, `fail`, the event). The scanner in `testing`
looks for leaks of our own code. The answer reaches the filter through `streaming`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NoReturn, SupportsIndex

from ..core import ECHO_RUN
from .matching import SLICE, NormalText, Passage, ShareIndex, Steps, at_once, normalise, normalising
from .texts import with_texts

_BETWEEN = "\n"  # separates the texts of an index, because no normalised text contains it


class RunIndex:
    """Finds the runs of a text that occur in given texts.

    A known run consists only of known grams (pieces of `gram` characters). So a set first finds the pieces of a text
    whose grams are all known, and runs are searched only in those.
    """

    def __init__(self, texts: Iterable[str], *, run: int, gram: int) -> None:
        self._run, self._gram = run, gram
        self._text = text = _BETWEEN.join(normalise(one) for one in texts)
        self._grams = {text[at : at + gram] for at in range(len(text) - gram + 1)} if len(text) >= run else set()

    def starts(self, text: str) -> Iterator[range]:
        """Yield, in order, the ranges of positions in a normalised text at which a known run starts."""
        for begin, end in self._candidates(text):
            at = begin
            while at + self._run <= end:
                found = self._text.find(text[at : at + self._run])
                count = self._common(text[at:end], found) - self._run + 1 if found >= 0 else 0
                if count:
                    yield range(at, at + count)
                at += count or 1

    def reach(self, text: str) -> int:
        """The length of the longest end of a normalised text that could begin a known run."""
        if not self._grams:
            return 0
        keep, gram = self._gram - 1, self._gram
        limit = min(self._run - 1, len(text))
        while keep < limit and text[-keep - 1 :][:gram] in self._grams:
            keep += 1
        return min(keep, limit)

    def _candidates(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield begin and end of the pieces, at least as long as a run, whose grams are all known."""
        gram, grams = self._gram, self._grams
        step, last = self._run - gram + 1, len(text) - gram
        at = step - 1  # each run contains exactly one of the checked grams
        while at <= last:
            if text[at : at + gram] not in grams:
                at += step
                continue
            begin = at
            while begin and text[begin - 1 : begin - 1 + gram] in grams:
                begin -= 1
            while at < last and text[at + 1 : at + 1 + gram] in grams:
                at += 1
            if at + gram - begin >= self._run:
                yield begin, at + gram
            at += 1 + step

    def _common(self, text: str, found: int) -> int:
        """How far a text agrees with the indexed one from `found` on."""
        here = self._text[found : found + len(text)]
        if here == text:
            return len(text)
        return next(
            (size for size, (one, other) in enumerate(zip(text, here, strict=False)) if one != other), len(here)
        )


class Hidden:
    """An object with the text of a role or an answer. Its repr shows none, and it cannot be pickled or copied."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<hidden>)"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} holds text and is never serialised or copied; make one for each call")

    def __getstate__(self) -> NoReturn:
        self.__reduce_ex__(0)


MARK = "[role withheld]"
"""The replacement of a withheld run in an answer."""

_GRAM = 8


class EchoGuard(Hidden):
    """Holds one call's role and its other inputs, and makes filters for the outputs of that call (R16).

    The indexes are built at the first output; that of the other inputs only after a part of the role was seen.
    """

    def __init__(self, *role: str, others: Sequence[str] = (), run: int = ECHO_RUN, gram: int = _GRAM) -> None:
        """Take the texts of the call. Nothing is computed yet.

        Args:
            role: The role, and each further text that counts as a repetition.
            others: The other inputs of the same call, as the model sees them.
            run: The length of the shortest withheld repetition, in normalised characters.
            gram: The size of the pieces that find repetitions, from 2 to `run`. It only affects speed.
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
            The text that can be shown, and how many stretches were withheld.
        """
        echo = self.filter()
        return echo.feed(text) + echo.close(), echo.withheld

    def scrub_value(self, value: Any) -> tuple[Any, int]:
        """Withhold the role in all texts of one answer, keys included. `with_texts` defines which objects are searched.

        If the texts repeat in sum a large share of the role's words, in their order (see `ShareIndex`), those words are
        withheld too, however short the runs are.

        Args:
            value: An output field's value, or several fields; it is not changed.

        Returns:
            The value that can be shown (the same object if nothing was withheld), and how many stretches were withheld.
        """
        return at_once(self.scrubbing(value))

    def scrubbing(self, value: Any, fixed: frozenset[str] = frozenset()) -> Steps[tuple[Any, int]]:
        """As `scrub_value`, in steps; the texts `fixed` stay."""
        texts: list[tuple[bool, str]] = []

        def collect(text: str, in_key: bool) -> str:
            texts.append((in_key, text))
            return text

        value = with_texts(value, collect, fixed)
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
        return with_texts(value, lambda text, in_key: next(done), fixed), withheld

    def _filtering(self, text: str) -> Steps[tuple[str, int]]:
        echo = self.filter()
        shown: list[str] = []
        for begin in range(0, len(text), SLICE):
            shown.append(echo.feed(text[begin : begin + SLICE]))
            yield
        return "".join([*shown, echo.close()]), echo.withheld

    def _repeated(self, texts: Sequence[tuple[bool, str]]) -> Steps[Sequence[Sequence[Passage]] | None]:
        """The passages of each text if all texts repeat too much in sum; else None."""
        if not any(len(text) >= self._run for text in self._texts):
            return None
        if self._shares is None:
            self._shares = yield from ShareIndex.built(self._texts, self._other_texts, run=self._run)
        # Lines of a list can each have a separate key, so the keys are read separately from the values.
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
        """Yield begin and end of the stretches that a normalised text repeats, in order; neighbours can overlap."""
        for starts in self._role.starts(text):
            for allowed in self._not_in_others(text, starts):
                yield allowed.start, allowed.stop - 1 + self._run

    def reach(self, text: str) -> int:
        """How many characters at the end of a normalised text could begin a run that continues in later text."""
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


class EchoFilter(Hidden):
    """Withholds the role in one output that arrives in chunks.

    It delays the last characters, because they can begin a run: seven of them, and more only while they continue to
    match the role. However the text is split, the parts add up to `EchoGuard.scrub` of the complete text.

    Attributes:
        withheld: How many stretches were withheld up to now.
    """

    def __init__(self, guard: EchoGuard) -> None:
        self.withheld = 0
        self._guard = guard
        self._text = NormalText()  # the text that is not settled yet
        self._gone = 0  # how many of its characters were already withheld and are only kept for comparison
        self._marked = False  # whether the last output is a mark

    def feed(self, text: str) -> str:
        """Take the next part and return the text that can be shown now."""
        shown = self._text.add(text)
        return shown + self._settle(len(self._text.normal) - self._guard.reach(self._text.normal))

    def close(self) -> str:
        """Return the delayed text; the output ends here."""
        shown = self._text.add("", last=True)
        return shown + self._settle(len(self._text.normal))

    def _settle(self, upto: int) -> str:
        """Output or withhold everything before `upto`, and drop what was already withheld after it."""
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
