"""The file of a workspace: what loads, what is refused, how its members join, and what is not another's."""

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.role_specs import spec_of, workspace_of
from worldagent import Memory, Role, Storage, WorldAgent
from worldagent.agent.runtime.inside import inside
from worldagent.core.errors import InvalidArgument, RoleExists, UnknownContact, UnknownMember, WorkspaceInvalid
from worldagent.core.scope import account_of
from worldagent.harness.yaml import read_yaml
from worldagent.members import (
    AgentMemory,
    AuthorityConfig,
    Event,
    Gateway,
    RoleMessage,
    RoleSpec,
    Route,
    Society,
    WorkspaceConfig,
    load_workspace,
)
from worldagent.members.data.roles import Participant, RoleStatus, TrustProfile
from worldagent.members.workspace_file import read_workspace
from worldagent.memory.entries import Episode
from worldagent.testing import ScriptedLM, VirtualClock

pytestmark = pytest.mark.requirement("A1")

NOW = datetime(2026, 2, 18, tzinfo=UTC)
VIBE = """
# workspace config (YAML)
workspace: vibe-team
owner: charles
policy:
  max_roles: 100
  spawn_requires_approval: false

roles:
  - role_id: cro
    soul: souls/cro.md
    domains: [revenue, pipeline, deals]
    reports_to: charles
    operator_ids: [revenue_ops, company_intel]
    authority:
      autonomous: [qualify_lead, trigger_nurture, generate_report]
      needs_approval: [commit_deal_terms, change_pricing]
      forbidden: [sign_contracts, modify_own_authority]

role_templates:
  bdr:
    name_pattern: "BDR - {territory}"
    soul_template: |
      You are a BDR covering {territory}.
      Qualify inbound leads, do outbound prospecting.
    domains: [revenue]
    authority:
      autonomous: [qualify_lead, send_outreach]
      needs_approval: [schedule_demo]
      forbidden: [negotiate_price]
    operator_ids: [revenue_ops]
    parameters: [territory]
    allowed_spawners: [cro]
    spawn_signals:
      - id: volume_threshold
        description: "Lead volume in territory exceeds capacity"
        conditions:
          - metric: episodes_by_tag
            tag_field: territory
            threshold: 50
            window_days: 30
"""
"""A workspace of one company, with members, templates and rules."""


def written(folder: Path, text: str, *, soul: str = "You are the CRO.\n") -> Path:
    (folder / "souls").mkdir(exist_ok=True)
    (folder / "souls/cro.md").write_text(soul, encoding="utf-8")
    file = folder / "workspace.yaml"
    file.write_text(dedent(text), encoding="utf-8")
    return file


@pytest.mark.requirement("A9")
def test_the_example_of_the_design_loads_as_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = written(tmp_path, VIBE)
    with caplog.at_level(logging.WARNING, "worldagent.workspace"):
        config = load_workspace(file)
    assert (config.id, config.name, config.owner) == ("vibe-team", "vibe-team", "charles")
    [cro], bdr = config.roles, config.role_templates["bdr"]
    assert (cro.soul, cro.domains, cro.reports_to) == (
        "You are the CRO.\n",
        ("revenue", "pipeline", "deals"),
        "charles",
    )
    assert cro.authority.of("sign_contracts") == "forbidden"
    assert (bdr.template_id, bdr.parameters, bdr.spawn_signals[0].conditions[0].threshold) == (
        "bdr",
        ("territory",),
        50,
    )
    [warning] = caplog.messages
    assert warning.startswith(f"{file}:27: the template 'bdr' grants what its spawner 'cro' lacks: send_outreach")


def test_everything_that_a_file_can_say_is_read(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """
        workspace: studio
        name: The studio
        owner: dana
        language: zh
        policy: {brief: derived, memory_isolation: strict, default_trust: 0.5}
        people:
          - {id: eve, name: Eve}
        roles:
          - role_id: seller
            soul: You sell.
            reports_to: eve
            domains: [sales]
            operator_ids: [ops]
            authority: {autonomous: [close]}
            clearance: {domains: {sales: confidential}, default: public}
            goals:
              - id: grow
                description: Grow.
                key_results: [{id: leads, description: Leads, target: 200, current: 142.5, unit: leads}]
            trust: {scores: {close: 0.9}, default: 0.4}
            ttl: 90d
            memory_policy: delete
            routes:
              - {event: "deal.*", operator: ops, trigger: new, capability: close}
        role_templates:
          helper:
            name_pattern: "{name}"
            soul_template: souls/helper.md
            parameters: [name]
            allowed_spawners: [seller, root]
            default_trust: 0.6
            operator_ids: [ops]
            routes: [{event: "*", operator: ops}]
            interface_spec: {services: Helps., input_format: A text., output_format: A text.}
        """,
    )
    (tmp_path / "souls/helper.md").write_text("You help {name}.", encoding="utf-8")
    config = load_workspace(file)
    [seller] = config.roles
    assert (config.name, config.language, config.policy.default_trust) == ("The studio", "zh", 0.5)
    assert config.people == (Participant(id="eve", type="human", name="Eve"),)
    assert seller.clearance is not None
    assert seller.clearance.of("sales") == "confidential"
    assert seller.routes == (Route(event="deal.*", operator="ops", trigger="new", capability="close"),)
    assert seller.goals[0].key_results[0].progress == 142.5 / 200
    assert (seller.trust, seller.ttl, seller.memory_policy) == (
        TrustProfile(scores={"close": 0.9}, default=0.4),
        "90d",
        "delete",
    )
    helper = config.role_templates["helper"]
    assert (helper.soul_template, helper.default_trust) == ("You help {name}.", 0.6)


BASE = """\
workspace: w
owner: dana
roles:
  - role_id: cro
    soul: You are.
    operator_ids: [ops]
"""
TEMPLATE = "role_templates:\n  t:\n    name_pattern: T\n    soul_template: You are.\n"


@pytest.mark.parametrize(
    ("text", "line", "problem", "remedy"),
    [
        ("", 1, "the file must be a mapping", "write"),
        ("owner: dana", 1, "the file lacks 'workspace'", "add a line 'workspace: ...'"),
        (BASE + "polcy: {}", 7, "the file has no key 'polcy'", "did you mean 'policy'?"),
        (BASE + "    domain: [x]", 7, "'roles.0' has no key 'domain'", "did you mean 'domains'?"),
        (BASE + "    created_by: eve", 7, "'roles.0' has no key 'created_by'", "the keys are"),
        (BASE + "    domains: x", 7, "'roles.0.domains' must be a list, each item a text", "write a list"),
        (BASE + "    domains: [5]", 7, "'roles.0.domains.0' must be a text", "write a text in quotes"),
        (BASE + "    reports_to: cro2", 7, "'cro' reports to 'cro2'", "did you mean 'cro'?"),
        (BASE + "    reports_to: cro", 7, "'cro' report to each other in a circle", "let one of them"),
        (BASE + "    routes: [{event: a, operator: x}]", 7, "leads to 'x'", "use one of: ops"),
        (BASE + "    ttl: soon", 7, "`ttl` 'soon' is not a lifetime", "use 'task'"),
        (BASE + "    authority: {autonomous: [a], forbidden: [a]}", 7, "the capability 'a' is both", "keep it in one"),
        (BASE + "  - {role_id: cro, soul: You.}", 7, "the id 'cro' is used twice", "give each member"),
        (BASE + "  - {role_id: user, soul: You.}", 7, "the role_id 'user' is reserved", "use another id"),
        (BASE + "  - {role_id: b, soul: none.md}", 7, "the soul 'none.md' cannot be read: No such file", "create this"),
        (BASE + "  - You.", 7, "'roles.1' must be a mapping", "write 'key: value' lines"),
        (BASE + "policy: {max_roles: true}", 7, "'policy.max_roles' must be a whole number", "write a whole"),
        (BASE + "policy:\n  default_trust: 2", 8, "`default_trust` must be a number from 0 to 1", "pass for"),
        (BASE + "policy: {brief: never}", 7, "'policy.brief' must be one of required, derived", "write one of"),
        (BASE + "  - {role_id: b, soul: You.}\npolicy: {max_roles: 1}", 8, "there are 2 roles", "raise `max_roles`"),
        (BASE + TEMPLATE + "    allowed_spawners: [cto]", 11, "allows the spawner 'cto'", "the roles are: cro"),
        (BASE + TEMPLATE + "    parameters: [a]\n    template_id: t", 12, "has no key 'template_id'", "the keys are"),
        (BASE + TEMPLATE + "    parameters: [a]\n    domains: ['{a}']", 12, "a parameter: '{a}'", "write what all"),
        ("a: *b", 1, "anchors and aliases are not allowed", "write plain YAML"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line_and_a_remedy(
    tmp_path: Path, text: str, line: int, problem: str, remedy: str
) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(WorkspaceInvalid) as raised:
        load_workspace(file)
    assert raised.value.problem.startswith(f"{file}:{line}")
    assert problem in raised.value.problem
    assert remedy in str(raised.value.remedy)


def test_all_mistakes_of_a_file_are_found_at_once(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(BASE.replace("dana", "5").replace("[ops]", "ops") + TEMPLATE.replace("soul_", "sole_"))
    found = [each.problem.removeprefix(f"{file}:") for each in read_workspace(file).problems]
    assert found == [
        "2: 'owner' must be a text",
        "6: 'roles.0.operator_ids' must be a list, each item a text",
        "8: 'role_templates.t' lacks 'soul_template'",
        "10: 'role_templates.t' has no key 'sole_template'",
    ]
    with pytest.raises(WorkspaceInvalid, match=r"and 3 more: worldagent workspace check"):
        load_workspace(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceInvalid, match=r"none\.yaml' cannot be read: No such file"):
        load_workspace(tmp_path / "none.yaml")


@pytest.mark.requirement("A1", "C2")
def test_a_member_that_would_be_taken_for_somebody_else_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(f"{BASE}  - {{role_id: cr0, soul: You help.}}\npeople: [{{id: ana, name: World Agent}}]\n")
    problems = [each.problem for each in read_workspace(file).warnings]
    assert [each.partition(": ")[2] for each in problems] == [
        "the name 'World Agent' would be taken for the World Agent",
        "the id 'cr0' would be taken for 'cro'",
    ]


@pytest.mark.requirement("A9")
@pytest.mark.parametrize(
    ("role", "template", "warned"),
    [
        (
            "authority: {forbidden: [a]}",
            "authority: {autonomous: [a, b], needs_approval: [c]}",
            "a (forbidden there), b (",
        ),
        ("authority: {autonomous: [a, b]}", "authority: {autonomous: [a], forbidden: [b]}", ""),
        ("domains: []", "operator_ids: [ops, mail]", "mail"),
        ("clearance: {domains: {x: public}}", "clearance: {default: internal}", "x"),
        ("clearance: {default: public}", "domains: []", "default"),
        ("clearance: {default: internal}", "clearance: {default: public}", ""),
    ],
)
def test_a_template_that_grants_more_than_its_spawner_may_is_warned_of(
    tmp_path: Path, role: str, template: str, warned: str
) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(f"{BASE}    {role}\n{TEMPLATE}    allowed_spawners: [cro, root]\n    {template}\n")
    read = read_workspace(file)
    assert read.config is not None
    assert len(read.warnings) == bool(warned)
    if warned:
        assert f"grants what its spawner 'cro' lacks: {warned}" in read.warnings[0].problem


def test_members_of_a_template_can_be_spawners(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    pattern = TEMPLATE.replace("pattern: T", 'pattern: "Lead - {a} of {b}"')
    file.write_text(f"{BASE}{pattern}    parameters: [a, b]\n    allowed_spawners: [lead-x-of-y]\n")
    assert read_workspace(file).problems == ()
    file.write_text(f"{BASE}{pattern}    parameters: [a, b]\n    allowed_spawners: [lead-x]\n")
    assert len(read_workspace(file).problems) == 1


# --- joining ----------------------------------------------------------------------------------------------------------


def role(name: str, above: str = "", **more: Any) -> RoleSpec:
    return spec_of(name, workspace="w", **({"soul": "You are.", "reports_to": above} | more))


def workspace(*roles: RoleSpec, **more: Any) -> WorkspaceConfig:
    return WorkspaceConfig(id="w", owner="dana", roles=roles, **more)


def opened(config: WorkspaceConfig, home: Path) -> WorldAgent:
    return WorldAgent("w", lm=ScriptedLM([]), society=config, storage=Storage(home=home))


async def stored(config: WorkspaceConfig, home: Path) -> Mapping[str, Any]:
    async with opened(config, home) as agent:
        return {each.id: each for each in await agent.society.members.members("w")}


async def test_members_join_when_the_agent_opens_in_any_order(tmp_path: Path) -> None:
    config = workspace(role("c", "b"), role("b", "a"), role("d", "eve"), role("a"), people=(
        Participant(id="eve", type="human", name="Eve"),
    ))  # fmt: skip
    async with opened(config, tmp_path) as agent:
        members = await agent.society.members.members("w")
        assert [each.id for each in members] == ["c", "b", "d", "a"]
        assert {each.life.status for each in members} == {RoleStatus.ACTIVE}
        assert [each.id for each in await agent.society.contacts.list("c")] == ["b", "root"]
        assert await agent.society.bootstrap() == ()
    async with opened(config, tmp_path) as agent:
        assert await agent.society.members.members("w") == members


@pytest.mark.on_every_database
async def test_agents_that_open_at_once_add_each_member_once(tmp_path: Path) -> None:
    config = workspace(role("b", "a"), role("a"))
    async with opened(workspace(role("b")), tmp_path) as agent:
        each = [Society(config, inside(agent).stores.database) for _ in range(4)]
        changed = await asyncio.gather(*(society.bootstrap() for society in each))
        assert sorted(changed) == [(), (), (), ("b", "a")]
        assert [member.id for member in await agent.society.members.list_roles("w")] == ["b", "a"]


@pytest.mark.on_every_database
async def test_a_changed_definition_replaces_the_stored_one_and_nothing_else(tmp_path: Path) -> None:
    first = workspace(role("a"), role("b", "a", domains=("x", "y")))
    before = await stored(first, tmp_path)
    changed = role("b", "", domains=("y", "z"), soul="You are new.", trust=TrustProfile(default=0.9))
    async with opened(workspace(role("a"), changed), tmp_path) as agent:
        society = agent.society
        after = await society.members.member("w", "b")
        assert (after.spec, after.trust.default, after.life) == (changed, 0.9, before["b"].life)
        owners = [[each.id for each in await society.members.find_by_domain("w", domain)] for domain in "xyz"]
        assert owners == [[], ["b"], ["b"]]
        assert [each.id for each in await society.members.list_roles("w")] == ["a", "b"]
        assert {"a", "user"} <= {each.id for each in await society.contacts.list("b")}


@pytest.mark.requirement("A9")
async def test_what_a_changed_definition_takes_away_its_descendants_lose_too(tmp_path: Path) -> None:
    wide = AuthorityConfig(autonomous=("a", "b"), needs_approval=("c",))
    lead, below = (role(name, authority=wide, operator_ids=("x", "y")) for name in ("lead", "below"))
    async with opened(workspace(lead), tmp_path) as agent:
        for name, parent in (("child", "lead"), ("grandchild", "child")):
            await agent.society.join(replace(below, role_id=name, parent_role_id=parent, created_by=parent))
    less = replace(lead, authority=AuthorityConfig(autonomous=("a",), forbidden=("c",)), operator_ids=("x",))
    members = await stored(workspace(less), tmp_path)
    for name in ("child", "grandchild"):
        spec = members[name].spec
        assert [spec.authority.of(each) for each in "abc"] == ["autonomous", "needs_approval", "forbidden"]
        assert spec.operator_ids == ("x",)
    again = await stored(workspace(lead), tmp_path)
    assert (again["lead"].spec, again["child"].spec) == (lead, members["child"].spec)


async def test_a_member_that_is_not_named_any_more_stays_and_a_terminated_one_too(tmp_path: Path) -> None:
    async with opened(workspace(role("a"), role("b")), tmp_path) as agent:
        await agent.society.terminate("b")
    async with opened(workspace(role("b", soul="You are new.")), tmp_path) as agent:
        assert [each.id for each in await agent.society.members.list_roles("w")] == ["a"]
        ended = await agent.society.members.member("w", "b")
        assert (ended.life.status, ended.spec.soul) == (RoleStatus.TERMINATED, "You are.")


async def test_a_configuration_cannot_take_the_id_of_a_spawned_member(tmp_path: Path) -> None:
    await stored(workspace(role("a"), role("b", created_by="a", parent_role_id="a")), tmp_path)
    with pytest.raises(RoleExists, match="'b' of the configuration is a member that 'a' made"):
        await stored(workspace(role("a"), role("b")), tmp_path)


async def test_members_that_cannot_join_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="'a', 'b' report to each other in a circle"):
        await stored(workspace(role("a", "b"), role("b", "a")), tmp_path)
    with pytest.raises(InvalidArgument, match="'a' names 'nobody', which is not in the workspace"):
        await stored(workspace(role("a", "nobody")), tmp_path)
    for wrong in ({"people": (Participant(id="a", type="human"),)}, {"people": (Participant(id="x", type="role"),)}):
        with pytest.raises(InvalidArgument):
            workspace(role("a"), **wrong)
    with pytest.raises(InvalidArgument, match="'a' is of another workspace than 'v'"):
        WorkspaceConfig(id="v", owner="dana", roles=(role("a"),))


@pytest.mark.requirement("A9")
async def test_the_file_of_the_design_and_its_directive_make_the_member(tmp_path: Path) -> None:
    config = load_workspace(written(tmp_path, VIBE.replace("policy:\n", "policy:\n  brief: derived\n")))
    given = {"template_id": "bdr", "params": {"territory": "APAC"}}
    order = Event(id="e1", type="directive.spawn", source="charles", domain="revenue", payload=given, timestamp=NOW)
    lm = ScriptedLM(lambda call: {"result": "Ready."})
    async with WorldAgent("vibe-team", lm=lm, society=config, storage=Storage(home=tmp_path)) as agent:
        await agent.society.events.post(replace(order, id="e0"))  # from anyone who says that he is charles
        await agent.society.events.post(replace(order, source_verified=True))
        gateway = Gateway(agent)
        for _ in range(10):
            if not await gateway.deliver():
                break
        bdr = await agent.society.members.member("vibe-team", "bdr-apac")
        assert (bdr.spec.reports_to, bdr.spec.authority.of("send_outreach")) == ("cro", "needs_approval")
        assert bdr.spec.soul.startswith("You are a BDR covering APAC.")
        assert [each.id for each in await agent.society.members.list_roles("vibe-team")] == ["cro", "bdr-apac"]
        assert (
            "it is not verified that the event is from 'charles'"
            in (await agent.society.mail.inbox())[0].message.content
        )


ODD: st.SearchStrategy[Any] = st.sampled_from(
    ["", "x", "5", 5, -1, 0.5, True, None, [], [None], [[]], {}, {"a": None}, "\0", "a" * 300, 10**400]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of each value of a document."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, held in below for each in places(held, (*path, key)))]


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The document with another value at a path."""
    if not path:
        return value
    held = dict(document) if isinstance(document, dict) else list(document)
    held[path[0]] = put(held[path[0]], path[1:], value)
    return held


@given(st.data())
def test_a_file_with_a_value_that_does_not_belong_there_is_read_or_refused_with_its_line(data: st.DataObject) -> None:
    document = read_yaml(VIBE.replace("souls/cro.md", "You are.").encode(), name="w", error=WorkspaceInvalid).data
    path = data.draw(st.sampled_from(places(document)))
    changed = put(document, path, data.draw(ODD))
    with TemporaryDirectory() as folder:
        file = Path(folder, "w.yaml")
        file.write_text(json.dumps(changed), encoding="utf-8")
        read = read_workspace(file)
        assert (read.config is None) == bool(read.problems)
        assert all(each.problem.startswith(f"{file}:1") and each.remedy for each in read.problems)


# --- two workspaces ---------------------------------------------------------------------------------------------------


@pytest.mark.on_every_database
async def test_members_messages_memory_and_roles_of_one_workspace_are_not_those_of_another(tmp_path: Path) -> None:
    async with AsyncExitStack() as opened:
        first, second = [
            await opened.enter_async_context(
                WorldAgent(
                    workspace,
                    lm=ScriptedLM([]),
                    storage=Storage(home=tmp_path),
                    society=workspace_of(id=workspace, memory_isolation="shared_read"),
                    memory=Memory(),
                )
            )
            for workspace in ("w1", "w2")
        ]
        await first.society.join(spec_of("cro", workspace="w1", domains=("revenue",)))
        await first.society.join(spec_of("bdr", "cro", workspace="w1"))
        await second.society.join(spec_of("cro", workspace="w2"))
        # members
        assert [each.id for each in await second.society.members.list_roles("w2")] == ["cro"]
        assert await second.society.members.find_by_domain("w2", "revenue") == []
        with pytest.raises(UnknownMember):
            await second.society.members.member("w2", "bdr")
        # messages and events
        hello = RoleMessage(id="m1", type="notification", from_id="root", to_id="cro", content="Hello.")
        await first.society.mail.send("root", "cro", hello)
        assert await second.society.mail.waiting() == []
        with pytest.raises(UnknownContact):
            await second.society.mail.send("cro", "bdr", "Hello.", payload={"reason": "A test."})
        now = VirtualClock().now()
        await first.society.events.post(
            Event(id="e1", type="lead.created", source="shop", domain="revenue", payload={}, timestamp=now)
        )
        assert await second.society.events.list() == ()
        # memory
        await first.memory.add("The pipeline is in Lisbon.", account=account_of("w1", "cro"))
        episode = Episode(id="e1", role_id="cro", action="call", outcome={}, at=now, text="The pipeline.")
        await AgentMemory(first, "cro").record_episode(episode)
        memory = AgentMemory(second, "cro")
        assert [await memory.episodes(), await memory.recall("pipeline"), await memory.facts()] == [(), (), ()]
        for account in (account_of("w1", "cro"), account_of("w2", "cro"), None):
            assert await second.memory.search("pipeline", account=account) == ()
        # stored roles
        poet = Role("poet", "Answer in rhymes.")
        await first.roles.put("account", poet, scope_id=account_of("w1", "cro"))
        await first.roles.put("workspace", poet)
        assert await second.roles.get("account", scope_id=account_of("w2", "cro")) is None
        assert await second.roles.get("workspace") is None
        for tier, scope in (("workspace", "w1"), ("account", account_of("w1", "cro"))):
            for refused in (
                second.roles.put(tier, poet, scope_id=scope),
                second.roles.get(tier, scope_id=scope),
                second.roles.delete(tier, scope_id=scope),
            ):
                with pytest.raises(InvalidArgument, match="is not of the workspace 'w2'"):
                    await refused
            assert await second.roles.get(tier, scope_id=scope, other_workspace=True) == poet


@pytest.mark.requirement("A2")
def test_a_check_says_which_events_reach_nobody(tmp_path: Path) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(
        dedent("""
            workspace: team
            owner: charles
            roles:
              - role_id: cro
                soul: You are the CRO.
                domains: [revenue]
                operator_ids: [qualify]
                authority: {autonomous: [lead.created]}
              - role_id: bdr
                soul: You are a BDR.
                domains: [revenue]
                operator_ids: [qualify, call]
                routes:
                  - {event: "lead.*", operator: qualify}
                  - {event: lead.created, operator: call}
                  - {event: deal.won, operator: call}
              - role_id: clerk
                soul: You are the clerk.
                operator_ids: [qualify]
                routes: [{event: "note.?", operator: qualify}, {event: "note.*", operator: qualify}]
              - role_id: desk
                soul: You are the desk.
                domains: [desk, revenue]
                operator_ids: [qualify]
            role_templates:
              helper:
                name_pattern: Helper
                soul_template: You help.
                domains: [revenue]
                operator_ids: [qualify]
                authority: {needs_approval: [qualify]}
        """),
        encoding="utf-8",
    )
    read = read_workspace(file)
    assert (read.problems, read.warnings) == ((), ())
    assert [each.problem.removeprefix(f"{file}:") for each in read.hints] == [
        "12: no event goes to 'bdr' first: those of its domains go to 'cro'",
        "16: the route of 'lead.created' is never used, because that of 'lead.*' comes first",
        "21: 'clerk' has `routes` and no `domains`, so no event reaches them",
        "22: 'desk' has domains and operators, and no `routes`, so each event is escalated whose type is not the id of"
        " an operator",
    ]
