"""What the model of a worker receives, which one it is, and what a trace has of it (H5, H6, R5, R6, R7)."""

from pathlib import Path
from typing import Any

import pytest
from dspy.lm15 import InvalidRequestError, RateLimitError, ServerError

from support.agents import SHOPPER, calls, paying, price, scripted_agent, stock, streamed, to, told
from support.leaks import LONG, SHORT, watch
from worldagent import Role, WorldAgent
from worldagent.agent import Turn
from worldagent.core.errors import FunctionInvalid, ModelRefused, ModelUnavailable
from worldagent.core.events import TaskStarted
from worldagent.core.pauses import Approve
from worldagent.harness import Policy, Worker
from worldagent.harness.gate import Rule
from worldagent.harness.trace import Trace, TraceRecord
from worldagent.testing import ScriptedLM, assert_no_role_leak

pytestmark = pytest.mark.requirement("H6")

REVIEW = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "lines": {"type": "array", "items": {"type": "integer"}}},
    "required": ["text"],
}


async def test_a_prompt_is_a_template_over_the_fields_of_the_input(tmp_path: Path) -> None:
    worker = Worker("critic", "You judge.", input=REVIEW, prompt="Judge {{this}}, lines {lines}:\n\n{text}")
    lm = ScriptedLM([{"result": "Fine."}])
    async with scripted_agent(tmp_path, lm, workers=[worker]) as agent:
        assert await agent.call("critic", {"text": "A {lines} tale.", "lines": [1, 2]}) == "Fine."
    [call] = lm.calls
    assert call.fields == {"request": "Judge {this}, lines [1,2]:\n\nA {lines} tale."}
    assert "You judge." in call.system
    assert "Judge" not in call.system, "the prompt is the message, and the instructions stay static"


async def test_a_worker_reads_its_own_descriptions_of_functions(tmp_path: Path) -> None:
    own = {"price": "Was etwas kostet."}
    workers = [Worker("kunde", "You buy.", tools=("price", "stock"), descriptions=own), SHOPPER]
    lm = ScriptedLM([{"result": "Ja."}, {"result": "Yes."}])
    async with scripted_agent(tmp_path, lm, tools=[price, stock, paying([])], workers=workers) as agent:
        for name in ("kunde", "shopper"):
            await agent.call(name, {"request": "Buy."})
    german, english = (call.text for call in lm.calls)
    assert "- price: Was etwas kostet." in german
    assert "Was etwas" not in english
    assert f"- stock: {stock.description}" in german


@pytest.mark.parametrize("given", [{"price": ""}, {"": "x"}, {"price": 3}, ["price"]])
def test_descriptions_are_texts_by_name(given: Any) -> None:
    with pytest.raises(FunctionInvalid, match="descriptions"):
        Worker("kunde", "You buy.", descriptions=given)


@pytest.mark.parametrize("failure", [ServerError("down"), RateLimitError("slow")])
async def test_where_a_model_is_out_the_next_one_is_asked_the_same(tmp_path: Path, failure: Exception) -> None:
    first = ScriptedLM([calls(("price", {"what": "hat"})), failure, {"result": "Never."}])
    second = ScriptedLM([failure])
    third = ScriptedLM([{"result": "It is 3."}], form="native")
    worker = Worker("shopper", "You find prices.", tools=("price",), model="a", fallbacks=("b", "c"))
    models = {"a": first, "b": second, "c": third}
    async with scripted_agent(tmp_path, ScriptedLM([]), workers=[worker], tools=[price], models=models) as agent:
        assert await agent.call("shopper", {"request": "Go."}) == "It is 3."
    assert told(third.calls[0]) == told(first.calls[1]) == told(second.calls[0])
    assert third.calls[0].tools == ("price",), "each is offered tools as it takes them"


async def test_only_outages_use_the_fallback(tmp_path: Path) -> None:
    refusing = ScriptedLM([InvalidRequestError("no"), ServerError("down")])
    other = ScriptedLM([ServerError("down")])
    worker = Worker("critic", "You judge.", model="a", fallbacks=("b",))
    models = {"a": refusing, "b": other}
    async with scripted_agent(tmp_path, ScriptedLM([]), workers=[worker], models=models) as agent:
        with pytest.raises(ModelRefused):
            await agent.call("critic", {"request": "Go."})
        assert other.calls == []
        with pytest.raises(ModelUnavailable):
            await agent.call("critic", {"request": "Go."})
    assert (len(refusing.calls), len(other.calls)) == (2, 1)


async def test_models_may_be_named_in_the_settings(tmp_path: Path) -> None:
    fast = ScriptedLM([{"result": "Fine."}])
    async with scripted_agent(
        tmp_path,
        ScriptedLM([]),
        workers=[Worker("critic", "Go.", model="fast")],
        settings={"models": {"fast": "openai/gpt-4o"}},
        models={"fast": fast},  # an argument goes over a setting
    ) as agent:
        assert await agent.call("critic", {"request": "Go."}) == "Fine."


TASK = {"worker": "shopper", "request": "What is a hat?"}


def script(call: Any) -> dict[str, Any]:
    """A bad answer, calls, a call that waits, a result."""
    notes = told(call)
    if not notes:
        return calls(("steal", {}))
    if "could not be used" in notes[0]:
        return calls(("price", {"what": "hat"}), ("stock", {"what": "hat"}))
    return {"result": "Bought."} if any("'pay'" in note for note in notes) else calls(("pay", {"what": "hat"}))


@pytest.mark.requirement("R6", "R7")
@pytest.mark.parametrize(("native", "content"), [(False, SHORT), (True, LONG)], ids=["json", "native"])
async def test_a_role_is_there_at_each_step_and_kept_nowhere(tmp_path: Path, native: bool, content: str) -> None:
    role, done = Role("critic", content), list[str]()
    lm = ScriptedLM(script, form="native" if native else "chat")
    with watch(tmp_path) as seen:
        async with scripted_agent(tmp_path, lm, workers=[SHOPPER], tools=[price, stock, paying(done)]) as agent:
            thread = agent.thread("t")
            turn = await seen.outcome(thread.task("subagent", TASK, role=role))
            answers = {pause.id: Approve() for pause in turn.pauses}
            turn = await seen.outcome(thread.resume(answers, role=role))
            assert (turn.status, done) == ("done", ["hat"])
            seen.kept.append(await thread.history())
    assert [call.role for call in lm.calls] == [content] * 4
    assert all(content not in call.system and content not in "".join(told(call)) for call in lm.calls)
    seen.assert_clean(content)


ROLE = Role("tone", "Speak as an old lighthouse keeper would, and name the lamp in each line.")


def judging() -> ScriptedLM:
    return ScriptedLM([to("critic", "Judge the hat."), {"result": "A fine hat."}, {"reply": "Done."}])


async def tasks_of(agent: WorldAgent, turn: Turn) -> list[TraceRecord]:
    return [record for record in (await agent.traces.get(turn.id)).records if record.kind == "task"]


@pytest.mark.requirement("H5")
@pytest.mark.parametrize(
    ("allowed", "wanted"), [(True, {"inputs", "outputs"}), (False, {"inputs", "outputs"}), (True, set[str]())]
)
async def test_worker_and_trace_decide_what_is_captured(tmp_path: Path, allowed: bool, wanted: Any) -> None:
    worker = Worker("critic", "You judge.", "judges", capture=allowed)
    trace = Trace(capture=wanted)
    async with scripted_agent(tmp_path, judging(), workers=[worker], trace=trace) as agent:
        turn = await agent.thread("t").converse("Go", role=ROLE)
        [task] = await tasks_of(agent, turn)
        captured = ({"worker": "critic", "request": "Judge the hat."}, {"worker": "critic", "text": "A fine hat."})
        assert (task.inputs, task.outputs) == (captured if allowed and wanted else (None, None))
        assert_no_role_leak(ROLE, [task.line()])


@pytest.mark.requirement("H5", "H9")
@pytest.mark.parametrize("asks", [True, False])
async def test_a_tasks_start_says_its_risk_and_what_let_it_through(tmp_path: Path, asks: bool) -> None:
    worker = Worker("critic", "You judge.", "judges", risk=("write", "network"))
    policy = Policy(rules=(Rule(decision="ask" if asks else "approve", function="critic", name="critics"),))
    async with scripted_agent(tmp_path, judging(), workers=[worker], policy=policy) as agent:
        thread = agent.thread("t")
        turn, events = await streamed(thread.stream("Go"))
        if asks:
            assert not any(isinstance(event, TaskStarted) for event in events)
            [pause] = turn.pauses
            _, events = await streamed(thread.stream_resume({pause.id: Approve()}))
        [started] = [event for event in events if isinstance(event, TaskStarted)]
        told = (("write", "network"), "person" if asks else "rule:critics")
        assert (started.risk, started.gate) == told
        [task] = await tasks_of(agent, turn)
        assert (task.risk, task.gate) == told
