"""T14: a module that is killed in mid-run repeats no recorded call, and costs what the same calls by hand cost."""

from pathlib import Path
from typing import Any

import dspy
import pytest
from pydantic import BaseModel

from support.agents import scripted_agent
from support.databases import rows_of
from support.modules import KEEPER, SECRET
from support.processes import call_of, eventually, killed, start_script, wait_for_kill
from worldagent import Shape, WorldAgent
from worldagent.core.errors import LimitReached
from worldagent.graphs import TaskContext
from worldagent.graphs.shapes import module_shape, module_worker
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

pytestmark = pytest.mark.requirement("T14")

THINGS = ("hat", "coat", "shoe", "glove")
_MODEL_CALLS = "SELECT count(*) FROM wa_call WHERE kind='model' AND state='done'"


class Describe(dspy.Signature):
    """Describe it."""

    thing: str = dspy.InputField()
    text: str = dspy.OutputField()


class Things(BaseModel):
    things: list[str] = list(THINGS)


class Texts(BaseModel):
    texts: list[str]


class Threaded(dspy.Module):
    """Without an aforward, so it runs on a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.describe = dspy.Predict(Describe)

    def forward(self, things: list[str]) -> dspy.Prediction:
        return dspy.Prediction(texts=[self.describe(thing=thing).text for thing in things])


class Awaited(Threaded):
    async def aforward(self, things: list[str]) -> dspy.Prediction:
        return dspy.Prediction(texts=[(await self.describe.acall(thing=thing)).text for thing in things])


class Together(Threaded):
    """All at once, on threads of dspy's, each thing twice."""

    def forward(self, things: list[str]) -> dspy.Prediction:
        parallel = dspy.Parallel(num_threads=8, disable_progress_bar=True)
        made = parallel([(self.describe, {"thing": thing}) for thing in (*things, *things)])
        return dspy.Prediction(texts=[each.text for each in made])


FORMS = {"thread": Threaded, "loop": Awaited, "parallel": Together}


def agent_of(home: Path, lm: ScriptedLM, form: str, **settings: Any) -> WorldAgent:
    shape = module_shape("describe", FORMS[form](), params=Things, result=Texts, entry=Describe)
    worker = module_worker("describer", FORMS[form](), params=Things, result=Texts, description="describes things")
    return scripted_agent(home, lm, shapes=[shape, BY_HAND], workers=[worker], settings=settings)


async def by_hand(params: Things, ctx: TaskContext) -> Texts:
    return Texts(texts=[(await ctx.predict(Describe, thing=thing))["text"] for thing in params.things])


BY_HAND = Shape("by_hand", Things, Texts, by_hand, entry=Describe)


def described(call: ScriptedCall) -> dict[str, str]:
    return {"text": f"a {call.fields['thing']} for {call.index}"}


def recorded(home: Path) -> int:
    [(count,)] = rows_of(home, _MODEL_CALLS)
    return int(count)


TASKS: dict[str, tuple[str, Any]] = {
    "shape": ("describe", Things()),
    "worker": ("subagent", {"worker": "describer", "request": Things().model_dump_json()}),
}


def texts_of(result: Any, body: str) -> list[str]:
    """The texts in the result of a task."""
    made: Texts = result if body == "shape" else Texts.model_validate_json(result.text)
    return made.texts


async def die(home: Path, form: str, body: str) -> None:
    """Run the module in this process, until all calls but those of the last thing are recorded."""
    all_others = (len(THINGS) - 1) * (2 if form == "parallel" else 1)

    async def answer(call: ScriptedCall) -> dict[str, str]:
        if call.fields["thing"] == THINGS[-1]:
            assert await eventually(lambda: recorded(home) == all_others)
            await wait_for_kill()
        return described(call)

    async with agent_of(home, ScriptedLM(answer), form) as agent:
        await agent.thread("t").task(*TASKS[body], role=KEEPER)


@pytest.mark.parametrize("body", TASKS)
@pytest.mark.parametrize("form", FORMS)
async def test_a_killed_module_repeats_no_call_whose_row_was_committed(tmp_path: Path, form: str, body: str) -> None:
    home = tmp_path / "home"
    await killed(await start_script(call_of(die, home, form, body)))
    before = recorded(home)
    times = 2 if form == "parallel" else 1
    assert before == (len(THINGS) - 1) * times
    assert_no_role_leak(home, SECRET)

    lm = ScriptedLM(described)
    async with agent_of(home, lm, form) as agent:
        turn = await agent.thread("t").resume(role=KEEPER)
    assert [call.fields["thing"] for call in lm.calls] == [THINGS[-1]] * times
    # No role reaches a worker that is a function.
    assert [call.role for call in lm.calls] == [SECRET if body == "shape" else None] * times
    texts = texts_of(turn.result, body)
    assert [text.split()[1] for text in texts] == list(THINGS) * times
    assert len(set(texts)) == len(THINGS) * times, "an answer was given to two calls"
    assert recorded(home) == len(THINGS) * times
    assert_no_role_leak(home, SECRET)


@pytest.mark.parametrize("body", TASKS)
@pytest.mark.parametrize("form", FORMS)
async def test_a_module_costs_what_the_same_calls_by_hand_cost(tmp_path: Path, form: str, body: str) -> None:
    things = THINGS * 2 if form == "parallel" else THINGS
    role = KEEPER if body == "shape" else None  # no role reaches a worker that is a function
    lm = ScriptedLM(lambda call: {"text": f"a {call.fields['thing']}"})
    async with agent_of(tmp_path, lm, form) as agent:
        made = await agent.thread("m").task(*TASKS[body], role=role)
        hand = await agent.thread("h").task("by_hand", Things(things=list(things)), role=role)
    assert made.usage == hand.usage
    assert made.usage.calls == len(things)
    assert made.usage.input_tokens
    assert texts_of(made.result, body) == hand.result.texts
    sent = [(call.system, call.messages) for call in lm.calls]
    if form == "parallel":  # in the order of the threads
        sent = [*sorted(sent[: len(things)]), *sorted(sent[len(things) :])]
    assert sent[: len(things)] == sent[len(things) :], "the module sent something else"


@pytest.mark.parametrize("body", TASKS)
@pytest.mark.parametrize("form", ["thread", "loop"])
async def test_a_limit_ends_a_module_where_it_ends_the_same_calls_by_hand(tmp_path: Path, form: str, body: str) -> None:
    asked = []
    for task in (TASKS[body], ("by_hand", Things())):
        lm = ScriptedLM(lambda call: {"text": f"a {call.fields['thing']}"})
        async with agent_of(tmp_path / task[0], lm, form, turn_tokens=300) as agent:
            with pytest.raises(LimitReached):
                await agent.thread("t").task(*task)
        asked.append(len(lm.calls))
    assert asked[0] == asked[1]
    assert 0 < asked[0] < len(THINGS)
