"""What an autonomous role remembers: what is so, what it did, and what follows from that (000, A11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ...core import check_id
from ...core.checks import check_choice, check_number, check_share, check_text, check_time, ids, json_object
from ...core.errors import InvalidArgument
from .entry import CLASSIFICATIONS, Classification


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

    Raises:
        InvalidArgument: A field is invalid.
    """

    id: str
    text: str
    domain: str = ""
    classification: Classification = "internal"
    confidence: float = 1.0
    source: str = ""

    def __post_init__(self) -> None:
        check_id("the id of a fact", self.id)
        check_text("text", self.text, most=4000)
        check_text("domain", self.domain, most=200, empty=True)
        check_choice("classification", self.classification, CLASSIFICATIONS)
        check_share("confidence", self.confidence)
        check_text("source", self.source, most=200, empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What a member did, once.

    Attributes:
        id: Its id.
        role_id: The member.
        action: The capability that it used.
        outcome: What came of it, as JSON; `success` says whether it succeeded.
        text: What happened, for people.
        domain: What it was about.
        tags: Its tags by name, such as `{"territory": "APAC"}`.
        payload: What it was given, as JSON.
        seconds: How long it took.
        at: When it ended.

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

    def __post_init__(self) -> None:
        for name in ("id", "role_id", "action"):
            check_id(f"the {name} of an episode", getattr(self, name))
        check_text("text", self.text, most=4000, empty=True)
        check_text("domain", self.domain, most=200, empty=True)
        for name in ("outcome", "tags", "payload"):
            object.__setattr__(self, name, json_object(name, getattr(self, name)))
        check_number("seconds", self.seconds, least=0)
        check_time("at", self.at)
        if not all(isinstance(each, str) for each in self.tags.values()):
            raise InvalidArgument("`tags` must map names to texts", remedy='pass for example {"territory": "APAC"}')

    @property
    def succeeded(self) -> bool:
        """Whether its outcome says that it succeeded."""
        return self.outcome.get("success") is True


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

    def __post_init__(self) -> None:
        check_id("the id of an insight", self.id)
        check_id("role_id", self.role_id)
        check_text("text", self.text, most=4000)
        check_share("confidence", self.confidence)
        check_text("domain", self.domain, most=200, empty=True)
        object.__setattr__(self, "tags", ids("tags", self.tags))
        object.__setattr__(self, "episodes", ids("episodes", self.episodes))
        check_choice("classification", self.classification, CLASSIFICATIONS)


__all__ = ["Episode", "Fact", "Insight"]
