"""A memory entry, where it comes from, and the limits of both (M1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final, Literal, get_args

from ...core import check_id, utc_text
from ...core.checks import check_choice, check_share, check_time, json_object, thawed
from ...core.errors import InvalidArgument
from ...core.marks import class_mark, classes_in
from ...core.validation import check_line, is_text

EntryKind = Literal["entry", "fact", "episode", "insight"]
"""`entry` is what was said or noted; the others are what is so, what a member did, and what follows from that."""

Classification = Literal["public", "internal", "confidential", "secret"]
"""How widely an entry may be known, from the widest to the narrowest."""

CLASSIFICATIONS: Final[tuple[Classification, ...]] = get_args(Classification)

DEFAULT_CLASS: Final[Classification] = "internal"
"""That of an entry, and of a message, of which nothing else is known."""

WrittenBy = Literal["person", "host", "model", "distilled", "file"]
"""Who wrote an entry: a person, the host's code, a model by `remember`, distilling, or a file that was read."""

MAX_ENTRY_CHARACTERS: Final = 4000
MAX_TAGS: Final = 20
MAX_TAG_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where an entry comes from.

    Attributes:
        by: Who wrote it.
        thread: The id of the thread that it comes from. It is removed with the thread.
        turn: The id of the turn that it comes from.
        path: The path of the file that it was read from.
        digest: The digest of that file.
    """

    by: WrittenBy = "host"
    thread: str | None = None
    turn: str | None = None
    path: str | None = None
    digest: str | None = None

    def to_json(self) -> dict[str, str]:
        """The fields that are set, as JSON."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An entry to write.

    Attributes:
        text: What is remembered, 1 to 4,000 characters.
        account: Whose entry it is: only its turns see it. None is the workspace's, which all turns see.
        kind: Its kind.
        tags: Words to filter by, up to 20 of up to 60 characters.
        source: Where it comes from.
        untrusted: The untrusted functions whose results it was made of, and who may see it, as in `core.marks`. A turn
            that recalls it has these marks (M5).
        classification: How widely it may be known.
        domain: The area that the classification is of; empty is any.
        confidence: How certain it is, 0 to 1.
        expires: When it is deleted; None is never.
        key: Makes writing it again harmless: a second draft with this key for the same account writes nothing.
        data: What its kind has besides, as JSON, such as the outcome of an episode. No search reads it.

    Raises:
        InvalidArgument: A field is invalid. The text names it.
    """

    text: str = field(repr=False)
    account: str | None = None
    kind: EntryKind = "entry"
    tags: tuple[str, ...] = ()
    source: Source = field(default_factory=Source)
    untrusted: tuple[str, ...] = ()
    classification: Classification = "internal"
    domain: str = ""
    confidence: float = 1.0
    expires: datetime | None = None
    key: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        check_entry_text(self.text)
        if self.account is not None:
            check_id("account", self.account)
        check_choice("kind", self.kind, get_args(EntryKind))
        check_choice("classification", self.classification, CLASSIFICATIONS)
        check_choice("source.by", self.source.by, get_args(WrittenBy))
        object.__setattr__(self, "tags", check_tags(self.tags))
        check_share("confidence", self.confidence)
        if self.domain != "":
            check_line("domain", self.domain, 200, remedy="omit it for any area")
        check_expires(self.expires)
        if self.key is not None and not (isinstance(self.key, str) and is_text(self.key)):
            raise InvalidArgument("`key` must be a text that UTF-8 can encode", remedy="omit it to write a new entry")
        object.__setattr__(self, "data", json_object("data", self.data))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry as it is stored.

    Attributes:
        id: Its id, `mem_` and 16 hex digits.
        version: 1, and one more after each edit.
        text: What is remembered.
        account: Whose entry it is; None is the workspace's.
        kind: Its kind.
        tags: Words to filter by.
        source: Where it comes from.
        untrusted: The untrusted functions whose results it was made of, and who may see it, as in `core.marks`.
        classification: How widely it may be known.
        domain: The area that the classification is of; empty is any.
        confidence: How certain it is, 0 to 1.
        created: When it was written.
        changed: When it was last edited.
        expires: When it is deleted; None is never.
        replaced_by: The id of the newer entry that contradicts it; it is then in no search.
        data: What its kind has besides, as JSON.
    """

    id: str
    version: int
    text: str = field(repr=False)
    account: str | None
    kind: EntryKind
    tags: tuple[str, ...]
    source: Source
    untrusted: tuple[str, ...]
    classification: Classification
    domain: str
    confidence: float
    created: datetime
    changed: datetime
    expires: datetime | None
    replaced_by: str | None
    data: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks of what is made of it: those of its text, and its classification if that is above the default."""
        above = CLASSIFICATIONS.index(self.classification) > CLASSIFICATIONS.index(DEFAULT_CLASS)
        return (*self.untrusted, class_mark(self.classification, self.domain)) if above else self.untrusted

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON, for an export or the wire; times are ISO 8601 in UTC. Empty data is left out."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        given = {**given, "data": thawed(self.data)} if self.data else {name: given[name] for name in _ALWAYS}
        times = {name: None if given[name] is None else utc_text(given[name]) for name in _TIMES}
        lists = {"tags": [*self.tags], "untrusted": [*self.untrusted]}
        return given | times | lists | {"source": self.source.to_json()}


_END: Final = 253_402_300_800  # the year 10000 in seconds
_TIMES: Final = ("created", "changed", "expires")
_ALWAYS: Final = tuple(each.name for each in fields(Entry) if each.name != "data")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Who reads entries. It sees those of its account and those of the workspace.

    Attributes:
        workspace: The workspace.
        account: The account whose entries it sees; None sees the workspace's alone.
        clearance: The highest classification that it sees of entries that are not of its account.
        domains: The highest classification in some domains, in place of `clearance`.
        others: Other accounts whose insights it sees, within its clearance. It cannot change them.
        bounded: Whether it sees also those of its account within its clearance alone, since the account is a person's
            for whom a member speaks (A21).
    """

    workspace: str
    account: str | None = None
    clearance: Classification = "secret"
    domains: Mapping[str, Classification] = field(default_factory=dict, hash=False)
    others: tuple[str, ...] = ()
    bounded: bool = False

    def __post_init__(self) -> None:
        for level in (self.clearance, *self.domains.values()):
            check_choice("clearance", level, CLASSIFICATIONS)

    @property
    def owners(self) -> tuple[str, ...]:
        """The owners of its entries, as they are stored; the workspace itself is empty."""
        return ("",) if self.account is None else ("", self.account)

    @property
    def highest(self) -> int:
        """The highest classification that it sees in any domain, as it is stored."""
        return max(map(CLASSIFICATIONS.index, (self.clearance, *self.domains.values())))

    def levels_of(self, owner: str) -> tuple[int, ...]:
        """The classifications of an owner's entries that it can see, as they are stored."""
        own = owner and owner == self.account and not self.bounded
        return tuple(range(len(CLASSIFICATIONS) if own else self.highest + 1))

    def sees(self, owner: str | None, kind: str, level: int, domain: str) -> bool:
        """Whether it sees an entry.

        Args:
            owner: The account of the entry; empty or None is the workspace.
            kind: The kind of the entry.
            level: Its classification, as it is stored.
            domain: The area of the classification.
        """
        if owner and owner == self.account:
            return not self.bounded or self.cleared(level, domain)
        if owner and not (owner in self.others and kind == "insight"):
            return False
        return self.cleared(level, domain)

    def cleared(self, level: int, domain: str) -> bool:
        """Whether its clearance admits what is classified so.

        Args:
            level: The classification, as it is stored.
            domain: The area of the classification.
        """
        return level <= CLASSIFICATIONS.index(self.domains.get(domain, self.clearance))

    def admits(self, marks: Iterable[str]) -> bool:
        """Whether its clearance admits a text with these marks, which is classified as the default at least."""
        found = {(DEFAULT_CLASS, ""), *classes_in(marks)}
        return all(
            level in CLASSIFICATIONS and self.cleared(CLASSIFICATIONS.index(level), domain) for level, domain in found
        )


def class_of(marks: Iterable[str]) -> Classification:
    """The classification of what is made of texts with these marks: the highest, whatever its domain."""
    found = {DEFAULT_CLASS, *(level for level, _ in classes_in(marks))}
    return next(each for each in reversed(CLASSIFICATIONS) if each in found)


def check_entry_text(text: object, what: str = "the text of an entry") -> str:
    """Return a text if it can be that of an entry.

    Args:
        text: The text.
        what: What it is, for the error.

    Raises:
        InvalidArgument: It is empty, too long, or UTF-8 cannot encode it.
    """
    if not (isinstance(text, str) and text.strip() and is_text(text) and "\0" not in text):
        raise InvalidArgument(
            f"{what} must be a text that UTF-8 can encode and not blank", remedy="pass a text with words"
        )
    if len(text) > MAX_ENTRY_CHARACTERS:
        raise InvalidArgument(
            f"{what} has {len(text):,} characters, and at most {MAX_ENTRY_CHARACTERS:,} are allowed",
            remedy="split it into texts that each say one thing",
        )
    return text


def check_tags(tags: Iterable[object]) -> tuple[str, ...]:
    """Return tags, each once and sorted.

    Raises:
        InvalidArgument: They are too many, or one is not a short line.
    """
    listed = isinstance(tags, Iterable) and not isinstance(tags, str)
    found = list(tags) if listed else []
    fine = all(isinstance(tag, str) and is_text(tag) and tag.isprintable() and len(tag) <= MAX_TAG_CHARACTERS
               for tag in found)  # fmt: skip
    if not listed or not fine or len(found) > MAX_TAGS:
        raise InvalidArgument(
            f"`tags` must be up to {MAX_TAGS} texts of 1 to {MAX_TAG_CHARACTERS} printable characters",
            remedy='pass a list, for example tags=["travel"]',
        )
    return tuple(sorted({str(tag) for tag in found}))


def check_expires(expires: object) -> None:
    """Refuse a time without a zone, and one that no row can have.

    Raises:
        InvalidArgument: It is neither None nor a datetime with a zone, or not from 1970 to 9999 in UTC.
    """
    check_time("expires", expires, optional=True)
    if isinstance(expires, datetime) and not 0 <= expires.timestamp() < _END:
        raise InvalidArgument("`expires` must be from 1970 to 9999 in UTC", remedy="omit it for an entry that stays")


def source_of(stored: Mapping[str, str]) -> Source:
    """The source that JSON describes; fields of a newer version are left out."""
    known = {each.name for each in fields(Source)}
    given: dict[str, Any] = {name: value for name, value in stored.items() if name in known}
    return Source(**given)
