"""The guard against answers that disclose a role: what a role asks to be said may be said (R16).

An answer discloses a role if it gives back most of the role's own words: in any order of its pieces, between other
words, with tags, marks and some typos. What a role quotes, fences or asks to be said (`quotable`) never counts, and
neither does what another input of the call says too.

If an answer discloses a role, every piece of it is withheld. So a stream holds back everything from the first piece
until the answer is complete (`RoleFilter`): nothing that is withheld was shown before.
"""

from __future__ import annotations

import html
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, islice
from typing import Any, Final, NamedTuple

from ..role_resolution import Echo, RolePart
from .echo import MARK, EchoFilter, EchoGuard, Hidden
from .matching import GRAM, SLICE, NormalText, Steps, at_once, normalise, normalising
from .quotable import quotable
from .texts import Change, with_texts

SHARE: Final = 0.55
"""The share of a role's own words from which an answer discloses it."""

INTRODUCED_SHARE: Final = 0.4
"""The same for an answer that introduces them as its instructions."""

_PIECE: Final = 3  # words that follow one another in the role
_HAN_PIECE: Final = 5  # characters, for a role in a script without spaces
_SHORT: Final = 8  # words of a role below which only a whole line or sentence of an answer discloses it
_NEAR: Final = 3  # words between two pieces that are withheld with them: fillers, labels, typos
_STEP: Final = 500  # words per step
_INTRODUCED_WITHIN: Final = 300  # characters before the first piece
_JSON_LEVELS: Final = 4  # of JSON in JSON
_MAX_JSON_TRIES: Final = 20  # brackets of a text at which JSON could begin

_HAN: Final = "\u3040-\u30ff\u3400-\u9fff"
_ONE_HAN: Final = re.compile(f"[{_HAN}]")
_WORD: Final = re.compile(rf"[{_HAN}]|[^\W_{_HAN}]+")
_MARKER: Final = re.compile(rf"\d+|[ivx]+|[^{_HAN}]")  # of a line in a list
_TAG_OR_ENTITY: Final = re.compile(r"<[^<>\n]{1,60}>|&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,12}\d{0,2});")
_OPEN_END: Final = re.compile(r"(?:<[^<>\n]{0,60}|&[#A-Za-z0-9]{0,13}|\\[^\s]{0,24})\Z")
"""The end of a text that can become a tag, an entity or an escape."""

_BOUND_BEFORE: Final = re.compile("[^\\s\\w,，、'’/&+=-]|\n")
_BOUND_AFTER: Final = re.compile("[^\\s\\w,，、'’/&+=:：-]|\n")
_BEGUN_WORD: Final = re.compile(r"[^\W_]+\Z")

_INTRODUCTION: Final = re.compile(
    r"(?i)\b(?:my|these|the|your|following)\s+(?:\w+\s+){0,2}(?:instructions?|prompt|rules|role|guidelines)\b"
    r"|\bi(?:'ve| have| was| am)\s+(?:been\s+)?(?:told|instructed|given|configured)\b|\bsystem[- ]?prompt\b"
    r"|\b(?:meine|folgende|diese|die)\w*\s+(?:\w+\s+){0,2}(?:anweisung|instruktion|vorgabe|regel|rolle|systemprompt)\w*"
    r"|\bich wurde angewiesen|(?:我的|以下是|系统)\w{0,6}(?:指令|提示词?|规则|设定|指示)|我被(?:要求|告知|设定)"
)


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
    return at_once(_reading(text))


def _reading(text: str) -> Steps[list[Word]]:
    """As `words_of`, in steps."""
    plain, places = _without_tags(text)
    made = NormalText()
    begun = 0
    for begin in range(0, len(plain), SLICE):
        begun += len(made.add(plain[begin : begin + SLICE]))
        yield
    begun += len(made.add("", last=True))
    ends = [begun, *accumulate(made.sizes(), initial=begun)][1:]
    found: list[Word] = []
    for step, word in enumerate(_WORD.finditer(made.normal)):
        if not _MARKER.fullmatch(word[0]):
            begin, end = ends[word.start()], ends[word.end()]
            if begin == end:  # a part of what one character stands for
                begin -= 1
            found.append(
                Word(word[0], begin, end)
                if places is None
                else Word(word[0], places[begin][0], places[max(begin, end - 1)][1])
            )
        if step % _STEP == 0:
            yield
    return found


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
        if found[0][0] == "&":
            meant = html.unescape(found[0])
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
        role: The place of the first one in the role.
        first: The place of the first one in the answer.
        end: The place behind the last one there.
        other: The place of a word between them that is not of the role; -1 if there is none.
    """

    role: int
    first: int
    end: int
    other: int = -1


class Tier(Hidden):
    """Measures how much of the text of one tier answers give back; see `built`.

    Attributes:
        echo: What happens if an answer discloses it.
        is_short: Whether it has so few words of its own that an answer can say them by chance.
        says_little: Whether it has fewer of them than a piece has.
        size: The number of words in a piece.
    """

    def __init__(self, words: Sequence[Word], spans: Spans, echo: Echo) -> None:
        self.echo = echo
        self._words = texts = [word.text for word in words]
        if echo == "strict":
            self.size = GRAM
        else:
            in_han = 2 * sum(_ONE_HAN.match(each) is not None for each in texts) > len(texts)
            self.size = _HAN_PIECE if in_han else _PIECE
        self._own = set(range(len(words)))
        for begin, end in spans:
            first = bisect_right(words, begin, key=lambda word: word.end)
            self._own.difference_update(range(first, bisect_left(words, end, key=lambda word: word.begin)))
        self.is_short = len(self._own) < _SHORT
        self.says_little = len(self._own) < self.size
        self._index()

    @classmethod
    def built(cls, text: str, echo: Echo) -> Steps[Tier]:
        """Make one of the text of a tier, in steps. One or two words are never a disclosure."""
        words = yield from _reading(text)
        if echo == "strict":
            return cls(words, [], echo)
        spans = quotable(text)
        yield
        made = cls(words, spans, echo)
        return cls(words, quotable(text, blocks=False), echo) if made.says_little else made

    def searching(self, texts: Sequence[str]) -> Steps[list[Piece]]:
        """All `pieces` of a text, in steps."""
        found: list[Piece] = []
        for begin in range(0, len(texts), _STEP):
            for role, first, end, other in self.pieces(texts[begin : begin + _STEP + self.size]):
                if first < _STEP:
                    found.append(Piece(role, begin + first, begin + end, begin + other if other >= 0 else other))
            yield
        return found

    def wholes(self, texts: Sequence[str]) -> Iterator[range]:
        """Where a text has all words of a tier, with none between them."""
        count = len(self._words)
        for first in range(len(texts) - count + 1) if self._places else ():
            if texts[first] == self._words[0] and texts[first : first + count] == self._words:
                yield range(first, first + count)

    def leaving_out(self, texts: Sequence[str]) -> Steps[None]:
        """Leave out the pieces that another input of the call has too, given by its words: they do not count."""
        found = yield from self.searching(texts)
        allowed = {place for piece in found for place in self.covered(piece)}
        if allowed:
            self._own -= allowed
            self._index()

    def _index(self) -> None:
        """Find the places of the pieces that have a word of the role's own."""
        self._places: dict[tuple[str, ...], list[int]] = {}
        for place in range(len(self._words) - self.size + 1):
            if not self._own.isdisjoint(range(place, place + self.size)):
                self._places.setdefault(tuple(self._words[place : place + self.size]), []).append(place)

    @cached_property
    def _beginnings(self) -> set[tuple[str, ...]]:
        """All beginnings of pieces, and those of their first words."""
        first_words = {piece[0] for piece in self._places}
        return {piece[:count] for piece in self._places for count in range(1, self.size)} | {
            (word[:count],) for word in first_words for count in range(len(word))
        }

    def share(self, given: set[int]) -> float:
        """The share of the role's own words that are among the places `given`, from 0 to 1."""
        return len(given & self._own) / len(self._own) if self._own else 0.0

    def pieces(self, texts: Sequence[str]) -> Iterator[Piece]:
        """Where words of a text are a piece of the tier, with at most one other word between them."""
        size, places = self.size, self._places
        for first in range(len(texts) - size + 1):
            for place in places.get(tuple(texts[first : first + size]), ()):
                yield Piece(place, first, first + size)
            if first + size == len(texts):
                break
            window = texts[first : first + size + 1]
            for left_out in range(1, size):
                for place in places.get((*window[:left_out], *window[left_out + 1 :]), ()):
                    yield Piece(place, first, first + size + 1, first + left_out)

    def covered(self, piece: Piece) -> range:
        """The places in the role of the words of a piece."""
        return range(piece.role, piece.role + self.size)

    def may_begin(self, texts: Sequence[str]) -> bool:
        """Whether the words at the end of a text can be the beginning of a piece; the last can be incomplete."""
        *complete, last = texts
        known = self._beginnings
        if not complete:
            return (last,) in known
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

    Attributes:
        prepared: Whether it knows what the other inputs say; see `preparing`.
    """

    def __init__(self, parts: Iterable[RolePart], others: Sequence[str] = (), *, echo: Echo = "disclosure") -> None:
        self._parts = [(part.text, part.echo or echo) for part in parts if (part.echo or echo) != "allow"]
        self._others, self.prepared = others, not others
        self._strict = [EchoGuard(text, others=others) for text, echo in self._parts if echo == "strict"]
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

    def first_piece(self, texts: Sequence[str]) -> int | None:
        """The place of the first word that begins a piece of a tier's own; None if there is none."""
        return min((piece.first for tier in self._tiers for piece in islice(tier.pieces(texts), 1)), default=None)

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
            cleaned, count = yield from guard.scrubbing(done.fields)
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
            read[name] = _with_json(value, collect)
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
        cleaned = {name: _with_json(value, lambda text, in_key: next(shown)[0]) for name, value in read.items()}
        counts = {name: count for name, count in withheld.items() if count}
        return Scrubbed(cleaned, counts, failed="fail" in disclosed)

    def _disclosed(self, texts: Sequence[str], ends: Sequence[int]) -> Steps[tuple[Sequence[Spans], set[Echo]]]:
        """Begin and end of what is withheld in each text, and the modes of the tiers that the texts disclose.

        A piece can begin in one text of a field and end in the next one, as the lines of a list, but not in another
        field, because a stream of that field cannot know it.
        """
        spans: list[Spans] = [[] for _ in texts]
        disclosed: set[Echo] = set()
        words: list[tuple[int, Word]] = []
        for number, text in enumerate(texts):
            words += [(number, word) for word in (yield from _reading(text))]
        said = [word.text for _, word in words]
        yield
        introduced = any(map(_INTRODUCTION.search, texts))
        for tier in self._tiers:
            if tier.echo == "strict" or not (yield from tier.searching(said)):
                continue
            yield from self.preparing()  # a part of the role is there; do other inputs say it too?
            if tier.is_short and not introduced:
                held = {place for whole in tier.wholes(said) if _is_alone(texts, words, whole) for place in whole}
                share = 1.0 if held else 0.0
            else:
                given, held = set[int](), set[int]()
                for piece in (yield from tier.searching(said)):
                    first, last = words[piece.first][0], words[piece.end - 1][0]
                    if first == last or not any(first < end <= last for end in ends):
                        given.update(tier.covered(piece))
                        held.update(place for place in range(piece.first, piece.end) if place != piece.other)
                share = tier.share(given)
            if share >= (INTRODUCED_SHARE if introduced else SHARE):
                _add(spans, words, sorted(held))
                disclosed.add(tier.echo)
        return spans, disclosed


def _is_alone(texts: Sequence[str], words: Sequence[tuple[int, Word]], place: range) -> bool:
    """Whether some words are a line, a sentence or a quotation of their own."""
    (number, first), (other, last) = words[place[0]], words[place[-1]]
    begin, end = 0, len(texts[number])
    if place[0] and words[place[0] - 1][0] == number:
        begin = words[place[0] - 1][1].end
    if place.stop < len(words) and words[place.stop][0] == number:
        end = words[place.stop][1].begin
    before, after = texts[number][begin : first.begin], texts[number][last.end : end]
    return (
        number == other
        and (not begin or _BOUND_BEFORE.search(before) is not None)
        and (end == len(texts[number]) or _BOUND_AFTER.search(after) is not None)
    )


def _add(spans: Sequence[Spans], words: Sequence[tuple[int, Word]], held: Sequence[int]) -> None:
    """Add the places of some words, and of those between near ones, to the spans of their texts."""
    last = -_NEAR - 2
    for place in held:
        number, word = words[place]
        own = spans[number]
        if place - last <= _NEAR + 1 and words[last][0] == number and own:
            own[-1] = (own[-1][0], word.end)
        else:
            own.append((word.begin, word.end))
        last = place


def _without(text: str, spans: Spans) -> tuple[str, int]:
    """The text with a mark in place of each of the spans, and how many characters these have."""
    shown: list[str] = []
    at = withheld = 0
    for begin, end in sorted(spans):
        if begin > at or not shown:
            shown += [text[at:begin], MARK]
        withheld += max(0, end - max(at, begin))
        at = max(at, end)
    return "".join([*shown, text[at:]]), withheld


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


def _with_json(value: Any, change: Change, levels: int = _JSON_LEVELS) -> Any:
    """As `with_texts`, also for the texts in JSON that is a text or a part of one."""

    def inside(text: str, in_key: bool) -> str:
        parts: list[str] = []
        at = 0
        for begin, end, found in _json_in(text) if levels else ():
            if begin > at:
                parts.append(change(text[at:begin], in_key))
            made = _with_json(found, change, levels - 1)
            parts.append(text[begin:end] if made is found else _dumped(made, text[begin:end]))
            at = end
        if at < len(text) or not parts:
            parts.append(change(text[at:], in_key))
        return "".join(parts)

    return with_texts(value, inside)


_JSON: Final = json.JSONDecoder()
_JSON_BEGIN: Final = re.compile(r'[{\[]\s*["\[{]|\A\s*"')


def _json_in(text: str) -> Iterator[tuple[int, int, Any]]:
    """Begin, end and value of the JSON objects, lists and texts in a text."""
    at = 0
    for _ in range(_MAX_JSON_TRIES):
        begun = _JSON_BEGIN.search(text, at)
        if begun is None:
            return
        begin = begun.start() + (len(begun[0]) - 1 if begun[0][-1] == '"' and begun[0][0] not in "{[" else 0)
        try:
            found, end = _JSON.raw_decode(text, begin)
        except (ValueError, RecursionError):
            at = begun.end()
            continue
        if not isinstance(found, str) or not text[end:].strip():  # a sentence can begin with a quotation
            yield begin, end, found
            at = end
        else:
            at = begun.end()


def _dumped(value: Any, like: str) -> str:
    return json.dumps(value, ensure_ascii=like.isascii(), indent=2 if "\n" in like else None)


class RoleFilter(Hidden):
    """Passes one text on, in chunks, up to the first piece of a role that it gives back.

    It delays the last words while they can be the beginning of a piece. What it holds from the first piece on is shown
    once the answer is complete, as far as the guard does not withhold it.

    Args:
        guard: Finds the pieces.
        runs: The filters of tiers with `strict`.

    Attributes:
        waits: Whether it holds text only until the guard is prepared.
    """

    def __init__(self, guard: RoleGuard, runs: Sequence[EchoFilter] = ()) -> None:
        self._guard, self._runs = guard, runs
        self.waits = False
        self._before = ""  # the end of what was passed on
        self._text = ""  # what was not passed on yet
        self._holds = False

    def feed(self, text: str) -> str:
        """Take the next part and return the text that can be shown now."""
        for run in self._runs:
            text = run.feed(text)
        self._text += text
        if self._holds:
            return ""
        words = words_of(self._text)
        texts = [word.text for word in words]
        first = self._guard.first_piece(texts)
        self.waits = first is not None and not self._guard.prepared
        self._holds = first is not None and self._guard.prepared
        keep = self._beginning(words, texts) if first is None else words[first].begin
        shown, self._text = self._text[:keep], self._text[keep:]
        self._before = (self._before + shown)[-_INTRODUCED_WITHIN:]
        return shown

    def close(self) -> str:
        """Return the text that was held; the text ends here, and the guard withholds nothing in it."""
        last = ""
        for run in self._runs:
            last = run.feed(last) + run.close()
        text, self._text = self._text + last, ""
        return text

    def closing(self) -> Steps[tuple[str, int]]:
        """As `close` for a text that no answer settles: withhold what it discloses by itself, in steps.

        Returns:
            The held text that can be shown, and how many characters of it are withheld.
        """
        rest = self.close()
        # The words before are free of the role, but can introduce it.
        done = yield from self._guard.scrubbing({"": self._before + rest})
        return done.fields[""][len(self._before) :], sum(done.withheld.values())

    def _beginning(self, words: Sequence[Word], texts: Sequence[str]) -> int:
        """The place from which the text can be the beginning of a piece, a tag or an escape."""
        text = self._text
        opened = _OPEN_END.search(text)
        end = len(text) if opened is None else opened.start()
        begun = _BEGUN_WORD.search(text)
        if begun is not None and (not words or words[-1].end <= begun.start()):  # one letter so far is not a word yet
            words, texts = [*words, Word("", *begun.span())], [*texts, normalise(begun[0])]
        elif words and words[-1].end < end:
            texts = [*texts, ""]  # the last word is complete, and another one can follow
        for count in range(min(self._guard.longest + 1, len(texts)), 0, -1):
            if len(texts) - count < len(words) and self._guard.may_begin(texts[-count:]):
                return min(end, words[len(texts) - count].begin)
        return end
