"""A worker that has used up its calls is asked for its result, without tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.agents import scripted_agent
from support.shoppers import calls
from worldagent.harness import Worker, tool
from worldagent.harness.limits import Limits
from worldagent.testing import ScriptedCall, ScriptedLM


@pytest.mark.requirement("H4")
async def test_a_worker_out_of_calls_is_asked_once_more(tmp_path: Path) -> None:
    done: list[str] = []

    @tool(risk="read_only")
    async def look(what: str) -> str:
        done.append(what)
        return what

    def reply(call: ScriptedCall) -> Any:
        if "You can call no tools any more. Answer now." in call.steps:
            return {"result": "enough"}
        return calls(*(("look", {"what": f"{len(lm.calls)}.{n}"}) for n in range(16)))

    lm = ScriptedLM(reply)
    scout = Worker("scout", "You look.", "looks", tools=("look",), limits=Limits(calls=50), max_steps=100)
    async with scripted_agent(tmp_path, lm, workers=[scout], tools=[look]) as agent:
        assert await agent.call("scout", {"request": "Go."}) == "enough"
    assert (len(done), len(lm.calls)) == (50, 5)  # 16, 16, 16, 2 that were made, and the result
