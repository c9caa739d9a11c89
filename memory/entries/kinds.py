"""What an autonomous role remembers: what is so, what it did, and what follows from that (A11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from ...core import check_id, utc_text
from ...core.checks import check_choice, check_number, check_share, check_text, check_time, ids, json_object, thawed
from ...core.errors import InvalidArgument
from .entry import CLASSIFICATIONS, MAX_TAG_CHARACTERS, MAX_TAGS, Classification, Draft, Entry, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What is so in a workspace.

    Attributes:
        id: Its id.
        text: What is so.
        domain: What it is about.
        classification: How widely it may be known.
        confidence: How certain it is, 0 to 1.
        source: Who says so.
        untrusted: The untrusted functions whose results it was made of.

    Raises:
        InvalidArgument: A field is invalid.
    """

    id: str
    text: str
    domain: str = ""
    classification: Classification = "internal"
    confidence: float = 1.0
    source: str = ""
    untrusted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_id("the id of a fact", self.id)
        check_text("text", self.text, most=4000)
        check_share("confidence", self.confidence)
        check_text("source", self.source, most=200, empty=True)
        _check_shared(self)

    def draft(self) -> Draft:
        """The entry of the workspace that it is stored as. Writing it again has no effect."""
        return Draft(
            text=self.text,
            kind="fact",
            source=Source(by="distilled"),
            **_shared(self),
            confidence=self.confidence,
            key=f"fact/{self.id}",
            data={"id": self.id, "source": self.source},
        )

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """The fact that an entry is, also one that a person or the host's code wrote."""
        return cls(
            id=str(entry.data.get("id", entry.id)),
            text=entry.text,
            confidence=entry.confidence,
            source=str(entry.data.get("source", entry.source.by)),
            **_shared(entry),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What a member did, once.

    Attributes:
        id: Its id.
        role_id: The member.
        action: The capability that it used.
        outcome: Its outcome, as JSON; `success` says whether it succeeded.
        text: What happened, for people.
        domain: What it was about.
        tags: Its tags by name, such as `{"territory": "APAC"}`.
        payload: What it was given, as JSON.
        seconds: How long it took.
        at: When it ended.
        classification: How widely it may be known.
        untrusted: The untrusted functions whose results were read in it.

    Raises:
        InvalidArgument: A field is invalid.
    """

    id: str
    role_id: str
    action: str
    outcome: Mapping[str, Any]
    at: datetime
    text: str = ""
    domain: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    payload: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0
    classification: Classification = "internal"
    untrusted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("id", "role_id", "action"):
            check_id(f"the {name} of an episode", getattr(self, name))
        check_text("text", self.text, most=4000, empty=True)
        for name in ("outcome", "tags", "payload"):
            object.__setattr__(self, name, json_object(name, getattr(self, name)))
        check_number("seconds", self.seconds, least=0)
        check_time("at", self.at)
        if not all(isinstance(each, str) for each in self.tags.values()):
            raise InvalidArgument("`tags` must map names to texts", remedy='pass for example {"territory": "APAC"}')
        _check_shared(self)

    @property
    def succeeded(self) -> bool:
        """Whether its outcome says that it succeeded."""
        return self.outcome.get("success") is True

    def draft(self, account: str, source: Source | None = None) -> Draft:
        """The entry that it is stored as. Writing it again has no effect.

        Args:
            account: The account of the member.
            source: The thread and the turn that it comes from.
        """
        told = {"id": self.id, "action": self.action, "told": bool(self.text), "at": utc_text(self.at)}
        given = {name: thawed(getattr(self, name)) for name in ("outcome", "tags", "payload", "seconds")}
        return Draft(
            text=self.text or f"{self.action}: {'succeeded' if self.succeeded else 'failed'}",
            account=account,
            kind="episode",
            tags=_short(f"{name}:{value}" for name, value in self.tags.items()),
            source=source or Source(),
            **_shared(self),
            key=f"episode/{self.id}",
            data=told | given,
        )

    @classmethod
    def of(cls, entry: Entry, role_id: str) -> Self:
        """The episode that an entry is."""
        data = entry.data
        return cls(
            id=data["id"],
            role_id=role_id,
            action=data["action"],
            outcome=data["outcome"],
            at=datetime.fromisoformat(data["at"]),
            text=entry.text if data["told"] else "",
            tags=data["tags"],
            payload=data["payload"],
            seconds=data["seconds"],
            **_shared(entry),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Insight:
    """What follows from episodes.

    Attributes:
        id: Its id.
        role_id: The member that it is of.
        text: What follows.
        confidence: How certain it is, 0 to 1.
        domain: What it is about.
        tags: Words to find it by.
        episodes: The ids of the episodes that it comes from.
        classification: How widely it may be known.
        untrusted: The untrusted functions whose results it was made of.

    Raises:
        InvalidArgument: A field is invalid.
    """

    id: str
    role_id: str
    text: str
    confidence: float
    domain: str = ""
    tags: tuple[str, ...] = ()
    episodes: tuple[str, ...] = ()
    classification: Classification = "internal"
    untrusted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_id("the id of an insight", self.id)
        check_id("role_id", self.role_id)
        check_text("text", self.text, most=4000)
        check_share("confidence", self.confidence)
        object.__setattr__(self, "tags", ids("tags", self.tags))
        object.__setattr__(self, "episodes", ids("episodes", self.episodes))
        _check_shared(self)

    def draft(self, account: str) -> Draft:
        """The entry that it is stored as. Writing it again has no effect.

        Args:
            account: The account of the member.
        """
        return Draft(
            text=self.text,
            account=account,
            kind="insight",
            tags=_short(self.tags),
            source=Source(by="distilled"),
            **_shared(self),
            confidence=self.confidence,
            key=f"insight/{self.id}",
            data={"id": self.id, "tags": [*self.tags], "episodes": [*self.episodes]},
        )

    @classmethod
    def of(cls, entry: Entry, role_id: str) -> Self:
        """The insight that an entry is, also one that a person or the host's code wrote."""
        return cls(
            id=str(entry.data.get("id", entry.id)),
            role_id=role_id,
            text=entry.text,
            confidence=entry.confidence,
            tags=entry.data.get("tags", entry.tags),
            episodes=entry.data.get("episodes", ()),
            **_shared(entry),
        )


def _check_shared(given: Fact | Episode | Insight) -> None:
    check_text("domain", given.domain, most=200, empty=True)
    check_choice("classification", given.classification, CLASSIFICATIONS)
    object.__setattr__(given, "untrusted", ids("untrusted", given.untrusted))


def _shared(given: Fact | Episode | Insight | Entry) -> dict[str, Any]:
    """What an entry and the object that it stands for both have."""
    return {name: getattr(given, name) for name in ("domain", "classification", "untrusted")}


def _short(tags: Iterable[str]) -> tuple[str, ...]:
    """Those of some tags that an entry can have; all of them are in its data."""
    fits = [each for each in dict.fromkeys(tags) if each.isprintable() and len(each) <= MAX_TAG_CHARACTERS]
    return tuple(fits[:MAX_TAGS])
