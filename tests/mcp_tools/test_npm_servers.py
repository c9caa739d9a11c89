"""Servers that others wrote: filesystem, memory and everything, from npm, run by the node of `make setup`."""

from __future__ import annotations

from pathlib import Path

from support.agents import failure
from support.mcp_tools import agent_over, npm
from worldagent.core.errors import ParamsInvalid, ToolFailed
from worldagent.core.events import CallProgress
from worldagent.core.pauses import Answer, Approve
from worldagent.harness import Policy
from worldagent.harness.gate import Rule
from worldagent.mcp_client.tools import McpServer


async def test_files_are_read_and_written_inside_its_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("what stands there")
    server = McpServer(npm("filesystem", folder), prefix="fs_", risk={"read_*": "read_only", "list_*": "read_only"})
    async with agent_over(tmp_path, server) as agent:
        assert agent.mcp["t"].functions["read_text_file"].risk == ("read_only",)
        assert agent.mcp["t"].functions["write_file"].risk == ("write", "network")
        read = await agent.call("fs_read_text_file", {"path": str(folder / "a.txt")})
        assert read == {"content": "what stands there"}
        await agent.call("fs_write_file", {"path": str(folder / "b.txt"), "content": "new"})
        assert (folder / "b.txt").read_text() == "new"
        error = await failure(agent.call("fs_read_text_file", {"path": "/etc/passwd"}))
        assert isinstance(error, ToolFailed)
        assert "denied" in str(error)
        assert isinstance(await failure(agent.call("fs_read_text_file", {"paths": 1})), ParamsInvalid)


async def test_the_server_that_has_everything(tmp_path: Path) -> None:
    policy = Policy(rules=(Rule(function="*long-running*", decision="ask"),))
    async with agent_over(tmp_path, McpServer(npm("everything")), policy=policy) as agent:
        source = agent.mcp["t"]
        assert not source.left_out
        assert await agent.call("t_echo", {"message": "hello"}) == "Echo: hello"
        assert "structuredContent" not in str(await agent.call("t_get-structured-content", {"location": "Chicago"}))
        blocks = await agent.call("t_get-tiny-image", {})
        assert [block["type"] for block in blocks].count("image") == 1
        assert await source.resources()
        given = {"function": "t_trigger-long-running-operation", "arguments": {"duration": 0.4, "steps": 2}}
        turn = await agent.thread("a").task("use", given)
        async with agent.thread("a").stream_resume({turn.pauses[0].id: Approve()}) as stream:
            told = [event async for event in stream if isinstance(event, CallProgress)]
        assert [(event.progress, event.total) for event in told] == [(1, 2), (2, 2)]


async def test_the_server_that_has_everything_asks_a_person(tmp_path: Path) -> None:
    async with agent_over(tmp_path, McpServer(npm("everything"), elicitation=True)) as agent:
        turn = await agent.thread("a").task("use", {"function": "t_trigger-elicitation-request"})
        [pause] = turn.pauses
        assert pause.question is not None
        assert pause.question.startswith("The MCP server 't' asks: ")
        turn = await agent.thread("a").resume({pause.id: Answer(None)})
        assert "declin" in str(turn.result.value)
