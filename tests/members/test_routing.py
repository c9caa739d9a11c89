"""What a member does with an event, against a second statement of the rules as a table (A2, A7, A8, A9)."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.role_specs import spec_of
from worldagent.agent.runtime.inside import AgentRuntime
from worldagent.core.errors import InvalidArgument
from worldagent.members import (
    AuthorityConfig,
    AutonomousRole,
    Event,
    KeyResult,
    Members,
    Objective,
    RoleSpec,
    RoleTemplate,
    Route,
    TaskBrief,
    WorkspaceConfig,
)
from worldagent.members.data.roles import RoleLifecycle, RoleStatus, TrustProfile
from worldagent.members.data.workspace import RoutingDecision
from worldagent.members.events.routing import Roster, route
from worldagent.members.life.members import Member

pytestmark = pytest.mark.requirement("A2")

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DOMAINS = ("revenue", "marketing")
OPERATORS = ("ops", "intel", "mailer")
TYPES = ("lead.created", "lead.lost", "deal.stalled", "directive.spawn")
CAPABILITIES = ("qualify", "nurture", "lead.created", "lead.lost")
GLOBS = ("lead.created", "lead.*", "*", "deal.*", "*.lost", "directive.*")
SOURCES = ("charles", "user", "boss", "hubspot")
NAMES = ("a", "b", "c", "d")


def member(spec: RoleSpec, status: RoleStatus = RoleStatus.ACTIVE, trust: TrustProfile | None = None) -> Member:
    life = RoleLifecycle(status=status, created_at=NOW, created_by="charles")
    return Member(spec=spec, name=spec.role_id, interface=None, life=life, trust=trust or TrustProfile(default=0.5))


def event(kind: str = "lead.created", domain: str = "revenue", **more: Any) -> Event:
    given: dict[str, Any] = {"id": "e1", "source": "hubspot", "payload": {"lead": 7}, "timestamp": NOW}
    return Event(type=kind, domain=domain, **given | more)


@st.composite
def authorities(draw: st.DrawFn) -> AuthorityConfig:
    where = {
        each: draw(st.sampled_from(("autonomous", "autonomous", "needs_approval", "forbidden", "")))
        for each in CAPABILITIES
    }
    lists = {
        level: [each for each in where if where[each] == level]
        for level in ("autonomous", "needs_approval", "forbidden")
    }
    return AuthorityConfig(**lists)  # type: ignore[arg-type] # lists become tuples


ROUTES = st.builds(
    Route,
    event=st.sampled_from(GLOBS),
    operator=st.sampled_from(OPERATORS),
    trigger=st.sampled_from(("", "new")),
    capability=st.sampled_from(("", *CAPABILITIES)),
)
PROFILES = st.builds(
    TrustProfile,
    scores=st.dictionaries(st.sampled_from(CAPABILITIES), st.sampled_from((0, 0.29, 0.3, 0.31, 0.5, 0.7, 0.71, 1))),
    default=st.sampled_from((0.0, 0.29, 0.3, 0.5, 0.7, 0.71, 1.0)),
)


@st.composite
def members(draw: st.DrawFn, name: str) -> Member:
    spec = spec_of(
        name,
        domains=draw(st.sampled_from((DOMAINS, DOMAINS, ("revenue",), ("marketing",), ()))),
        reports_to=draw(st.sampled_from(("", "boss", "charles"))),
        operator_ids=draw(st.sampled_from((OPERATORS, OPERATORS, OPERATORS[:2], OPERATORS[:1], TYPES[:1], TYPES, ()))),
        authority=draw(authorities()),
        routes=draw(st.lists(ROUTES, max_size=4)),
    )
    return member(spec, draw(st.sampled_from((*[RoleStatus.ACTIVE] * 15, *RoleStatus))), draw(PROFILES))


@st.composite
def rosters(draw: st.DrawFn) -> Roster:
    found = [draw(members(name)) for name in draw(st.permutations(NAMES))]
    return Roster.of(WorkspaceConfig(id="novel", owner="charles"), found)


EVENTS = st.builds(
    event,
    st.sampled_from((*TYPES, *TYPES[:2])),
    st.sampled_from((*DOMAINS * 4, "product", "Revenue")),
    source=st.sampled_from(SOURCES),
    source_verified=st.booleans(),
    payload=st.sampled_from(
        ({}, {"template_id": "bdr"}, {"template_id": "bdr", "params": {"t": "APAC"}, "x": 1}, {"params": {}})
    ),
    metadata=st.sampled_from(({}, {"source_verified": True, "source": "charles"})),
)


# --- the rules once more ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """All that the rules look at."""

    spec: RoleSpec
    status: str
    event: Event
    others: list[str]
    capability: str
    level: str
    hundredths: int
    runs: str | None

    @property
    def mine(self) -> bool:
        return self.event.domain in self.spec.domains

    @property
    def spawn(self) -> bool:
        return self.event.type == "directive.spawn"

    @property
    def from_superior(self) -> bool:
        return self.event.source_verified and self.event.source in ("charles", "user", self.spec.reports_to)


RULES: list[tuple[Callable[[Case], bool], str]] = [
    (lambda c: c.status not in ("active", "testing"), "ignore"),
    (lambda c: not c.mine and bool(c.others), "forward"),
    (lambda c: not c.mine, "ignore"),
    (lambda c: c.spawn and c.from_superior and "template_id" in c.event.payload, "spawn"),
    (lambda c: c.spawn, "escalate"),
    (lambda c: c.level == "forbidden", "escalate"),
    (lambda c: c.runs not in c.spec.operator_ids, "escalate"),
    (lambda c: c.level == "needs_approval", "ask"),
    (lambda c: c.hundredths < 30, "ask"),
    (lambda c: c.hundredths <= 70, "report"),
    (lambda c: True, "log"),
]
"""The first rule that holds decides."""


def fits(glob: str, kind: str) -> bool:
    """Whether one of `GLOBS` fits a type, without the code's way of matching."""
    before, star, after = glob.partition("*")
    return kind.startswith(before) and kind.endswith(after) if star else kind == glob


def named(spec: RoleSpec, kind: str) -> str | None:
    """The operator that names lead to where no route fits."""
    if kind in spec.operator_ids:
        return kind
    alone = not spec.routes and len(spec.operator_ids) == 1
    return spec.operator_ids[0] if alone and kind in spec.authority.autonomous + spec.authority.needs_approval else None


def case_of(one: Member, happened: Event, roster: Roster) -> Case:
    spec = one.spec
    chosen = next((each for each in spec.routes if fits(each.event, happened.type)), None)
    capability = chosen.capability if chosen and chosen.capability else happened.type
    level = next(
        (each for each in ("forbidden", "autonomous") if capability in getattr(spec.authority, each)), "needs_approval"
    )
    return Case(
        spec=spec,
        status=one.life.status.value,
        event=happened,
        others=[
            each.id
            for each in roster.members.values()
            if happened.domain in each.spec.domains and each.life.status.value in ("active", "testing")
        ],
        capability=capability,
        level=level,
        hundredths=round(100 * one.trust.scores.get(capability, one.trust.default)),
        runs=chosen.operator if chosen else named(spec, happened.type),
    )


def kind_of(made: RoutingDecision) -> str:
    if made.action == "delegate":
        return "spawn" if made.operator_id == "role.spawn" else str(made.monitoring)
    return "ask" if made.action == "escalate" and made.operator_id else made.action


@given(rosters(), EVENTS)
def test_each_event_is_decided_as_the_rules_say(roster: Roster, happened: Event) -> None:
    for one in roster.members.values():
        case = case_of(one, happened, roster)
        made = route(one, happened, roster)
        assert kind_of(made) == next(outcome for holds, outcome in RULES if holds(case))
        assert dataclasses.replace(made) == made  # its own checks accept it
        match kind_of(made):
            case "forward":
                assert made.target_role_id == case.others[0] != one.id
            case "escalate" | "ask":
                assert made.target_role_id == (one.spec.reports_to or "charles")
            case _:
                assert made.target_role_id is None
        if kind_of(made) in ("ask", "report", "log"):
            assert (made.operator_id, made.capability, made.input_data) == (
                case.runs,
                case.capability,
                happened.payload,
            )


@given(rosters(), EVENTS)
def test_routing_is_the_same_each_time_and_changes_nothing(roster: Roster, happened: Event) -> None:
    before = repr((roster, happened))
    for one in roster.members.values():
        made = route(one, happened, roster)
        assert made == route(one, happened, roster)
        assert made == route(one, happened, dataclasses.replace(roster))
        assert made == AutonomousRole(one.spec, lifecycle=one.life, trust=one.trust, roster=roster).handle(happened)
        assert made == AutonomousRole(one.spec).handle(happened, roster)
    assert repr((roster, happened)) == before


@pytest.mark.requirement("A8")
@given(rosters(), EVENTS, PROFILES, st.sampled_from((0.01, 0.2, 0.41, 1.0)))
def test_more_trust_never_brings_more_friction(
    roster: Roster, happened: Event, trust: TrustProfile, more: float
) -> None:
    friction = {"log": 0, "report": 1, "ask": 2}
    raised = TrustProfile(
        scores={each: min(1.0, score + more) for each, score in trust.scores.items()},
        default=min(1.0, trust.default + more),
    )
    for one in roster.members.values():
        less, plus = (route(dataclasses.replace(one, trust=each), happened, roster) for each in (trust, raised))
        if kind_of(less) in friction:
            assert friction[kind_of(plus)] <= friction[kind_of(less)]
            assert (less.operator_id, less.capability) == (plus.operator_id, plus.capability)
        else:
            assert less == plus


@pytest.mark.requirement("A8")
@pytest.mark.parametrize(
    ("trust", "expected"),
    [(0.29, "ask"), (0.30, "report"), (0.70, "report"), (0.71, "log"), (0.0, "ask"), (1.0, "log")],
)
def test_both_ends_belong_to_the_middle_band(trust: float, expected: str) -> None:
    made = route(dataclasses.replace(crm(), trust=TrustProfile(default=trust)), event(), Roster())
    assert kind_of(made) == expected


# --- single rules -----------------------------------------------------------------------------------------------------


def crm(**more: Any) -> Member:
    given: dict[str, Any] = {
        "domains": ("revenue",),
        "operator_ids": ("ops",),
        "authority": AuthorityConfig(autonomous=("lead.created",)),
        "routes": (Route(event="lead.*", operator="ops"),),
    }
    return member(spec_of("crm", **(given | more)))


def test_domains_match_exactly_and_owners_are_found_in_the_order_of_registration() -> None:
    named = [
        ("asker", "active"),
        ("second", "draft"),
        ("third", "testing"),
        ("first", "active"),
        ("gone", "terminated"),
    ]
    roster = Roster(
        members={name: member(spec_of(name, domains=("sales",)), RoleStatus(status)) for name, status in named}
    )
    assert [each.id for each in roster.find_by_domain("sales", "asker")] == ["third", "first"]
    for asker, first in (("asker", "third"), ("third", "asker"), ("other", "asker")):
        found = roster.owner_of("sales", asker)
        assert (found and found.id) == first
    assert roster.owner_of("sale") is None
    assert roster.find_by_domain("Sales") == roster.find_by_domain("sale") == ()


def test_the_first_route_that_fits_names_operator_trigger_and_capability() -> None:
    routes = (
        Route(event="deal.*", operator="ops", capability="lead.created"),
        Route(event="*", operator="ops", trigger="new", capability="close"),
    )
    authority = AuthorityConfig(autonomous=("lead.created", "close"), forbidden=("deal.won", "lead.lost"))
    one = crm(routes=routes, authority=authority)
    made = [route(one, event(kind), Roster()) for kind in ("deal.won", "lead.lost")]
    assert [(each.action, each.trigger_id, each.capability) for each in made] == [
        ("delegate", None, "lead.created"),
        ("delegate", "new", "close"),
    ]


def test_a_roster_keeps_what_it_was_made_of() -> None:
    given = {"crm": crm()}
    roster = Roster(members=given)
    given.clear()
    assert list(roster.members) == ["crm"]
    with pytest.raises(TypeError):
        roster.members["x"] = crm()  # type: ignore[index] # that is the test


DIRECTIVE = {"template_id": "bdr", "params": {"territory": "APAC"}}


@pytest.mark.requirement("A9")
def test_a_directive_of_the_owner_is_delegated_with_template_and_params() -> None:
    order = event("directive.spawn", source="charles", source_verified=True, payload={**DIRECTIVE, "note": "x"})
    made = route(crm(authority=AuthorityConfig(forbidden=("directive.spawn",))), order, Roster(owner="charles"))
    assert (made.action, made.operator_id, dict(made.input_data or {})) == ("delegate", "role.spawn", DIRECTIVE)


@pytest.mark.requirement("A9")
@pytest.mark.parametrize(
    "given",
    [
        {"source": "charles"},
        {"source": "charles", "metadata": {"source_verified": True, "verified": "charles"}},
        {"source": "charles", "payload": {**DIRECTIVE, "source_verified": True}},
        {"source": "hubspot", "source_verified": True},
        {"source": "charles", "source_verified": True, "payload": {"template_id": 7}},
        {"source": "charles", "source_verified": True, "payload": {"template_id": "bdr", "params": "APAC"}},
    ],
)
def test_a_directive_that_the_gateway_does_not_verify_is_never_obeyed(given: dict[str, Any]) -> None:
    order = event("directive.spawn", "revenue", **{"payload": DIRECTIVE, **given})
    anything = crm(routes=(Route(event="*", operator="ops", capability="lead.created"),))
    made = route(dataclasses.replace(anything, trust=TrustProfile(default=1.0)), order, Roster(owner="charles"))
    assert (made.action, made.operator_id, made.target_role_id) == ("escalate", None, "charles")


@pytest.mark.requirement("A9")
@pytest.mark.parametrize("authority", [AuthorityConfig(autonomous=("lead.created",)), AuthorityConfig()])
def test_no_route_leads_to_a_spawn(authority: AuthorityConfig) -> None:
    spawner = crm(operator_ids=("role.spawn",), authority=authority, routes=(Route(event="*", operator="role.spawn"),))
    made = route(dataclasses.replace(spawner, trust=TrustProfile(default=1.0)), event(), Roster(owner="charles"))
    assert (made.action, made.operator_id) == ("escalate", None)


def test_the_hook_of_a_class_decides_what_runs_and_no_more() -> None:
    class Crm(AutonomousRole):
        role_id, workspace, soul = "crm", "novel", "You are the CRM."
        domains = ["revenue"]  # noqa: RUF012 # users write lists
        operator_ids = ["ops"]  # noqa: RUF012 # the same
        authority = AuthorityConfig(autonomous=("lead.created",), forbidden=("lead.lost",))
        trust = TrustProfile(default=0.8)

        def _match_operator(self, event: Event) -> tuple[str | None, str | None]:
            return {"lead.created": ("ops", "new"), "deal.stalled": ("intel", None)}.get(event.type, (None, None))

    role = Crm()
    made = role.handle(event())
    assert (made.action, made.operator_id, made.trigger_id, made.monitoring) == ("delegate", "ops", "new", "log")
    assert kind_of(role.handle(event("lead.lost"))) == "escalate"
    assert kind_of(role.handle(event("deal.stalled"))) == "escalate"  # not one of its operators
    assert kind_of(role.handle(event("deal.won"))) == "escalate"
    assert role.handle(event(domain="product")).action == "ignore"
    assert (role.can_act("lead.created"), role.can_act("lead.lost"), role.can_act("other")) == (
        "autonomous",
        "forbidden",
        "needs_approval",
    )


def test_the_last_roster_that_was_handed_over_is_read() -> None:
    role = AutonomousRole(crm().spec)
    seller = member(spec_of("seller", domains=("sales",)))
    assert role.handle(event(domain="sales")).action == "ignore"
    role.roster = Roster(members={"seller": seller})
    assert role.handle(event(domain="sales")).target_role_id == "seller"


def test_what_the_roster_says_of_a_member_counts_and_its_code_does() -> None:
    class Crm(AutonomousRole):
        def _match_operator(self, event: Event) -> tuple[str | None, str | None]:
            return "ops", "by code"

    stored = crm(authority=AuthorityConfig(), routes=())
    role = Crm(crm().spec, trust=TrustProfile(default=1.0))
    assert (role.handle(event()).action, role.handle(event()).trigger_id) == ("delegate", "by code")
    made = role.handle(event(), Roster(members={"crm": stored}))
    assert (kind_of(made), made.trigger_id) == ("ask", "by code")
    assert kind_of(AutonomousRole(crm().spec).handle(event(), Roster(members={"crm": stored}))) == "escalate"


def test_a_member_that_is_not_live_ignores_everything() -> None:
    for status in (RoleStatus.DRAFT, RoleStatus.SUSPENDED, RoleStatus.TERMINATED):
        life = RoleLifecycle(status=status, created_at=NOW, created_by="charles")
        assert AutonomousRole(crm().spec, lifecycle=life).handle(event()).action == "ignore"


@pytest.mark.requirement("A14")
def test_instances_share_no_data_and_a_definition_cannot_be_changed() -> None:
    class Crm(AutonomousRole):
        role_id, workspace, soul = "crm", "novel", "You are the CRM."
        domains = ["revenue"]  # noqa: RUF012 # users write lists

    one, listed = Crm(), Crm.domains
    assert isinstance(listed, list)
    listed.append("sales")
    assert (tuple(one.domains), one.spec.domains) == (("revenue",), ("revenue",))
    assert not isinstance(one.domains, list)
    with pytest.raises(AttributeError, match="'domains' is part of the definition of 'crm'"):
        one.domains = ["sales"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(one.spec, *("soul", "You are free."))
    with pytest.raises(InvalidArgument, match=r"Crm takes no 'colour'"):
        Crm(colour="red")


@pytest.mark.requirement("A14")
def test_a_soul_is_a_text_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("souls").mkdir()
    Path("souls/cro.md").write_text("You are the CRO.\n", encoding="utf-8")
    made = [AutonomousRole(role_id="cro", workspace="w", soul=soul).soul for soul in ("souls/cro.md", "Read notes.md")]
    assert made == ["You are the CRO.\n", "Read notes.md"]
    with pytest.raises(InvalidArgument, match=r"the soul 'souls/none.md' cannot be read: No such file"):
        AutonomousRole(role_id="cro", workspace="w", soul="souls/none.md")
    with pytest.raises(InvalidArgument, match=r"`soul` is the path 'souls/cro.md', and must be the text"):
        spec_of("cro", soul="souls/cro.md")


@pytest.mark.requirement("A5")
def test_goals_that_are_active_or_at_risk_are_those_of_a_prompt() -> None:
    def goal(name: str, status: Any, *results: KeyResult) -> Objective:
        return Objective(id=name, description=f"Goal {name}", status=status, key_results=results)

    leads = KeyResult(id="k", description="Qualify leads", target=200, current=142, unit="leads")
    goals = (goal("a", "at_risk", leads), goal("b", "achieved"), goal("c", "active"), goal("d", "abandoned"))
    role = AutonomousRole(crm(goals=goals).spec)
    assert [each.id for each in role.active_goals()] == ["a", "c"]
    assert role.goal_context() == ("- Goal a (at risk)\n  - Qualify leads: 142 of 200 leads, 71%\n- Goal c")
    assert AutonomousRole(crm().spec).goal_context() == ""
    assert role.handle(event()) == AutonomousRole(crm().spec).handle(event())


@pytest.mark.requirement("A5")
def test_nothing_that_a_model_can_call_or_write_has_goals() -> None:
    society = Members(WorkspaceConfig(id="novel", owner="charles"))
    functions = [*society.functions(AgentRuntime("novel"))]
    taken = {name for each in functions for name in each.input_schema["properties"]}
    assert {"to", "template", "brief"} <= taken
    assert not [name for name in taken if "goal" in name]
    for kind in (RoleTemplate, TaskBrief):  # what a model designs, and what it gives to a new member
        assert not [each.name for each in dataclasses.fields(kind) if "goal" in each.name]


def test_an_operator_without_a_route_is_found_by_its_name() -> None:
    """One name is enough: the event's type, which is the capability, and the operator."""
    authority = AuthorityConfig(autonomous=("qualify", "lead.created"), forbidden=("sign",))
    several = spec_of("cro", domains=("revenue",), operator_ids=("qualify", "sign"), authority=authority)
    single = dataclasses.replace(several, operator_ids=("qualify",))
    routed = dataclasses.replace(single, routes=(Route(event="lead.lost", operator="qualify"),))
    cases = [
        (several, "qualify", "delegate", "qualify"),
        (several, "sign", "escalate", None),  # the capability is forbidden
        (several, "lead.created", "escalate", None),  # which one is meant is not known
        (single, "lead.created", "delegate", "qualify"),
        (single, "deal.won", "escalate", None),  # nobody has said that it may
        (routed, "lead.created", "escalate", None),  # its routes say all that it runs
        (routed, "qualify", "delegate", "qualify"),
        (
            dataclasses.replace(single, authority=AuthorityConfig()),
            "qualify",
            "escalate",
            "qualify",
        ),  # asks a person
    ]
    for spec, kind, action, operator in cases:
        made = route(member(spec), event(kind), Roster())
        assert (made.action, made.operator_id) == (action, operator), kind
        assert made.capability in (None, kind)
    low = route(member(single, trust=TrustProfile(default=0.1)), event(), Roster())
    assert (low.action, low.operator_id, low.monitoring) == ("escalate", "qualify", "review")
