"""Random policies, members and calls: a hand-over widens neither what the person nor what the member may do (A21)."""

import itertools
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

from support.agents import calls, scripted_agent
from support.role_specs import spec_of
from worldagent import Policy, Rule, WorldAgent, flow, tool
from worldagent.agent.thread import as_member
from worldagent.core import Scope
from worldagent.core.errors import PolicyInvalid
from worldagent.core.marks import class_mark, mark_of
from worldagent.graphs import TurnRequest
from worldagent.graphs.speaking import Speaker
from worldagent.harness import Function
from worldagent.harness.gate import Gate
from worldagent.members import AuthorityConfig, Gateway, RoleSpec, WorkspaceConfig
from worldagent.members.data.roles import ClearanceProfile, RoleLifecycle, RoleStatus, TrustProfile
from worldagent.members.life.members import Member
from worldagent.members.workers import trust_in, worker_of
from worldagent.memory.entries import Reader
from worldagent.memory.entries.entry import CLASSIFICATIONS
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("A21")

NAMES = ("look", "price", "burn", "plan")
CALLERS = ("*", "converse", "bdr", "plan", "p*")
HOMES = itertools.count()

Made = tuple[Counter[str], bool]
"""How often each function ran before the turn ended or waited for a person, and whether it waits."""


def functions(made: Counter[str]) -> list[Function]:
    @tool(risk="read_only")
    async def look() -> str:
        made["look"] += 1
        return "calm"

    @tool(risk="write")
    async def price() -> str:
        made["price"] += 1
        return "set"

    @tool(risk="destructive")
    async def burn() -> str:
        made["burn"] += 1
        return "burnt"

    @flow(risk="write")
    async def plan(ctx: Any) -> str:
        made["plan"] += 1
        return str(await ctx.call("price", {}))

    return [look, price, burn, plan]


RULES = st.builds(
    Rule,
    decision=st.sampled_from(("approve", "approve", "ask", "refuse")),
    function=st.sampled_from(("*", *NAMES)),
    caller=st.sampled_from(CALLERS),
    times=st.integers(1, 3),
    optional=st.just(True),
)
LEVELS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(("autonomous", "needs_approval", "forbidden")))


def authority(levels: dict[str, str]) -> AuthorityConfig:
    named = {level: tuple(name for name, each in levels.items() if each == level) for level in {*levels.values()}}
    return AuthorityConfig(**named)


def policy_of(rules: list[Rule], default: Any) -> Policy:
    try:
        return Policy(rules=tuple(rules), default=default)
    except PolicyInvalid:  # a rule is never used
        reject()


def member_of(levels: dict[str, str], operators: set[str], trust: float) -> RoleSpec:
    more: dict[str, Any] = {"authority": authority(levels), "trust": TrustProfile(default=trust)}
    return spec_of("bdr", operator_ids=tuple(sorted(operators)), **more)


POLICIES = st.builds(policy_of, st.lists(RULES, max_size=4), st.sampled_from(("ask", "refuse")))
MEMBERS = st.builds(member_of, LEVELS, st.sets(st.sampled_from(NAMES)), st.sampled_from((0.3, 0.95)))
WANTED = st.lists(st.sampled_from(NAMES), min_size=1, max_size=6)
STRICT = ("approve", "ask", "refuse")


ONCE = Rule(decision="approve", function="price", times=1)
OFTEN = Rule(decision="approve", function="price", caller="bdr", times=3, optional=True)


@given(policy=POLICIES, spec=MEMBERS, wanted=WANTED, status=st.sampled_from(("testing", "active")))
@example(  # each rule has a limit of its own
    policy=Policy(rules=(OFTEN, ONCE)),
    spec=member_of({"price": "autonomous"}, {"price"}, 0.3),
    wanted=["price", "price"],
    status="active",
)
def test_the_gate_is_as_strict_as_for_the_person_and_as_for_the_member(
    policy: Policy, spec: RoleSpec, wanted: list[str], status: str
) -> None:
    life = RoleLifecycle(status=RoleStatus(status), created_at=datetime.now(UTC), created_by="ana")
    trust = TrustProfile() if spec.trust is None else spec.trust
    worker = worker_of(
        Member(spec=spec, name="BDR", interface=None, life=life, trust=trust),
        WorkspaceConfig(id="novel", owner="ana"),
        (),
    )
    known = {each.name: each for each in functions(Counter())}
    scope = Scope(workspace="novel", account="ana", thread="t1")
    person = TurnRequest("message", scope, {})
    own = replace(person, on_behalf_of="bdr")
    handed = replace(own, speaker=speaker(ClearanceProfile()))
    decided: list[list[str]] = []
    for request in (person, own, handed):
        found = None if request.handed else lambda caller, callee: trust_in(trust, callee)
        gate = Gate(policy, workers={"bdr": worker}, trust=found)
        decided.append([gate.decide(known[name], {}, request.caller).decision for name in wanted])
    for place, verdicts in enumerate(zip(*decided, strict=True)):
        most = max(map(STRICT.index, verdicts[:2]))
        assert STRICT.index(verdicts[2]) >= most, (wanted, place, decided)


async def outcome(agent: WorldAgent, turn: Any, made: Counter[str]) -> Made:
    found = await turn
    had = Counter(made)
    made.clear()
    return had, found.status == "paused"


@settings(max_examples=6)
@given(policy=POLICIES, spec=MEMBERS, wanted=WANTED)
async def test_what_a_member_does_for_a_person_both_could_do(
    tmp_path_factory: pytest.TempPathFactory, policy: Policy, spec: RoleSpec, wanted: list[str]
) -> None:
    made: Counter[str] = Counter()

    def act(call: ScriptedCall) -> dict[str, Any]:
        output = "result" if "message_id" in call.fields or "task" in call.fields else "reply"
        done = {output: "Done."}
        if call.steps or (output == "reply" and call.fields["message"] == "Hello."):
            return done
        return {output: "", **calls(*((name, {}) for name in wanted))}

    config = WorkspaceConfig(id="novel", owner="ana", roles=(spec,))
    home = tmp_path_factory.mktemp("handing") / str(next(HOMES))
    tools = functions(made)
    async with scripted_agent(home, ScriptedLM(act), tools=tools, society=config, policy=policy) as agent:
        person = await outcome(agent, agent.thread("t1", account="ana").converse("Do it."), made)
        await Gateway(agent).enlist("bdr")
        own = as_member(agent.thread("member bdr", account="member:novel/bdr"), "bdr")
        task = {"worker": "bdr", "request": '{"message": "Do it."}'}
        member = await outcome(agent, own.task("subagent", task), made)
        thread = agent.thread("t2", account="ana")
        await thread.converse("Hello.")
        await thread.hand_over("bdr")
        handed = await outcome(agent, thread.converse("Do it."), made)
    for name in NAMES:
        most = min(person[0][name], member[0][name])
        assert handed[0][name] <= most, (name, person, member, handed)


PROFILES = st.builds(
    ClearanceProfile,
    domains=st.dictionaries(st.sampled_from(("sales", "law")), st.sampled_from(CLASSIFICATIONS)),
    default=st.sampled_from(CLASSIFICATIONS),
)
MARKS = st.one_of(
    st.builds(class_mark, st.sampled_from(CLASSIFICATIONS), st.sampled_from(("", "sales", "law", "x" * 300))),
    st.builds(mark_of, st.lists(st.sampled_from(("bdr", "b*", "*@novel.com", "cro")), max_size=2).map(tuple)),
    st.sampled_from(("page", "message:cro", "account:ana")),
)


def speaker(profile: ClearanceProfile) -> Speaker:
    reader = Reader(workspace="novel", clearance=profile.default, domains=profile.domains)
    return Speaker(member="bdr", reader=reader)


@given(profile=PROFILES, marks=st.frozensets(MARKS, max_size=4), more=MARKS)
def test_a_text_made_of_more_is_shown_to_no_more_members(
    profile: ClearanceProfile, marks: frozenset[str], more: str
) -> None:
    seen = speaker(profile)
    assert seen.admits({*marks, more}) <= seen.admits(marks)
    assert seen.admits(marks) <= speaker(replace(profile, default="secret", domains={})).admits(marks)
    if seen.admits(marks):
        assert profile.admits("internal")
        for mark in marks:
            level, _, domain = mark.removeprefix("classified:").partition(":")
            assert not mark.startswith("classified:") or profile.admits(level, domain)  # type: ignore[arg-type]
            assert not mark.startswith("readers:") or "bdr" in mark or "b*" in mark
