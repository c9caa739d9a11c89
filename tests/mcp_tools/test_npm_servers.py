"""Servers that others wrote: filesystem, memory and everything, from npm, run by the node of `make setup`."""

from __future__ import annotations

from pathlib import Path

from support.agents import failure
from support.mcp_tools import agent_over, npm
from worldagent.core.errors import ParamsInvalid, ToolFailed
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
    async with agent_over(tmp_path, McpServer(npm("everything"))) as agent:
        source = agent.mcp["t"]
        assert not source.left_out
        assert await agent.call("t_echo", {"message": "hello"}) == "Echo: hello"
        assert "structuredContent" not in str(await agent.call("t_get-structured-content", {"location": "Chicago"}))
        blocks = await agent.call("t_get-tiny-image", {})
        assert [block["type"] for block in blocks].count("image") == 1
        assert await source.resources()
