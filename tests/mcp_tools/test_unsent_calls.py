"""A call that ended its turn before anything was sent for it is simply made at the resume; any other is asked about.

Also when the process was killed in the middle of it (T5).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, failure, scripted_agent
from support.mcp_tools import USE, agent_over, calls_in, over_http, stdio, until
from support.processes import ending, start_script
from support.role_hosts import free_port
from worldagent.core.errors import EffectLost, McpServerUnavailable
from worldagent.core.pauses import Happened, NotHappened
from worldagent.harness import tool
from worldagent.mcp_client import HttpHost
from worldagent.mcp_client.tools import McpServer

pytestmark = pytest.mark.requirement("T5")

ECHO = {"function": "t_echo", "arguments": {"text": "hello"}}


@pytest.mark.parametrize(("elicitation", "anew"), [(False, True), (True, False)])
async def test_a_call_whose_server_was_never_reached_is_made_at_the_resume(
    tmp_path: Path, elicitation: bool, anew: bool
) -> None:
    port = free_port()
    server = McpServer(HttpHost(f"http://127.0.0.1:{port}/mcp"), elicitation=elicitation)
    async with over_http(tmp_path, port=port):
        agent = await agent_over(tmp_path, server).start()
        assert await agent.call("t_echo", {"text": "there"}) == "there"
    assert isinstance(await failure(agent.call("t_echo", {"text": "gone"})), McpServerUnavailable)  # it is noticed
    error = await failure(agent.thread("a").task("use", ECHO))
    assert isinstance(error, McpServerUnavailable)
    assert "could not be reached" in error.problem
    async with over_http(tmp_path, port=port):
        if anew:
            await agent.aclose()
            agent = await agent_over(tmp_path, server).start()
        turn = await agent.thread("a").resume()
        assert (turn.status, turn.pauses) == ("done", ())
        assert turn.result.value == "hello"
        await agent.aclose()
    assert [call["arguments"]["text"] for call in calls_in(tmp_path)] == ["there", "hello"]


@pytest.mark.parametrize("elicitation", [False, True])
async def test_a_call_whose_server_died_with_it_is_asked_about(tmp_path: Path, elicitation: bool) -> None:
    async with agent_over(tmp_path, stdio(tmp_path, elicitation=elicitation)) as agent:
        thread = agent.thread("a")
        assert isinstance(await failure(thread.task("use", {"function": "t_die"})), McpServerUnavailable)
        [pause] = (await thread.resume()).pauses
        assert pause.kind == "uncertain"
        await failure(thread.resume({pause.id: NotHappened()}))
    assert [call["tool"] for call in calls_in(tmp_path)] == ["die"]


async def test_a_function_that_did_something_before_it_called_a_server_that_is_down_is_asked_about(
    tmp_path: Path,
) -> None:
    """What is sure of the server's call is not sure of the one around it."""
    done = list[str]()
    port = free_port()
    server = McpServer(HttpHost(f"http://127.0.0.1:{port}/mcp"))
    async with over_http(tmp_path, port=port):
        other = await agent_over(tmp_path / "other", server).start()
    assert isinstance(await failure(other.call("t_echo", {"text": "gone"})), McpServerUnavailable)

    @tool(risk="write")
    async def both(text: str) -> Any:
        done.append(text)
        given = {"function": "t_echo", "arguments": {"text": text}}
        return (await other.thread("own").task("use", given)).text

    async with scripted_agent(tmp_path, answering(), tools=[both], shapes=[USE]) as agent:
        thread = agent.thread("a")
        given = {"function": "both", "arguments": {"text": "hello"}}
        assert isinstance(await failure(thread.task("use", given)), McpServerUnavailable)
        [pause] = (await thread.resume()).pauses
        assert (pause.kind, done) == ("uncertain", ["hello"])
    await other.aclose()


CHILD = """
import asyncio, sys
from pathlib import Path
from support.mcp_tools import agent_over, stdio

async def main(home, elicitation):
    async with agent_over(home, stdio(home, elicitation=elicitation)) as agent:
        await agent.thread("a").task("use", {"function": "t_hang"})

asyncio.run(main(Path(sys.argv[1]), sys.argv[2] == "True"))
"""


@pytest.mark.parametrize("elicitation", [False, True])
async def test_a_call_that_was_under_way_when_the_process_was_killed_is_asked_about(
    tmp_path: Path, elicitation: bool
) -> None:
    async with ending(await start_script(CHILD, tmp_path, str(elicitation))):
        await until(lambda: calls_in(tmp_path))
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
