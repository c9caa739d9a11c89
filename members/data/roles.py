"""A member of a workspace as data: who it is, what it may do, what it knows of, and how far it is trusted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from ...core import check_id
from ...core.checks import (
    check_choice,
    check_number,
    check_share,
    check_text,
    check_time,
    ids,
    items,
    json_object,
    mapping,
    to_json,
)
from ...core.errors import InvalidArgument
from ...memory.entries.entry import CLASSIFICATIONS, Classification
from .brief import Language
from .limits import MemberLimits
from .remote import RemoteAgent

if TYPE_CHECKING:
    from ...memory.entries import Episode

Authority = Literal["autonomous", "needs_approval", "forbidden"]
"""What a member may do with a capability, from the widest to the narrowest."""

AUTHORITIES: Final[tuple[Authority, ...]] = get_args(Authority)

MemoryPolicy = Literal["archive", "merge_to_parent", "delete"]
"""What becomes of a member's memory when it is terminated."""

ObjectiveStatus = Literal["active", "achieved", "at_risk", "abandoned"]

Feedback = Literal["good", "bad"]
"""What a person says of an episode."""


USER: Final = "user"
"""The reserved id of the owner of a workspace."""

ROOT: Final = "root"
"""The reserved id of the World Agent."""

RESERVED: Final = (USER, ROOT)
SOUL_FILE: Final = re.compile(r"\S+\.md")
"""A soul that is the path of a file."""

_MEMBER_ID: Final = re.compile(r"[a-z_][a-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorityConfig:
    """What a member may do, by capability. A capability that is not listed needs approval.

    Attributes:
        autonomous: What it does without asking.
        needs_approval: What it does once a person approved it.
        forbidden: What it never does.

    Raises:
        InvalidArgument: A capability is not an id, or it is listed twice.
    """

    autonomous: tuple[str, ...] = ()
    needs_approval: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        seen: dict[str, str] = {}
        for name in AUTHORITIES:
            object.__setattr__(self, name, ids(name, getattr(self, name)))
            for capability in getattr(self, name):
                if capability in seen:
                    raise InvalidArgument(
                        f"the capability {capability!r} is both in `{seen[capability]}` and in `{name}`",
                        remedy="keep it in one of them",
                    )
                seen[capability] = name

    def of(self, capability: str) -> Authority:
        """What the member may do with a capability."""
        if capability in self.forbidden:
            return "forbidden"
        return "autonomous" if capability in self.autonomous else "needs_approval"

    def within(self, ceiling: AuthorityConfig) -> AuthorityConfig:
        """The narrower of the two for each capability (A9): no capability is wider than under `ceiling`."""
        # What `ceiling` names stays named: the functions of members are autonomous where nothing names them.
        both = (self.autonomous, self.needs_approval, self.forbidden, ceiling.needs_approval, ceiling.forbidden)
        every = [*dict.fromkeys(each for level in both for each in level)]
        narrow = {each: max(self.of(each), ceiling.of(each), key=AUTHORITIES.index) for each in every}
        named = {level: tuple(each for each in every if narrow[each] == level) for level in AUTHORITIES}
        return AuthorityConfig(**named)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearanceProfile:
    """What a member may know, by domain.

    Attributes:
        domains: The highest classification that it sees, by domain.
        default: The highest classification that it sees in any other domain.

    Raises:
        InvalidArgument: A domain is not an id, or a classification is not known.
    """

    domains: Mapping[str, Classification] = field(default_factory=dict)
    default: Classification = "internal"

    def __post_init__(self) -> None:
        object.__setattr__(self, "domains", mapping("domains", self.domains, str))
        for level in (*self.domains.values(), self.default):
            check_choice("classification", level, CLASSIFICATIONS)

    def of(self, domain: str) -> Classification:
        """The highest classification that the member sees in a domain."""
        return self.domains.get(domain, self.default)

    def admits(self, classification: Classification, domain: str = "") -> bool:
        """Whether the member sees what is classified so."""
        return CLASSIFICATIONS.index(classification) <= CLASSIFICATIONS.index(self.of(domain))

    def within(self, ceiling: ClearanceProfile) -> ClearanceProfile:
        """The lower of the two in each domain."""
        domains = (*self.domains, *ceiling.domains)
        return ClearanceProfile(
            domains={each: _lower(self.of(each), ceiling.of(each)) for each in domains},
            default=_lower(self.default, ceiling.default),
        )


def _lower(one: Classification, other: Classification) -> Classification:
    return one if CLASSIFICATIONS.index(one) <= CLASSIFICATIONS.index(other) else other


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyResult:
    """One measure of an objective.

    Attributes:
        id: Its id.
        description: What is measured, such as "qualify 200 leads a month".
        target: The number to reach.
        current: The number now.
        unit: What is counted.

    Raises:
        InvalidArgument: A field is invalid.
    """

    id: str
    description: str
    target: float
    current: float = 0
    unit: str = ""

    def __post_init__(self) -> None:
        check_id("the id of a key result", self.id)
        check_text("description", self.description)
        check_number("target", self.target)
        check_number("current", self.current)
        check_text("unit", self.unit, most=60, empty=True)

    @property
    def progress(self) -> float:
        """`current` as a share of `target`, at most 1; 0 without a target (A5)."""
        return 0.0 if self.target == 0 else min(self.current / self.target, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A goal of a member. People set it; no model writes one (A5).

    Attributes:
        id: Its id.
        description: The goal.
        key_results: Its measures.
        status: Its status.
        owner_id: Whose goal it is.

    Raises:
        InvalidArgument: A field is invalid.
    """

    id: str
    description: str
    key_results: tuple[KeyResult, ...] = ()
    status: ObjectiveStatus = "active"
    owner_id: str = ""

    def __post_init__(self) -> None:
        check_id("the id of an objective", self.id)
        check_text("description", self.description)
        object.__setattr__(self, "key_results", items("key_results", self.key_results, KeyResult))
        check_choice("status", self.status, get_args(ObjectiveStatus))
        if self.owner_id:
            check_id("owner_id", self.owner_id)


def active(goals: Sequence[Objective]) -> list[Objective]:
    """Those of some goals that are `active` or `at_risk`, in their order (A5)."""
    return [each for each in goals if each.status in ("active", "at_risk")]


MAX_GOALS: Final = 4000
"""Characters of the goals that a prompt shows."""


def goals_text(goals: Sequence[Objective], most: int | None = None) -> str:
    """The active ones of some goals as text for a prompt; empty if there are none (A5).

    Args:
        goals: The goals.
        most: About how many characters it can have: the first goals that fit are shown, one at least. None is any.
    """
    shown, left = active(goals), 0
    while len(shown) > 1 and most is not None and len(_lines(shown)) > most:
        shown, left = shown[:-1], left + 1
    return f"{_lines(shown)}\n- and {left} more" if left else _lines(shown)


def _lines(goals: Sequence[Objective]) -> str:
    lines = []
    for goal in goals:
        lines.append(f"- {goal.description}{' (at risk)' if goal.status == 'at_risk' else ''}")
        for each in goal.key_results:
            unit = f" {each.unit}" if each.unit else ""
            share = f"{each.current:g} of {each.target:g}{unit}, {each.progress:.0%}"
            lines.append(f"  - {each.description}: {share}")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustProfile:
    """How far a member is trusted, by capability, in hundredths from 0 to 1 (A8).

    Attributes:
        scores: The trust in each capability with a record.
        default: The trust in any other.

    Raises:
        InvalidArgument: A number is not from 0 to 1.
    """

    scores: Mapping[str, float] = field(default_factory=dict)
    default: float = 0.3

    def __post_init__(self) -> None:
        check_share("default", self.default)
        scores = json_object("scores", self.scores)
        for capability, score in scores.items():
            check_id("capability", capability)
            check_share(f"scores[{capability!r}]", score)
        object.__setattr__(self, "default", round(self.default, 2))
        object.__setattr__(self, "scores", MappingProxyType({key: round(score, 2) for key, score in scores.items()}))

    def trust_for(self, capability: str) -> float:
        """The trust in a capability."""
        return self.scores.get(capability, self.default)


GOOD: Final = 5
BAD: Final = -15
"""By how many hundredths good and bad results change trust: it grows slowly and falls fast (A8)."""


def update_trust(trust: TrustProfile, episode: Episode, feedback: Feedback | None = None) -> TrustProfile:
    """Return the trust after an episode. What a person says counts, whatever the outcome was (A8).

    Args:
        trust: The trust before.
        episode: What was done.
        feedback: What a person says of it; without it a success counts as good, and a failure changes nothing.

    Raises:
        InvalidArgument: `feedback` is not known.
    """
    if feedback is not None:
        check_choice("feedback", feedback, get_args(Feedback))
    return changed_trust(trust, episode.action, episode.succeeded, feedback)


def changed_trust(trust: TrustProfile, capability: str, succeeded: bool, feedback: Feedback | None) -> TrustProfile:
    """`update_trust` for what is known of an episode whose feedback was checked."""
    return shifted_trust(trust, capability, change_of(succeeded, feedback))


def shifted_trust(trust: TrustProfile, capability: str, change: int) -> TrustProfile:
    """Trust that is some hundredths more or less in a capability, within 0 and 1."""
    hundredths = min(100, max(0, round(trust.trust_for(capability) * 100) + change))
    return replace(trust, scores={**trust.scores, capability: hundredths / 100}) if change else trust


def change_of(succeeded: bool, feedback: Feedback | None) -> int:
    """By how many hundredths an episode changes the trust in its capability, within 0 and 1."""
    return {"good": GOOD, "bad": BAD, None: GOOD if succeeded else 0}[feedback]


class RoleStatus(StrEnum):
    """The states of a member, in their order (A7)."""

    DRAFT = "draft"
    TESTING = "testing"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleLifecycle:
    """Where a member is in its life.

    Attributes:
        status: Its state.
        created_at: When it was made.
        created_by: The member or person that made it.
        activated_at: When it became active for the first time.
        terminated_at: When it was terminated.
        termination_reason: Why, such as `task_complete`, `human_decision` or `parent_terminated`.
        memory_policy: What becomes of its memory then.

    Raises:
        InvalidArgument: A field is invalid.
    """

    status: RoleStatus
    created_at: datetime
    created_by: str
    activated_at: datetime | None = None
    terminated_at: datetime | None = None
    termination_reason: str = ""
    memory_policy: MemoryPolicy = "archive"

    def __post_init__(self) -> None:
        check_choice("status", self.status, [each.value for each in RoleStatus])
        object.__setattr__(self, "status", RoleStatus(self.status))
        check_id("created_by", self.created_by)
        check_time("created_at", self.created_at)
        check_time("activated_at", self.activated_at, optional=True)
        check_time("terminated_at", self.terminated_at, optional=True)
        check_text("termination_reason", self.termination_reason, most=200, empty=True)
        check_choice("memory_policy", self.memory_policy, get_args(MemoryPolicy))

    def ends_at(self, ttl: str | None) -> datetime | None:
        """When it is over: after the days of its lifetime, counted from when it first was active; None if that is open.

        Args:
            ttl: The lifetime of the member.
        """
        if ttl in (None, "task") or self.activated_at is None or self.status is RoleStatus.TERMINATED:
            return None
        return self.activated_at + timedelta(days=int(ttl[:-1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Which operator a member runs for a kind of event (A2).

    Attributes:
        event: The types of the events, as a glob such as `lead.*`.
        operator: The operator.
        trigger: By which of the operator's triggers it is run; empty if it has only one.
        capability: What the member does by it, as its authority and its trust list it; empty is the event's type.

    Raises:
        InvalidArgument: A field is invalid.
    """

    event: str
    operator: str
    trigger: str = ""
    capability: str = ""

    def __post_init__(self) -> None:
        check_text("the event of a route", self.event, most=200)
        check_id("the operator of a route", self.operator)
        for name in ("trigger", "capability"):
            if getattr(self, name) != "":
                check_id(f"the {name} of a route", getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Participant:
    """A member or a person, as others know it.

    Attributes:
        id: Its id.
        type: What it is.
        name: Its name.
        domains: What it is responsible for.
        metadata: What the host knows of it, such as an address, as JSON.

    Raises:
        InvalidArgument: A field is invalid.
    """

    id: str
    type: Literal["role", "human"]
    name: str = ""
    domains: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_id("the id of a participant", self.id)
        check_choice("type", self.type, ("role", "human"))
        check_text("name", self.name, most=200, empty=True)
        object.__setattr__(self, "domains", ids("domains", self.domains))
        object.__setattr__(self, "metadata", json_object("metadata", self.metadata))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """The definition of a member, from a workspace's file or made of a template (A9).

    Attributes:
        role_id: Its id.
        workspace: Its workspace.
        soul: Who it is: the static instructions of its worker. It is not a `Role`: roles come on top of it (A13).
        domains: What it is responsible for.
        reports_to: The member or person that it escalates to.
        operator_ids: What it can run.
        authority: What it may do.
        clearance: What it may know.
        goals: Its goals.
        trust: How far it is trusted; None is the workspace's default.
        parent_role_id: The member that made it; empty for those of the workspace's file.
        created_by: The person or member that made it.
        ttl: How long it lives: `task`, days such as `90d`, or None for ever.
        memory_policy: What becomes of its memory when it is terminated.
        routes: Which operator it runs for which event. The first that fits an event counts.
        language: The language of its prompts and messages; None is that of the workspace (C10).
        untrusted: The untrusted content that its soul and its name were made of, by way of the params of its template.
            Its turns count as having read it (M5).
        remote: Where it runs, if it is an agent elsewhere (A22). Then it has no operators and no routes, and no model
            here reads its soul.
        limits: What it and all members below it can use; None sets no limit of its own (A16).

    Raises:
        InvalidArgument: A field is invalid.
    """

    role_id: str
    workspace: str
    soul: str
    domains: tuple[str, ...]
    reports_to: str
    operator_ids: tuple[str, ...]
    authority: AuthorityConfig
    clearance: ClearanceProfile | None = None
    goals: tuple[Objective, ...] = ()
    trust: TrustProfile | None = None
    parent_role_id: str = ""
    created_by: str = ""
    ttl: str | None = None
    memory_policy: MemoryPolicy = "archive"
    routes: tuple[Route, ...] = ()
    language: Language | None = None
    untrusted: tuple[str, ...] = ()
    remote: RemoteAgent | None = None
    limits: MemberLimits | None = None

    def __post_init__(self) -> None:
        check_member_id(self.role_id)
        check_id("workspace", self.workspace)
        check_soul("soul", self.soul)
        for name in ("reports_to", "parent_role_id", "created_by"):
            if getattr(self, name) != "":
                check_id(name, getattr(self, name))
        object.__setattr__(self, "domains", ids("domains", self.domains))
        object.__setattr__(self, "operator_ids", ids("operator_ids", self.operator_ids))
        object.__setattr__(self, "untrusted", ids("untrusted", self.untrusted))
        object.__setattr__(self, "goals", items("goals", self.goals, Objective))
        object.__setattr__(self, "routes", items("routes", self.routes, Route))
        check_kind("authority", self.authority, AuthorityConfig)
        check_kind("clearance", self.clearance, ClearanceProfile, optional=True)
        check_kind("trust", self.trust, TrustProfile, optional=True)
        check_ttl(self.ttl)
        check_choice("memory_policy", self.memory_policy, get_args(MemoryPolicy))
        check_kind("limits", self.limits, MemberLimits, optional=True)
        if self.language is not None:
            check_choice("language", self.language, get_args(Language))
        check_kind("remote", self.remote, RemoteAgent, optional=True)
        if self.remote is not None and (self.operator_ids or self.routes):
            raise InvalidArgument(
                f"{self.role_id!r} is a remote agent, which has neither `operator_ids` nor `routes` here",
                remedy="leave them out; the remote agent has functions of its own",
            )

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        read: dict[str, Any] = to_json(self)
        return read


def check_member_id(value: object) -> None:
    """Refuse an id that no member can have. It is the name of its worker too, so it is that of a function.

    Raises:
        InvalidArgument: It is not such an id, or it is reserved.
    """
    if not isinstance(value, str) or not _MEMBER_ID.fullmatch(value):
        raise InvalidArgument(
            f"the role_id {str(value)[:60]!r} must be 1 to 64 of a-z, 0-9, `-`, `_` and `.`, and begin with a letter",
            remedy="use for example 'bdr-apac'",
        )
    if value in RESERVED:
        raise InvalidArgument(f"the role_id {value!r} is reserved", remedy="use another id")


def check_soul(name: str, value: object) -> None:
    """Refuse a soul that is not a text, or that is the path of a file, which would be read as the soul itself.

    Raises:
        InvalidArgument: It is.
    """
    check_text(name, value)
    if isinstance(value, str) and SOUL_FILE.fullmatch(value):
        raise InvalidArgument(
            f"`{name}` is the path {value[:200]!r}, and must be the text",
            remedy=f"pass Path({value[:200]!r}).read_text()",
        )


def check_kind(name: str, value: object, kind: type, *, optional: bool = False) -> None:
    """Refuse a field that is not of a kind.

    Raises:
        InvalidArgument: It is not.
    """
    if not (isinstance(value, kind) or (optional and value is None)):
        raise InvalidArgument(f"`{name}` must be of type {kind.__name__}", remedy="pass an object of this type")


def check_ttl(value: object) -> None:
    """Refuse a lifetime that is not `task`, days such as `90d`, or None.

    Raises:
        InvalidArgument: It is not.
    """
    if value in (None, "task"):
        return
    days = value[:-1] if isinstance(value, str) and value.endswith("d") else ""
    if not (days.isascii() and days.isdigit() and 1 <= int(days) <= 36_500):
        raise InvalidArgument(f"`ttl` {str(value)[:40]!r} is not a lifetime", remedy="use 'task', '90d' or None")
