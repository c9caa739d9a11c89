"""A workspace as data: its policy, its templates, and what its members receive and decide."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
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
)
from ...core.errors import InvalidArgument
from ...core.lookalikes import letters_of
from ...core.validation import check_integer
from ..life.signals import commonest_at, measure, value_of, within_days
from .brief import InterfaceSpec, Language
from .limits import MemberLimits
from .roles import (
    RESERVED,
    ROOT,
    AuthorityConfig,
    ClearanceProfile,
    Participant,
    RoleSpec,
    Route,
    check_kind,
    check_soul,
    check_ttl,
)

if TYPE_CHECKING:
    from ...memory.entries import Episode

Metric = Literal["episodes_by_tag", "time_share", "unique_entities", "payload_field"]
DraftStatus = Literal["pending_review", "approved", "active", "rejected"]
Action = Literal["delegate", "escalate", "forward", "ignore"]
Monitoring = Literal["review", "report", "log"]
"""How a person watches what is done: before, soon after, or in the log (A8)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnCondition:
    """One condition of a spawn signal (A15).

    Attributes:
        metric: What is counted.
        threshold: From which number on it holds.
        window_days: Over how many days.
        tag_field: The tag, for `episodes_by_tag` and `time_share`.
        field: The field of the payload, for `unique_entities` and `payload_field`.
        min_value: The least value of that field, for `payload_field`.

    Raises:
        InvalidArgument: A field is invalid.
    """

    metric: Metric
    threshold: float
    window_days: int = 30
    tag_field: str = ""
    field: str = ""
    min_value: float = 0

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, get_args(Metric))
        check_number("threshold", self.threshold, least=0)
        check_integer("window_days", self.window_days, 3660, remedy="pass days")
        check_number("min_value", self.min_value)
        needed = "tag_field" if self.metric in ("episodes_by_tag", "time_share") else "field"
        check_text(needed, getattr(self, needed), most=200)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnSignal:
    """When a member should think of making a child of a template (A9).

    Attributes:
        id: Its id.
        description: What it means.
        conditions: All of them must hold.
        extract_params: Where each parameter of the template comes from: `tag:NAME` or `payload:NAME`.

    Raises:
        InvalidArgument: A field is invalid.
    """

    id: str
    description: str
    conditions: tuple[SpawnCondition, ...]
    extract_params: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_id("the id of a spawn signal", self.id)
        check_text("description", self.description)
        object.__setattr__(self, "conditions", items("conditions", self.conditions, SpawnCondition))
        if not self.conditions:
            raise InvalidArgument(f"the spawn signal {self.id!r} has no condition", remedy="give it at least one")
        object.__setattr__(self, "extract_params", mapping("extract_params", self.extract_params, str))
        for name, where in self.extract_params.items():
            kind, _, key = where.partition(":")
            if kind not in ("tag", "payload") or not key:
                raise InvalidArgument(
                    f"`extract_params` of {name!r} is {where[:60]!r}", remedy="write tag:NAME or payload:NAME"
                )

    def matches(self, episodes: Iterable[Episode], *, now: datetime | None = None) -> bool:
        """Whether all conditions hold: each metric is at least its threshold over its last days.

        Args:
            episodes: Episodes of one member, of any time.
            now: The end of the windows; the time of the call by default.
        """
        until, given = now or datetime.now(UTC), [*episodes]
        return all(measure(each, given, until) >= each.threshold for each in self.conditions)

    def evaluate(self, episodes: Iterable[Episode], *, now: datetime | None = None) -> float:
        """How far the conditions are exceeded, 0 to 1: the least of them, and 1 is twice the threshold.

        Args:
            episodes: As for `matches`.
            now: As for `matches`.
        """
        until, given = now or datetime.now(UTC), [*episodes]
        return min(_excess(measure(each, given, until), each.threshold) for each in self.conditions)

    def params_from(self, episodes: Iterable[Episode], *, now: datetime | None = None) -> dict[str, str]:
        """The commonest value of each parameter in `extract_params`; one that no episode has is left out.

        Args:
            episodes: As for `matches`. Those of the longest window count.
            now: As for `matches`.
        """
        counted = within_days(episodes, self._days, now or datetime.now(UTC))
        found = {name: commonest_at(counted, where) for name, where in self.extract_params.items()}
        return {name: value for name, value in found.items() if value is not None}

    def untrusted_in(self, episodes: Iterable[Episode], *, now: datetime | None = None) -> tuple[str, ...]:
        """The untrusted content of the episodes that have one of the values of `params_from`.

        Args:
            episodes: As for `matches`.
            now: As for `matches`.
        """
        until, given = now or datetime.now(UTC), [*episodes]
        params, counted = self.params_from(given, now=until), within_days(given, self._days, until)
        having = [
            each
            for each in counted
            if any(value_of(each, self.extract_params[name]) == value for name, value in params.items())
        ]
        return tuple(sorted({mark for each in having for mark in each.untrusted}))

    @property
    def _days(self) -> int:
        return max(each.window_days for each in self.conditions)


def _excess(value: float, threshold: float) -> float:
    return min(1.0, value / (2 * threshold)) if threshold else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnRecommendation:
    """A child that a member's episodes suggest (A15).

    Attributes:
        template_id: Of which template.
        signal_id: By which signal.
        reason: Why.
        confidence: How far its conditions are exceeded, 0 to 1.
        suggested_params: Parameters that the episodes suggest.
        untrusted: The untrusted content that these parameters come from. A member that is made with them has it, too.
    """

    template_id: str
    signal_id: str
    reason: str
    confidence: float
    suggested_params: Mapping[str, str] = field(default_factory=dict)
    untrusted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_id("template_id", self.template_id)
        check_id("signal_id", self.signal_id)
        check_text("reason", self.reason)
        check_share("confidence", self.confidence)
        object.__setattr__(self, "suggested_params", mapping("suggested_params", self.suggested_params, str))
        object.__setattr__(self, "untrusted", ids("untrusted", self.untrusted))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleTemplate:
    """What a person defines and an agent fills in: its parameters, and nothing else (A9).

    Attributes:
        template_id: Its id.
        name_pattern: The name of a member made of it, with parameters in braces.
        soul_template: Its soul, with parameters in braces.
        domains: What it is responsible for.
        authority: The most that it may do.
        operator_ids: What it can run.
        clearance: The most that it may know; None is the default.
        default_trust: How far it is trusted at first; None is the policy's.
        ttl: How long it lives: `task`, days such as `90d`, or None for ever.
        parameters: The names of its parameters.
        allowed_spawners: The members that can make one.
        spawn_signals: When its spawners should think of making one.
        interface_spec: How others ask its members (C4).
        routes: Which operator its members run for which event. The first that fits an event counts.
        language: The language of prompts and messages of its members; None is that of the workspace (C10).
        limits: What each member that is made of it, and all below that, can use; never more than its parent (A16).

    Raises:
        InvalidArgument: A field is invalid.
    """

    template_id: str
    name_pattern: str
    soul_template: str
    domains: tuple[str, ...]
    authority: AuthorityConfig
    operator_ids: tuple[str, ...]
    clearance: ClearanceProfile | None = None
    default_trust: float | None = None
    ttl: str | None = None
    parameters: tuple[str, ...] = ()
    allowed_spawners: tuple[str, ...] = ()
    spawn_signals: tuple[SpawnSignal, ...] = ()
    interface_spec: InterfaceSpec | None = None
    routes: tuple[Route, ...] = ()
    language: Language | None = None
    limits: MemberLimits | None = None

    def __post_init__(self) -> None:
        check_id("template_id", self.template_id)
        check_text("name_pattern", self.name_pattern, most=200)
        check_soul("soul_template", self.soul_template)
        for name in ("domains", "operator_ids", "parameters", "allowed_spawners"):
            object.__setattr__(self, name, ids(name, getattr(self, name)))
        for name in ("name_pattern", "soul_template"):
            self._check_pattern(name, getattr(self, name))
        check_kind("authority", self.authority, AuthorityConfig)
        check_kind("clearance", self.clearance, ClearanceProfile, optional=True)
        check_kind("interface_spec", self.interface_spec, InterfaceSpec, optional=True)
        check_kind("limits", self.limits, MemberLimits, optional=True)
        if self.default_trust is not None:
            check_share("default_trust", self.default_trust)
        check_ttl(self.ttl)
        object.__setattr__(self, "spawn_signals", items("spawn_signals", self.spawn_signals, SpawnSignal))
        object.__setattr__(self, "routes", items("routes", self.routes, Route))
        if self.language is not None:
            check_choice("language", self.language, get_args(Language))
        self._check_fixed()

    def _check_fixed(self) -> None:
        """Refuse parameters in what a person alone decides: nothing would fill them in (A9)."""
        events = [each.event for each in self.routes]
        for name, given in (("domains", self.domains), ("operator_ids", self.operator_ids), ("routes", events)):
            for each in given:
                if any(f"{{{parameter}}}" in each for parameter in self.parameters):
                    raise InvalidArgument(
                        f"`{name}` of the template {self.template_id!r} has a parameter: {each[:60]!r}",
                        remedy="write what all its members have; parameters are for `name_pattern` and `soul_template`",
                    )

    def _check_pattern(self, name: str, pattern: str) -> None:
        """Refuse braces that are not one of the parameters: no attribute or item of one can be named (A9)."""
        try:
            parts = list(string.Formatter().parse(pattern))
        except ValueError:
            parts = [("", "", "", None)]
        for _, field_name, spec, conversion in parts:
            if field_name is not None and (field_name not in self.parameters or spec or conversion):
                raise InvalidArgument(
                    f"`{name}` of the template {self.template_id!r} has {{{field_name[:60]}}}",
                    remedy="name a parameter in braces, add it to `parameters`, and write {{ and }} for braces",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleTemplateDraft:
    """A template that a member proposes. It can be used once a person approved it (A10).

    Attributes:
        proposed_by: The member.
        intent: What was asked for.
        template: The template.
        reasoning: Why it is so.
        status: Its state: `active` is approved and part of the workspace.
        id: Its id; empty before it is stored.
        decided_by: The person who approved or rejected it; empty before that.
        decision_reason: Why it was rejected.
        untrusted: The untrusted content that its author had read. Once a person approves it, it is the person's.
    """

    proposed_by: str
    intent: str
    template: RoleTemplate
    reasoning: str
    status: DraftStatus = "pending_review"
    id: str = ""
    decided_by: str = ""
    decision_reason: str = ""
    untrusted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_id("proposed_by", self.proposed_by)
        check_text("intent", self.intent)
        check_kind("template", self.template, RoleTemplate)
        check_text("reasoning", self.reasoning, empty=True)
        object.__setattr__(self, "untrusted", ids("untrusted", self.untrusted))
        check_choice("status", self.status, get_args(DraftStatus))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspacePolicy:
    """The rules of a workspace (A1).

    Attributes:
        max_roles: How many members it can have.
        default_trust: How far a new member is trusted.
        spawn_requires_approval: Whether the owner approves each new member.
        memory_isolation: Whether members see each other's insights.
        auto_spawn: Whether a recommended member is made without the owner.
        brief: Whether a child's brief must be written, or is made of its template where it is missing (C1).
        discovery: Whether members know each other by introduction only, or all of them (C2).
        cross_branch: Whether the lowest common superior confirms an introduction between branches (C3).
        consent: Whether a member is asked before it is introduced (C3).
        message_chain: How many messages can lead to one another since the last of a person or event.
        wait_alarm: After how many seconds the owner is told that a turn waits for a reply (A18).
        mailbox_alarm: After how many seconds the owner is told that a mailbox with messages does not move.
        exchange_alarm: After how many messages in a row between two members the owner is told.
        briefs_of_ended: What becomes of the briefs of a member that is terminated: they are closed as failed, or go
            back to those that gave them, who are told (A19). With `reassign`, those that a suspended member has not
            begun go back, too.

    Raises:
        InvalidArgument: A field is invalid.
    """

    max_roles: int = 100
    default_trust: float = 0.3
    spawn_requires_approval: bool = False
    memory_isolation: Literal["strict", "shared_read"] = "strict"
    auto_spawn: bool = False
    brief: Literal["required", "derived"] = "required"
    discovery: Literal["introduced", "open"] = "introduced"
    cross_branch: Literal["open", "confirm"] = "open"
    consent: Literal["off", "ask"] = "off"
    message_chain: int = 30
    wait_alarm: float = 6 * 3600
    mailbox_alarm: float = 24 * 3600
    exchange_alarm: int = 10
    briefs_of_ended: Literal["close", "reassign"] = "close"

    def __post_init__(self) -> None:
        check_integer("max_roles", self.max_roles, 1_000_000, remedy="choose a smaller number")
        for name in ("message_chain", "exchange_alarm"):
            check_integer(name, getattr(self, name), 10_000, remedy="choose a smaller number")
        for name in ("wait_alarm", "mailbox_alarm"):
            check_number(name, getattr(self, name), least=0)
        check_share("default_trust", self.default_trust)
        for name in ("spawn_requires_approval", "auto_spawn"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidArgument(f"`{name}` must be true or false", remedy="pass true or false")
        for name, known in _CHOICES.items():
            check_choice(name, getattr(self, name), known)


_CHOICES: Mapping[str, tuple[str, str]] = {
    "memory_isolation": ("strict", "shared_read"),
    "brief": ("required", "derived"),
    "discovery": ("introduced", "open"),
    "cross_branch": ("open", "confirm"),
    "consent": ("off", "ask"),
    "briefs_of_ended": ("close", "reassign"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceConfig:
    """A workspace: namespace, boundary and policy of its members (A1).

    Attributes:
        id: Its id.
        owner: The person where every approval ends.
        name: Its name; its id where it is empty.
        policy: Its rules.
        role_templates: Its templates by their ids.
        language: The language of prompts and messages, where a member has none of its own.
        roles: The members that it begins with. They join when the agent opens.
        people: The people besides the owner that members can report to.

    Raises:
        InvalidArgument: A field is invalid, or two members or people have the same id.
    """

    id: str
    owner: str
    name: str = ""
    policy: WorkspacePolicy = field(default_factory=WorkspacePolicy)
    role_templates: Mapping[str, RoleTemplate] = field(default_factory=dict)
    language: Language = "en"
    roles: tuple[RoleSpec, ...] = ()
    people: tuple[Participant, ...] = ()

    def __post_init__(self) -> None:
        check_id("the id of a workspace", self.id)
        check_id("owner", self.owner)
        if letters_of(self.owner) == letters_of(ROOT):
            raise InvalidArgument(f"`owner` is {self.owner!r}, which means the World Agent", remedy="use another id")
        check_text("name", self.name, most=200, empty=True)
        object.__setattr__(self, "name", self.name or self.id)
        check_kind("policy", self.policy, WorkspacePolicy)
        object.__setattr__(self, "role_templates", mapping("role_templates", self.role_templates, RoleTemplate))
        for key, template in self.role_templates.items():
            if key != template.template_id:
                raise InvalidArgument(
                    f"the template {template.template_id!r} has the key {key!r}", remedy="use its id as the key"
                )
        check_choice("language", self.language, get_args(Language))
        object.__setattr__(self, "roles", items("roles", self.roles, RoleSpec))
        object.__setattr__(self, "people", items("people", self.people, Participant))
        self._check_members()

    @property
    def has_limits(self) -> bool:
        """Whether one of its members or templates has limits (A16)."""
        limits = [*(each.limits for each in self.roles), *(each.limits for each in self.role_templates.values())]
        return any(each is not None for each in limits)

    def _check_members(self) -> None:
        strange = [each.role_id for each in self.roles if each.workspace != self.id]
        if strange:
            raise InvalidArgument(
                f"{strange[0]!r} is of another workspace than {self.id!r}", remedy="give all roles the workspace's id"
            )
        if any(each.type != "human" for each in self.people):
            raise InvalidArgument("`people` must have the type 'human'", remedy="list members in `roles`")
        seen: set[str] = {self.owner, *RESERVED}
        for each in (*(person.id for person in self.people), *(role.role_id for role in self.roles)):
            if each in seen:
                raise InvalidArgument(f"the id {each!r} is used twice", remedy="give each member and person its own id")
            seen.add(each)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened, as a gateway hands it to a member (A2).

    Attributes:
        id: Its id.
        type: What happened, such as `lead.created`.
        source: Where it comes from.
        domain: What it is about.
        payload: What is known of it, as JSON.
        timestamp: When it happened.
        metadata: More about it, such as a priority, as JSON.
        source_verified: Whether the gateway knows that the event is from its `source`. Only a gateway sets it, never
            from what came with the event: members obey a `directive.spawn` of a verified source alone (A9).
        limits: What all that follows from it can use; None sets no limit of its own (A16).

    Raises:
        InvalidArgument: A field is invalid.
    """

    id: str
    type: str
    source: str
    domain: str
    payload: Mapping[str, Any]
    timestamp: datetime
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source_verified: bool = False
    limits: MemberLimits | None = None

    def __post_init__(self) -> None:
        for name in ("id", "type", "source", "domain"):
            check_id(f"the {name} of an event", getattr(self, name))
        for name in ("payload", "metadata"):
            object.__setattr__(self, name, json_object(name, getattr(self, name)))
        check_time("timestamp", self.timestamp)
        check_kind("limits", self.limits, MemberLimits, optional=True)
        if not isinstance(self.source_verified, bool):
            raise InvalidArgument("`source_verified` must be true or false", remedy="pass true or false")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingDecision:
    """What a member does with an event. It is data: a gateway executes it (A12).

    An escalation with an `operator_id` asks for approval: the operator runs once a person approved it. One without an
    operator asks for a decision.

    Attributes:
        action: What is done.
        reason: Why, for people.
        operator_id: What is run, for `delegate`; what is run after an approval, for `escalate`.
        trigger_id: By what it is run.
        input_data: With which input, as JSON.
        target_role_id: Who gets it, for `escalate` and `forward`.
        message: What is said to it.
        monitoring: How a person watches the operator.
        capability: What the member does by running the operator: what its episode and its trust are about.

    Raises:
        InvalidArgument: A field is invalid.
    """

    action: Action
    reason: str
    operator_id: str | None = None
    trigger_id: str | None = None
    input_data: Mapping[str, Any] | None = None
    target_role_id: str | None = None
    message: str | None = None
    monitoring: Monitoring | None = None
    capability: str | None = None

    def __post_init__(self) -> None:
        check_choice("action", self.action, get_args(Action))
        check_text("reason", self.reason)
        if self.monitoring is not None:
            check_choice("monitoring", self.monitoring, get_args(Monitoring))
        if self.input_data is not None:
            object.__setattr__(self, "input_data", json_object("input_data", self.input_data))


def routed(action: Action, reason: str, **given: Any) -> RoutingDecision:
    """A `RoutingDecision` of routing, made without its checks, which would read the whole payload again.

    All that it holds must be valid: parts of an event or a definition, which were checked when they were made.
    """
    made, put = object.__new__(RoutingDecision), object.__setattr__
    for name, value in (_NOTHING | given).items():
        put(made, name, value)
    put(made, "action", action)
    put(made, "reason", reason)
    return made


_NOTHING: Final[dict[str, Any]] = {each.name: None for each in fields(RoutingDecision)}


def circle_of(roles: Iterable[RoleSpec]) -> tuple[RoleSpec, ...]:
    """The members that report to each other in a circle, or to one that does.

    Args:
        roles: Members of a configuration.
    """
    left = {each.role_id: each for each in roles}
    while free := [id_ for id_, each in left.items() if each.reports_to not in left]:
        for id_ in free:
            del left[id_]
    return tuple(left.values())
