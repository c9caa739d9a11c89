"""A process that is killed in the middle of a call of an MCP server's tool: a person says whether it happened (T5)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import pytest

from support.house import ROOT
from support.mcp_tools import agent_over, calls_in, stdio, until
from support.raised import failure
from worldagent.core.errors import EffectLost, McpServerUnavailable
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


async def killed_in_mid_call(home: Path, *, elicitation: bool) -> None:
    """Have another process make a call that does not end, and kill it there."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / '.dev'}{os.pathsep}{ROOT / 'tests'}"}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", CHILD, str(home), str(elicitation), env=environment
    )
    try:
        await until(lambda: calls_in(home))
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("elicitation", [False, True])
async def test_a_call_that_was_under_way_when_the_process_was_killed_is_asked_about(
    tmp_path: Path, elicitation: bool
) -> None:
    await killed_in_mid_call(tmp_path, elicitation=elicitation)
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


async def test_a_server_that_dies_leaves_no_question(tmp_path: Path) -> None:
    async with agent_over(tmp_path, stdio(tmp_path)) as agent:
        assert isinstance(await failure(agent.thread("a").task("use", {"function": "t_die"})), McpServerUnavailable)
        assert await agent.thread("a").pauses() == ()
