"""What a turn keeps can be read again: values that could not be are refused before anything is done with them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from support.agents import Nothing, Said, answering, scripted_agent, shape
from worldagent import WorldAgent
from worldagent.core.errors import AnswerInvalid, InvalidArgument, ParamsInvalid, ResultInvalid, WorldAgentError
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import Function, tool
from worldagent.testing import VirtualClock

pytestmark = pytest.mark.requirement("T4", "T5")


def noting(done: list[str]) -> Function:
    async def note(what: Any) -> str:
        done.append("noted")
        return "noted"

    made: Function = tool(note)
    return made


def agent_of(home: Path, handler: Any, done: list[str] | None = None, **more: Any) -> WorldAgent:
    functions = [noting(done if done is not None else [])]
    return scripted_agent(home, answering(), tools=functions, shapes=[shape(handler)], **more)


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize("levels", [190, 201, 5000])
async def test_a_param_is_refused_before_its_effect_or_can_be_read_again(tmp_path: Path, levels: int) -> None:
    done: list[str] = []

    async def handler(ctx: TaskContext) -> str:
        try:
            await ctx.call("note", {"what": nested(levels)})
        except ParamsInvalid:
            return "refused"
        return await ctx.calls.ask_person("And now?")

    async with agent_of(tmp_path, handler, done) as agent:
        turn = await agent.thread("t").task("job", {})
        if levels <= 190:
            assert turn.status == "paused"
        if turn.status == "paused":
            [pause] = await agent.thread("t").pauses()
            turn = await agent.thread("t").resume({pause.id: "on"})
            assert turn.result == Said(text="on")
            assert done == ["noted"]
        else:
            assert (turn.result, done) == (Said(text="refused"), [])


async def test_a_time_to_answer_and_a_key_that_are_none_are_refused(tmp_path: Path) -> None:
    async def handler(ctx: TaskContext) -> str:
        for seconds in (float("inf"), 1e18, float("nan"), 0, "5", True):
            with pytest.raises(InvalidArgument, match="must be above 0 and at most ten years"):
                await ctx.calls.ask_person("What?", seconds=seconds)  # type: ignore[arg-type]  # what is tested
        for key in (5, ""):
            with pytest.raises(InvalidArgument, match="`key` of a call of 'note' must be a text; pass a text"):
                await ctx.call("note", {"what": 1}, key=key)  # type: ignore[arg-type]  # what is tested
        return "refused"

    async with agent_of(tmp_path, handler) as agent:
        assert (await agent.thread("t").task("job", {})).result == Said(text="refused")


async def test_an_answer_after_the_end_of_a_question_is_refused(tmp_path: Path) -> None:
    clock = VirtualClock()

    async def handler(ctx: TaskContext) -> str:
        try:
            return await ctx.calls.ask_person("What?", seconds=60)
        except WorldAgentError as error:
            return error.code

    async with agent_of(tmp_path, handler, clock=clock) as agent:
        [pause] = (await agent.thread("t").task("job", {})).pauses
        await clock.advance(61)
        with pytest.raises(AnswerInvalid, match=r"comes after it expired; resume without an answer to it"):
            await agent.thread("t").resume({pause.id: "late"})
        assert (await agent.thread("t").resume()).result == Said(text="pause_expired")


class Odd(BaseModel):
    """A result whose field takes anything."""

    any: Any = None


@pytest.mark.parametrize("value", [math.nan, {"a": [1, {"b": -math.inf}]}])
async def test_a_number_that_json_has_not_is_refused_and_does_not_come_back_as_null(tmp_path: Path, value: Any) -> None:
    done: list[str] = []

    @tool
    async def measure(what: str) -> Any:
        return value

    async def handler(ctx: TaskContext) -> str:
        with pytest.raises(ResultInvalid, match="the result of function 'measure' is not JSON"):
            await ctx.call("measure", {"what": "it"})
        with pytest.raises(ParamsInvalid, match="params of function 'note' are not JSON"):
            await ctx.call("note", {"what": value})
        return await ctx.calls.ask_person("And now?")

    async def result(params: Nothing, ctx: TaskContext) -> Odd:
        return Odd(any=value)

    shapes = [shape(handler), Shape("odd", Nothing, Odd, result)]
    async with scripted_agent(tmp_path, answering(), tools=[measure, noting(done)], shapes=shapes) as agent:
        [pause] = (await agent.thread("t").task("job", {})).pauses
        assert (await agent.thread("t").resume({pause.id: "on"})).result == Said(text="on")
        with pytest.raises(ResultInvalid, match="the result of shape 'odd' are not JSON"):
            await agent.thread("odd").task("odd", {})
    assert done == []
