"""What bounds a turn whose models choose more and more, where nothing else is said, and how soon it can be ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.agents import calls, scripted_agent
from worldagent.core.errors import LimitReached
from worldagent.harness import CallContext, Function, Worker, flow, tool
from worldagent.testing import ScriptedCall, ScriptedLM

BOUND = 10  # seconds; it takes a tenth of one on a machine that does nothing else
CHOSEN, AT_ONCE = 500, 32


def digger(done: list[str]) -> tuple[ScriptedLM, list[Function]]:
    """A model that calls `dig` 16 times with each answer, and 750 times in all."""

    @tool(risk="read_only")
    async def dig(where: str) -> str:
        done.append(where)
        return where

    def reply(call: ScriptedCall) -> Any:
        if len(done) > 750 or "You can call nothing any more" in str(call.messages):
            return {"result": "deep enough"}
        return calls(*(("dig", {"where": f"{len(done)}.{n}"}) for n in range(16)))

    return ScriptedLM(reply), [dig]


MOLE = Worker("mole", "You dig.", "digs", tools=("dig",), max_steps=1000)


@pytest.mark.requirement("H4", "T5")
async def test_models_may_choose_500_calls_in_a_turn_where_no_setting_says_how_many(tmp_path: Path) -> None:
    done: list[str] = []
    lm, functions = digger(done)
    given: dict[str, Any] = {"workers": [MOLE], "tools": functions}
    async with scripted_agent(tmp_path, lm, **given) as agent:
        thread = agent.thread("t")
        with pytest.raises(LimitReached, match="reached its limit of 500 calls that models choose; set turn_calls"):
            await thread.task("subagent", {"worker": "mole", "request": "Dig."})
        assert len(done) == CHOSEN
        with pytest.raises(LimitReached):  # it has used them, in whatever run
            await thread.resume()
        assert len(done) == CHOSEN
    async with scripted_agent(tmp_path, lm, settings={"turn_calls": 700}, **given) as agent:
        with pytest.raises(LimitReached, match="the turn reached its limit of 700 calls"):
            await agent.thread("t").resume()
    assert len(done) == 700 - 1  # and the worker itself
    async with scripted_agent(tmp_path, lm, settings={"turn_calls": None}, **given) as agent:
        assert (await agent.thread("t").resume()).status == "done"
    assert len(done) > 750


@pytest.mark.requirement("H4")
@pytest.mark.parametrize(("settings", "expected"), [({}, AT_ONCE), ({"turn_concurrency": 3}, 3)])
async def test_at_most_32_calls_that_models_choose_run_at_once(
    tmp_path: Path, settings: dict[str, Any], expected: int
) -> None:
    now = most = 0
    full = asyncio.Event()

    @tool(risk="read_only")
    async def dig(where: int) -> int:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        if now == expected:
            full.set()
        await asyncio.wait_for(full.wait(), BOUND)
        now -= 1
        return where

    @flow
    async def dig_all(ctx: CallContext) -> int:
        await asyncio.gather(*(ctx.call("dig", {"where": n}) for n in range(100)))
        return most

    def reply(call: ScriptedCall) -> Any:
        if "called" in str(call.messages[1:]):
            return {"result": "done"}
        boss = call.fields["request"] == "Dig."
        return calls(*(("mole", {"request": f"{n}"}) if boss else ("dig", {"where": n}) for n in range(16)))

    boss = Worker("boss", "You have others dig.", "digs", tools=("mole",))
    given: dict[str, Any] = {"workers": [boss, MOLE], "tools": [dig, dig_all], "settings": settings}
    async with scripted_agent(tmp_path, ScriptedLM(reply), **given) as agent:
        assert (await agent.thread("t").task("subagent", {"worker": "boss", "request": "Dig."})).status == "done"
        assert most == expected
        assert await agent.call("dig_all", {}) == 100  # that is chosen by code
