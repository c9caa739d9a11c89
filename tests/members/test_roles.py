"""Members and workspaces as data."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.role_specs import template_of
from worldagent.core.errors import InvalidArgument
from worldagent.members import (
    AuthorityConfig,
    Event,
    KeyResult,
    Objective,
    RoleSpec,
    WorkspaceConfig,
    WorkspacePolicy,
)
from worldagent.members.data.roles import (
    ClearanceProfile,
    Participant,
    RoleLifecycle,
    RoleStatus,
    TrustProfile,
    update_trust,
)
from worldagent.members.data.workspace import RoutingDecision, SpawnCondition, SpawnSignal
from worldagent.memory.entries import Episode

NOW = datetime(2026, 2, 18, tzinfo=UTC)
LEVELS = ("autonomous", "needs_approval", "forbidden")
CLASSES = ("public", "internal", "confidential", "secret")


def spec(**more: Any) -> RoleSpec:
    given: dict[str, Any] = {"role_id": "cro", "workspace": "w", "soul": "You are the CRO.", "domains": ["revenue"]}
    given |= {"reports_to": "charles", "operator_ids": ["revenue_ops"], "authority": AuthorityConfig()}
    return RoleSpec(**(given | more))


def episode(**outcome: Any) -> Episode:
    return Episode(id="e", role_id="cro", action="qualify_lead", outcome=outcome, at=NOW)


@pytest.mark.parametrize(
    ("feedback", "success", "after"),
    [
        ("good", False, 0.35),
        ("bad", True, 0.15),
        (None, True, 0.35),
        (None, False, 0.3),
    ],
)
def test_what_a_person_says_outranks_the_outcome(feedback: Any, success: bool, after: float) -> None:
    before = TrustProfile()
    assert update_trust(before, episode(success=success), feedback).trust_for("qualify_lead") == after
    assert before.scores == {}


CAPABILITY = st.sampled_from(["a", "b", "c", "d"])


@st.composite
def authorities(draw: st.DrawFn) -> AuthorityConfig:
    level = {name: draw(st.sampled_from((*LEVELS, ""))) for name in "abcd"}
    return AuthorityConfig(**{each: tuple(name for name in level if level[name] == each) for each in LEVELS})


@given(authorities(), authorities())
def test_authority_under_a_ceiling_is_the_narrower_of_the_two(own: AuthorityConfig, ceiling: AuthorityConfig) -> None:
    narrow = own.within(ceiling)
    for capability in "abcde":
        assert narrow.of(capability) == max(own.of(capability), ceiling.of(capability), key=LEVELS.index)


@given(
    *[
        st.builds(
            ClearanceProfile,
            domains=st.dictionaries(CAPABILITY, st.sampled_from(CLASSES)),
            default=st.sampled_from(CLASSES),
        )
        for _ in range(2)
    ]
)
def test_clearance_under_a_ceiling_is_the_lower_of_the_two(own: ClearanceProfile, ceiling: ClearanceProfile) -> None:
    narrow = own.within(ceiling)
    for domain in "abcde":
        assert narrow.of(domain) == min(own.of(domain), ceiling.of(domain), key=CLASSES.index)
        assert not narrow.admits("secret", domain) or (
            own.admits("secret", domain) and ceiling.admits("secret", domain)
        )


def test_clearance_is_internal_where_nothing_is_said() -> None:
    assert ClearanceProfile().of("revenue") == "internal"


def test_progress_is_at_most_1_and_0_without_a_target() -> None:
    assert [KeyResult(id="k", description="d", target=each, current=142).progress for each in (200, 100, 0)] == [
        0.71,
        1.0,
        0.0,
    ]


@pytest.mark.requirement("A1")
def test_defaults_are_those_of_the_source_and_not_shared() -> None:
    policy = WorkspacePolicy()
    assert (policy.max_roles, policy.default_trust, policy.spawn_requires_approval) == (100, 0.3, False)
    assert (policy.memory_isolation, policy.brief, policy.discovery) == ("strict", "required", "introduced")
    one, other = (WorkspaceConfig(id=each, owner="charles") for each in "ab")
    assert one.name == "a"
    assert one.role_templates is not other.role_templates
    for read_only in (one.role_templates, Participant(id="p", type="human").metadata, TrustProfile().scores):
        with pytest.raises(TypeError):
            read_only["x"] = 1  # type: ignore[index] # it is read-only


def test_data_shares_nothing_with_what_it_was_made_of() -> None:
    payload = {"lead": {"tags": ["hot"]}}
    event = Event(id="1", type="lead.created", source="hubspot", domain="revenue", payload=payload, timestamp=NOW)
    payload["lead"]["tags"].append("cold")
    assert event.payload["lead"]["tags"] == ("hot",)
    made = spec(domains=(domains := ["revenue"]))
    domains.append("pricing")
    assert made.domains == ("revenue",)
    assert made.to_json()["authority"] == {"autonomous": [], "needs_approval": [], "forbidden": []}


@pytest.mark.parametrize(
    ("named", "make"),
    [
        ("role_id 'CRO'", lambda: spec(role_id="CRO")),
        ("'root' is reserved", lambda: spec(role_id="root")),
        ("'user' is reserved", lambda: spec(role_id="user")),
        ("`soul`", lambda: spec(soul=" ")),
        ("`domains` must be a list", lambda: spec(domains="revenue")),
        ("`authority`", lambda: spec(authority={})),
        ("`goals`", lambda: spec(goals=["grow"])),
        ("`ttl` 'soon'", lambda: spec(ttl="soon")),
        ("`ttl` '0d'", lambda: spec(ttl="0d")),
        ("`memory_policy`", lambda: spec(memory_policy="burn")),
        ("'sign' is both", lambda: AuthorityConfig(autonomous=("sign",), forbidden=("sign",))),
        ("`classification`", lambda: ClearanceProfile(default="top")),  # type: ignore[arg-type]
        ("`default`", lambda: TrustProfile(default=1.5)),
        ("scores", lambda: TrustProfile(scores={"a": float("nan")})),
        ("`target`", lambda: KeyResult(id="k", description="d", target=float("inf"))),
        ("`status`", lambda: Objective(id="o", description="d", status="lost")),  # type: ignore[arg-type]
        ("`created_at`", lambda: RoleLifecycle(status="draft", created_at=None, created_by="c")),  # type: ignore[arg-type]
        (
            "`activated_at`",
            lambda: RoleLifecycle(
                status=RoleStatus.ACTIVE, created_at=NOW, created_by="c", activated_at=datetime(2026, 1, 1)
            ),
        ),
        ("`metric`", lambda: SpawnCondition(metric="luck", threshold=1)),  # type: ignore[arg-type]
        ("`tag_field`", lambda: SpawnCondition(metric="time_share", threshold=0.5)),
        ("`field`", lambda: SpawnCondition(metric="unique_entities", threshold=5)),
        ("no condition", lambda: SpawnSignal(id="s", description="d", conditions=())),
        (
            "extract_params",
            lambda: SpawnSignal(
                id="s",
                description="d",
                conditions=(SpawnCondition(metric="time_share", threshold=1, tag_field="t"),),
                extract_params={"territory": "guess"},
            ),
        ),
        ("`discovery`", lambda: WorkspacePolicy(discovery="all")),  # type: ignore[arg-type]
        ("`max_roles`", lambda: WorkspacePolicy(max_roles=0)),
        ("`spawn_requires_approval`", lambda: WorkspacePolicy(spawn_requires_approval="no")),  # type: ignore[arg-type]
        ("`language`", lambda: WorkspaceConfig(id="w", owner="o", language="fr")),  # type: ignore[arg-type]
        ("`role_templates`", lambda: WorkspaceConfig(id="w", owner="o", role_templates={"a": 1})),  # type: ignore[dict-item]
        ("has the key 'x'", lambda: WorkspaceConfig(id="w", owner="o", role_templates={"x": template_of("bdr")})),
        (
            "`timestamp`",
            lambda: Event(id="1", type="t", source="s", domain="d", payload={}, timestamp=None),  # type: ignore[arg-type]
        ),
        (
            "`payload`",
            lambda: Event(id="1", type="t", source="s", domain="d", payload={"a": object()}, timestamp=NOW),
        ),
        ("`action`", lambda: RoutingDecision(action="guess", reason="r")),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_field_is_named(named: str, make: Any) -> None:
    with pytest.raises(InvalidArgument) as refused:
        make()
    assert named in str(refused.value)


def test_times_of_a_life_are_kept_as_they_are() -> None:
    life = RoleLifecycle(
        status=RoleStatus.TERMINATED, created_at=NOW, created_by="charles", terminated_at=NOW + timedelta(days=1)
    )
    assert (life.status.value, life.memory_policy, life.activated_at) == ("terminated", "archive", None)
