"""Answers that are long, deep or broken do not hold the event loop while they are read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.agents import scripted_agent
from worldagent.core.errors import OutputInvalid, WorldAgentError
from worldagent.harness import Worker, tool
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("H3")

HOSTILE = {
    "brackets": "[{" * 20_000,
    "deep": "[" * 100_000,
    "digits": "9" * 1_000_000,
    "infinite": '[{"tool": "look", "arguments": {"what": 1e999999}}]',
    "long": "x" * 10_000_000,
}


async def longest_gap(running: asyncio.Task[Any]) -> float:
    """The longest time that the event loop ran nothing else, in seconds."""
    loop = asyncio.get_running_loop()
    longest, before = 0.0, loop.time()
    while not running.done():
        await asyncio.wait([running], timeout=0.001)
        now = loop.time()
        longest, before = max(longest, now - before), now
    return longest


@tool(risk="read_only")
async def look(what: str) -> str:
    return what


@pytest.mark.parametrize("kind", sorted(HOSTILE))
async def test_hostile_calls_of_a_worker_do_not_hold_the_event_loop(tmp_path: Path, kind: str) -> None:
    def reply(call: ScriptedCall) -> Any:
        return f"[[ ## calls ## ]]\n{HOSTILE[kind]}\n\n[[ ## result ## ]]\n\n\n[[ ## completed ## ]]"

    scout = Worker("scout", "You look.", "looks", tools=("look",))
    async with scripted_agent(tmp_path, ScriptedLM(reply), workers=[scout], functions=[look]) as agent:
        calling = asyncio.create_task(agent.call("scout", {"request": "Go."}))
        gap = await longest_gap(calling)
        with pytest.raises((OutputInvalid, WorldAgentError)):
            calling.result()
    assert gap < 0.5  # a loaded machine; before the bound, 40 KB of brackets took seconds
