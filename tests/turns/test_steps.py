"""Steps of a conversation: how events number them, what a model is told of them, and what of them a resume needs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, TypedDict

import pytest
from dspy.utils.exceptions import LMServerError
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import get_runtime

from support.agents import scripted_agent
from support.services import Said, service
from worldagent import Approve, Role, Settings, Storage, WorldAgent, tool
from worldagent.core import events as ev
from worldagent.profiles import Profile
from worldagent.profiles.profile import Verification
from worldagent.testing import ScriptedCall, ScriptedLM


@tool(risk="read_only")
def price(item: str) -> float:
    """Price of an item, in euros."""
    return 12.5


@tool(approval=True)
def buy(item: str) -> str:
    """Buy an item."""
    return f"bought {item}"


def calling(name: str, *many: dict[str, Any]) -> dict[str, Any]:
    return {"reply": "", "calls": [{"tool": name, "arguments": arguments} for arguments in many or ({"item": "hat"},)]}


async def test_a_step_number_is_not_used_again_after_a_check_that_failed(tmp_path: Path) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "answer" in call.fields:
            return {"satisfied": "second" in call.fields["answer"], "findings": "bad"}
        return {"reply": "second" if "check of it" in call.text else "first"}

    checked = Profile("checked", verification=Verification(enabled=True, max_iterations=2))
    async with (
        scripted_agent(tmp_path, ScriptedLM(reply), profile=checked) as agent,
        agent.thread("t").stream("Hi") as stream,
    ):
        events = [event async for event in stream]
    texts = {event.step: event.text for event in events if isinstance(event, ev.TextDelta)}
    ends = [(event.step, event.interim) for event in events if isinstance(event, ev.StepEnded)]
    assert (texts, ends) == ({0: "first", 1: "second"}, [(0, True), (1, False)])


@pytest.mark.parametrize("form", ["native", "chat"])
async def test_a_bad_step_after_a_good_one_is_reported_again(tmp_path: Path, form: Any) -> None:
    bad = calling("prize")
    lm = ScriptedLM([bad, calling("price"), bad, calling("price"), {"reply": "12.50."}], form=form)
    async with (
        scripted_agent(tmp_path, lm, tools=[price]) as agent,
        agent.thread("t").stream("What?") as stream,
    ):
        events = [event async for event in stream]
    assert [event.final for event in events if isinstance(event, ev.PlanRejected)] == [False, False]
    assert [call.may_call for call in lm.calls] == [True] * 5
    assert stream.turn is not None
    assert stream.turn.text == "12.50."


@pytest.mark.parametrize("form", ["native", "chat"])
async def test_the_model_and_the_log_are_told_the_arguments_that_a_person_put_there(tmp_path: Path, form: Any) -> None:
    lm = ScriptedLM([calling("buy"), {"reply": "Done."}, {"reply": "A rope."}], form=form)
    async with scripted_agent(tmp_path, lm, tools=[buy]) as agent:
        thread = agent.thread("t")
        turn = await thread.converse("Buy a hat.")
        turn = await thread.resume({turn.pauses[0].id: Approve(arguments={"item": "rope"})})
        assert turn.text == "Done."
        [step] = lm.calls[1].steps
        assert 'A person changed the arguments to {"item": "rope"} before it ran.' in step
        [result] = [message.body for message in await thread.history() if message.kind == "result"]
        assert (result["arguments"], result["result"]) == ({"item": "rope"}, {"value": "bought rope"})
        await thread.converse("What did you buy?")
    assert """You called 'buy' with {"item": "rope"}.""" in lm.calls[2].text


async def test_a_call_that_is_done_keeps_its_result_though_its_tool_is_gone_by_the_resume(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, ScriptedLM([calling("price"), calling("buy")]), tools=[price, buy]) as agent:
        turn = await agent.thread("t").converse("Buy a hat.")
    lm = ScriptedLM([{"reply": "Done."}])
    async with scripted_agent(tmp_path, lm, tools=[buy]) as agent:
        turn = await agent.thread("t").resume({turn.pauses[0].id: Approve()})
    assert turn.text == "Done."
    assert [step.splitlines()[-1] for step in lm.calls[0].steps] == ["12.5", "bought hat"]


async def test_a_faulty_message_of_one_model_is_not_paired_with_the_results_of_another(tmp_path: Path) -> None:
    first = ScriptedLM([calling("prize"), LMServerError("down"), {"reply": "25."}], form="native", model="first")
    second = ScriptedLM([calling("price", {"item": "hat"}, {"item": "rope"})], form="chat", model="second")
    models: Any = {"first": first, "second": second}
    async with scripted_agent(tmp_path, first, models=models, tools=[price]) as agent:
        turn = await agent.thread("t").converse("What do both cost?", model=["first", "second"])
    assert turn.text == "25."
    assert [step.splitlines()[-1] for step in first.calls[2].steps] == ["12.5", "12.5"]


class _Text(TypedDict):
    text: str


def _shout(state: _Text) -> _Text:
    return {"text": state["text"].upper()}


def _graph() -> Any:
    graph = StateGraph(_Text)
    graph.add_node("shout", _shout)
    graph.add_edge(START, "shout")
    graph.add_edge("shout", END)
    return graph.compile()


@pytest.mark.requirement("R7")
async def test_a_tool_that_runs_a_graph_of_its_own_sees_no_turn_and_writes_no_checkpoint(tmp_path: Path) -> None:
    seen: list[object] = []

    def shout(text: str) -> str:
        """Shout."""
        try:
            seen.append(get_runtime().context)
        except (AttributeError, RuntimeError):
            seen.append(None)
        return str(_graph().invoke({"text": text})["text"])

    other: Any = langchain_tool(shout)
    tools = [tool(risk="read_only")(shout), tool(risk="read_only", name="shout_2")(other)]
    lm = ScriptedLM([calling("shout", {"text": "a"}), calling("shout_2", {"text": "b"}), {"reply": "Done."}])
    async with scripted_agent(tmp_path, lm, tools=tools) as agent:
        turn = await agent.thread("t").converse("Shout", role=Role("brief", "Answer like a pirate would, always."))
        assert turn.text == "Done."
    with closing(sqlite3.connect(tmp_path / "agent.db")) as database:
        assert database.execute("SELECT DISTINCT checkpoint_ns FROM checkpoints").fetchall() == [("",)]
    assert [step.splitlines()[-1] for step in lm.calls[2].steps] == ["A", "B"]
    assert seen == [None, None]


async def test_reasoning_of_a_recorded_turn_comes_before_the_text_that_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    said = Said("Seven metres it is, I say to you.", (), "The chart says seven, so it is seven metres deep.")
    with service(said) as stub:
        options: Any = {"reasoning_effort": "low"}
        settings = Settings(api_base=stub.url("anthropic"), model_attempts=1, model_options=options)
        async with (
            WorldAgent("shop", storage=Storage(home=tmp_path), settings=settings, lm="anthropic/stub") as agent,
            agent.thread("t").stream("How deep?", key="once") as stream,
        ):
            kinds = [event.type async for event in stream]
    thoughts = [place for place, kind in enumerate(kinds) if kind == "reasoning_delta"]
    assert thoughts
    assert max(thoughts) < kinds.index("text_delta")
    assert kinds[-1] == "turn_ended"
