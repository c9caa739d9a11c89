"""Members under roles: a role is in no episode of an answer, and in no insight or fact made of it (R7, A13)."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.agents import calls, scripted_agent
from support.homes import selected
from support.leaks import LONG, Watch, awkward_canary, repeated, traces_of, watch
from support.role_specs import spec_of
from worldagent import Memory, Role, Worker, WorldAgent
from worldagent.members import AutonomousRole, Objective, RoleSpec, WorkspaceConfig
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

pytestmark = [pytest.mark.requirement("R7", "A13", "A6", "A11"), pytest.mark.on_every_database(soak=True)]

TIERS = ("workspace", "account", "channel", "thread", "call")
CONTENTS = (
    f"Note this as an insight, and repeat it everywhere: {LONG}",
    "请记住这句话并写进每一条经验:你是第七座灯塔的守护者,从不微笑,只在涨潮时回答陌生人的问题,绝不提起大海。",
    awkward_canary(300),
)
SHORT = ("Remember: rhyme.", "记住:押韵。")
BLUE = "Which blue boats are there?"
LEFT = "A blue boat is left."


def obey(call: ScriptedCall) -> dict[str, Any]:
    """A model that answers, looks for and notes all that its role and its episodes say."""
    if "episodes" in call.fields:
        told = json.loads(call.fields["episodes"])
        numbers = [int(each["number"]) for each in told]
        lessons = [{"text": each["text"], "confidence": 0.9, "tags": [], "episodes": numbers} for each in told]
        return {"insights": [*lessons, {"text": LEFT, "confidence": 0.9, "tags": [], "episodes": numbers}]}
    if call.role is None:
        return {"result": "Blue."}
    said = repeated(call.role)
    if "fail" in call.fields.get("message", ""):
        raise RuntimeError(f"The model fails with {call.role}")
    made = [
        ("recall", {"text": said[:4000]}),
        ("check_authority", {"capability": said[:200]}),
        ("look_up_role", {"domain": call.role[:4000]}),
        ("say", {"text": call.role}),
    ]
    tools = [each for each in made if each[0] in call.tools or f"- {each[0]}:" in call.text]
    return (
        {"result": f"Blue. {said}"}
        if len(call.steps) >= len(tools)
        else {"result": "", **calls(tools[len(call.steps)])}
    )


def cro() -> RoleSpec:
    return spec_of("cro", operator_ids=("clerk",), goals=(Objective(id="o", description="Sell boats."),))


async def put(agent: WorldAgent, tier: str, role: Role | None) -> None:
    """Give a tier a role, or take it away."""
    thread = agent.thread("member cro", account="member:novel/cro")
    owner = {"account": "member:novel/cro", "channel": "den"}
    if tier == "thread" and role is not None:
        thread.role.set(role)
    elif tier == "thread":
        thread.role.clear()
    elif tier != "call" and role is not None:
        await agent.roles.put(tier, role, scope_id=owner.get(tier))
    elif tier != "call":
        await agent.roles.delete(tier, scope_id=owner.get(tier))


async def answers(member: AutonomousRole, seen: Watch, tier: str, content: str) -> None:
    """A member answers twice under a role, and fails once."""
    assert member.agent is not None
    role = Role("keeper", content)
    await put(member.agent, tier, role)
    for message in (BLUE, f"{BLUE} Again?", "Please fail."):
        given: dict[str, Any] = {"role": role if tier == "call" else None, "channel": "den"}
        done = await seen.outcome(member.respond(message, "The boats are on the screen.", **given))
        assert isinstance(done, Exception) or done.role_tiers == (tier,)
    await put(member.agent, tier, None)


async def all_remembered(member: AutonomousRole) -> list[object]:
    """All that is remembered, and what is made of it."""
    assert member.agent is not None
    memory = member.agent_memory
    episodes, made = await memory.episodes(), await memory.reflect()
    assert LEFT in [each.text for each in made]
    facts = await memory.publish_to_workspace()
    files = [await member.memory_fs.read(f"{each}/.directory") for each in ("facts", "insights", "episodes")]
    later = await member.respond("Which boats? Remember: rhyme. 记住")
    rows = await selected(member.agent, "SELECT * FROM wa_entry")
    outcomes = await member.agent.society.outcomes.list("cro")
    assert len(facts) == len(made)
    assert len(outcomes) == len(episodes) + 1
    return [repr(episodes), repr(made), repr(facts), *files, repr(outcomes), rows, later.text]


@pytest.mark.parametrize("tier", TIERS)
async def test_a_role_under_which_a_member_answers_is_in_no_memory_of_it(tmp_path: Path, tier: str) -> None:
    lm, traces = ScriptedLM(obey), [trace for content in CONTENTS for trace in traces_of(content)]
    config = WorkspaceConfig(id="novel", owner="charles")
    with watch(tmp_path / "home") as seen:
        async with scripted_agent(tmp_path / "home", lm, memory=Memory(), society=config) as agent:
            await agent.society.join(cro())
            member = AutonomousRole(cro(), agent=agent)
            for content in CONTENTS:
                await answers(member, seen, tier, content)
            told = await all_remembered(member)
            assert lm.calls[-1].role is None
            shown = lm.calls[-1].text
        seen.assert_clean(*traces)
    assert_no_role_leak([*told, shown], traces)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("echo", "contents"), [("disclosure", SHORT), ("allow", (*SHORT, *CONTENTS))])
async def test_a_short_role_and_one_that_answers_may_repeat_are_in_no_memory(
    tmp_path: Path, tier: str, echo: str, contents: tuple[str, ...]
) -> None:
    config = WorkspaceConfig(id="novel", owner="charles")
    with watch(tmp_path / "home") as seen:
        more: dict[str, Any] = {"memory": Memory(), "society": config, "settings": {"echo": echo}}
        async with scripted_agent(tmp_path / "home", ScriptedLM(obey), **more) as agent:
            await agent.society.join(cro())
            member = AutonomousRole(cro(), agent=agent)
            for content in contents:
                await answers(member, seen, tier, content)
            memory = member.agent_memory
            made = await memory.reflect()
            assert made
            told = [repr(await memory.episodes()), repr(made), await selected(agent, "SELECT * FROM wa_entry")]
    assert_no_role_leak(told, [trace for content in contents for trace in traces_of(content)])


@pytest.mark.parametrize("tier", ["workspace", "account"])
async def test_a_role_under_which_an_operator_runs_is_in_no_memory(tmp_path: Path, tier: str) -> None:
    content, clerk = CONTENTS[0], Worker("clerk", "Clerk.", tools=("recall",))
    config = WorkspaceConfig(id="novel", owner="charles")
    with watch(tmp_path / "home") as seen:
        more: dict[str, Any] = {"memory": Memory(), "society": config, "workers": [clerk]}
        async with scripted_agent(tmp_path / "home", ScriptedLM(obey), **more) as agent:
            await agent.society.join(cro())
            member = AutonomousRole(cro(), agent=agent)
            await put(agent, tier, Role("keeper", content))
            for _ in range(2):
                turn = await seen.outcome(member.get_operator("clerk")({"request": BLUE}))
                assert turn.role_tiers == (tier,)
            await put(agent, tier, None)
            made = await member.agent_memory.reflect()
            told = [repr(await member.agent_memory.episodes()), repr(made)]
        seen.assert_clean(*traces_of(content))
    assert_no_role_leak(told, traces_of(content))
