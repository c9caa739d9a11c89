"""Labels: where the values of a call come from, by equality with what the turn was given (H11).

A model that has read untrusted text can write anything, so a value that it writes counts as made of that text, unless
it equals something else that the turn was given. Equality does not show where a value really comes from: a stranger's
text can name a value that the person named as well.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from ...core import canonical_json
from ...core.marks import mark_of, readers_in, sources_in
from .texts import is_recipient

if TYPE_CHECKING:
    from ..journal.records import CallRecord

ATTACHMENT: Final = "attachment"
CONTEXT: Final = "context"
HOST: Final = "host"
"""The names of attachments, of passages of the host and of its memory entries, next to those of untrusted functions."""

PERSON: Final = "person"
"""The origin of what the person wrote, and of what a model wrote that has read nothing untrusted."""

Form = Literal["value", "bounded", "span", "words"]
"""What a value can carry: one that code made; one that a text can only choose; a part of one text; any words."""

Steps = tuple[str | int, ...]

_ORDER: Final[tuple[Form, ...]] = get_args(Form)
_LONGEST: Final = 1000  # characters of a text that is compared
_MOST: Final = 24  # labels that one call keeps
_ANY: Final = "\0" * 40  # stands for a field that is not known: only `*` fits it


@dataclass(frozen=True, slots=True)
class Label:
    """Where a value comes from.

    Attributes:
        origins: `person`, or `FUNCTION.FIELD`. The field is a glob as it was declared, or `*` if it is not known; it is
            never a key of a result, which can be a stranger's text.
        form: The most that it can carry.
        chosen: What chose it among others, as origins.
        readers: Who may see it: each member of the set is a list of globs over recipients, of which one must fit. Empty
            is everybody.
        through: What made it of that: `reader`, `program`, or both.
    """

    origins: tuple[str, ...] = (PERSON,)
    form: Form = "value"
    chosen: tuple[str, ...] = ()
    readers: frozenset[tuple[str, ...]] = frozenset()
    through: tuple[str, ...] = field(default=(), compare=False)  # said to people, and no rule asks for it

    def join(self, other: Label) -> Label:
        """The label of a value that is made of two."""
        form = _ORDER[max(_ORDER.index(self.form), _ORDER.index(other.form))]
        chosen = _both(self.chosen, other.chosen)
        through = _both(self.through, other.through)
        return Label(_both(self.origins, other.origins), form, chosen, self.readers | other.readers, through)

    def chosen_by(self, other: Label) -> Label:
        """The label of a value that another one chose, such as the result of a call with arguments of this label."""
        chosen = _both(self.chosen, other.chosen, _strange(other.origins))
        return replace(self, chosen=chosen, readers=self.readers | other.readers)

    def made_by(self, made: str) -> Label:
        """The label of what a reader or a program made of it, or found in it."""
        return replace(self, through=_both(self.through, (made,)))

    def seen_by(self, readers: Iterable[tuple[str, ...]]) -> Label:
        """The label of the same value, if not everybody may see it."""
        return replace(self, readers=self.readers | frozenset(readers))

    def may_reach(self, recipients: Collection[str]) -> bool:
        """Whether all of these may see it, and there is one."""
        return bool(recipients) and all(
            any(is_recipient(name, glob) for glob in globs) for globs in self.readers for name in recipients
        )

    def carries_at_most(self, form: Form) -> bool:
        """Whether it can carry no more than a form can."""
        return _ORDER.index(self.form) <= _ORDER.index(form)

    @property
    def marks(self) -> frozenset[str]:
        """What is kept with a text that is made of it: where it comes from, what chose it, and who may see it."""
        sources = (parts_of(each)[0] for each in (*_strange(self.origins), *self.chosen))
        return frozenset((*sources, *map(mark_of, self.readers)))

    @classmethod
    def of_marks(cls, marks: Iterable[str], form: Form = "words") -> Label:
        """The label of a text of which only its marks are known.

        Args:
            marks: Names of untrusted functions and senders, and who may see it.
            form: The most that it can carry.
        """
        marks = frozenset(marks)
        sources, readers = tuple(map(origin_of, sources_in(marks))), readers_in(marks)
        return Label(sources, form, readers=readers) if sources else Label(readers=readers)

    def to_json(self) -> dict[str, Any]:
        """The label as JSON."""
        chosen = {"chosen": [*self.chosen]} if self.chosen else {}
        readers = {"readers": sorted(map(list, self.readers))} if self.readers else {}
        through = {"through": [*self.through]} if self.through else {}
        return {"origins": [*self.origins], "form": self.form, **chosen, **readers, **through}


OWN: Final = Label()


def origin_of(name: str, field: str = "*") -> str:
    """An origin as a label has it. A dot of the name is written as `%2E`, so that the first dot ends the name.

    Args:
        name: A function, or a mark such as `message:ID`.
        field: A field of its results, as a glob; `*` if it is not known.
    """
    return f"{name.replace('%', '%25').replace('.', '%2E')}.{field}"


def parts_of(origin: str) -> tuple[str, str]:
    """The name and the field of an origin; see `origin_of`. `person` has no field."""
    name, _, field = origin.partition(".")
    return name.replace("%2E", ".").replace("%25", "%"), field


def as_said(origin: str) -> str:
    """An origin as rules and people write it."""
    return ".".join(filter(None, parts_of(origin)))


def _both(*origins: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({each for some in origins for each in some}))


def _strange(origins: Iterable[str]) -> tuple[str, ...]:
    return tuple(each for each in origins if each != PERSON)


def joined(labels: Iterable[Label]) -> Label:
    """The label of a value that is made of several; the person's if there are none."""
    first, *others = [*labels] or [OWN]
    for label in others:
        first = first.join(label)
    return first


def read_label(said: Mapping[str, Any]) -> Label:
    """Read a label that was kept as JSON."""
    readers = frozenset(map(tuple, said.get("readers", ())))
    chosen, through = (tuple(said.get(key, ())) for key in ("chosen", "through"))
    return Label(tuple(said["origins"]), said["form"], chosen, readers, through)


def leaves(
    value: Any, declared: Collection[str] | None = None, at: Steps = (), *, nulls: bool = False
) -> Iterator[tuple[Steps, Any]]:
    """Yield the texts, numbers and truth values of JSON, each with the keys and places that lead to it.

    Args:
        value: The JSON value.
        declared: The keys that a function declares for its arguments. A model can have made any other key, so it is
            yielded as a text, and its place in the sorted object stands for it. None takes all keys as they are.
        at: The steps to the value itself.
        nulls: Whether it yields nulls as well, also for what is empty.
    """
    match value:
        case Mapping() | list() if nulls and not value:
            yield at, None
        case Mapping():
            for place, (key, each) in enumerate(sorted(value.items())):
                step: str | int = key
                if declared is not None and key not in declared:
                    step = place
                    yield (*at, place), key
                yield from leaves(each, declared, (*at, step), nulls=nulls)
        case list():
            for place, each in enumerate(value):
                yield from leaves(each, declared, (*at, place), nulls=nulls)
        case None if not nulls:
            pass
        case _:
            yield at, value


def as_json(labels: Iterable[tuple[Steps, Label]]) -> dict[str, dict[str, Any]]:
    """Return labels by dotted paths, without those of the person's values.

    If they are many, one label stands for all values in an argument, or in the call (with an empty path).
    """
    found = [(steps, label) for steps, label in labels if label != OWN]
    kept: dict[str, Label] = {}
    for depth in (None, 1, 0):
        kept = {}
        for steps, label in found:
            path = ".".join(map(str, steps[:depth]))
            kept[path] = kept[path].join(label) if path in kept else label
        if len(kept) <= _MOST:
            break
    return {path: label.to_json() for path, label in kept.items()}


def by_part(labels: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return one label for each argument, or part of an answer, of labels by dotted paths, all as JSON."""
    found: dict[str, list[Label]] = {}
    for path, label in labels.items():
        found.setdefault(path.partition(".")[0], []).append(read_label(label))
    return {part: joined(each).to_json() for part, each in found.items()}


def told(labels: Mapping[str, Mapping[str, Any]], decided: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """Return labels as events and traces have them: not who may see a value, which can be a text of a result.

    Args:
        labels: The labels as JSON, by dotted paths.
        decided: The arguments of which the gate looked at where they come from.
    """
    return {
        path: {key: each for key, each in label.items() if key != "readers"}
        | ({"restricted": True} if "readers" in label else {})
        | ({"decided": True} if path.partition(".")[0] in decided or (not path and decided) else {})
        for path, label in labels.items()
    }


class Sources:
    """What the values of a turn's calls are compared with: the person's words, and results of earlier calls.

    Args:
        said: What the person wrote to begin the turn; nothing if someone else began it. It is read when it is needed.
        is_trusted: Whether the results of the function of this name count as the person's.
        changes: Whether calls of the function of this name change something that another can read back.
    """

    def __init__(
        self,
        said: Iterable[str] = (),
        is_trusted: Callable[[str], bool] = lambda name: False,
        changes: Callable[[str], bool] = lambda name: True,
    ) -> None:
        self._given = said
        self._is_trusted = is_trusted
        self._changes = changes
        self._read: set[str] = set()  # the ids of calls
        self._known: dict[str, Label] = {}  # by canonical JSON
        self._changed = math.inf

    @cached_property
    def _said(self) -> str:
        return "\n".join(self._given)

    def say(self, text: str) -> None:
        """Take note of what the person wrote while the turn runs."""
        self._said = f"{self._said}\n{text}"

    def learn(self, records: Iterable[CallRecord], marks_of: Callable[[str], Collection[str]]) -> None:
        """Add the results of calls that are done, each once.

        Args:
            records: The recorded calls of the turn.
            marks_of: Returns the untrusted functions that a task with a bounded result has read, by its path id.
        """
        new = [record for record in records if record.id not in self._read]
        # What such a call wrote can be read back, so the results of later calls do not count as the person's.
        self._changed = min([self._changed, *(record.at for record in new if self._can_write_words(record))])
        for record in new:
            if record.state == "done" and record.result is not None:
                self._read.add(record.id)
                self._learn(record, marks_of(record.id))

    def _can_write_words(self, record: CallRecord) -> bool:
        decision = record.recorded_decision or {}
        carries = "labels" in decision or decision.get("result", {}).get("form") == "words"
        return carries and record.kind in ("leaf", "flow") and not record.refused and self._changes(record.name)

    def _learn(self, record: CallRecord, marks: Collection[str]) -> None:
        decision, value = record.recorded_decision or {}, json.loads(record.result or "null")
        label = decision.get("result", {})
        if record.kind == "task" and label.get("form") == "bounded" and marks:
            self._add(_as_value(str(value["text"])), Label.of_marks(marks, "bounded"))
        elif record.kind in ("leaf", "flow") and label.get("form") == "words":
            read = not label.get("held")  # a model that did not read it does not copy it either
            for steps, each in leaves(value) if read and label.get("fields") else ():
                for glob in label["fields"]:
                    if is_at(steps, glob):
                        self._add(each, Label((origin_of(record.name, glob),)))
        elif label.get("confirmed"):
            for _, each in leaves(value):
                self._add(each, OWN)
        elif record.kind == "leaf" and record.at < self._changed and "labels" not in decision and "read" not in label:
            for _, each in leaves(value) if self._is_trusted(record.name) else ():
                self._add(each, OWN)

    def _add(self, value: Any, label: Label) -> None:
        if not _is_compared(value):
            return
        key = canonical_json(value)
        before = self._known.get(key)
        if before is None or label == OWN or _ORDER.index(label.form) < _ORDER.index(before.form):
            self._known[key] = label
        elif before != OWN and label.form == before.form:
            self._known[key] = before.join(label)

    def label_of(self, value: Any, marks: Collection[str]) -> Label:
        """Return the label of a text, a number or a truth value that a model wrote.

        Args:
            value: The value.
            marks: The marks of what the model has read.
        """
        if _is_compared(value):
            if self._is_said(value if isinstance(value, str) else canonical_json(value)):
                return OWN
            known = self._known.get(canonical_json(value))
            if known is not None:
                return known
        return Label.of_marks(marks, "words" if isinstance(value, str) else "bounded")

    def _is_said(self, text: str) -> bool:
        """Whether the person's words have a text as a whole: not a part of a longer word, address, number or path."""
        if not text.strip() or text not in self._said:
            return False
        whole = rf"(?<![\w.@:/%+?&=#~\\-]){re.escape(text)}(?!\w|@|[.,:/%+?&=#~\\-]+\w)"
        return re.search(whole, self._said) is not None


def is_from(origins: Iterable[str], globs: Iterable[str]) -> bool:
    """Whether all origins of a value match one of these globs, whichever field an unknown one is."""
    return all(any(origin == glob or _fits(origin.replace("*", _ANY), glob) for glob in globs) for origin in origins)


def _fits(origin: str, glob: str) -> bool:
    """Whether a glob matches an origin: one part of it the whole name, and the other the field; or it has no dot."""
    (name, field), parts = parts_of(origin), glob.split(".")
    if len(parts) == 1 or not field:
        return fnmatchcase(as_said(origin), glob)
    named = ((".".join(parts[:place]), ".".join(parts[place:])) for place in range(1, len(parts)))
    return any(fnmatchcase(name, one) and fnmatchcase(field, other) for one, other in named)


def can_be_from(origins: Iterable[str], globs: Iterable[str]) -> bool:
    """Whether an origin of a value can match one of these globs."""
    return any(can_overlap(as_said(origin), glob) for origin in origins for glob in globs)


@lru_cache(maxsize=4096)
def can_overlap(one: str, other: str) -> bool:
    """Whether a text can match both globs. A set of characters counts as any character."""
    one, other = (re.sub(r"\[!?\]?[^]]*\]", "?", each) for each in (one, other))
    if not one or not other:
        return not (one or other).strip("*")
    if one[0] == "*":
        return can_overlap(one[1:], other) or can_overlap(one, other[1:])
    if other[0] == "*":
        return can_overlap(other, one)
    return (one[0] == other[0] or "?" in (one[0], other[0])) and can_overlap(one[1:], other[1:])


def is_at(steps: Steps, glob: str) -> bool:
    """Whether a part of a result is at a declared field. Places of items are left out; a key with a dot has none."""
    keys = [step for step in steps if isinstance(step, str)]
    return not any("." in key for key in keys) and fnmatchcase(".".join(keys), glob)


def _is_compared(value: Any) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= _LONGEST
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_value(text: str) -> Any:
    """Read a bounded result of a worker: canonical JSON, or a text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if canonical_json(value) == text else text
