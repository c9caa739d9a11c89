"""Replays a recorded week against a changed workspace, without an effect, to see what would differ (A23).

The members of the file begin as they do in a new home, and the recorded lines are applied in their order. What came of
an operator's run is known if the same operator ran for the same event in the week. Otherwise it is unknown: the trust
after it is a range, and a decision that depends on it is shown with all that it can be.

What people decide counts as in the week. An approval that nobody was asked for in the week counts as given, and at
once, if the operator ran. What the policy of the agent asks about, and what models say, is not replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from ..core.checks import thawed, to_json
from ..core.errors import InvalidArgument, RoleExists, RolesFull, SpawnForbidden, UnknownMember, WorldAgentError
from .data.brief import TaskBrief
from .data.identity import looks_of, mistakable
from .data.roles import GOOD, USER, ClearanceProfile, RoleSpec, RoleStatus, TrustProfile, change_of, shifted_trust
from .data.workspace import Event, RoutingDecision, WorkspaceConfig
from .events.events import part_of
from .events.recorded import (
    Recorded,
    RecordedDecision,
    RecordedEvent,
    RecordedFeedback,
    RecordedMember,
    RecordedOutcome,
    RecordedStep,
    RecordedSum,
    RecordedTemplate,
)
from .events.routing import SPAWN, Roster, bounded, route_as, unrouted
from .life.lives import NEXT, NOT_APPROVED, moved
from .life.members import LIVE, Member, new_member
from .life.outcomes import Sum
from .life.spawning import check_spawner, makes, narrowed, spec_of, usable_by

UNKNOWN: Final = "unknown"
"""The result of an operator that never ran for the event."""

_RAN: Final = ("done", "failed")
_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)  # of members, whose ages do not matter here
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedEvent:
    """What was decided about an event, and what would be.

    Attributes:
        event: The event.
        then: The recorded decision, with its result; None if there is none.
        member: The member that would decide; empty for none.
        trail: The members that would forward the event, the first one first.
        decisions: What would be decided. It is more than one where that depends on what is unknown, and nothing if the
            event could not be posted.
        result: What would come of it: a result or state of an event, or `unknown`.
        code: The code of the error, if it would fail.
        asked: Whether a person would be asked; None if that is unknown.
        cost: US dollars of the models, as far as they are recorded; None for none, and for what is unknown.
    """

    event: Event
    then: RecordedDecision | None
    member: str
    trail: tuple[str, ...]
    decisions: tuple[RoutingDecision, ...]
    result: str
    code: str = ""
    asked: bool | None = False
    cost: float | None = None

    @property
    def differs(self) -> bool:
        """Whether it is not what was recorded."""
        if self.then is None:
            return False
        then = (self.then.member, self.then.trail, (self.then.decision,), self.then.result or self.then.state)
        return (self.member, self.trail, self.decisions, self.result) != then


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What would differ with another file.

    Attributes:
        events: The events, in the order of the decisions.
        then: The recorded members by their ids.
        members: The members that there would be.
        trust: The least and the most that each of them would be trusted at the end. They are equal if it is known.
        asked: How often a person was asked in the week, how often one would be, and of how many events that is unknown.
        costs: US dollars of the week, those that are known with the other file, and how many runs are unknown.
    """

    events: tuple[TriedEvent, ...]
    then: Mapping[str, RecordedMember]
    members: Mapping[str, Member]
    trust: Mapping[str, tuple[TrustProfile, TrustProfile]]
    asked: tuple[int, int, int]
    costs: tuple[float, float, int]

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        then = {id_: {"status": each.status.value, "trust": to_json(each.trust)} for id_, each in self.then.items()}
        members = {
            id_: {"status": each.life.status.value, "trust": [to_json(one) for one in self.trust[id_]]}
            for id_, each in self.members.items()
        }
        keys = ("then", "now", "unknown")
        return {
            "events": [to_json(each) | {"differs": each.differs, "asked": each.asked} for each in self.events],
            "members": {"then": then, "now": members},
            "asked": dict(zip(keys, self.asked, strict=True)),
            "costs": dict(zip(keys, self.costs, strict=True)),
        }


def try_week(config: WorkspaceConfig, week: Sequence[Recorded]) -> Trial:
    """Replay a recorded week with another file. Equal arguments give equal trials, and nothing is changed (A23).

    Events without a recorded decision are decided about last.

    Args:
        config: The workspace of the file.
        week: What was recorded, in its order.

    Raises:
        InvalidArgument: The week is of another workspace.
    """
    strange = next(
        (each for each in week if isinstance(each, RecordedMember) and each.spec.workspace != config.id), None
    )
    if strange is not None:
        raise InvalidArgument(
            f"the events are of the workspace {strange.spec.workspace!r}, and the file is of {config.id!r}",
            remedy="export the events of the same workspace",
        )
    replay = _Replay(config, week)
    for line in week:
        replay.apply(line)
    return replay.ended()


class _Trust:
    """The least and the most that a member is trusted, with each of its outcomes and how that can have changed it."""

    def __init__(self, begins: TrustProfile) -> None:
        self._begins = self.low = self.high = begins
        self._outcomes: dict[str, tuple[str, tuple[int, ...]]] = {}

    def add(self, episode: str, capability: str, *changes: int) -> None:
        self._outcomes[episode] = capability, changes
        self.low = shifted_trust(self.low, capability, min(changes))
        self.high = shifted_trust(self.high, capability, max(changes))

    def rate(self, episode: str, change: int, *, known: bool) -> None:
        if episode not in self._outcomes:
            return
        capability, changes = self._outcomes[episode]
        self._outcomes[episode] = capability, (change,) if known else (*changes, change)
        begins, sums = self._begins.trust_for(capability), [Sum(), Sum()]  # again in the order of the outcomes
        for used, possible in self._outcomes.values():
            if used == capability:
                sums = [each.then(by(possible)) for each, by in zip(sums, (min, max), strict=True)]
        low, high = (each.after(begins) for each in sums)
        self.low = replace(self.low, scores={**self.low.scores, capability: low})
        self.high = replace(self.high, scores={**self.high.scores, capability: high})

    def possible(self) -> Sequence[TrustProfile]:
        """Profiles with which everything is decided that the trust admits: the least, the most, and one between."""
        low, high = self.low, self.high
        names = {*low.scores, *high.scores}
        half = {name: round((low.trust_for(name) + high.trust_for(name)) / 2, 2) for name in names}
        return (low,) if low == high else (low, replace(low, scores=half), high)


@dataclass(slots=True)
class _Run:
    """A run of an operator in the replay."""

    member: str
    capability: str
    known: bool
    counted: bool = False


class _Replay:
    """The workspace of a file, to which recorded lines are applied."""

    def __init__(self, config: WorkspaceConfig, week: Sequence[Recorded]) -> None:
        self._config = config
        added = {each.template.template_id: each.template for each in _of(RecordedTemplate, week)}
        self._templates = {**config.role_templates, **added, **config.role_templates}
        self._then = {each.spec.role_id: each for each in _of(RecordedMember, week)}
        self._decisions = {each.event: each for each in _of(RecordedDecision, week)}
        self._outcomes = {each.event: each for each in _of(RecordedOutcome, week) if each.event}
        self._rejected = {(each.member, each.at) for each in _of(RecordedStep, week) if each.reason == NOT_APPROVED}
        self._members: dict[str, Member] = {}
        self._trust: dict[str, _Trust] = {}
        self._roster = Roster(config.owner)
        self._open: dict[str, tuple[Event, str, bool]] = {}  # with the member that has it, and whether it was named
        self._runs: dict[str, _Run] = {}  # by the ids of their episodes
        self._spawned = 0  # members that wait for the approval of the owner, or waited
        self._tried: list[TriedEvent] = []
        self._sums = _of(RecordedSum, week)
        for spec in config.roles:
            self._put(new_member(spec, "", None, RoleStatus.ACTIVE, _BEGIN, config.policy))

    def apply(self, line: Recorded) -> None:
        match line:
            case RecordedMember():
                self._join(line)
            case RecordedStep():
                self._step(line)
            case RecordedEvent(event=event, to=to):
                owner = self._roster.owner_of(event.domain)
                self._open[event.id] = event, to or ("" if owner is None else owner.id), to is not None
            case RecordedDecision(event=id_) if id_ in self._open:
                self._decide(*self._open.pop(id_), line)
            case RecordedOutcome():
                self._count(line)
            case RecordedFeedback(episode=episode, feedback=feedback):
                run = self._runs.get(episode)
                if run is not None and run.member in self._trust:
                    self._trust[run.member].rate(episode, change_of(True, feedback), known=run.known)
            case _:
                pass

    def ended(self) -> Trial:
        """The trial, once all lines are applied."""
        for event, member, named in [*self._open.values()]:
            self._decide(event, member, named, None)
        drafts = sum(each.began is RoleStatus.DRAFT and each.is_made for each in self._then.values())
        asked = [each.asked for each in self._tried]
        unknown = sum(each.result == UNKNOWN for each in self._tried)
        return Trial(
            events=tuple(self._tried),
            then=self._then,
            members=self._members,
            trust={id_: (each.low, each.high) for id_, each in self._trust.items()},
            asked=(
                sum(map(_asked, self._decisions.values())) + drafts,
                asked.count(True) + self._spawned,
                asked.count(None),
            ),
            costs=(
                sum(each.cost or 0 for each in self._decisions.values()),
                sum(each.cost or 0 for each in self._tried),
                unknown,
            ),
        )

    # --- members ------------------------------------------------------------------------------------------------------

    def _put(self, member: Member) -> None:
        self._members[member.id] = member
        if member.id not in self._trust:
            begun = member.trust
            for each in (one for one in self._sums if one.member == member.id):
                after = Sum(each.shift, each.low, each.high).after(begun.trust_for(each.capability))
                begun = replace(begun, scores={**begun.scores, each.capability: after})
            self._trust[member.id] = _Trust(begun)
        self._roster = Roster.of(self._config, self._members.values())

    def _join(self, line: RecordedMember) -> None:
        """Add a member that is neither of the file nor made by an event."""
        spec = line.spec
        if line.by_event or spec.role_id in self._members:
            return
        if line.is_made:
            with suppress(WorldAgentError):  # with this file it is not made
                self._make(self._as_made(spec), line.name, spec.parent_role_id or USER)
        elif line.began is not RoleStatus.ACTIVE:  # code tests it; one that is active at once is of the file
            self._put(new_member(spec, line.name, None, line.began, _BEGIN, self._config.policy))

    def _as_made(self, spec: RoleSpec) -> RoleSpec:
        """A recorded member as the templates of the file make it. Params are part of its soul and its name alone."""
        spawner = spec.parent_role_id or USER
        usable = usable_by(spawner, self._templates.values())
        named = next((each.template_id for each in usable if makes(each, spec.role_id)), "")
        template, parent = check_spawner(self._templates.get(named), named, spawner), self._parent(spawner)
        made = replace(
            spec,
            **{name: getattr(template, name) for name in ("domains", "authority", "operator_ids", "routes", "ttl")},
            clearance=template.clearance or ClearanceProfile(),
            trust=None if template.default_trust is None else TrustProfile(default=template.default_trust),
        )
        return made if parent is None else narrowed(made, parent.spec)

    def _parent(self, spawner: str) -> Member | None:
        if spawner == USER:
            return None
        parent = self._members.get(spawner)
        if parent is None or parent.life.status is not RoleStatus.ACTIVE:
            raise SpawnForbidden(f"{spawner!r} is not active and makes no members", remedy="let it become active first")
        return parent

    def _make(self, spec: RoleSpec, name: str, spawner: str) -> None:
        """Add a member of a template. Who waits for the owner begins as the week says, else it stays a draft."""
        there, config = self._members.get(spec.role_id), self._config
        dead = RoleStatus.TERMINATED
        if there is not None and (there.life.status is not dead or there.life.activated_at is not None):
            raise RoleExists(f"the workspace has {spec.role_id!r} already", remedy="use other params")
        living = [each for each in self._members.values() if each.life.status is not dead]
        named = [*((each.id, each.name) for each in config.people), *((each.id, each.name) for each in living)]
        if problem := mistakable(spec.role_id, name, owner=config.owner, others=looks_of(named)):
            raise RoleExists(problem, remedy="use another id and another name")
        if len(living) >= config.policy.max_roles:
            raise RolesFull(f"the policy allows {config.policy.max_roles} members", remedy="raise `max_roles`")
        status, then = RoleStatus.ACTIVE, self._then.get(spec.role_id)
        if config.policy.spawn_requires_approval and spawner != USER:
            self._spawned += 1
            status = status if then is not None and then.began is status else RoleStatus.DRAFT
        self._trust.pop(spec.role_id, None)
        self._put(new_member(spec, name, None, status, _BEGIN, config.policy))

    def _step(self, line: RecordedStep) -> None:
        """Let a member reach a state as in the week, if it can follow the one that it has here."""
        member = self._members.get(line.member)
        if member is None:
            return
        life, draft = member.life, member.life.status is RoleStatus.DRAFT
        if (line.member, line.at) in self._rejected:  # all steps to its end have this time
            if draft and line.status is RoleStatus.TESTING:
                self._put(replace(member, life=replace(life, status=RoleStatus.TERMINATED)))
        elif line.status is RoleStatus.TERMINATED:
            self._put(replace(member, life=replace(life, status=line.status)))
        elif line.status in NEXT[life.status]:
            self._put(replace(member, life=moved(member.id, life, line.status, line.at)))

    # --- events -------------------------------------------------------------------------------------------------------

    def _decide(self, event: Event, member: str, named: bool, then: RecordedDecision | None) -> None:
        if named and member not in self._members:  # posting it would be refused
            gone = TriedEvent(event=event, then=then, member=member, trail=(), decisions=(), result="refused")
            self._tried.append(replace(gone, code=UnknownMember.code))
            return
        member, trail, decisions = self._routed(event, member, named=named)
        made = TriedEvent(event=event, then=then, member=member, trail=trail, decisions=decisions, result="")
        first, actions = decisions[0], {each.action for each in decisions}
        if first.operator_id == SPAWN:
            code = self._spawn(member, first.input_data or {})
            made = replace(made, result="failed" if code else "done", code=code)
        elif first.operator_id is None:
            made = replace(made, result="ignored" if first.action == "ignore" else "escalated")
        else:
            made = self._ran(made, first, actions)
        self._tried.append(made)

    def _routed(
        self, event: Event, member: str, *, named: bool
    ) -> tuple[str, tuple[str, ...], tuple[RoutingDecision, ...]]:
        """The member that decides, those that forward the event before, and all that it can decide."""
        trail: tuple[str, ...] = ()
        while True:
            found, owner = self._members.get(member), self._config.owner
            if not named and (found is None or found.life.status not in LIVE):
                found = self._roster.owner_of(event.domain)
                member = member if found is None else found.id
            if found is None:
                return member, trail, (unrouted(event, member if named else "", owner),)
            possible = [
                bounded(each, event, member, trail, owner)
                for trust in self._trust[member].possible()
                for each in [route_as(found.spec, found.life.status, trust, event, self._roster)]
            ]
            if possible[0].action != "forward":
                return member, trail, tuple(each for i, each in enumerate(possible) if each not in possible[:i])
            trail, member = (*trail, member), str(possible[0].target_role_id)

    def _ran(self, made: TriedEvent, first: RoutingDecision, actions: Set[str]) -> TriedEvent:
        """What came of an operator's run, as far as it is known, and the trust after it."""
        then, same = made.then, False
        if then is not None and then.decision.operator_id == first.operator_id:
            same = then.result in _RAN or actions == {then.decision.action}
        delegated = actions == {"delegate"}
        asked: bool | None = True if actions == {"escalate"} else None
        episode, capability = f"event.{part_of(made.event.id)}", str(first.capability)
        self._runs[episode] = run = _Run(made.member, capability, known=same)
        if then is None or not same:
            run.counted = True
            self._trust[made.member].add(episode, capability, 0, GOOD)
            return replace(made, result=UNKNOWN, asked=asked)
        if delegated and then.decision.action == "delegate":
            asked = _asked(then)
        outcome = self._outcomes.get(made.event.id)
        if delegated and then.decision.action == "escalate" and outcome is not None:  # without a person, at once
            self._count(outcome)
        return replace(made, result=then.result or then.state, code=then.code, asked=asked, cost=then.cost)

    def _spawn(self, spawner: str, given: Mapping[str, Any]) -> str:
        """Make the member of a directive; returns the code of the error, or nothing."""
        name, brief = str(given["template_id"]), thawed(given.get("brief"))
        try:
            if brief is not None or self._config.policy.brief == "required":
                TaskBrief() if brief is None else TaskBrief.from_json(brief)
            template, parent = check_spawner(self._templates.get(name), name, spawner), self._parent(spawner)
            self._make(*spec_of(self._config, template, thawed(given["params"]), parent), spawner)
        except WorldAgentError as error:
            return error.code
        return ""

    def _count(self, line: RecordedOutcome) -> None:
        """Let a recorded outcome change the trust of its member, once; it can be another member than in the week."""
        run = self._runs.get(line.episode)
        if run is None and not line.event and line.member in self._members:
            run = self._runs[line.episode] = _Run(line.member, line.capability, known=True)
        if run is not None and run.known and not run.counted:
            run.counted = True
            self._trust[run.member].add(line.episode, run.capability, change_of(line.succeeded, None))


def _of(kind: type[T], week: Iterable[Recorded]) -> list[T]:
    return [each for each in week if isinstance(each, kind)]


def _asked(then: RecordedDecision) -> bool:
    """Whether a person was asked about an event."""
    escalated = then.decision.action == "escalate" and then.decision.operator_id is not None
    return escalated or bool(then.approvals) or then.state == "paused"
