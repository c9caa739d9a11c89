"""MCP servers from the settings: the shape that other clients have, secrets, mistakes, and what `doctor` says."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.mcp_tool_server import command
from support.mcp_tools import agent_over, stdio
from support.pages import blocks
from worldagent import Settings
from worldagent.core.errors import NameTaken
from worldagent.hosts.doctor import check_installation
from worldagent.mcp_client import HttpHost, StdioHost
from worldagent.mcp_client.tools import Login, Mcp, McpEntry
from worldagent.profiles import Profile


def entry(**more: Any) -> dict[str, Any]:
    program, *arguments = command(*(("--broken", more.pop("broken")) if "broken" in more else ()))
    return {"command": program, "args": arguments, **more}


async def test_servers_of_the_call_override_those_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    program, *arguments = command()
    file.write_text(
        f"[mcp_servers.mine]\ncommand = {json.dumps(program)}\nargs = {json.dumps(arguments)}\n"
        'allow = ["echo"]\nrisk = { echo = "read_only" }\n'
        f"[mcp_servers.t]\ncommand = 'no-such-program'\n"
    )
    monkeypatch.setenv("WORLDAGENT_SETTINGS", str(file))
    async with agent_over(tmp_path, stdio(tmp_path, allow=["count"])) as agent:
        assert [*agent.get(Mcp)] == ["mine", "t"]
        assert agent.get(Mcp)["mine"].functions["echo"].risk == ("read_only",)
        assert await agent.call("mine_echo", {"text": "hello"}) == "hello"
        assert await agent.call("t_count", {"text": "hello"}) == {"n": 5}


def test_settings_of_other_clients_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {
        "files": {"type": "stdio", "command": "npx", "args": ["-y", "server"], "env": {"KEY": "s3cret"}},
        "web": {"type": "http", "url": "https://host.example/mcp", "headers": {"X-Key": "s3cret"}, "timeout": 5},
        "token": {"url": "https://host.example/mcp", "token": "s3cret", "prefix": "w_"},
    }
    monkeypatch.setenv("WORLDAGENT_MCP_SERVERS", json.dumps(servers))
    settings = Settings()
    assert "s3cret" not in repr(settings)
    made = {name: each.server() for name, each in settings.mcp_servers.items()}
    assert made["files"].host == StdioHost(["npx", "-y", "server"], {"KEY": "s3cret"})
    assert made["web"].host == HttpHost("https://host.example/mcp", headers={"X-Key": "s3cret"})
    assert made["token"].host == HttpHost("https://host.example/mcp", "s3cret")
    assert (made["web"].timeout, made["token"].prefix) == (5, "w_")
    assert "s3cret" not in repr(made)


def test_the_settings_of_the_page_are_valid() -> None:
    shown = [block.code for block in blocks("toml") if block.page.name == "mcp-tools.md"]
    given = {name: entry for code in shown for name, entry in tomllib.loads(code)["mcp_servers"].items()}
    servers = {name: entry.server() for name, entry in Settings(mcp_servers=given).mcp_servers.items()}
    allowed = {"files": ("read_*", "list_*"), "search": ("*",), "mail": ("*",)}
    assert {name: server.allow for name, server in servers.items()} == allowed
    assert servers["mail"].login == Login(by="account")


async def test_prefixes_that_clash_between_sources_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLDAGENT_MCP_SERVERS", json.dumps({"git": entry()}))
    with pytest.raises(NameTaken, match="'git_' begins the prefix 'git_hub_'"):
        scripted_agent(tmp_path, answering(), mcp={"git_hub": stdio(tmp_path)})
    hub = McpEntry(command="no-such-program")
    with pytest.raises(NameTaken, match="'git_' begins the prefix 'git_hub_'"):
        scripted_agent(tmp_path, answering(), profile=Profile(name="p", mcp_servers={"git_hub": hub}))
    monkeypatch.setenv("WORLDAGENT_MCP_SERVERS", json.dumps({"git": entry(), "git_hub": entry()}))
    found = {result.id: result for result in await check_installation()}["mcp.servers"]
    assert found.status == "fail"
    assert "could take the name of one of MCP server 'git_hub'" in found.problem


async def test_doctor_names_servers_that_are_down_and_tools_that_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def looked(servers: dict[str, Any]) -> Any:
        monkeypatch.setenv("WORLDAGENT_LM", "openai/none")  # which is checked at once
        monkeypatch.setenv("WORLDAGENT_MCP_SERVERS", json.dumps(servers))
        return {result.id: result for result in await check_installation()}["mcp.servers"]

    odd = await looked({"one": entry(broken="bad schema")})
    assert odd.status == "warn"
    assert "one: the tool 'bad' is left out: the schema of the params of 'one_bad' is not a JSON Schema" in odd.problem
    login = await looked({"mail": {"url": "http://127.0.0.1:1/mcp", "login": "account"}})
    assert login.status == "pass"  # there is nobody here whose tools could be listed
    down = await looked({"two": {"command": "no-such-program"}})
    assert down.status == "fail"
    assert down.problem == "two: MCP server 'two' could not be reached (there is no such program or folder)"
    assert down.remedy.startswith("two: start it, or correct its address or command; or remove")
