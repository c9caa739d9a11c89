"""`map`: one shape over many params. Each item is a task of its own: it fails, waits and resumes by itself (T3)."""

import asyncio
from pathlib import Path
from typing import Any

import dspy
import pytest
from pydantic import BaseModel

from support.agents import CRITIC, Nothing, answering, scripted_agent
from worldagent import Role, WorldAgent
from worldagent.agent import Composed
from worldagent.core.errors import FunctionInvalid
from worldagent.core.pauses import Approve, Reject
from worldagent.graphs import Shape, TaskContext
from worldagent.graphs.shapes import MapResult, map_shape
from worldagent.harness import Function, Worker, tool
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T3")

POET = Worker("poet", "You write verse.", "writes verse")


class Number(BaseModel):
    number: int


class Square(BaseModel):
    square: int


async def square(params: Number, ctx: TaskContext) -> Square:
    if params.number < 0:
        raise ValueError("a text that nobody is told")
    return Square(square=params.number**2)


SQUARE = Shape("square", Number, Square, square)


def items(*numbers: int) -> list[dict[str, Any]]:
    return [{"number": number} for number in numbers]


def mapped(result: Any) -> MapResult:
    assert isinstance(result, MapResult)
    return result


def squares(result: Any) -> list[Any]:
    return [item.result and item.result["square"] for item in mapped(result).items]


async def test_an_item_that_fails_is_reported_in_its_place_and_the_others_are_done(tmp_path: Path) -> None:
    given = [*items(3, -1), {"numbr": 1}, *items(2)]
    async with scripted_agent(tmp_path, ScriptedLM([]), shapes=[SQUARE, map_shape()]) as agent:
        turn = await agent.thread("t").task("map", {"shape": "square", "items": given})
    result = mapped(turn.result)
    assert squares(result) == [9, None, None, 4]
    assert result.failed == 2
    _, raised, misfit, _ = result.items
    assert raised.error is not None
    assert misfit.error is not None
    assert (raised.status, raised.error.code) == ("failed", "task_failed")
    assert "ValueError" in raised.error.message
    assert "nobody" not in turn.text
    assert (misfit.status, misfit.error.code) == ("failed", "params_invalid")
    assert "number: Field required" in misfit.error.message


async def test_no_more_items_run_at_the_same_time_than_asked_for(tmp_path: Path) -> None:
    running, most = 0, list[int]()

    async def hold(params: Number, ctx: TaskContext) -> Square:
        nonlocal running
        running += 1
        most.append(running)
        for _ in range(3):
            await asyncio.sleep(0)  # lets whoever may run begin
        running -= 1
        return Square(square=params.number)

    shapes = [Shape("hold", Number, Square, hold), map_shape()]
    async with scripted_agent(tmp_path, ScriptedLM([]), shapes=shapes) as agent:
        await agent.thread("t").task("map", {"shape": "hold", "items": items(*range(20)), "concurrency": 3})
    assert len(most) == 20
    assert max(most) == 3


def paying(done: list[int]) -> list[Function]:
    async def pay(number: int) -> int:
        done.append(number)
        return number

    return [tool(approval=True)(pay), tool(name="write")(pay)]


async def pay_even(params: Number, ctx: TaskContext) -> Square:
    name = "write" if params.number % 2 else "pay"
    return Square(square=await ctx.call(name, {"number": params.number}))


class Judge(dspy.Signature):
    """Judge a number; a role attaches here."""

    number: int = dspy.InputField()
    verdict: str = dspy.OutputField()


def buyer(home: Path, done: list[int]) -> WorldAgent:
    shapes = [Shape("buy", Number, Square, pay_even, Judge), map_shape()]
    return scripted_agent(home, ScriptedLM([]), tools=paying(done), shapes=shapes)


@pytest.mark.requirement("T4")
async def test_paused_items_resume_one_by_one(tmp_path: Path) -> None:
    done: list[int] = []
    async with buyer(tmp_path, done) as agent:
        turn = await agent.thread("t").task("map", {"shape": "buy", "items": items(0, 2, 4, 1, 3), "concurrency": 2})
    assert turn.status == "paused"
    assert sorted(done) == [1, 3]
    asked = {pause.arguments["number"]: pause.id for pause in turn.pauses if pause.arguments}
    assert set(asked) == {0, 2, 4}
    async with buyer(tmp_path, done) as agent:
        turn = await agent.thread("t").resume({asked[2]: Approve()})
        assert (turn.status, sorted(done)) == ("paused", [1, 2, 3])
        turn = await agent.thread("t").resume({asked[0]: Approve(), asked[4]: Reject("too dear")})
    result = mapped(turn.result)
    assert squares(result) == [0, 2, None, 1, 3]
    assert result.items[2].error is not None
    assert result.items[2].error.code == "call_refused"
    assert sorted(done) == [0, 1, 2, 3]


def roles_of(lm: ScriptedLM) -> dict[str, str]:
    return {str(call.fields["request"]): str(call.fields.get("role", "")) for call in lm.calls}


@pytest.mark.requirement("T8")
async def test_the_role_of_a_map_is_the_role_of_each_item_and_nothing_else_s(tmp_path: Path) -> None:
    lm = answering()
    over = {
        "shape": "subagent",
        "items": [{"worker": "critic", "request": "a"}, {"worker": "poet", "request": "b"}],
    }

    async def both(params: Nothing, ctx: TaskContext) -> Square:
        await ctx.task("map", over, role=Role("brief", "Be brief."))
        await ctx.task("map", {**over, "items": [{"worker": "critic", "request": "c"}]})
        return Square(square=0)

    shapes = [Shape("both", Nothing, Square, both), map_shape()]
    async with scripted_agent(tmp_path, lm, shapes=shapes, workers=[CRITIC, POET]) as agent:
        await agent.thread("t").task("both", {}, role=Role("loud", "Be loud."))
        assert roles_of(lm) == {"a": "Be brief.", "b": "Be brief.", "c": ""}
        lm.calls.clear()
        poets = Role("verse", "Rhyme.", applies_to=("poet",))
        await agent.thread("u").task("map", over, role=poets)
        assert roles_of(lm) == {"a": "", "b": "Rhyme."}
        lm.calls.clear()
        await agent.thread("w").run_skill(Composed("Name the page.", shape="map", params=over))
        assert ["Name the page." in call.system for call in lm.calls] == [True, True]


async def test_a_planner_can_map_over_what_it_is_offered_and_nothing_else(tmp_path: Path) -> None:
    def plan(call: ScriptedCall) -> dict[str, Any]:
        told = str(call.messages)
        if "'square': 16" in told or '"square": 16' in told or '\\"square\\": 16' in told:
            return {"reply": "Sixteen.", "calls": []}
        shape = "square" if "is not one that it may run" in told else "secret"
        return {"reply": "", "calls": [{"tool": "map", "arguments": {"shape": shape, "items": items(4)}}]}

    async def never(params: Number, ctx: TaskContext) -> Square:
        raise AssertionError("it is not offered")

    secret = Shape("secret", Number, Square, never)
    offered = map_shape(over=["square"], description="runs one shape over many params")
    async with scripted_agent(tmp_path, ScriptedLM(plan), shapes=[SQUARE, secret, offered]) as agent:
        assert (await agent.thread("t").converse("Square 4.")).text == "Sixteen."
    with pytest.raises(FunctionInvalid, match="over="):
        map_shape(description="runs anything")


# --- over workers that are code -------------------------------------------------------------------------------------
