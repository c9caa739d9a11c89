"""The guard against answers that disclose a role: what a role asks to be said may be said (R16).

An answer discloses a role if it gives back most of the role's own words: in any order of its pieces, between other
words, with tags, marks and some typos. What a role quotes, fences or asks to be said (`quotable`) never counts, and
neither does what another input of the call says too.

Words that stand in an answer by chance, far from others of the role, do not count. If an answer discloses a role, all
other passages of it are withheld. So a stream holds back everything from the first of them until the answer is complete
(`RoleFilter`): nothing that is withheld was shown before.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

from ..core.files import packaged_table
from ..role_resolution import Echo, RolePart
from .echo import MARK, EchoFilter, EchoGuard, Hidden
from .matching import GRAM, SLICE, NormalText, Steps, at_once, normalising
from .quotable import quotable
from .texts import with_texts

SHARE: Final = 0.55
"""The share of a role's own words from which an answer discloses it, if the role has more than a few."""

INTRODUCED_SHARE: Final = 0.4
"""The same for an answer that introduces them as its instructions."""

_PIECE: Final = 3  # words that follow one another in the role
_HAN_PIECE: Final = 5  # characters, for a role in a script without spaces
_SHORT: Final = 8  # own words of a role below which only all of them, as a line of their own, disclose it
_SHARES: Final = ((10, 0.92), (20, 0.75), (60, SHARE))
"""By how many words a role has of its own: the share from which an answer discloses it. Between them it is linear."""

_BY_CHANCE: Final = 5  # own words that a passage must have; fewer stand in answers by chance
_HAN_BY_CHANCE: Final = 8
_HAN_WORDS: Final = 0.6  # words for each character of a script without spaces
_APART: Final = 12  # words between two passages
_NEAR: Final = 3  # words between two pieces that are withheld with them: fillers, labels, typos
_STEP: Final = 500  # words per step
_INTRODUCED_WITHIN: Final = 200  # characters before the first passage
_LONGEST_WAIT: Final = 600  # characters that can be held only because more of the role can follow
_LONG_WORD: Final = 40

_HAN: Final = "\u3040-\u30ff\u3400-\u9fff"
_ONE_HAN: Final = re.compile(f"[{_HAN}]")
_WORD: Final = re.compile(rf"[{_HAN}]|[^\W_{_HAN}]+")
_MARKER: Final = re.compile(rf"\d+|[ivx]+|[^{_HAN}]")  # of a line in a list
_INLINE: Final = (
    r"abbr|a|bdi|bdo|big|b|cite|code|data|del|dfn|em|font|ins|i|kbd|mark|q|ruby|rb|samp|small|span|strike|strong|sub"
    r"|sup|s|token|tt|u|var|wbr|words?|w|x"
)
_BLOCKS: Final = (
    r"article|aside|blockquote|body|br|caption|center|col|colgroup|dd|details|div|dl|dt|figcaption|figure|footer|h[1-6]"
    r"|head|header|hr|html|item|label|line|li|main|nav|ol|option|pre|p|rp|rt|role|rule|rules|section|sentence|summary"
    r"|system|table|tbody|td|text|tfoot|thead|th|title|tr|ul"
)
"""Names of HTML, and some that people make up. A word ends at a block, and not at another tag.

Other words in angle brackets are words, which could be a role's. So are those of a tag with an attribute of three
words, such as a title.
"""

_TAG_OR_ENTITY: Final = re.compile(
    rf"(?i)</?(?:(?P<inline>{_INLINE})|{_BLOCKS})(?=[\s/>])(?=[^<>]{{0,300}}>)(?:\s+"
    r"(?:style=(?:\"[^\"<>]{0,120}\"|'[^'<>]{0,120}')|(?!style=[\"'])[\w:-]{1,40}=(?:"
    r"\"[^\"<>\s]{0,120}(?:\s[^\"<>\s]{0,120})?\"|'[^'<>\s]{0,120}(?:\s[^'<>\s]{0,120})?'"
    r"|[^\s\"'<>=]{1,120})))*\s*/?>|&(?:#\d{1,10};?|#x[0-9a-f]{1,8};?|[a-z]{2,12}\d{0,2};)"
)
_TAG_BEGINS: Final = re.compile("[<&]")
_OPEN_END: Final = re.compile(r"(?:<(?:/?[A-Za-z][^<>]{0,310}|/)?|&[#A-Za-z0-9]{0,13}|\\[^\s]{0,24})\Z")
"""The end of a text that can become a tag, an entity or an escape."""

_BOUND_BEFORE: Final = re.compile("[^\\s\\w,，、'’/&+=-]|\n")
_BOUND_AFTER: Final = re.compile("[^\\s\\w,，、'’/&+=:：-]|\n")
_NOT_ACROSS: Final = re.compile(r'(?:(?<!\\)\\+)?["{}\[\]]')  # so that JSON stays JSON
_KEY: Final = re.compile(rf"{re.escape(MARK)}(?=[^\"\\]{{0,200}}\\*\"\s*:)")  # two keys of JSON stay different
_LITERALS: Final = frozenset({"true", "false", "null", "NaN", "Infinity"})  # of JSON

Spans = list[tuple[int, int]]
"""Begin and end of stretches of a text."""


# --- words ------------------------------------------------------------------------------------------------------------


class Word(NamedTuple):
    """A word in normal form, and its place in the text."""

    text: str
    begin: int
    end: int


def words_of(text: str) -> list[Word]:
    """The words of a text, without tags, the marks of lists and numbers. Entities count as what they stand for."""
    return at_once(_reading(text)).words


class _Read(NamedTuple):
    """A text that was read: its words, the place up to which it was read, and whether its last word can go on there."""

    words: list[Word]
    end: int
    goes_on: bool


def _reading(text: str, *, last: bool = True) -> Steps[_Read]:
    """Read a text, in steps.

    Args:
        text: The text.
        last: Whether it is complete. If not, a tag, an entity, an escape or a syllable at its end that can go on is not
            read, and its last word is there even if it is only the mark of a line so far.
    """
    opened = None if last else _OPEN_END.search(text)
    read = len(text) if opened is None else opened.start()
    plain, places = _without_tags(text[:read])
    made = NormalText()
    begun = 0
    for begin in range(0, len(plain), SLICE):
        begun += len(made.add(plain[begin : begin + SLICE]))
        yield
    if last:
        begun += len(made.add("", last=True))
    ends = [begun, *accumulate(made.sizes(), initial=begun)][1:]
    if not last and ends[-1] < len(plain):
        read = ends[-1] if places is None else places[ends[-1]][0]
    found: list[Word] = []
    goes_on = False
    for step, word in enumerate(_WORD.finditer(made.normal)):
        goes_on = not last and word.end() == len(made.normal)
        if goes_on or not _MARKER.fullmatch(word[0]):
            begin, end = ends[word.start()], ends[word.end()]
            if begin == end:  # a part of what one character stands for
                begin -= 1
            while end - begin > 1 and plain[end - 1] == "\\":  # of an escape behind the word
                end -= 1
            if places is not None:
                begin, end = places[begin][0], places[max(begin, end - 1)][1]
            found.append(Word(word[0], begin, end))
        if step % _STEP == 0:
            yield
    return _Read(found, read, goes_on)


def _reading_texts(text: str) -> Steps[list[str]]:
    """The words of a text without their places, in steps; faster."""
    normal = yield from normalising(_without_tags(text)[0])
    return [word for word in _WORD.findall(normal) if not _MARKER.fullmatch(word)]


def _without_tags(text: str) -> tuple[str, list[tuple[int, int]] | None]:
    """The text without tags and entities, and begin and end in the text of each character; None if nothing changed."""
    plain: list[str] = []
    places: list[tuple[int, int]] = []
    at = 0
    for found in _TAG_OR_ENTITY.finditer(text):
        plain.append(text[at : found.start()])
        places += [(place, place + 1) for place in range(at, found.start())]
        meant = html.unescape(found[0]) if found[0][0] == "&" else "" if found["inline"] else " "
        plain.append(meant)
        places += [found.span()] * len(meant)
        at = found.end()
    if not at:
        return text, None
    plain.append(text[at:])
    places += [(place, place + 1) for place in range(at, len(text))]
    return "".join(plain), places


# --- one tier ---------------------------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """Some words of an answer that follow one another in the role.

    Attributes:
        given: The places in the role of those that are its own, wherever they follow one another.
        first: The place of the first one in the answer.
        end: The place behind the last one there.
        held: The places there of those that are the role's own.
    """

    given: set[int]
    first: int
    end: int
    held: Sequence[int]


def _share_of(count: float) -> float:
    """The share that discloses a role with so many words of its own: people say a short one in a sentence."""
    for (low, most), (high, least) in pairwise(_SHARES):
        if count <= high:
            return most - max(0.0, count - low) * (most - least) / (high - low)
    return SHARE


@dataclass(slots=True)
class Passage:
    """Pieces of an answer that stand close together.

    Attributes:
        first: The place of the first word in the answer.
        end: The place behind the last one.
        given: The places of the role's own words in the role.
        held: The places of its words in the answer.
    """

    first: int
    end: int
    given: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)

    def moved(self, by: int) -> Passage:
        """The same passage in a text that has so many words before it."""
        return Passage(self.first + by, self.end + by, self.given, {place + by for place in self.held})


class Tier(Hidden):
    """Measures how much of the text of one tier answers give back; see `built`.

    Attributes:
        echo: What happens if an answer discloses it.
        size: The number of words in a piece.
        is_short: Whether it has so few words of its own that answers say them all by chance.
    """

    def __init__(self, words: Sequence[Word], spans: Spans, echo: Echo) -> None:
        self.echo: Echo = echo
        self._words = texts = [word.text for word in words]
        in_han = 2 * sum(_ONE_HAN.match(each) is not None for each in texts) > len(texts)
        self.size = GRAM if echo == "strict" else _HAN_PIECE if in_han else _PIECE
        self._own = set(range(len(words)))
        for begin, end in spans:
            first = bisect_right(words, begin, key=lambda word: word.end)
            self._own.difference_update(range(first, bisect_left(words, end, key=lambda word: word.begin)))
        self._all = len(self._own)
        self._by_chance = _HAN_BY_CHANCE if in_han else _BY_CHANCE
        self.is_short = self._all < _SHORT
        self._discloses = _share_of(self._all * (_HAN_WORDS if in_han else 1))
        self._index()

    @classmethod
    def built(cls, text: str, echo: Echo) -> Steps[Tier]:
        """Make one of the text of a tier, in steps. One or two words are never a disclosure."""
        if echo == "strict":  # `echo` counts tags and entities as words
            return cls((yield from _reading(f"{text}\n{_TAG_BEGINS.sub(' ', text)}")).words, [], echo)
        words = (yield from _reading(text)).words
        spans = quotable(text)
        yield
        made = cls(words, spans, echo)
        if made._all < made.size:
            made = cls(words, quotable(text, blocks=False), echo)
        return made if made._all else cls(words, [], echo)

    def searching(self, texts: Sequence[str]) -> Steps[list[Piece]]:
        """All `pieces` of a text, in steps."""
        found: list[Piece] = []
        for begin in range(0, len(texts), _STEP):
            for given, first, end, held in self.pieces(texts[begin : begin + _STEP + self.size]):
                if first < _STEP:
                    found.append(Piece(given, begin + first, begin + end, [begin + place for place in held]))
            yield
        return found

    def passages(self, pieces: Iterable[Piece]) -> list[Passage]:
        """Pieces of a text that stand close together, in order.

        Args:
            pieces: All pieces, in the order of their first words.
        """
        found: list[Passage] = []
        for piece in pieces:
            if not found or piece.first >= found[-1].end + _APART:
                found.append(Passage(piece.first, piece.end))
            now = found[-1]
            now.end = max(now.end, piece.end)
            if not piece.given <= now.given:
                now.given |= piece.given
            now.held.update(piece.held)
        return found

    def counts(self, passage: Passage) -> bool:
        """Whether a passage is more than words that an answer has by chance."""
        need = len(self._own) if self.is_short else self._by_chance
        return self.echo == "strict" or len(passage.given) >= need

    def is_disclosed(self, passages: Iterable[Passage], *, introduced: bool) -> bool:
        """Whether the passages that count are enough of the role.

        What other inputs say too is left out of both sides, but at least half of the role's own words are the base.
        """
        given = {place for passage in passages for place in passage.given}
        share = len(given) / max(len(self._own), self._all / 2, 1)
        return share >= (INTRODUCED_SHARE if introduced and not self.is_short else self._discloses)

    def leaving_out(self, texts: Sequence[str]) -> Steps[None]:
        """Leave out the pieces that another input of the call has too, given by its words: they do not count."""
        found = yield from self.searching(texts)
        if found:
            self._own -= set[int]().union(*(piece.given for piece in found))
            self._index()

    def _index(self) -> None:
        """Find the places of the pieces that have a word of the role's own."""
        # of own words in the role, and in the piece
        self._places: dict[tuple[str, ...], tuple[set[int], set[int]]] = {}
        for place in range(len(self._words) - self.size + 1):
            own = self._own.intersection(range(place, place + self.size))
            if own:
                given, within = self._places.setdefault(tuple(self._words[place : place + self.size]), (set(), set()))
                given |= own
                within.update(each - place for each in own)

    @cached_property
    def _beginnings(self) -> set[tuple[str, ...]]:
        """All beginnings of pieces, and those of their first words."""
        first_words = {piece[0] for piece in self._places}
        return {piece[:count] for piece in self._places for count in range(1, self.size)} | {
            (word[:count],) for word in first_words for count in range(min(len(word), _LONG_WORD + 1))
        }

    def pieces(self, texts: Sequence[str]) -> Iterator[Piece]:
        """Where words of a text are a piece of the tier, with at most one other word between them."""
        size, places = self.size, self._places
        for first in range(len(texts) - size + 1):
            found = places.get(tuple(texts[first : first + size]))
            if found is not None:
                yield Piece(found[0], first, first + size, [first + each for each in found[1]])
            if first + size == len(texts):
                break
            window = texts[first : first + size + 1]
            for left_out in range(1, size):
                found = places.get((*window[:left_out], *window[left_out + 1 :]))
                if found is not None:
                    held = [first + each + (each >= left_out) for each in found[1]]
                    yield Piece(found[0], first, first + size + 1, held)

    def may_begin(self, texts: Sequence[str]) -> bool:
        """Whether the words at the end of a text can be the beginning of a piece; the last can be incomplete."""
        *complete, last = texts
        known = self._beginnings
        if not complete:
            return (last[:_LONG_WORD],) in known
        if len(complete) > self.size:
            return False
        ways = [(*complete[:left_out], *complete[left_out + 1 :]) for left_out in range(1, len(complete))]
        return tuple(complete) in known or any(way in known for way in ways)


# --- the guard --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """An answer without what must not be shown of a role.

    Attributes:
        fields: The output fields; the same object if nothing was withheld.
        withheld: For each field of which something was withheld, how many characters.
        failed: Whether it discloses a tier with `fail`.
    """

    fields: Mapping[str, Any]
    withheld: Mapping[str, int] = field(default_factory=dict)
    failed: bool = False


class RoleGuard(Hidden):
    """Withholds the tiers of a role that an answer gives back: each one by its own mode.

    A tier with `disclosure` or `fail` counts by this module, and one with `strict` by `echo.EchoGuard`.

    Args:
        parts: The text of each tier, with its own mode.
        others: The other inputs of the call, as the model sees them.
        echo: The mode of the tiers without one.
        fixed: Texts of the answer that stay, and do not count: what its schema fixes, such as its keys.

    Attributes:
        prepared: Whether it knows what the other inputs say; see `preparing`.
    """

    def __init__(
        self,
        parts: Iterable[RolePart],
        others: Sequence[str] = (),
        *,
        echo: Echo = "disclosure",
        fixed: frozenset[str] = frozenset(),
    ) -> None:
        self._fixed = fixed
        modes: list[tuple[str, Echo]] = [(part.text, part.echo or echo) for part in parts]
        self._parts: list[tuple[str, Echo]] = [each for each in modes if each[1] != "allow"]
        self._others, self.prepared = others, not others
        self._strict = [EchoGuard(text, others=others) for text, mode in self._parts if mode == "strict"]
        self._built: list[Tier] | None = None

    @property
    def _tiers(self) -> list[Tier]:
        """The tiers; without regard to the other inputs until `preparing`, because most answers give nothing back."""
        if self._built is None:
            at_once(self.building())
        return self._built or []

    def building(self) -> Steps[None]:
        """Read the texts of the role, in steps. It is done once."""
        if self._built is None:
            built = []
            for text, echo in self._parts:
                built.append((yield from Tier.built(text, echo)))
            self._built = built

    def preparing(self) -> Steps[None]:
        """Leave out of the tiers what other inputs of the call say too, in steps. It is done once."""
        if not self.prepared:
            for other in self._others:
                texts = yield from _reading_texts(other)
                for tier in self._tiers:
                    yield from tier.leaving_out(texts)
            self.prepared = True

    def first_passage(self, texts: Sequence[str]) -> tuple[int | None, bool]:
        """The place of the first word of a text that begins a passage, and whether the text has one that counts.

        A passage that does not count, and that no later piece can continue, is left out once the guard is prepared: of
        a short tier it can count without what other inputs say.
        """
        begins: list[int] = []
        counts = False
        for tier in self._tiers:
            for passage in tier.passages(tier.pieces(texts)):
                strong = tier.counts(passage)
                if strong or not self.prepared or len(texts) < passage.end + _APART + tier.size:
                    begins.append(passage.first)
                counts = counts or strong
        return min(begins, default=None), counts

    def may_begin(self, texts: Sequence[str]) -> bool:
        """Whether the words at the end of a text can be the beginning of a piece; the last can be incomplete."""
        return any(tier.may_begin(texts) for tier in self._tiers)

    @cached_property
    def longest(self) -> int:
        """The most words at the end of a text that can be the beginning of a piece."""
        return max((tier.size for tier in self._tiers), default=0) + 1

    def filter(self) -> RoleFilter:
        """Start a filter for one text that arrives in chunks."""
        return RoleFilter(self, [guard.filter() for guard in self._strict])

    def scrub_value(self, value: Any) -> tuple[Any, int]:
        """Withhold in all texts of one value, keys included, what it must not show. JSON in a text stays JSON.

        Args:
            value: An output field's value; it is not changed.

        Returns:
            The value that can be shown (the same object if nothing was withheld), and how many characters are withheld.
        """
        done = at_once(self.scrubbing({"": value}))
        return done.fields[""], sum(done.withheld.values())

    def scrubbing(self, fields: Mapping[str, Any]) -> Steps[Scrubbed]:
        """As `scrub_value` for the output fields of one answer, in steps."""
        yield from self.building()
        done = yield from self._measured(fields)
        for guard in self._strict:
            cleaned, count = yield from guard.scrubbing(done.fields, self._fixed)
            if count:
                withheld = dict(done.withheld)
                for name, value in done.fields.items():
                    if cleaned[name] is not value:
                        withheld[name] = withheld.get(name, 0) + _withheld(value, cleaned[name])
                done = replace(done, fields=cleaned, withheld=withheld)
        return done

    def _measured(self, fields: Mapping[str, Any]) -> Steps[Scrubbed]:
        """Withhold the tiers that the answer discloses."""
        texts: list[str] = []
        ends: list[int] = []  # for each field, the number of texts up to its end

        def collect(text: str, in_key: bool) -> str:
            texts.append(text)
            return text

        read: dict[str, Any] = {}  # an iterator can be read once
        for name, value in fields.items():
            read[name] = with_texts(value, collect, self._fixed)
            ends.append(len(texts))
            yield
        if all(read[name] is value for name, value in fields.items()):
            read = dict(fields)
        spans, disclosed = yield from self._disclosed(texts, ends)
        if not disclosed:
            return Scrubbed(fields if all(read[name] is value for name, value in fields.items()) else read)
        made = [_without(text, own) for text, own in zip(texts, spans, strict=True)]
        shown = iter(made)
        withheld = {
            name: sum(count for _, count in made[begin:end])
            for name, begin, end in zip(fields, [0, *ends], ends, strict=False)
        }
        cleaned = {
            name: with_texts(value, lambda text, in_key: next(shown)[0], self._fixed) for name, value in read.items()
        }
        counts = {name: count for name, count in withheld.items() if count}
        return Scrubbed(cleaned, counts, failed="fail" in disclosed)

    def _disclosed(self, texts: Sequence[str], ends: Sequence[int]) -> Steps[tuple[Sequence[Spans], set[Echo]]]:
        """Begin and end of what is withheld in each text, and the modes of the tiers that the texts disclose.

        A piece can begin in one text of a field and end in the next one, as the lines of a list, but not in another
        field, because a stream of that field cannot know it.
        """
        spans: list[Spans] = [[] for _ in texts]
        disclosed: set[Echo] = set()
        answer = _Words(texts)
        yield from answer.reading()
        said = [word.text for word in answer.words]
        fields = [answer.begins[end] for end in (0, *ends)]
        yield
        for tier in self._tiers:
            if tier.echo == "strict" or not (yield from tier.searching(said)):
                continue
            yield from self.preparing()  # a part of the role is there; do other inputs say it too?
            found: list[Passage] = []
            for begin, end in pairwise(fields):
                pieces = yield from tier.searching(said[begin:end])
                found += [each.moved(begin) for each in tier.passages(pieces) if tier.counts(each)]
                yield
            introduced = bool(found) and answer.is_introduced(found[0].first)
            if tier.is_short and not introduced:
                found = [each for each in found if answer.is_alone(each.first, each.end)]
            if found and tier.is_disclosed(found, introduced=introduced):
                answer.add(spans, sorted({place for each in found for place in each.held}))
                disclosed.add(tier.echo)
                yield
        return spans, disclosed


@cache
def _introduction() -> re.Pattern[str]:
    return re.compile("|".join(packaged_table(__package__, "cues.toml")["introduced"]["ways"]), re.IGNORECASE)


class _Words:
    """The words of all texts of an answer.

    Attributes:
        words: All words, in order.
        begins: For each text, and for the end, the number of words before it.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self.words: list[Word] = []
        self.begins = [0]

    def reading(self) -> Steps[None]:
        """Read all texts, in steps."""
        for text in self._texts:
            self.words += (yield from _reading(text)).words
            self.begins.append(len(self.words))

    def _text_of(self, place: int) -> int:
        return bisect_right(self.begins, place) - 1

    def is_introduced(self, place: int) -> bool:
        """Whether the text before a word says that instructions follow."""
        number = self._text_of(place)
        before = self._texts[number][: self.words[place].end]
        if number and len(before) < _INTRODUCED_WITHIN:
            before = f"{self._texts[number - 1]}\n{before}"
        return _introduction().search(before[-_INTRODUCED_WITHIN:]) is not None

    def is_alone(self, first: int, end: int) -> bool:
        """Whether the words from `first` to `end` are a line, a sentence or a quotation of their own."""
        number = self._text_of(first)
        if end > self.begins[number + 1]:
            return False
        text, begun, ended = self._texts[number], self.words[first].begin, self.words[end - 1].end
        before = None if first == self.begins[number] else text[self.words[first - 1].end : begun]
        after = None if end == self.begins[number + 1] else text[ended : self.words[end].begin]
        return (before is None or _BOUND_BEFORE.search(before) is not None) and (
            after is None or _BOUND_AFTER.search(after) is not None
        )

    def add(self, spans: Sequence[Spans], held: Sequence[int]) -> None:
        """Add the places of some words, and of those between near ones, to the spans of their texts."""
        last, before = -_NEAR - 2, -1
        for place in held:
            number, word = self._text_of(place), self.words[place]
            own = spans[number]
            if place - last > _NEAR + 1 or before != number or not own:
                own.append((word.begin, word.end))
            elif bounds := [*_NOT_ACROSS.finditer(self._texts[number], own[-1][1], word.begin)]:
                own[-1] = (own[-1][0], bounds[0].start())
                own.append((bounds[-1].end(), word.end))
            else:
                own[-1] = (own[-1][0], max(own[-1][1], word.end))
            last, before = place, number


def _without(text: str, spans: Spans) -> tuple[str, int]:
    """The text with a mark in place of each of the spans, and how many characters these have."""
    shown: list[str] = []
    at = withheld = 0
    for begin, end in sorted(spans):
        if text[begin:end] in _LITERALS:
            continue
        if begin > at or not shown:
            shown += [text[at:begin], MARK]
        withheld += max(0, end - max(at, begin))
        at = max(at, end)
    return _apart("".join([*shown, text[at:]])) if withheld else text, withheld


def _apart(text: str) -> str:
    """The text with a number behind each mark but the first that is a key of JSON, or the end of one."""
    first, *others = _KEY.split(text)
    return "".join([first, *(f"{MARK} {at}{each}" if at > 1 else MARK + each for at, each in enumerate(others, 1))])


def _withheld(before: Any, after: Any) -> int:
    """How many characters a value has lost to marks."""
    counts: list[int] = []

    def count(text: str, in_key: bool) -> str:
        counts.append(len(text) - len(MARK) * text.count(MARK))
        return text

    with_texts(before, count)
    characters, counts = sum(counts), []
    with_texts(after, count)
    return max(0, characters - sum(counts))


class RoleFilter(Hidden):
    """Passes one text on, in chunks, up to the first passage of a role that it gives back.

    It delays the last words while they can be the beginning of a piece, and a few words by chance until it is clear
    that no more follow. What it holds from the first passage that counts on is shown once the answer is complete, as
    far as the guard does not withhold it.

    Args:
        guard: Finds the pieces.
        runs: The filters of tiers with `strict`, for what is passed on. They come second, because a piece that is
            partly in a run could not be found behind them.

    Attributes:
        waits: Whether it holds text only until the guard is prepared.
    """

    def __init__(self, guard: RoleGuard, runs: Sequence[EchoFilter] = ()) -> None:
        self._guard, self._runs = guard, runs
        self.waits = False
        self._read: list[str] = []  # the complete text
        self._shown: list[str] = []  # what was passed on
        self._text = ""  # what was not passed on yet
        self._holds = False

    def feed(self, text: str) -> str:
        """Take the next part and return the text that can be shown now."""
        self._read.append(text)
        self._text += text
        if self._holds:
            return ""
        words, end, goes_on = at_once(_reading(self._text, last=False))
        texts = [word.text for word in words] if goes_on else [*(word.text for word in words), ""]
        first, counts = self._guard.first_passage(texts[:-1])
        self.waits = first is not None and not self._guard.prepared
        self._holds = counts and self._guard.prepared
        keep = self._beginning(words, texts, end)
        if first is not None:
            keep = min(keep, words[first].begin)
        if len(self._text) - keep > _LONGEST_WAIT:
            self._holds = True
        return self._passed(keep)

    def _passed(self, count: int, *, last: bool = False) -> str:
        """Pass on so many characters, as far as they are in no run."""
        shown, self._text = self._text[:count], self._text[count:]
        for run in self._runs:
            shown = run.feed(shown) + (run.close() if last else "")
        self._shown.append(shown)
        return shown

    def close(self) -> str:
        """Return the text that was held; the text ends here, and the guard withholds nothing in it."""
        return self._passed(len(self._text), last=True)

    def closing(self) -> Steps[tuple[str, int]]:
        """As `close` for a text that no answer settles: withhold what it discloses by itself, in steps.

        Returns:
            The held text that can be shown, and how many characters of the text are withheld.
        """
        if not (self._text or self._runs):
            return "", 0
        done = yield from self._guard.scrubbing({"": "".join(self._read)})
        text, shown = done.fields[""], "".join(self._shown)
        rest = text[len(shown) :] if text.startswith(shown) else MARK  # what was passed on cannot be replaced
        return rest, sum(done.withheld.values())

    def _beginning(self, words: Sequence[Word], texts: Sequence[str], end: int) -> int:
        """The place before `end` from which the words can be the beginning of a piece; `end` if there is none."""
        for count in range(min(self._guard.longest + 1, len(texts)), 0, -1):
            if len(texts) - count < len(words) and self._guard.may_begin(texts[-count:]):
                return min(end, words[len(texts) - count].begin)
        return end
