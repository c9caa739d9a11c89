"""A process that is killed in the middle of a call of an MCP server's tool: a person says whether it happened (T5)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from support.mcp_tools import agent_over, calls_in, stdio, until
from support.processes import environment
from support.raised import failure
from worldagent.core.errors import EffectLost
from worldagent.core.pauses import Happened, NotHappened

CHILD = """
import asyncio, sys
from pathlib import Path
from support.mcp_tools import agent_over, stdio

async def main(home, elicitation):
    async with agent_over(home, stdio(home, elicitation=elicitation)) as agent:
        await agent.thread("a").task("use", {"function": "t_hang"})

asyncio.run(main(Path(sys.argv[1]), sys.argv[2] == "True"))
"""


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("elicitation", [False, True])
async def test_a_call_that_was_under_way_when_the_process_was_killed_is_asked_about(
    tmp_path: Path, elicitation: bool
) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", CHILD, str(tmp_path), str(elicitation), env=environment()
    )
    try:
        await until(lambda: calls_in(tmp_path))
    finally:
        child.kill()
        await child.wait()
    async with agent_over(tmp_path, stdio(tmp_path, elicitation=elicitation)) as agent:
        thread = agent.thread("a")
        turn = await thread.resume()
        [pause] = turn.pauses
        assert (turn.status, pause.kind, pause.function) == ("paused", "uncertain", "t_hang")
        if elicitation:
            turn = await thread.resume({pause.id: Happened("it did")})
            assert turn.result.value == "it did"
        else:
            assert isinstance(await failure(thread.resume({pause.id: NotHappened()})), EffectLost)
    assert [call["tool"] for call in calls_in(tmp_path)] == ["hang"]
