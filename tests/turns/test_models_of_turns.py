"""A turn can name its own model and fallbacks; it resumes with them, in any process."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, answering, calls, paying, price, scripted_agent, state_of, stock, to
from worldagent.agent import Thread, Trigger, Turn
from worldagent.core.errors import ModelNotConfigured
from worldagent.core.events import Usage
from worldagent.core.pauses import Approve
from worldagent.graphs import Composed
from worldagent.harness import Worker
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("H3")

AT = datetime(2030, 1, 1, tzinfo=UTC)


async def streamed(thread: Thread) -> Turn:
    async with thread.stream("Hello", model="fast") as stream:
        return await stream.wait()


async def edited(thread: Thread) -> Turn:
    await thread.converse("Hello")
    return await thread.edit("Hello again", model="fast")


async def replayed(thread: Thread) -> Turn:
    await thread.converse("Hello")
    return await thread.replay(model="fast")


SURFACES: dict[str, Callable[[Thread], Awaitable[Turn]]] = {
    "converse": lambda thread: thread.converse("Hello", model="fast"),
    "stream": streamed,
    "task": lambda thread: thread.task("subagent", {"worker": "critic", "request": "Go."}, model="fast"),
    "run_skill": lambda thread: thread.run_skill(
        Composed("Be brief.", shape="subagent", params={"worker": "critic", "request": "Go."}), model="fast"
    ),
    "run_scheduled": lambda thread: thread.run_scheduled(Trigger(schedule="daily", fired_at=AT), model="fast"),
    "edit": edited,
    "replay": replayed,
}


@pytest.mark.parametrize("surface", SURFACES)
async def test_each_surface_takes_a_model_for_its_one_turn(tmp_path: Path, surface: str) -> None:
    own, fast = answering("own"), answering("fast")
    async with scripted_agent(tmp_path, own, workers=[CRITIC], models={"fast": fast}) as agent:
        assert "fast" in (await SURFACES[surface](agent.thread("t"))).text
        assert len(fast.calls) == 1
        assert (await agent.thread("u").converse("Hello")).text == "own", "no other turn has it"


async def test_what_has_no_model_of_its_own_takes_the_turns_and_events_say_which_answered(tmp_path: Path) -> None:
    own = ScriptedLM([])
    fast = ScriptedLM([to("plain"), {"result": "Plain."}, to("proud"), {"reply": "Done."}], model="f")
    slow = ScriptedLM([{"result": "Proud."}], model="s")
    workers = [Worker("plain", "You judge."), Worker("proud", "You judge.", model="slow")]
    models = {"fast": fast, "slow": slow}
    async with scripted_agent(tmp_path, own, workers=workers, models=models) as agent:
        async with agent.thread("t").stream("Go", model="fast") as stream:
            used = [(event.signature, event.model) async for event in stream if isinstance(event, Usage)]
        assert stream.turn.text == "Done."
        trace = await agent.traces.get(stream.turn.id)
    for lm in (own, fast, slow):
        lm.assert_all_used()
    assert used == [("Converse", "f"), ("plain", "f"), ("Converse", "f"), ("proud", "s"), ("Converse", "f")]
    assert (trace.status, trace.models) == ("done", 5)


# --- what goes on later ---------------------------------------------------------------------------------------------

SHOPPER = Worker("shopper", "You buy.", tools=("pay",))


def buying() -> ScriptedLM:
    return ScriptedLM([to("shopper"), calls(("pay", {"what": "hat"}))])


@pytest.mark.requirement("T5")
async def test_turn_without_its_model_takes_no_answer_and_resumes_later(tmp_path: Path) -> None:
    done = list[str]()
    given: dict[str, Any] = {"workers": [SHOPPER], "tools": [price, stock, paying(done)]}
    async with scripted_agent(tmp_path, ScriptedLM([]), models={"fast": buying()}, **given) as agent:
        turn = await agent.thread("t").converse("Buy", model=("fast", "openai/gpt-4o"))
        [pause] = turn.pauses
    async with scripted_agent(tmp_path, ScriptedLM([]), models={"other": answering()}, **given) as agent:
        with pytest.raises(ModelNotConfigured) as failed:
            await agent.thread("t").resume({pause.id: Approve()})
        assert failed.value.problem.startswith(f"the turn {turn.id!r}, which began with it, wants the model 'fast'")
        assert failed.value.remedy.endswith("the names are: other")
        assert done == []
        assert (await state_of(agent.thread("t"))).status == "paused"
    later = ScriptedLM([{"result": "Bought."}, {"reply": "Done."}])
    async with scripted_agent(tmp_path, ScriptedLM([]), models={"fast": later}, **given) as agent:
        assert (await agent.thread("t").resume({pause.id: Approve()})).text == "Done."
    assert done == ["hat"]


# --- what is refused ------------------------------------------------------------------------------------------------
