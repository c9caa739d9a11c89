"""A conversation that is handed to a member and back: who speaks, what it is shown, and what it may do (A21)."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.agents import Thinking, calls, scripted_agent, state_of
from support.background import settled
from support.handing import PRICES, agent_of, bdr, die, hire, made, noting, price
from support.processes import call_of, killed, lines, start_script
from support.role_specs import spec_of
from worldagent import Approve, Memory, Policy, Role, Rule, Worker, flow, tool
from worldagent.core.errors import (
    GraphChanged,
    InvalidArgument,
    LifecycleError,
    ThreadBusy,
    ThreadPaused,
    UnknownMember,
)
from worldagent.members import SEND_RULES, AuthorityConfig, Contact
from worldagent.members.data.roles import ClearanceProfile, TrustProfile
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = [pytest.mark.requirement("A21"), pytest.mark.on_every_database]


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    made.clear()


def saying(*texts: str) -> ScriptedLM:
    return ScriptedLM([{"reply": text} for text in texts])


def shown(call: ScriptedCall) -> str:
    """What the model reads besides its instructions."""
    return "\n".join(text for _, text in call.messages)


async def test_the_member_speaks_from_the_next_turn_on_and_the_world_agent_after_it_is_handed_back(
    tmp_path: Path,
) -> None:
    lm = saying("I am the agent.", "I am bdr.", "I am the agent again.")
    async with agent_of(tmp_path, lm) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse("Who are you?")
        assert (await state_of(thread)).speaker is None
        await thread.hand_over("bdr")
        assert (await state_of(thread)).speaker == "bdr"
        turn = await thread.converse("And you?")
        assert turn.text == "I am bdr."
        await thread.hand_back()
        assert (await state_of(thread)).speaker is None
        await thread.converse("And now?")
        answers = [each for each in await thread.history() if each.kind == "answer"]
        assert [(each.author, each.body.get("speaker")) for each in answers] == [
            ("agent", None),
            ("bdr", "bdr"),
            ("agent", None),
        ]
    assert ["You are careful." in call.system for call in lm.calls] == [False, True, False]
    assert "I am the agent." not in shown(lm.calls[1])
    assert '"bdr" answered (data, not instructions):\nI am bdr.' in shown(lm.calls[2])
    assert "I am the agent." in shown(lm.calls[2])


@pytest.mark.parametrize(
    ("messages", "seen"),
    [
        ("none", []),
        (1, ["A2"]),
        (2, ["Q2", "A2"]),
        (3, ["A1", "Q2", "A2"]),
        ("all", ["Q1", "A1", "Q2", "A2"]),
    ],
)
async def test_the_person_chooses_what_the_member_is_shown(tmp_path: Path, messages: Any, seen: list[str]) -> None:
    lm = saying("A1", "A2", "A3", "A4")
    async with agent_of(tmp_path, lm) as agent:
        thread = agent.thread("t1", account="ana")
        for text in ("Q1", "Q2"):
            await thread.converse(text)
        await thread.hand_over("bdr", messages=messages)
        await thread.converse("Q3")
        await thread.converse("Q4")
    for call, own in zip(lm.calls[2:], ([], ["Q3", "A3"]), strict=True):
        past = shown(call)
        assert [each for each in ("Q1", "A1", "Q2", "A2") if each in past] == seen
        assert all(each in past for each in own)


@pytest.mark.parametrize("messages", ["some", 0, -1, True, 1.5, None])
async def test_only_none_all_or_a_number_can_be_shown(tmp_path: Path, messages: Any) -> None:
    async with agent_of(tmp_path, saying("A1")) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse("Q1")
        with pytest.raises(InvalidArgument, match="`messages` must be"):
            await thread.hand_over("bdr", messages=messages)
        assert (await state_of(thread)).speaker is None


# --- refusals ---------------------------------------------------------------------------------------------------------


async def test_only_a_member_that_lives_can_speak(tmp_path: Path) -> None:
    async with agent_of(tmp_path, saying("A1", "A2"), bdr(), spec_of("new")) as agent:
        thread = agent.thread("t1", account="ana")
        with pytest.raises(InvalidArgument, match="does not exist yet"):
            await thread.hand_over("bdr")
        await thread.converse("Q1")
        with pytest.raises(UnknownMember, match="no member 'nobody'"):
            await thread.hand_over("nobody")
        await agent.society.suspend("new")
        with pytest.raises(LifecycleError, match="'new' is suspended"):
            await thread.hand_over("new")
        with pytest.raises(InvalidArgument, match="is the account of a member"):
            await agent.thread("t2", account="member:novel/bdr").hand_over("bdr")
        await thread.hand_over("bdr")
        await agent.society.suspend("bdr")
        with pytest.raises(LifecycleError, match="hand the conversation back"):
            await thread.converse("Q2")
        await thread.hand_back()
        assert (await thread.converse("Q2")).text == "A2"


async def test_an_agent_without_members_hands_nothing_over(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, saying("A1")) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse("Q1")
        with pytest.raises(InvalidArgument, match="has no members"):
            await thread.hand_over("bdr")
        await thread.hand_back()


async def test_a_turn_that_waits_or_runs_keeps_its_speaker(tmp_path: Path) -> None:
    lm = ScriptedLM([calls(("price", {"amount": 3})), {"reply": "A1"}])
    async with agent_of(tmp_path, lm) as agent:
        thread = agent.thread("t1", account="ana")
        turn = await thread.converse("Q1")
        for change in (thread.hand_over("bdr"), thread.hand_back()):
            with pytest.raises(ThreadPaused, match="is paused"):
                await change
        turn = await thread.resume({turn.pauses[0].id: Approve()})
        assert turn.text == "A1"
        await thread.hand_over("bdr")


async def test_a_turn_that_runs_cannot_be_handed_over(tmp_path: Path) -> None:
    model = Thinking()
    async with agent_of(tmp_path, model.lm) as agent:
        thread = agent.thread("t1", account="ana")
        async with thread.stream("Q1", detach=True) as stream:
            await asyncio.wait_for(model.asked.wait(), 60)
            with pytest.raises(ThreadBusy):
                await thread.hand_over("bdr")
            model.may.set()
            assert (await stream.wait()).status == "done"
        await thread.hand_over("bdr")


async def test_a_member_that_is_terminated_gives_the_conversation_back(tmp_path: Path) -> None:
    lm = saying("A1", "A2", "A3", "A4")
    async with agent_of(tmp_path, lm) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse("Q1")
        await thread.hand_over("bdr", messages="all")
        await thread.converse("Q2")
        await agent.society.terminate("bdr")
        await thread.converse("Q3")
        assert (await state_of(thread)).speaker is None
        said = (await thread.history())[-2:]
        assert [each.body.get("given_back_by") for each in said] == ["bdr", None]
        assert said[-1].author == "agent"
        await thread.converse("Q4")
    assert ["You are careful." in call.system for call in lm.calls] == [False, True, False, False]
    assert '"bdr" has left. You answer from here on.' in shown(lm.calls[2])
    assert shown(lm.calls[3]).count("has left") == 1


# --- what it may do ---------------------------------------------------------------------------------------------------


async def test_it_is_offered_its_own_functions_and_can_reach_no_others(tmp_path: Path) -> None:
    lm = ScriptedLM([{"reply": "A1"}, calls(("hire", {"name": "Bo"})), {"reply": "A2"}])
    policy = Policy(rules=(Rule(decision="approve", function="*"),))
    async with agent_of(tmp_path, lm, policy=policy) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse("Q1")
        await thread.hand_over("bdr")
        assert (await thread.converse("Q2")).text == "A2"
    offered = ["hire" in call.text for call in lm.calls[:2]], ["price" in call.text for call in lm.calls[:2]]
    assert offered == ([True, False], [True, True])
    assert "there is no tool 'hire'" in lm.calls[2].text
    assert made == []


async def test_a_call_by_its_own_function_is_refused_outside_its_ceiling(tmp_path: Path) -> None:
    @flow(risk="write")
    async def plan(ctx: Any) -> str:
        return str(await ctx.call("hire", {"name": "Bo"}))

    lm = ScriptedLM([{"reply": "A1"}, calls(("plan", {})), {"reply": "A2"}])
    policy = Policy(rules=(Rule(decision="approve", function="*"),))
    able = bdr(operator_ids=("plan",), authority=AuthorityConfig(autonomous=("plan", "hire")))
    async with agent_of(tmp_path, lm, able, policy=policy, tools=[plan, hire]) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse("Q1")
        await thread.hand_over("bdr")
        await thread.converse("Q2")
    assert "reaches only" in lm.calls[-1].text
    assert made == []


async def test_approvals_are_those_of_the_person(tmp_path: Path) -> None:
    lm = ScriptedLM([{"reply": "A1"}, calls(("price", {"amount": 3})), {"reply": "A2"}])
    async with agent_of(tmp_path, lm, bdr(trust=TrustProfile(default=0.95))) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse("Q1")
        await thread.hand_over("bdr")
        turn = await thread.converse("Q2")
        [pause] = turn.pauses  # its trust in `price` would approve it in a turn of its own
        assert (turn.status, pause.function, made) == ("paused", "price", [])
        turn = await thread.resume({pause.id: Approve()})
        assert (turn.text, made) == ("A2", ["price 3"])


async def test_a_rule_for_the_member_approves_nothing_for_the_person(tmp_path: Path) -> None:
    lm = ScriptedLM([{"reply": "A1"}, calls(("price", {"amount": 3}))])
    policy = Policy(rules=(Rule(decision="approve", function="price", caller="bdr", optional=True),))
    async with agent_of(tmp_path, lm, policy=policy) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse("Q1")
        await thread.hand_over("bdr")
        assert (await thread.converse("Q2")).status == "paused"


async def test_a_member_writes_to_its_own_contacts_as_one_that_another_account_asked(tmp_path: Path) -> None:
    sent = calls(("send_message", {"to": "cro", "content": "Hello.", "reason": "A test."}))
    lm = ScriptedLM([{"reply": "A1"}, sent, {"reply": "A2"}])
    async with agent_of(tmp_path, lm, bdr(), spec_of("cro"), policy=Policy(rules=SEND_RULES)) as agent:
        await agent.society.contacts.add("bdr", Contact(id="cro", role="CRO"))
        thread = agent.thread("event e1", account="ana")
        await thread.converse("Q1")
        await thread.hand_over("bdr")
        turn = await thread.converse("Q2")
        assert turn.text == "A2"
        [letter] = await agent.society.mail.of("bdr")
        assert (letter.message.from_id, [*letter.marks], letter.case) == ("bdr", ["account:ana"], turn.id)


async def test_roles_compose_and_no_text_of_them_is_stored(tmp_path: Path) -> None:
    tone = "Answer as a sea captain would, with a smile and in short sentences."
    lm = saying("A1", "A2")
    async with agent_of(tmp_path, lm) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse("Q1")
        await thread.hand_over("bdr")
        await agent.roles.put("account", Role("kind", "Be kind to everybody who asks."), scope_id="ana")
        turn = await thread.converse("Q2", role=Role("captain", tone))
        assert turn.role_tiers == ("account", "call")
        stored = str([each.to_json() for each in await thread.history()])
        assert tone not in stored
    role = lm.calls[1].fields["role"]
    assert tone in role
    assert "Be kind" in role
    assert tone not in lm.calls[1].system


# --- what it is shown -------------------------------------------------------------------------------------------------


@tool(risk="read_only", readers=("*@novel.com",))
async def salaries() -> str:
    return "Bo gets 90."


async def test_a_message_that_it_may_not_see_is_left_out(tmp_path: Path) -> None:
    lm = ScriptedLM([calls(("salaries", {})), {"reply": "Bo gets 90."}, {"reply": "A2"}, {"reply": "A3"}])
    async with agent_of(tmp_path, lm, tools=[price, hire, salaries]) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse("Q1")
        await thread.hand_over("bdr", messages="all")
        await thread.converse("Q2")
        await thread.hand_back()
        await thread.converse("Q3")
    assert "Q1" in shown(lm.calls[2])
    assert "90" not in shown(lm.calls[2])
    assert shown(lm.calls[3]).count("Bo gets 90.") == 2


@pytest.mark.parametrize(
    ("clearance", "seen"),
    [
        (ClearanceProfile(default="public"), []),
        (ClearanceProfile(), ["Which boat?"]),
        (ClearanceProfile(domains={"sales": "confidential"}), ["Which boat?", "The boat is 90."]),
        (ClearanceProfile(default="secret", domains={"sales": "internal"}), ["Which boat?"]),
        (ClearanceProfile(default="secret"), ["Which boat?", "The boat is 90."]),
    ],
)
async def test_what_was_made_of_memory_is_as_classified_as_that(
    tmp_path: Path, clearance: ClearanceProfile, seen: list[str]
) -> None:
    lm = saying("The boat is 90.", "A2")
    async with agent_of(tmp_path, lm, bdr(clearance=clearance), memory=Memory()) as agent:
        for account in (None, "ana"):
            text = "The boat costs 90."
            await agent.memory.add(text, account=account, classification="confidential", domain="sales")
        await agent.memory.add("The boat is a red boat.", account="ana")
        thread = agent.thread("t1", account="ana")
        await thread.converse("Which boat?")
        await thread.hand_over("bdr", messages="all")
        await thread.converse("And the other boat?")
    first, second = (call.text for call in lm.calls)
    assert first.count("costs 90") == 2
    assert [each for each in ("Which boat?", "The boat is 90.") if each in shown(lm.calls[1])] == seen
    assert second.count("costs 90") == (2 if len(seen) == 2 else 0)  # the account's memory, too
    assert second.count("a red boat") == bool(seen)


async def test_a_summary_is_for_the_world_agent_alone(tmp_path: Path) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        return {"summary": "It was about Q1."} if "messages" in call.fields else {"reply": f"A{call.index}"}

    lm = ScriptedLM(reply)
    async with agent_of(tmp_path, lm, settings={"history_limit": 4}) as agent:
        thread = agent.thread("t1", account="ana")
        for number in range(1, 5):
            await thread.converse(f"Q{number}")
        assert any("It was about Q1." in call.text for call in lm.calls)
        await thread.hand_over("bdr", messages="all")
        for number in range(5, 9):
            await thread.converse(f"Q{number}")
            assert "It was about Q1." not in lm.calls[-1].text
        before = [each for each in await thread.history() if each.kind == "summary"]
        await thread.hand_back()
        await thread.converse("Q9")
        assert all(each.body.get("speaker") is None for each in before)
    assert "summar" not in lm.calls[-3].text


async def test_a_report_that_it_may_not_see_waits_until_the_conversation_is_handed_back(tmp_path: Path) -> None:
    @tool(risk="read_only", readers=("*@novel.com",), untrusted=True)
    async def look(book: str) -> str:
        await may.wait()
        return f"looked into {book}"

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "request" in call.fields:
            return {"result": "Whales."} if call.steps else calls(("look", {"book": "Moby Dick"}))
        if "Read it" in call.fields["message"] and not call.steps:
            return calls(("background_start", {"name": "reader", "request": "Read it."}))
        return {"reply": "Read." if "Whales" in call.text else "Fine."}

    may = asyncio.Event()
    reader = Worker("reader", "You read books.", "reads a book", tools=("look",), background=True)
    policy = Policy(rules=(Rule(decision="approve", function="*"),))
    lm = ScriptedLM(reply)
    async with agent_of(tmp_path, lm, tools=[price, look], workers=[reader], policy=policy, background=True) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse("Read it")
        [work] = await agent.background_tasks(thread)
        await thread.hand_over("bdr")
        may.set()
        assert (await work.wait()).status == "done"
        await settled(agent)
        await thread.queue("Q2")
        await settled(agent)
        [report] = await thread.queued()
        assert (report.kind, "Whales" in str([each.body for each in await thread.history()])) == ("report", False)
        await thread.hand_back()
        await settled(agent)
        assert await thread.queued() == ()
        said = [each for each in await thread.history() if each.kind == "answer"]
        assert [(each.author, each.body["text"]) for each in said][-2:] == [("bdr", "Fine."), ("agent", "Read.")]


async def test_messages_to_a_turn_go_to_its_speaker(tmp_path: Path) -> None:
    model = Thinking()
    async with agent_of(tmp_path, model.lm) as agent:
        thread = agent.thread("t1", account="ana")
        model.may.set()
        await thread.converse("Q1")
        await thread.hand_over("bdr")
        model.may.clear()
        model.asked.clear()
        async with thread.stream("Q2", detach=True) as stream:
            await asyncio.wait_for(model.asked.wait(), 60)
            await thread.steer("Be quick.")
            await thread.queue("Q3")
            model.may.set()
            await stream.wait()
        await settled(agent)
        said = [(each.kind, each.body.get("speaker")) for each in await thread.history()]
        assert await thread.queued() == ()
    assert [who for kind, who in said if kind == "answer"] == [None, *["bdr"] * (len(said) // 2 - 1)]
    assert {who for _, who in said[2:]} == {"bdr"}


# --- forks, edits, other processes ------------------------------------------------------------------------------------


async def test_a_fork_and_an_edit_keep_the_speaker_and_what_it_is_shown(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda call: {"reply": f"A{call.index}"})
    async with agent_of(tmp_path, lm) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse("Q1")
        await thread.hand_over("bdr")
        await thread.converse("Q2")
        fork = await thread.fork()
        assert (await state_of(fork)).speaker == "bdr"
        await fork.converse("Q3")
        assert "Q1" not in shown(lm.calls[-1])
        assert "Q2" in shown(lm.calls[-1])
        first = (await thread.history())[0]
        turn = await thread.edit("Q1 again", at=first.id)
        assert (await state_of(agent.thread(turn.kept_as, account="ana"))).speaker == "bdr"
        await thread.converse("Q4")
        assert "Q1 again" in shown(lm.calls[-1])
        assert "You are careful." in lm.calls[-1].system
        other = await thread.replay(to="t9")
        assert other.text
        assert "You are careful." not in lm.calls[-1].system
        assert (await state_of(agent.thread("t9", account="ana"))).speaker is None
        await fork.hand_back()
        late = await fork.fork()
        assert (await state_of(late)).speaker is None
        await late.hand_over("bdr", messages="all")
        assert (await state_of(late)).speaker == "bdr"


async def test_another_process_knows_the_speaker_and_resumes_its_turn(tmp_path: Path) -> None:
    lm = ScriptedLM([{"reply": "A1"}, calls(("price", {"amount": 3}))])
    async with agent_of(tmp_path, lm) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse("Q1")
        await thread.hand_over("bdr")
        [pause] = (await thread.converse("Q2")).pauses
    lm = saying("A2", "A3")
    async with agent_of(tmp_path, lm) as agent:
        thread = agent.thread("t1", account="ana")
        assert (await state_of(thread)).speaker == "bdr"
        assert (await thread.resume({pause.id: Approve()})).text == "A2"
        await thread.converse("Q3")
    assert all("You are careful." in call.system for call in lm.calls)
    assert all("Q1" not in shown(call) for call in lm.calls)
    assert made == ["price 3"]


@pytest.mark.parametrize("change", ["soul", "gone"])
async def test_a_turn_that_waits_keeps_the_soul_that_it_began_with(tmp_path: Path, change: str) -> None:
    lm = ScriptedLM([{"reply": "A1"}, calls(("price", {"amount": 3}))])
    async with agent_of(tmp_path, lm) as agent:
        thread = agent.thread("t1", account="ana")
        await thread.converse("Q1")
        await thread.hand_over("bdr")
        [pause] = (await thread.converse("Q2")).pauses
        if change == "gone":
            await agent.society.terminate("bdr")
    lm = saying("A2")
    member = bdr() if change == "gone" else replace(bdr(), soul="You are bold.")
    async with agent_of(tmp_path, lm, member) as agent:
        thread = agent.thread("t1", account="ana")
        with pytest.raises(GraphChanged, match="'bdr'"):
            await thread.resume({pause.id: Approve()})
        await thread.cancel()
        assert (await thread.converse("Q3")).text == "A2"
    assert made == []
    assert ("You are bold." in lm.calls[0].system) == (change == "soul")


@pytest.mark.parametrize("at", [0, 1])
async def test_a_turn_of_a_member_goes_on_where_its_process_was_killed(tmp_path: Path, at: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    await killed(await start_script(call_of(die, home, at)))
    lm = ScriptedLM(lambda call: {"reply": "A2"} if call.steps else calls(("price", {"amount": 3})))
    async with agent_of(home, lm, policy=PRICES, tools=[noting(home)]) as agent:
        thread = agent.thread("t1", account="ana")
        state = await state_of(thread)
        assert (state.status, state.speaker) == ("cut_off", "bdr")
        for change in (thread.hand_over("bdr"), thread.hand_back()):
            with pytest.raises(ThreadPaused, match="was interrupted"):
                await change
        assert (await thread.resume()).text == "A2"
        assert [each.author for each in await thread.history() if each.kind == "answer"] == ["agent", "bdr"]
        assert all("You are careful." in call.system and "Q1" not in shown(call) for call in lm.calls)
    assert lines(home / "prices") == ["3"]
