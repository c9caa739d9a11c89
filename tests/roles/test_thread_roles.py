"""The role of a thread: set in code, or asked for in words with `Roles(on_request="ask")` (R10, T8)."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, Nothing, Said, answering, scripted_agent
from support.leaks import watch
from worldagent import Role, Roles, Tier, Worker, WorldAgent
from worldagent.agent import Thread
from worldagent.agent.thread import as_member
from worldagent.core import Scope
from worldagent.core.errors import (
    AgentClosed,
    LeaseLost,
    NobodyToAsk,
    RoleTooLong,
    UnknownFunction,
    UnknownMessage,
)
from worldagent.core.events import PlanRejected
from worldagent.core.pauses import Approve, Pause, Reject
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import tool
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock, assert_no_role_leak, scan_for_roles

HARSH = Role("critic", "Be as harsh as the keeper of the seventh lighthouse.")
MILD = Role("friend", "Be as mild as the baker at the harbour in the morning.")


@pytest.mark.requirement("R10")
async def test_it_is_set_replaced_and_cleared_and_counts_from_the_next_turn(tmp_path: Path) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent:
        thread = agent.thread("t")
        assert (await thread.converse("1")).role_tiers == ()
        for role in (HARSH, MILD):
            thread.role.set(role)
            assert (await thread.converse("2")).role_tiers == (Tier.THREAD,)
        assert (await agent.thread("another").converse("3")).role_tiers == ()
        assert thread.role.clear()
        assert not thread.role.clear()
        assert (await thread.converse("4")).role_tiers == ()
    assert [call.role for call in lm.calls] == [None, HARSH.content, MILD.content, None, None]


@pytest.mark.requirement("R10", "R7")
async def test_the_conversation_keeps_that_it_changed_and_never_to_what(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        thread = agent.thread("t", account="ana")
        thread.role.set(HARSH)
        thread.role.set(MILD)
        assert await thread.history() == ()
        await thread.converse("1")
        await thread.converse("2")
        history = await thread.history()
    assert [message.kind for message in history] == ["role", "role", "message", "answer", "message", "answer"]
    assert [message.author for message in history[:2]] == ["ana", "ana"]
    assert all(set(message.body) == {"change", "at"} for message in history[:2])
    assert_no_role_leak([tmp_path, *history], [HARSH.content, MILD.content])


@pytest.mark.requirement("R10")
async def test_it_ends_with_its_time_and_with_the_process(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with scripted_agent(tmp_path, answering(), clock=clock, settings={"thread_role_ttl": 100}) as agent:
        thread = agent.thread("t")
        for ttl, seconds in ((None, 100), (7, 7)):
            thread.role.set(HARSH, ttl=ttl)
            await clock.advance(seconds - 1)
            assert (await thread.converse("1")).role_tiers == (Tier.THREAD,)
            await clock.advance(1)
            assert (await thread.converse("2")).role_tiers == ()
        thread.role.set(HARSH)
    with pytest.raises(AgentClosed):
        thread.role.set(HARSH)
    async with scripted_agent(tmp_path, answering()) as agent:
        assert (await agent.thread("t").converse("3")).role_tiers == ()


@pytest.mark.requirement("R10")
async def test_there_is_a_bound_on_how_many_are_held(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        for number in range(1001):
            agent.thread(f"t{number}").role.set(HARSH)
        assert (await agent.thread("t0").converse("1")).role_tiers == ()
        assert (await agent.thread("t1").converse("1")).role_tiers == (Tier.THREAD,)


@pytest.mark.requirement("R10", "R2")
async def test_it_goes_before_a_source_of_the_embedder_which_counts_again_once_it_is_cleared(tmp_path: Path) -> None:
    async def source(scope: Scope) -> Role | None:
        return MILD

    lm = answering()
    async with scripted_agent(tmp_path, lm, roles=Roles(sources={Tier.THREAD: source})) as agent:
        thread = agent.thread("t")
        thread.role.set(HARSH)
        await thread.converse("1")
        thread.role.clear()
        await thread.converse("2")
    assert [call.role for call in lm.calls] == [HARSH.content, MILD.content]


WORDS = "For the rest of this conversation, be as critical as the keeper of the seventh lighthouse."
ASK = Roles(on_request="ask")


def asking(*dispatches: dict[str, Any], words: str = WORDS) -> ScriptedLM:
    """A model that plans these dispatches, one a round, where it is asked in these words; then it says what it saw."""
    planned = dispatches or ({"tool": "thread_role", "arguments": {}},)

    def plan(call: ScriptedCall) -> dict[str, Any]:
        if "request" in call.fields:
            return {"result": "Bad."}
        seen = [text for text in call.steps if text.startswith("You called ")]
        refused = len(seen) < len(call.steps)
        if words not in call.fields["message"] or len(seen) >= len(planned) or refused:
            return {"reply": "; ".join(["Well.", *(text.replace(WORDS, "...") for text in seen)])}
        return {"reply": "", "calls": [planned[len(seen)]]}

    return ScriptedLM(plan)


def opened(home: Path, lm: ScriptedLM | None = None, *, roles: Roles = ASK, **more: Any) -> WorldAgent:
    return scripted_agent(home, lm or asking(), roles=roles, **more)


async def said(thread: Thread, text: str = WORDS) -> Pause:
    """Say it; what is asked."""
    turn = await thread.converse(text)
    assert turn.status == "paused"
    [pause] = turn.pauses
    return pause


async def id_of(thread: Thread, kind: str) -> str:
    return next(message.id for message in await thread.history() if message.kind == kind)


@pytest.mark.requirement("R10", "T8")
async def test_approved_message_is_the_role_from_the_next_turn_on(tmp_path: Path) -> None:
    lm = asking()
    async with opened(tmp_path, lm) as agent:
        thread = agent.thread("t", account="ana")
        pause = await said(thread)
        assert (pause.kind, pause.function) == ("approval", "set_thread_role")
        [message] = [message for message in await thread.history() if message.kind == "message"]
        assert pause.arguments == {"message_id": message.id}
        assert message.body == {"text": WORDS}
        turn = await thread.resume({pause.id: Approve()})
        assert (turn.status, turn.role_tiers) == ("done", ())
        assert message.id in turn.text
        assert (await thread.converse("Is it good?")).role_tiers == (Tier.THREAD,)
        assert (await agent.thread("another", account="ana").converse("And this?")).role_tiers == ()
        explained = await agent.explain_role(thread)
        [active] = [tier for tier in explained.tiers if tier.state == "active"]
        assert (active.tier, active.name, active.length) == (Tier.THREAD, f"message {message.id}", len(WORDS))
        history = await thread.history()
    assert [call.role for call in lm.calls] == [None, None, WORDS, None]
    assert [message.kind for message in history] == [
        *("message", "plan", "result", "answer"),
        *("role", "message", "answer"),
    ]
    assert set(history[4].body) == {"change", "at"}


@pytest.mark.requirement("R10")
async def test_refused_role_is_reported_to_the_planner(tmp_path: Path) -> None:
    async with opened(tmp_path, asking()) as agent:
        thread = agent.thread("t")
        pause = await said(thread)
        turn = await thread.resume({pause.id: Reject("not now")})
        assert turn.status == "done"
        assert "a person refused the call of 'set_thread_role': not now" in turn.text
        assert (await thread.converse("Is it good?")).role_tiers == ()
        assert "role" not in [message.kind for message in await thread.history()]


async def conversation(home: Path) -> dict[str, str]:
    """A thread on which ana and ben speak, and another one; ids of messages by what they are."""
    lm = asking({"tool": "critic", "arguments": {"request": "Judge."}}, words="Judge it")
    async with opened(home, lm, workers=[CRITIC]) as agent:
        await agent.thread("t", account="ana").task("subagent", {"worker": "critic", "request": "Judge it."})
        await agent.thread("t", account="ben").converse("I am ben.")
        await agent.thread("t", account="ana").converse("Judge it.")
        await agent.thread("foreign", account="ana").converse("I am ana.")
        history = await agent.thread("t").history()
        ids: dict[str, str] = {message.kind: message.id for message in reversed(history)}
        ids["of another account"] = next(message.id for message in history if message.author == "ben")
        ids["of another thread"] = await id_of(agent.thread("foreign"), "message")
        return ids


@pytest.mark.requirement("R10", "T8")
@pytest.mark.parametrize("which", ["answer", "of another account", "of another thread"])
async def test_only_a_message_that_the_turns_account_said_on_this_thread_is_taken(tmp_path: Path, which: str) -> None:
    message_id = (await conversation(tmp_path))[which]
    async with opened(tmp_path, asking({"tool": "thread_role", "arguments": {"message_id": message_id}})) as agent:
        thread = agent.thread("t", account="ana")
        with pytest.raises(UnknownMessage, match=message_id):
            await thread.task("thread_role", {"message_id": message_id})
        turn = await thread.converse(WORDS)
        assert turn.status == "done"
        assert "It failed (unknown_message): " in turn.text
        assert message_id in turn.text
        assert (await thread.converse("Well?")).role_tiers == ()


@pytest.mark.requirement("R10", "C9")
async def test_no_message_of_a_member_is_taken(tmp_path: Path) -> None:
    ada = Worker("ada", "You help.", "helps", tools=("*",), offered=False)
    async with opened(tmp_path, asking(), workers=[ada]) as agent:
        turn = await as_member(agent.thread("t", account="ana"), "ada", sender="ben").converse(WORDS)
        assert "It failed (unknown_message): " in turn.text
        message_id = await id_of(agent.thread("t"), "message")
        for account in ("ana", "ben"):  # an account can have the name of a member
            with pytest.raises(UnknownMessage, match=message_id):
                await agent.thread("t", account=account).task("thread_role", {"message_id": message_id})


async def test_request_of_a_turn_that_lost_its_thread_is_refused(tmp_path: Path) -> None:
    def plan(call: ScriptedCall) -> dict[str, Any]:
        with closing(sqlite3.connect(tmp_path / "agent.db")) as database, database:
            database.execute("UPDATE wa_turn SET id='turn_of_another_owner'")
        return {"reply": "", "calls": [{"tool": "thread_role", "arguments": {}}]}

    async with opened(tmp_path, ScriptedLM(plan)) as agent:
        with pytest.raises(LeaseLost, match=r"the turn 'turn_\w+' no longer owns its thread; begin a new turn"):
            await agent.thread("t").converse(WORDS)


@pytest.mark.requirement("R15", "R10")
async def test_message_too_long_for_a_role_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, settings={"role_limit": len(WORDS) - 1}) as agent:
        thread = agent.thread("t")
        turn = await thread.converse(WORDS)
        assert turn.status == "done"
        limit = f"the thread role has {len(WORDS)} bytes, and the limit is {len(WORDS) - 1}"
        assert f"It failed (role_too_long): {limit}" in turn.text
        message_id = await id_of(thread, "message")
        with pytest.raises(RoleTooLong) as refused:
            await thread.task("thread_role", {"message_id": message_id})
        assert WORDS[:20] not in str(refused.value)


@pytest.mark.requirement("T8")
@pytest.mark.parametrize("given", [WORDS, "A" * 32])
async def test_a_plan_with_anything_else_than_an_id_is_refused_and_kept_nowhere(tmp_path: Path, given: str) -> None:
    async with opened(tmp_path, asking({"tool": "thread_role", "arguments": {"message_id": given}})) as agent:
        thread = agent.thread("t")
        async with thread.stream(WORDS) as stream:
            rejected = [event async for event in stream if isinstance(event, PlanRejected)]
        assert rejected
        assert not any(given in event.reason for event in rejected)
        assert "plan" not in [message.kind for message in await thread.history()]


@pytest.mark.requirement("R5", "R10")
async def test_without_the_option_prompts_have_no_function(tmp_path: Path) -> None:
    prompts: list[Any] = []
    for number, roles in enumerate((None, Roles(), Roles(on_request="ignore"), ASK)):
        lm = answering()
        async with scripted_agent(tmp_path / str(number), lm, roles=roles) as agent:
            await agent.thread("t").converse(WORDS)
            with pytest.raises(NobodyToAsk if roles is ASK else UnknownFunction):
                await agent.call("set_thread_role", {"message_id": "0" * 32})
        prompts.append((lm.calls[0].system, lm.calls[0].messages))
    plain, *same, asks = prompts
    assert same == [plain, plain]
    assert "thread_role" not in plain[0]
    assert "- thread_role: " in asks[0]


async def _pay(params: Nothing, ctx: TaskContext) -> Said:
    return Said(text=str(await ctx.call("pay", {})))


async def _paid() -> str:
    return "paid"


@pytest.mark.requirement("R10", "R13")
async def test_turn_that_pauses_again_keeps_its_role(tmp_path: Path) -> None:
    before = Role("friend", "Be as mild as the baker at the harbour.")
    lm = asking(
        {"tool": "thread_role", "arguments": {}},
        {"tool": "thread_role", "arguments": {}},
        {"tool": "job", "arguments": {}},
    )
    shapes = [Shape("job", Nothing, Said, _pay, description="pays")]
    async with opened(tmp_path, lm, tools=[tool(name="pay", approval=True)(_paid)], shapes=shapes) as agent:
        thread = agent.thread("t")
        thread.role.set(before)
        turn = await thread.converse(WORDS)
        for _ in range(3):
            assert turn.status == "paused"
            turn = await thread.resume({turn.pauses[0].id: Approve()})
        assert turn.status == "done"
        assert [call.role for call in lm.calls] == [before.content] * 4
        await thread.converse("Is it good?")
        assert lm.calls[-1].role == WORDS


def places(home: Path) -> list[str]:
    """Where the words stand in a home: the columns of each cell, and files that are not a database."""
    found = [finding.place for finding in scan_for_roles(home, [WORDS]).findings]
    cells = [place.partition(".db: ")[2].split(",")[0] for place in found if ".db: " in place]
    return cells + [place for place in found if "agent.db" not in place]


@pytest.mark.requirement("R7", "R10", "T8")
async def test_the_words_stand_in_the_conversation_once_and_nowhere_else(tmp_path: Path) -> None:
    with watch(tmp_path / "home") as seen:
        async with opened(tmp_path / "home") as agent:
            thread = agent.thread("t", account="ana")
            await seen.outcome(thread.converse(WORDS))
            for answer in (Reject("no"), Approve()):
                [pause] = await thread.pauses() or [await said(thread)]
                async with thread.stream_resume({pause.id: answer}) as stream:
                    seen.kept.append([event async for event in stream])
            await seen.outcome(thread.converse("Is it good?"))
        found = [place for place in seen.leaks(WORDS) if not place.startswith("home/agent.db")]
        assert found == []
    assert places(tmp_path / "home") == ["wa_message.body"] * 2  # it was said twice
