"""What a member does with an event, as a pure function of the member, the event and the roster (A2).

Nothing here reads a clock, a database or a model, and nothing is changed. A gateway executes what is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final

from ..data.roles import USER, RoleSpec, RoleStatus, Route, TrustProfile
from ..data.workspace import Event, Monitoring, RoleTemplate, RoutingDecision, WorkspaceConfig, routed
from ..life.members import LIVE, Member

SPAWN: Final = "role.spawn"
"""The operator that a `directive.spawn` is delegated to: the gateway makes a member of a template (A9)."""

DIRECTIVE_SPAWN: Final = "directive.spawn"

REVIEW_BELOW: Final = 0.30
LOG_ABOVE: Final = 0.70
"""The ends of the middle band of trust, which itself includes both (A8)."""

MAX_FORWARDS: Final = 3
"""The forward with this number is an escalation to the owner (A2)."""

Matcher = Callable[[Event], tuple[str | None, str | None]]
"""The operator and the trigger for an event, or None for each."""

_DIRECTIVE_FIELDS: Final = ("template_id", "params", "brief")


def monitoring_of(trust: float) -> Monitoring:
    """How a person watches what is done with some trust: before it, soon after it, or in the log (A8).

    Args:
        trust: The trust in a capability, from 0 to 1.
    """
    if trust < REVIEW_BELOW:
        return "review"
    return "log" if trust > LOG_ABOVE else "report"


@dataclass(frozen=True, slots=True)
class Roster:
    """The members of a workspace at one moment. A gateway makes a new one whenever something of it changes.

    Attributes:
        owner: The person where each escalation without a target ends.
        members: The members by their ids, in the order of registration.
    """

    owner: str = USER
    members: Mapping[str, Member] = field(default_factory=dict)
    _by_domain: Mapping[str, tuple[Member, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_domain: dict[str, list[Member]] = {}
        for member in self.members.values():
            if member.life.status in LIVE:
                for domain in member.spec.domains:
                    by_domain.setdefault(domain, []).append(member)
        object.__setattr__(self, "members", MappingProxyType(dict(self.members)))
        object.__setattr__(self, "_by_domain", {domain: tuple(found) for domain, found in by_domain.items()})

    @classmethod
    def of(cls, config: WorkspaceConfig, members: Iterable[Member]) -> Roster:
        """The roster of a workspace.

        Args:
            config: The workspace.
            members: Its members, in the order of registration.
        """
        return cls(config.owner, {each.id: each for each in members})

    def find_by_domain(self, domain: str, asker: str = "") -> tuple[Member, ...]:
        """The members that are active or in testing and have exactly this domain, in the order of registration.

        Args:
            domain: The domain.
            asker: The member that asks. It is left out.
        """
        return tuple(each for each in self._by_domain.get(domain, ()) if each.id != asker)

    def owner_of(self, domain: str, asker: str = "") -> Member | None:
        """The first of `find_by_domain`, to which events of a domain are forwarded; None if there is none."""
        return next((each for each in self._by_domain.get(domain, ()) if each.id != asker), None)


def route_of(spec: RoleSpec | RoleTemplate, event_type: str) -> Route | None:
    """The first route of a member that fits a type of event, or what its names say; None if nothing does (A2).

    Without a route that fits, a type that is the id of an operator runs that operator. A member without any routes and
    with a single operator runs it for the types that its authority lists: for others, nobody has said that it may.
    """
    for each in spec.routes:
        if fnmatchcase(event_type, each.event):
            return each
    if event_type in spec.operator_ids:
        return Route(event=event_type, operator=event_type)
    listed = (*spec.authority.autonomous, *spec.authority.needs_approval)
    single = len(spec.operator_ids) == 1 and not spec.routes
    return Route(event=event_type, operator=spec.operator_ids[0]) if single and event_type in listed else None


def run_by(found: Route | None) -> tuple[str | None, str | None]:
    """The operator and the trigger of a route; None for each without a route."""
    return (None, None) if found is None else (found.operator, found.trigger or None)


def route(member: Member, event: Event, roster: Roster, match: Matcher | None = None) -> RoutingDecision:
    """Decide what a member does with an event (A2, A7, A8, A9). Equal arguments give equal decisions.

    The route that fits the event is looked up first, because it names the capability. Then its life, the domain, the
    authority, the operator and the trust decide, in this order; what needs approval by authority or by trust is an
    escalation with the operator that would run.

    Args:
        member: The member.
        event: The event.
        roster: All members of the workspace.
        match: The operator and the trigger for an event, instead of the member's routes.
    """
    return route_as(member.spec, member.life.status, member.trust, event, roster, match)


def route_as(
    spec: RoleSpec,
    status: RoleStatus,
    trust: TrustProfile,
    event: Event,
    roster: Roster | None,
    match: Matcher | None = None,
) -> RoutingDecision:
    """`route` for a member that is given by its parts, and whose roster may be unknown.

    Args:
        spec: Its definition.
        status: Where it is in its life.
        trust: The trust in it.
        event: The event.
        roster: All members of the workspace. Without it, an event of another domain is ignored.
        match: The operator and the trigger for an event, instead of the member's routes.
    """
    if status not in LIVE:
        return routed("ignore", f"{spec.role_id!r} is {status.value}")
    if event.domain not in spec.domains:
        return _of_another_domain(spec, event, roster)
    owner = USER if roster is None else roster.owner
    if event.type == DIRECTIVE_SPAWN:
        return _directive(spec, event, owner)
    return _in_own_domain(spec, trust, event, owner, match)


def bounded(decision: RoutingDecision, event: Event, member: str, trail: Sequence[str], owner: str) -> RoutingDecision:
    """A decision, or an escalation to the owner in place of a forward too many.

    Args:
        decision: The decision.
        event: The event.
        member: The member that made it.
        trail: The members that forwarded the event before.
        owner: The owner.
    """
    if decision.action != "forward" or len(trail) + 1 < MAX_FORWARDS:
        return decision
    path = " -> ".join((*trail, member, str(decision.target_role_id)))
    return escalation(owner, event, f"it was forwarded {MAX_FORWARDS} times: {path}")


def unrouted(event: Event, named: str, owner: str) -> RoutingDecision:
    """The escalation of an event that no live member can decide about.

    Args:
        event: The event.
        named: The member that the host named, and that is not there any more; empty for none.
        owner: The owner.
    """
    gone = f"{named!r} is not in the workspace any more"
    return escalation(owner, event, gone if named else f"no live member is responsible for {event.domain!r}")


def _in_own_domain(
    spec: RoleSpec, trust: TrustProfile, event: Event, owner: str, match: Matcher | None
) -> RoutingDecision:
    target, found = spec.reports_to or owner, route_of(spec, event.type)
    capability = (found and found.capability) or event.type
    authority = spec.authority.of(capability)
    if authority == "forbidden":
        return escalation(target, event, f"{capability!r} is forbidden for {spec.role_id!r}")
    operator, trigger = run_by(found) if match is None else match(event)
    if not operator:
        return escalation(target, event, f"{spec.role_id!r} has no operator for {event.type!r}")
    if operator == SPAWN:
        return escalation(target, event, f"{event.type!r} makes no member: only a {DIRECTIVE_SPAWN} does")
    if operator not in spec.operator_ids:
        return escalation(target, event, f"{operator!r} is not an operator of {spec.role_id!r}")
    monitoring = monitoring_of(trust.trust_for(capability))
    runs: dict[str, Any] = {
        "operator_id": operator,
        "trigger_id": trigger,
        "input_data": event.payload,
        "monitoring": monitoring,
        "capability": capability,
    }
    if authority == "needs_approval":
        return escalation(target, event, f"{capability!r} needs approval for {spec.role_id!r}", **runs)
    if monitoring == "review":
        return escalation(target, event, f"the trust in {spec.role_id!r} for {capability!r} is low", **runs)
    return routed("delegate", f"{spec.role_id!r} runs {operator!r} for {event.type!r}", **runs)


def _of_another_domain(spec: RoleSpec, event: Event, roster: Roster | None) -> RoutingDecision:
    owner = None if roster is None else roster.owner_of(event.domain, spec.role_id)
    if owner is None:
        return routed("ignore", f"no member is responsible for {event.domain!r}")
    reason = f"{owner.id!r} is responsible for {event.domain!r}"
    return routed("forward", reason, target_role_id=owner.id, message=f"{event.type}: {reason}")


def _directive(spec: RoleSpec, event: Event, owner: str) -> RoutingDecision:
    """The order to make a member (A9). Whether the template allows it is for the gateway, which has the templates."""
    target, by = spec.reports_to or owner, {owner, USER, spec.reports_to} - {""}
    if event.source not in by:
        return escalation(target, event, f"{event.source!r} is not one that {spec.role_id!r} reports to")
    if not event.source_verified:
        return escalation(target, event, f"it is not verified that the event is from {event.source!r}")
    given = {name: event.payload[name] for name in _DIRECTIVE_FIELDS if name in event.payload}
    if not isinstance(given.get("template_id"), str) or not isinstance(given.setdefault("params", _NONE), Mapping):
        return escalation(target, event, "the payload has no `template_id`, or `params` is not an object")
    return routed(
        "delegate",
        f"{event.source!r} tells {spec.role_id!r} to make a member",
        operator_id=SPAWN,
        input_data=MappingProxyType(given),
        monitoring="report",
        capability=DIRECTIVE_SPAWN,
    )


def escalation(target: str, event: Event, reason: str, **runs: Any) -> RoutingDecision:
    """An event that a member does not handle alone; `runs` says what is run once a person approves it."""
    return routed("escalate", reason, target_role_id=target, message=f"{event.type}: {reason}", **runs)


_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
