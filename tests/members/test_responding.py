"""A member answers, and asks others: what it is shown, what it can look into, and what not (A4, A6, A13, A14)."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.agents import calls, scripted_agent
from support.role_specs import spec_of, workspace_of
from support.society import acting, one_by_one, send
from worldagent import Memory, Policy, Role, Worker, WorldAgent, tool
from worldagent.core.errors import (
    InvalidArgument,
    ModelUnavailable,
    OutputInvalid,
    PauseExpired,
    ToolNotAllowed,
    UnknownContact,
    UnknownMember,
    WorldAgentError,
)
from worldagent.members import (
    SEND_RULES,
    AgentMemory,
    AuthorityConfig,
    AutonomousRole,
    Gateway,
    KeyResult,
    Objective,
    RoleSpec,
)
from worldagent.members.data.roles import ClearanceProfile
from worldagent.memory.entries import Passage
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

AMBIENT = ["recall", "check_goals", "look_up_role", "check_authority"]
GOALS = (
    Objective(
        id="o1", description="Grow the pipeline.", key_results=(KeyResult(id="k1", description="leads", target=4),)
    ),
    Objective(id="o2", description="An old goal.", status="achieved"),
)


@tool(risk="read_only")
def price(item: str) -> str:
    """Look up a price."""
    return f"{item} costs 7."


@tool(risk="destructive")
def deploy(where: str) -> str:
    """Deploy."""
    raise AssertionError(where)


def cro(**more: Any) -> RoleSpec:
    given: dict[str, Any] = {
        "goals": GOALS,
        "operator_ids": ("price", "deploy", "teller"),
        "authority": AuthorityConfig(autonomous=("price", "deploy", "teller"), forbidden=("sign",)),
        "domains": ("revenue",),
    }
    return spec_of("cro", **given | more)


@asynccontextmanager
async def opened(
    home: Path, lm: ScriptedLM, *, memory: bool = True, spec: RoleSpec | None = None, **policy: Any
) -> AsyncGenerator[AutonomousRole]:
    """The role of the CRO of a society in which there are two more members."""
    given: dict[str, Any] = {"memory": Memory()} if memory else {}
    teller = Worker("teller", "You tell prices.", "tells prices", tools=("price",), memory=memory)
    async with scripted_agent(
        home, lm, society=workspace_of(**policy), tools=[price, deploy], workers=[teller], **given
    ) as agent:
        spec = spec or cro()
        await agent.society.join(spec, name="CRO")
        await agent.society.join(spec_of("bdr", "cro", domains=("leads",)), name="BDR")
        await agent.society.join(spec_of("legal", domains=("contracts",)), name="Legal")
        yield AutonomousRole(spec, agent=agent)


def agent_of(role: AutonomousRole) -> WorldAgent:
    assert role.agent is not None
    return role.agent


def offered(call: ScriptedCall) -> list[str]:
    every = [*AMBIENT, "price", "deploy", "teller", "send_message", "spawn_agent", "remember", "forget", "cro"]
    return [name for name in every if name in call.tools or f"- {name}:" in call.text]


# --- what it is shown -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A6", "A13", "A5")
@pytest.mark.on_every_database(soak=True)
async def test_a_member_answers_with_its_soul_its_goals_and_its_memory(tmp_path: Path) -> None:
    lm = one_by_one(result="We are at zero.")
    async with opened(tmp_path, lm) as role:
        agent = agent_of(role)
        await agent.memory.add("The pipeline is in Lisbon.", account="member:novel/cro")
        await agent.memory.add("The pipeline is in Rome.", account="member:novel/bdr")
        given = [Passage("The pipeline is on the screen.", source="the screen", trusted=True)]
        turn = await role.respond("How is the pipeline?", given)
        [call] = lm.calls
        assert (turn.status, turn.text, turn.thread) == ("done", "We are at zero.", "member cro")
        assert role.build_system_prompt() == "You are cro."
        assert call.system.startswith("You are cro.") or "You are cro." in call.system
        assert (call.fields["message"], call.fields["goals"]) == (
            "How is the pipeline?",
            "- Grow the pipeline.\n  - leads: 0 of 4, 0%",
        )
        memory = call.fields["memory"]
        assert ("Lisbon" in memory, "Rome" in memory, "the screen" in memory) == (True, False, True)
        assert "Grow the pipeline." not in call.system + memory


@pytest.mark.requirement("A6")
async def test_a_member_without_goals_or_memory_has_no_field_and_no_tool_for_them(tmp_path: Path) -> None:
    lm = one_by_one()
    async with opened(tmp_path, lm, memory=False, spec=cro(goals=(), authority=AuthorityConfig())) as role:
        await role.respond("Hello.")
        assert offered(lm.calls[0]) == ["look_up_role"]
        assert {"goals", "memory"}.isdisjoint(lm.calls[0].fields)
        with pytest.raises(InvalidArgument, match="`context` needs memory"):
            await role.respond("Hello.", "The screen is blue.")


# --- what it can look into --------------------------------------------------------------------------------------------


@pytest.mark.requirement("A6")
async def test_a_member_looks_into_its_memory_goals_and_authority(tmp_path: Path) -> None:
    lm = one_by_one(
        ("recall", {"text": "harbour"}),
        ("check_goals", {}),
        *(("check_authority", {"capability": each}) for each in ("price", "sign", "hire")),
    )
    async with opened(tmp_path, lm) as role:
        agent = agent_of(role)
        await agent.memory.add("The harbour is calm.", classification="internal")
        await agent.memory.add("The harbour is sold.", classification="secret")
        assert (await role.respond("And?")).status == "done"
        found, goals, *authority = lm.calls[-1].steps
        assert offered(lm.calls[0]) == AMBIENT
        assert ("calm" in found, "sold" in found) == (True, False)
        assert ("Grow the pipeline." in goals, "An old goal." in goals) == (True, False)
        for step, level in zip(authority, ("autonomous", "forbidden", "needs_approval"), strict=True):
            assert level in step


@pytest.mark.requirement("A6", "C2")
@pytest.mark.parametrize(("discovery", "known"), [("introduced", {"root", "user", "bdr"}), ("open", {"bdr", "legal"})])
async def test_look_up_shows_contacts_only_unless_discovery_is_open(
    tmp_path: Path, discovery: str, known: set[str]
) -> None:
    lm = one_by_one(("look_up_role", {}), ("look_up_role", {"domain": "contracts"}))
    async with opened(tmp_path, lm, discovery=discovery) as role:
        await role.respond("Who does contracts?")
        every, some = (json.loads(step[step.index("[") :]) for step in lm.calls[-1].steps)
        assert {each["id"] for each in every} == known
        assert [each["id"] for each in some] == (["legal"] if discovery == "open" else [])


# --- what it cannot do ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A6")
@pytest.mark.parametrize(
    "call",
    [
        ("price", {"item": "tea"}),
        ("deploy", {"where": "here"}),
        ("teller", {"request": "Tea?"}),
        ("send_message", {"to": "bdr", "content": "Go."}),
        ("subagent", {"worker": "teller", "request": "Tea?"}),
        ("remember", {"text": "Tea."}),
    ],
)
async def test_a_member_that_answers_reaches_no_domain_tool_and_runs_no_operator(
    tmp_path: Path, call: tuple[str, dict[str, Any]]
) -> None:
    lm = ScriptedLM(
        lambda asked: {"result": "Done."} if "there is no tool" in asked.text else {"result": "", **calls(call)}
    )
    async with opened(tmp_path, lm) as role:
        turn = await role.respond("Do it.")
        assert (turn.status, turn.text) == ("done", "Done.")
        assert call[0] not in offered(lm.calls[0])
        assert await agent_of(role).society.mail.waiting() == []


@pytest.mark.requirement("A6", "A7")
async def test_only_a_live_member_with_an_agent_answers(tmp_path: Path) -> None:
    async with opened(tmp_path, one_by_one()) as role:
        agent = agent_of(role)
        with pytest.raises(UnknownMember):
            await AutonomousRole(spec_of("cmo"), agent=agent).respond("Hello?")
        with pytest.raises(InvalidArgument, match=r"'cro' has no agent; create it with agent="):
            await AutonomousRole(cro()).respond("Hello?")


# --- what is recorded -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A14")
async def test_each_answer_is_one_episode_also_with_the_same_key(tmp_path: Path) -> None:
    lm = one_by_one(result="Seven.")
    async with opened(tmp_path, lm) as role:
        turn = await role.respond("How many?", key="k1")
        again = await role.respond("How many?", key="k1")
        assert (again.id, again.text, len(lm.calls)) == (turn.id, "Seven.", 1)
        [episode] = await role.agent_memory.episodes()
        assert (episode.id, episode.role_id, episode.action) == (f"respond.{turn.id}", "cro", "respond")
        assert (episode.outcome, episode.text) == ({"success": True}, "Asked: How many?\nAnswered: Seven.")
        [outcome] = await agent_of(role).society.outcomes.list("cro")
        assert (outcome.episode_id, outcome.capability, outcome.succeeded) == (episode.id, "respond", True)
        await role.respond("How many?")
        assert len(await role.agent_memory.episodes()) == 2


@pytest.mark.requirement("A14", "T5")
async def test_a_process_that_died_after_the_turn_has_left_the_episode_to_the_repeat(tmp_path: Path) -> None:
    """Without the episode, the home is as a kill between the turn's end and its episode leaves it."""
    lm = one_by_one(result="Seven.")
    async with opened(tmp_path, lm) as role:
        await role.respond("How many?", key="k")
        [before] = await role.agent_memory.episodes()
        [entry] = await agent_of(role).memory.list(account="member:novel/cro", kind="episode")
        await agent_of(role).memory.forget(entry.id, account="member:novel/cro")
        await role.respond("How many?", key="k")
        [after] = await role.agent_memory.episodes()
        assert ((after.id, after.text), len(lm.calls)) == ((before.id, before.text), 1)


@pytest.mark.requirement("A14")
@pytest.mark.parametrize("error", [ModelUnavailable, OutputInvalid])
async def test_an_answer_that_failed_is_an_episode_too(tmp_path: Path, error: type[WorldAgentError]) -> None:
    async with opened(tmp_path, failing(error)) as role:
        with pytest.raises(error):
            await role.respond("How many?")
        [episode] = await role.agent_memory.episodes()
        assert (episode.succeeded, episode.outcome["code"]) == (False, error.code)
        assert episode.text == "Asked: How many?"
        [outcome] = await agent_of(role).society.outcomes.list("cro")
        assert (outcome.episode_id, outcome.succeeded) == (episode.id, False)


def failing(error: type[WorldAgentError]) -> ScriptedLM:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        if error is ModelUnavailable:
            raise ConnectionError("it is down")
        return {"result": ""}

    return ScriptedLM(reply)


@pytest.mark.requirement("A14")
async def test_an_answer_that_can_be_repeated_with_its_key_is_recorded_once_it_is_over(tmp_path: Path) -> None:
    down = [True]

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if down.pop():
            raise ConnectionError("it is down")
        return {"result": "Seven."}

    async with opened(tmp_path, ScriptedLM(reply)) as role:
        with pytest.raises(ModelUnavailable):
            await role.respond("How many?", key="k")
        assert await role.agent_memory.episodes() == ()
        down.append(False)
        assert (await role.respond("How many?", key="k")).text == "Seven."
        assert [each.succeeded for each in await role.agent_memory.episodes()] == [True]


@pytest.mark.requirement("M5", "A11")
async def test_an_episode_is_classified_and_marked_as_what_was_read(tmp_path: Path) -> None:
    spec = cro(clearance=ClearanceProfile(default="confidential"))
    async with opened(tmp_path, one_by_one(), spec=spec) as role:
        await agent_of(role).memory.add("The harbour is sold.", classification="confidential", untrusted=True)
        await role.respond("What of the harbour?")
        await role.respond("Hello.", "The screen is blue.")
        await role.respond("Farewell.")
        found = [(each.classification, each.untrusted) for each in reversed(await role.agent_memory.episodes())]
        assert found == [("confidential", ("host",)), ("internal", ("context",)), ("internal", ())]


@pytest.mark.requirement("A14")
async def test_messages_to_a_member_are_no_episodes_and_have_its_goals(tmp_path: Path) -> None:
    lm = one_by_one()
    async with opened(tmp_path, lm) as role:
        agent = agent_of(role)
        await agent.society.mail.send("root", "cro", "Begin.")
        await Gateway(agent).deliver()
        assert lm.calls[0].fields["goals"].startswith("- Grow the pipeline.")
        assert await role.agent_memory.episodes() == ()


# --- operators --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A14")
async def test_an_operator_runs_for_its_member_and_is_one_episode(tmp_path: Path) -> None:
    lm = one_by_one(("price", {"item": "tea"}), result="Seven.")
    async with opened(tmp_path, lm) as role:
        agent = agent_of(role)
        await agent.memory.add("Tea is green.", account="member:novel/cro")
        await agent.memory.add("Tea is sold out.", classification="secret")
        assert role.list_operators() == tuple(each.id for each in role.operators) == ("price", "deploy", "teller")
        teller = role.get_operator("teller")
        assert (teller.id, teller.function.kind) == ("teller", "worker")
        turn = await teller({"request": "What is tea?"}, key="k")
        assert (turn.status, turn.text, (await teller({"request": "What is tea?"}, key="k")).id) == (
            "done",
            "Seven.",
            turn.id,
        )
        assert ("green" in lm.calls[0].fields["memory"], "sold out" in lm.calls[0].fields["memory"]) == (True, False)
        price = await role.get_operator("price")({"item": "milk"})
        assert price.text == "milk costs 7."
        found = {each.action: each.succeeded for each in await AgentMemory(agent, "cro").episodes()}
        assert found == {"teller": True, "price": True}


@pytest.mark.requirement("A14")
async def test_an_operator_stays_behind_the_gate(tmp_path: Path) -> None:
    async with opened(tmp_path, one_by_one()) as role:
        turn = await role.get_operator("deploy")({"where": "here"})
        assert (turn.status, [pause.function for pause in turn.pauses]) == ("paused", ["deploy"])
        assert await role.agent_memory.episodes() == ()
        with pytest.raises(ToolNotAllowed, match=r"'recall' is not an operator of 'cro'; its operators are: price"):
            role.get_operator("recall")


# --- infrastructure ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A14")
async def test_the_model_and_the_config_of_a_role_are_injected(tmp_path: Path) -> None:
    own, other = one_by_one(result="Own."), one_by_one(result="Other.")
    async with scripted_agent(tmp_path, own, society=workspace_of(), models={"deep": other}) as agent:
        await agent.society.join(spec_of("cro"))
        role = AutonomousRole(spec_of("cro"), agent=agent, llm="deep", config={"region": "APAC"})
        assert ((await role.respond("Who?")).text, role.config["region"]) == ("Other.", "APAC")
        assert (await AutonomousRole(spec_of("cro"), agent=agent).respond("Who?")).text == "Own."


@pytest.mark.requirement("A6", "A13")
@pytest.mark.parametrize("tier", ["workspace", "account", "channel", "thread", "call"])
async def test_roles_of_all_tiers_apply_on_top_of_the_soul(tmp_path: Path, tier: str) -> None:
    lm, rhyme = one_by_one(), Role("rhyme", "Answer in rhyme.")
    async with opened(tmp_path, lm) as role:
        agent = agent_of(role)
        if tier == "thread":
            agent.thread("member cro", account="member:novel/cro").role.set(rhyme)
        elif tier != "call":
            await agent.roles.put(tier, rhyme, scope_id={"account": "member:novel/cro", "channel": "den"}.get(tier))
        turn = await role.respond("Hello.", role=rhyme if tier == "call" else None, channel="den")
        [call] = lm.calls
        assert (turn.role_tiers, call.role) == ((tier,), "Answer in rhyme.")
        assert ("You are cro." in call.system, "rhyme" in call.system) == (True, False)


@pytest.mark.requirement("A13")
async def test_a_changed_soul_counts_from_the_next_answer_on(tmp_path: Path) -> None:
    lm = one_by_one()
    async with opened(tmp_path, lm) as role:
        agent = agent_of(role)
        await role.respond("Who are you?")
        await agent.society.members.remove("novel", "cro")
        await agent.society.join(cro(soul="You are somebody else."), name="CRO")
        await role.respond("And now?")
        assert ["You are cro." in call.system for call in lm.calls] == [True, False]


# --- asking others ----------------------------------------------------------------------------------------------------

CONFIG = workspace_of(roles=(spec_of("ceo"), spec_of("cro", reports_to="ceo")))


@pytest.mark.requirement("A4")
async def test_a_role_asks_and_gets_the_reply(tmp_path: Path) -> None:
    given: dict[str, Any] = {"society": CONFIG, "policy": Policy(rules=SEND_RULES)}
    async with scripted_agent(tmp_path, acting(ceo=send("cro", "Twelve.")), **given) as agent:
        cro = AutonomousRole(CONFIG.roles[1], agent=agent)
        async with Gateway(agent):
            answer = await cro.request_role("ceo", "How many?", {"reason": "The plan."}, seconds=30)
        assert (answer.from_id, answer.content) == ("ceo", "Twelve.")


@pytest.mark.requirement("A4")
async def test_a_reply_that_does_not_come_in_time_is_an_error(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with scripted_agent(tmp_path, acting(), society=CONFIG, clock=clock) as agent:
        cro = AutonomousRole(CONFIG.roles[1], agent=agent)
        asking = asyncio.ensure_future(cro.request_role("ceo", "How many?", {"reason": "The plan."}, seconds=60))
        while not await agent.society.mail.waiting():  # noqa: ASYNC110 -- the message is stored by another task
            await asyncio.sleep(0)
        await clock.advance(61)
        with pytest.raises(PauseExpired):
            await asking


@pytest.mark.requirement("A4")
async def test_a_role_notifies_its_contacts_alone(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, acting(), society=CONFIG) as agent:
        cro = AutonomousRole(CONFIG.roles[1], agent=agent)
        sent = await cro.notify_role("ceo", "It is done.", {"reason": "The plan."})
        assert (sent.from_id, sent.to_id, sent.type, sent.content) == ("cro", "ceo", "notification", "It is done.")
        with pytest.raises(UnknownContact):
            await cro.notify_role("cfo", "It is done.")
    with pytest.raises(InvalidArgument):
        await AutonomousRole(CONFIG.roles[1]).notify_role("ceo", "It is done.")
