"""Turns of a conversation: answers, plans that break, streams, owners, pages, many at once."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, answering, scripted_agent, standing, streamed, under_way
from support.role_hosts import StoreKind, stored_agent
from worldagent import Role, Tier
from worldagent.core import events as ev
from worldagent.core.errors import (
    AgentClosed,
    InvalidArgument,
    OutputInvalid,
    UnknownMessage,
)
from worldagent.testing import ScriptedCall, ScriptedLM


@pytest.mark.requirement("T1")
@pytest.mark.on_every_database
async def test_thread_continues_in_another_process(tmp_path: Path) -> None:
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


@pytest.mark.requirement("R9", "T9")
@pytest.mark.parametrize("kind", ["embedded", "http"])
async def test_many_turns_at_once_see_nothing_of_each_other(tmp_path: Path, kind: StoreKind) -> None:
    gate, waiting = asyncio.Event(), 0
    count = 20

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


PLAN = {"reply": "I will ask.", "calls": [{"tool": "critic", "arguments": {"request": "Judge it."}}]}


@pytest.mark.parametrize("calls", ["ask the critic please", [{"whom": "critic"}]])
async def test_after_two_broken_plans_the_turn_answers_directly(tmp_path: Path, calls: Any) -> None:
    broken = {"reply": "x", "calls": calls}
    lm = ScriptedLM([broken, broken, "Just words."])
    async with scripted_agent(tmp_path, lm, workers=[CRITIC]) as agent:
        turn, events = await streamed(agent.thread("t").stream("Hi"))
        history = await agent.thread("t").history()
    assert turn.text == standing(events) == "Just words."
    assert [event.final for event in events if event.type == "plan_rejected"] == [False, True]
    assert lm.calls[2].steps[-1] == "You can call no tools any more. Answer now."
    assert [m.kind for m in history] == ["message", "answer"]


@pytest.mark.requirement("T10")
async def test_events_are_numbered_frozen_and_read_back_and_the_plain_call_gives_the_same_turn(tmp_path: Path) -> None:
    lm = ScriptedLM([PLAN, {"result": "Weak."}, {"reply": "It is weak."}] * 2)
    role = Role("harsh", "Be harsh.")
    async with scripted_agent(tmp_path, lm, workers=[CRITIC]) as agent:
        turn, events = await streamed(agent.thread("t").stream("Good?", role=role))
        plain = await agent.thread("u").converse("Good?", role=role)
    for name in ("text", "status", "role_tiers", "usage"):
        assert getattr(plain, name) == getattr(turn, name), name
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert {event.turn_id for event in events} == {turn.id}
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
    assert ev.parse_event(re.sub(r'"type":"\w+"', '"type":"brand_new"', events[0].model_dump_json())) is None
    assert turn.usage.calls == 3


async def test_closing_the_agent_ends_turns_that_are_under_way(tmp_path: Path) -> None:
    async with under_way(tmp_path) as (_, agent, stream):
        await agent.aclose()
        assert stream.turn.status == "cancelled"
        with pytest.raises(AgentClosed, match="async with agent"):
            await agent.thread("t").converse("2")


async def test_unread_error_of_a_stream_is_raised_at_its_end(tmp_path: Path) -> None:
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
        for limit in (0, 1001, True, "3"):
            with pytest.raises(InvalidArgument, match="`limit` must be an integer from 1 to 1000"):
                await thread.history(limit=limit)  # type: ignore[arg-type]  # what is tested
    assert tuple(m for page in reversed(pages) for m in page) == everything
    assert len(everything) == 10
    assert other.text == "Fine."


async def test_agent_works_inside_a_foreign_graph(tmp_path: Path) -> None:
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
