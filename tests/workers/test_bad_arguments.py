"""What workers, files of workers and agents are given and cannot use is told by name, and nothing waits for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from support.agents import refused, scripted_agent
from worldagent import WorldAgent
from worldagent.core.errors import (
    FunctionInvalid,
    InvalidArgument,
    UnknownFunction,
)
from worldagent.harness import Function, Worker, load_workers, tool
from worldagent.testing import ScriptedLM

pytestmark = [pytest.mark.requirement("H3"), pytest.mark.timeout(60)]


@tool(risk="write")
async def put(path: str) -> str:
    return path


def taking(*names: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, **more}


# --- workers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["result", "role", "model_dump", "_x", "a b"])
def test_a_param_that_no_worker_can_have_is_refused_at_once(name: str) -> None:
    error = refused(lambda: Worker("w", "Do it.", input=taking(name)))
    assert isinstance(error, FunctionInvalid)
    assert repr(name) in error.problem
    assert "'w'" in error.problem


async def test_a_tool_that_there_is_not_is_told_as_the_agent_opens(tmp_path: Path) -> None:
    with pytest.raises(FunctionInvalid, match="'w' names 'putt' in its tools"):
        await scripted_agent(
            tmp_path, ScriptedLM([]), tools=[put], workers=[Worker("w", "Do it.", tools=("putt",))]
        ).start()
    glob = Worker("w", "Do it.", tools=("later*", "put", "subagent"))
    async with scripted_agent(tmp_path, ScriptedLM([]), tools=[put], workers=[glob]):
        pass


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "w.worker.md"
    os.mkfifo(path)
    for place in (path, tmp_path):
        assert "not a regular file" in refused(lambda place=place: load_workers(place)).problem  # type: ignore[misc]  # mypy does not see what place is


# --- agents ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [{"tools": None}, {"tools": "put"}, {"workers": None}, {"approver": 3}],
)
def test_an_agent_says_which_argument_is_none(tmp_path: Path, given: dict[str, Any]) -> None:
    def make() -> WorldAgent:
        return scripted_agent(tmp_path, ScriptedLM([]), **given)

    error = refused(make)
    assert isinstance(error, InvalidArgument)
    assert f"`{next(iter(given))}`" in error.problem


async def test_of_many_functions_those_that_are_nearest_are_named(tmp_path: Path) -> None:
    many = [Function(f"tool_{number}", put.body, put.params, put.result) for number in range(2000)]
    async with scripted_agent(tmp_path, ScriptedLM([]), tools=[*many, put]) as agent:
        with pytest.raises(UnknownFunction) as caught:
            await agent.call("tool_199x" + "y" * 5000, {})
        assert len(str(caught.value)) < 600
        with pytest.raises(UnknownFunction, match=r"tool_1999\b") as caught:
            await agent.call("tool_1999x", {})
        assert "2002 functions" in caught.value.remedy
        with pytest.raises(
            UnknownFunction, match=r"the closest of the 2002 functions are: put; others are: (\w+, ){18}\w+$"
        ):
            await agent.call("putt", {})
        with pytest.raises(UnknownFunction, match=r"some of the 2002 functions are: (\w+, ){19}\w+$"):
            await agent.call("zzz", {})
