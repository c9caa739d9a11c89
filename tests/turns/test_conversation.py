"""Turns of a conversation: answers, plans that break, streams, owners, pages, many at once."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, answering, scripted_agent, standing
from support.stores import StoreKind, on_every_store, stored_agent
from worldagent import Role, Tier, WorldAgent
from worldagent.core import events as ev
from worldagent.core.errors import (
    AgentClosed,
    ContextExceeded,
    InvalidArgument,
    ModelTimeout,
    OutputInvalid,
    ThreadBusy,
    UnknownMessage,
    WorldAgentError,
)
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.on_every_database


@pytest.mark.requirement("T1")
async def test_a_thread_remembers_and_another_process_goes_on(tmp_path: Path) -> None:
    lm = ScriptedLM([{"reply": "Ara rules."}, {"reply": "Since the flood."}])
    async with scripted_agent(tmp_path, lm) as agent:
        assert (await agent.thread("t").converse("Who rules Vell?")).text == "Ara rules."
    async with scripted_agent(tmp_path, lm) as agent:
        assert (await agent.thread("t").converse("Since when?")).text == "Since the flood."
        history = await agent.thread("t").history()
    assert [(m.author, m.kind, m.body["text"]) for m in history] == [
        ("user", "message", "Who rules Vell?"),
        ("agent", "answer", "Ara rules."),
        ("user", "message", "Since when?"),
        ("agent", "answer", "Since the flood."),
    ]
    assert [speaker for speaker, _ in lm.calls[1].messages] == ["user", "assistant", "user"]
    assert "Ara rules." in lm.calls[1].messages[1][1]


@pytest.mark.requirement("T1")
async def test_workspaces_on_one_database_share_no_thread(tmp_path: Path) -> None:
    from worldagent import Storage, WorldAgent

    lm = answering()
    for workspace in ("a", "a/b", "a%2Fb", "a"):
        async with WorldAgent(workspace, lm=lm, storage=Storage(home=tmp_path)) as agent:
            await agent.thread("b/t" if workspace == "a" else "t").converse(f"in {workspace}")
            assert {m.body["text"] for m in await agent.thread("t").history() if m.kind == "message"} <= {
                f"in {workspace}"
            }


@pytest.mark.requirement("R9", "T1", "T9")
@on_every_store
async def test_accounts_on_one_thread_have_their_own_roles_and_names(tmp_path: Path, kind: StoreKind) -> None:
    lm = answering()
    async with stored_agent(kind, tmp_path, lm, shipped=True) as agent:
        for account in ("ana", "ben"):
            await agent.roles.put(Tier.ACCOUNT, Role(account, f"as {account} likes"), scope_id=account)
        for speaker in ("ana", "ben", None):
            await agent.thread("t", account=speaker).converse("Hi")
        authors = [m.author for m in await agent.thread("t").history() if m.kind == "message"]
    assert [call.role for call in lm.calls] == ["as ana likes", "as ben likes", None]
    assert authors == ["ana", "ben", "user"]


@pytest.mark.requirement("R9", "T9")
@on_every_store
async def test_many_turns_at_once_see_nothing_of_each_other(tmp_path: Path, kind: StoreKind) -> None:
    gate, waiting = asyncio.Event(), 0
    count = 40

    async def reply(call: ScriptedCall) -> dict[str, Any]:
        nonlocal waiting
        waiting += 1
        if waiting == count:
            gate.set()
        async with asyncio.timeout(60):
            await gate.wait()
        return {"reply": f"{call.fields['message']} as {call.role}"}

    lm = ScriptedLM(reply)
    async with stored_agent(kind, tmp_path, lm, shipped=True) as agent:
        for n in range(0, count, 2):
            await agent.roles.put(Tier.ACCOUNT, Role("a", f"account {n}"), scope_id=f"acc{n}")

        async def one(n: int) -> str:
            role = Role("c", f"call {n}") if n % 2 else None
            return (await agent.thread(f"t{n}", account=f"acc{n}").converse(f"message {n}", role=role)).text

        texts = await asyncio.gather(*map(one, range(count)))
        assert texts == [f"message {n} as {'call' if n % 2 else 'account'} {n}" for n in range(count)]
        for n in range(count):
            assert [m.body["text"] for m in await agent.thread(f"t{n}").history()] == [f"message {n}", texts[n]]


@pytest.mark.requirement("T9")
async def test_agents_with_different_models_do_not_mix_them_up(tmp_path: Path) -> None:
    async with (
        scripted_agent(tmp_path / "a", answering("from a")) as a,
        scripted_agent(tmp_path / "b", answering("from b")) as b,
    ):
        turns = await asyncio.gather(
            *(agent.thread(f"t{n}").converse("Hi") for n in range(5) for agent in (a, b)),
        )
    assert [turn.text for turn in turns] == ["from a", "from b"] * 5


PLAN = {"reply": "I will ask.", "calls": [{"tool": "critic", "arguments": {"request": "Judge it."}}]}
BROKEN: dict[str, Any] = {
    "unknown name": {"reply": "x", "calls": [{"tool": "nobody", "arguments": {"request": "x"}}]},
    "no request": {"reply": "x", "calls": [{"tool": "critic", "arguments": {"request": ""}}]},
    "wrong fields": {"reply": "x", "calls": [{"whom": "critic"}]},
    "not a list": {"reply": "x", "calls": "ask the critic please"},
    "nothing": {"reply": "", "calls": []},
    "too many": {"reply": "x", "calls": [{"tool": "critic", "arguments": {"request": str(n)}} for n in range(17)]},
}


@pytest.mark.requirement("T10")
@pytest.mark.parametrize("broken", BROKEN)
async def test_a_broken_plan_is_told_so_once(tmp_path: Path, broken: str) -> None:
    lm = ScriptedLM([BROKEN[broken], {"reply": "Better.", "calls": []}])
    async with scripted_agent(tmp_path, lm, workers=[CRITIC]) as agent, agent.thread("t").stream("Hi") as stream:
        events = [event async for event in stream]
    assert stream.turn.text == standing(events) == "Better."
    [rejected] = [event for event in events if event.type == "plan_rejected"]
    assert rejected.final is False
    [note] = lm.calls[1].steps
    assert note.startswith("Your last answer could not be used")


@pytest.mark.parametrize("broken", BROKEN)
async def test_after_two_broken_plans_the_turn_answers_directly_and_says_so(tmp_path: Path, broken: str) -> None:
    lm = ScriptedLM([BROKEN[broken], BROKEN[broken], "Just words."])
    async with scripted_agent(tmp_path, lm, workers=[CRITIC]) as agent:
        async with agent.thread("t").stream("Hi") as stream:
            events = [event async for event in stream]
        history = await agent.thread("t").history()
    assert stream.turn.text == standing(events) == "Just words."
    assert [event.final for event in events if event.type == "plan_rejected"] == [False, True]
    assert lm.calls[2].steps[-1] == "You can call no tools any more. Answer now."
    assert [m.kind for m in history] == ["message", "answer"]


async def test_a_model_that_never_answers_fails_the_turn_and_the_thread_goes_on(tmp_path: Path) -> None:
    lm = ScriptedLM(["", "", "", {"reply": "Now."}])
    async with scripted_agent(tmp_path, lm, workers=[CRITIC]) as agent:
        with pytest.raises(OutputInvalid):
            await agent.thread("t").converse("Hi")
        assert (await agent.thread("t").converse("Still there?")).text == "Now."
        assert [m.kind for m in await agent.thread("t").history()] == ["message", "message", "answer"]


async def test_a_planner_that_only_dispatches_must_answer_at_last(tmp_path: Path) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "request" in call.fields:
            return {"result": "Hm."}
        return {"reply": "At last."} if "no tools any more" in "".join(call.steps) else PLAN

    async with scripted_agent(tmp_path, ScriptedLM(reply), workers=[CRITIC], settings={"max_rounds": 3}) as agent:
        turn = await agent.thread("t").converse("Hi")
        kinds = [m.kind for m in await agent.thread("t").history()]
    assert turn.text == "At last."
    assert kinds == ["message", *["plan", "result"] * 3, "answer"]


@pytest.mark.requirement("T10")
async def test_events_are_numbered_frozen_and_read_back_from_their_json(tmp_path: Path) -> None:
    lm = ScriptedLM([PLAN, {"result": "Weak."}, {"reply": "It is weak."}])
    role = Role("harsh", "Be harsh.")
    async with (
        scripted_agent(tmp_path, lm, workers=[CRITIC]) as agent,
        agent.thread("t").stream("Good?", role=role) as stream,
    ):
        events = [event async for event in stream]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert {event.turn_id for event in events} == {stream.turn.id}
    assert [ev.parse_event(event.model_dump_json()) for event in events] == events
    assert [event.type for event in events if event.type != "text_delta"] == [
        "turn_started",
        "usage",
        "step_ended",
        "task_started",
        "usage",
        "task_ended",
        "usage",
        "step_ended",
        "turn_ended",
    ]
    assert events[0].type == "turn_started"
    assert events[0].role_tiers == (Tier.CALL,)
    assert events[-1].type == "turn_ended"
    assert (events[-1].status, events[-1].text) == ("done", "It is weak.")
    assert standing(events) == "It is weak."
    with pytest.raises(Exception, match="frozen"):
        setattr(events[0], "seq", 7)  # noqa: B010 -- the checkers would refuse the mistake that is tested
    unknown = re.sub(r'"type":"\w+"', '"type":"brand_new"', events[0].model_dump_json())
    assert ev.parse_event(unknown) is None
    assert stream.turn.usage.calls == 3


async def test_the_plain_call_gives_the_same_turn_as_the_stream(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path / "a", answering()) as agent:
        plain = await agent.thread("t").converse("Hi", role=Role("c", "x"))
    async with (
        scripted_agent(tmp_path / "b", answering()) as agent,
        agent.thread("t").stream("Hi", role=Role("c", "x")) as stream,
    ):
        async for _ in stream:
            pass
    streamed = stream.turn
    assert (plain.text, plain.status, plain.role_tiers, plain.usage) == (
        streamed.text,
        streamed.status,
        streamed.role_tiers,
        streamed.usage,
    )


def held(started: asyncio.Event, gate: asyncio.Event | None = None) -> ScriptedLM:
    """A model whose first call says that it began and then waits."""
    stay = gate or asyncio.Event()

    async def reply(call: ScriptedCall) -> dict[str, Any]:
        if call.index == 1:
            started.set()
            await stay.wait()
        return {"reply": f"answer {call.index}"}

    return ScriptedLM(reply)


@pytest.mark.requirement("T4")
async def test_a_second_turn_waits_for_the_first_or_says_that_the_thread_is_busy(tmp_path: Path) -> None:
    started, gate = asyncio.Event(), asyncio.Event()
    async with scripted_agent(tmp_path, held(started, gate)) as agent:
        first = asyncio.create_task(agent.thread("t").converse("1"))
        await asyncio.wait_for(started.wait(), 20)
        async with scripted_agent(tmp_path, answering(), settings={"thread_wait": 0.05}) as impatient:
            with pytest.raises(ThreadBusy, match="t") as caught:
                await impatient.thread("t").converse("2")
            assert caught.value.retryable
            assert (await impatient.thread("other").converse("3")).text == "Fine."
        second = asyncio.create_task(agent.thread("t").converse("4"))
        gate.set()
        assert (await asyncio.wait_for(first, 20)).text == "answer 1"
        assert (await asyncio.wait_for(second, 20)).text == "answer 2"
        said = [m.body["text"] for m in await agent.thread("t").history()]
    assert said == ["1", "answer 1", "4", "answer 2"]


@pytest.mark.requirement("T4")
async def test_cancelling_the_awaiting_task_cancels_the_turn_and_frees_the_thread(tmp_path: Path) -> None:
    started = asyncio.Event()
    async with scripted_agent(tmp_path, held(started)) as agent:
        task = asyncio.create_task(agent.thread("t").converse("1"))
        await asyncio.wait_for(started.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await agent.thread("t").converse("2")).text == "answer 2"
        assert [m.kind for m in await agent.thread("t").history()] == ["message", "message", "answer"]


@pytest.mark.requirement("T10")
async def test_leaving_a_stream_cancels_its_turn(tmp_path: Path) -> None:
    started = asyncio.Event()
    async with scripted_agent(tmp_path, held(started)) as agent:
        async with agent.thread("t").stream("1") as stream:
            async for event in stream:
                assert event.type == "turn_started"
                await asyncio.wait_for(started.wait(), 20)
                break
        assert stream.turn.status == "cancelled"
        assert (await agent.thread("t").converse("2")).text.startswith("answer")


@pytest.mark.requirement("T10")
async def test_a_detached_turn_goes_on_when_its_stream_is_left(tmp_path: Path) -> None:
    started, gate = asyncio.Event(), asyncio.Event()
    async with scripted_agent(tmp_path, held(started, gate)) as agent:
        async with agent.thread("t").stream("1", detach=True) as stream:
            await asyncio.wait_for(started.wait(), 20)
        gate.set()
        assert (await asyncio.wait_for(stream.wait(), 20)).text == "answer 1"


async def test_closing_the_agent_ends_turns_that_are_under_way(tmp_path: Path) -> None:
    started = asyncio.Event()
    agent = await scripted_agent(tmp_path, held(started)).start()
    async with agent.thread("t").stream("1", detach=True) as stream:
        await asyncio.wait_for(started.wait(), 20)
    await agent.aclose()
    assert stream.turn.status == "cancelled"
    with pytest.raises(AgentClosed, match="async with agent"):
        await agent.thread("t").converse("2")


async def test_a_model_that_is_too_slow_fails_the_turn_with_the_time_limit(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, held(asyncio.Event()), settings={"model_timeout": 0.05}) as agent:
        async with agent.thread("t").stream("1") as stream:
            with pytest.raises(ModelTimeout, match=r"within 0.05 s.*model_timeout"):
                events = [event async for event in stream]
        events = []
        assert (await agent.thread("t").converse("2")).text == "answer 2"
    assert events == []


async def test_a_failed_stream_ends_with_its_code_and_then_raises(tmp_path: Path) -> None:
    lm = ScriptedLM(["", "", ""])
    events: list[Any] = []

    async def follow(agent: WorldAgent) -> None:
        async with agent.thread("t").stream("1") as stream:
            async for event in stream:
                events.append(event)

    async with scripted_agent(tmp_path, lm, workers=[CRITIC]) as agent:
        with pytest.raises(WorldAgentError) as caught:
            await follow(agent)
    assert (events[-1].type, events[-1].status, events[-1].code) == ("turn_ended", "failed", "output_invalid")
    assert caught.value.turn_id == events[-1].turn_id


async def test_an_error_that_nobody_iterated_to_is_raised_on_leaving(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, ScriptedLM(["", "", ""]), workers=[CRITIC]) as agent:
        with pytest.raises(OutputInvalid):
            async with agent.thread("t").stream("1") as stream:
                await asyncio.wait({stream._running.task} if stream._running else set(), timeout=20)


@pytest.mark.requirement("T1")
async def test_history_pages_back_to_the_beginning(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        thread = agent.thread("t")
        for n in range(5):
            await thread.converse(f"m{n}")
        everything = await thread.history(limit=1000)
        pages: list[Any] = []
        before: str | None = None
        while page := await thread.history(before=before, limit=3):
            pages.append(page)
            before = page[0].id
        other = await agent.thread("u").converse("x")
        foreign = (await agent.thread("u").history())[0].id
        with pytest.raises(UnknownMessage, match=r"use an id"):
            await thread.history(before=foreign)
        with pytest.raises(InvalidArgument, match="limit 0"):
            await thread.history(limit=0)
    assert tuple(m for page in reversed(pages) for m in page) == everything
    assert len(everything) == 10
    assert other.text == "Fine."


async def test_the_planner_sees_its_message_however_short_the_history_is_cut(tmp_path: Path) -> None:
    lm = ScriptedLM([PLAN, {"result": "Weak."}, {"reply": "It is weak."}])
    async with scripted_agent(tmp_path, lm, workers=[CRITIC], settings={"history_limit": 1}) as agent:
        await agent.thread("t").converse("Is it good?")
    assert [call.fields.get("message") for call in lm.calls] == ["Is it good?", None, "Is it good?"]


async def test_an_agent_works_inside_somebody_elses_graph_and_leaves_it_alone(tmp_path: Path) -> None:
    from typing import TypedDict

    from langchain_core.callbacks import AsyncCallbackHandler
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, StateGraph

    class State(TypedDict):
        text: str

    class Names(AsyncCallbackHandler):
        def __init__(self) -> None:
            self.seen: list[str] = []

        async def on_chain_start(self, serialized: Any, inputs: Any, **more: Any) -> None:
            self.seen.append(str(more.get("name")))

    names = Names()
    saver = InMemorySaver()
    async with scripted_agent(tmp_path, answering("From inside.")) as agent:

        async def ask(state: State) -> State:
            return {"text": (await agent.thread("t").converse(state["text"], role=Role("c", "x"))).text}

        graph = StateGraph(State)
        graph.add_node("ask", ask)
        graph.add_edge(START, "ask")
        config: Any = {"configurable": {"thread_id": "theirs"}, "callbacks": [names]}
        result = await graph.compile(checkpointer=saver).ainvoke({"text": "Hi"}, config)
        assert [m.kind for m in await agent.thread("t").history()] == ["message", "answer"]
    assert result == {"text": "From inside."}
    assert set(names.seen) == {"LangGraph", "ask"}
    assert {found.config["configurable"]["thread_id"] for found in saver.list(None)} == {"theirs"}


async def test_a_thread_that_outgrew_its_models_context_goes_on_with_what_fits(tmp_path: Path) -> None:
    import dspy

    def reply(call: ScriptedCall) -> Any:
        if len(call.text) > 20_000:
            return dspy.lm15.ContextLengthError("too long")
        return {"reply": f"{len(call.messages)}"}

    async with scripted_agent(tmp_path, ScriptedLM(reply)) as agent:
        thread = agent.thread("t")
        for n in range(4):
            await thread.converse(f"{n} " + "x" * 5_000)
        with pytest.raises(ContextExceeded):
            await thread.converse("y" * 30_000)
        assert (await thread.converse("And now?")).text == "1"
        assert (await thread.converse("And then?")).text == "3"
