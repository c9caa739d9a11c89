"""MCP servers as other programs write them: whole files, servers that are off, keys and units of theirs."""

import json
import logging
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from support.agents import answering, scripted_agent
from support.mcp_tool_server import command
from worldagent import Settings
from worldagent.agent.runtime.inside import inside
from worldagent.core.errors import SettingsInvalid
from worldagent.mcp_client import HttpHost, StdioHost
from worldagent.mcp_client.tools import Mcp, McpEntry, McpServer
from worldagent.profiles import Profile

DOCUMENTED: Final = tomllib.loads((Path(__file__).parent / "documented_servers.toml").read_text())["documented"]
VARIABLES: Final = {
    "API_KEY": "key-of-api",
    "API_TOKEN": "token-of-api",
    "CLAUDE_PLUGIN_ROOT": "/srv/plugin",
    "DB_CONNECTION_STRING": "postgres://db.example",
    "PWD": "/srv/shop",
    "search-key": "key-of-search",
    "workspaceFolder": "/srv/shop",
}


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def expected(server: Mapping[str, Any]) -> McpServer:
    seconds = server.get("connect_timeout", 20.0)
    more = {key: server[key] for key in ("allow", "deny", "timeout") if key in server}
    if "url" in server:
        token, headers = server.get("token"), server.get("headers", {})
        return McpServer(HttpHost(server["url"], token, headers=headers, connect_timeout=seconds), **more)
    cwd = Path(server["cwd"]) if "cwd" in server else None
    return McpServer(StdioHost(server["argv"], server.get("env", {}), cwd=cwd, connect_timeout=seconds), **more)


@pytest.mark.requirement("H2")
def test_documented_entries_of_other_programs_are_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    taken, refused = 0, []
    for at, each in enumerate(DOCUMENTED):
        file = written(tmp_path / str(at), each["file"], each["text"])
        caplog.clear()
        if "refused" in each:
            with pytest.raises(SettingsInvalid, match=each["refused"]):
                Settings(mcp_files=[file], mcp_variables=VARIABLES)
            refused.append(f"{each['program']}: {each['refused']}")
            continue
        settings = Settings(mcp_files=[file], mcp_variables=VARIABLES)
        assert settings.servers() == {name: expected(server) for name, server in each["servers"].items()}, each
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == bool(each.get("unused")), each
        assert all(key in told[0] for key in each.get("unused", ())), each
        taken += len(each["servers"])
    assert taken == 36
    assert len({each["program"] for each in DOCUMENTED}) == 15
    assert refused == [
        "Claude Code: the transport 'sse' is not supported",
        "VS Code: its sandbox cannot be applied",
        "Zed: an extension of its program starts it",
        "Roo Code: the transport 'sse' is not supported",
    ]


@pytest.mark.requirement("H2")
def test_the_setting_takes_the_object_of_another_program_and_overrides_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = {
        "inputs": [{"id": "k", "type": "promptString"}],
        "servers": {
            "ours": {"command": "x"},
            "web": {"type": "sse", "url": "https://a.example"},
            "off": {"command": "y"},
            "never": {"type": "sse", "url": "${NO_SUCH_VARIABLE}", "disabled": True, "colour": 5},
        },
    }
    file = written(tmp_path, "mcp.json", json.dumps(theirs))
    whole = {"mcpServers": {"ours": {"command": "z", "timeout": 90_000}}, "shortcut": "", "web": {"disabled": True}}
    monkeypatch.setenv("WORLDAGENT_MCP_FILES", json.dumps([str(file)]))
    with pytest.raises(SettingsInvalid, match=r"mcp\.json': web\.type: .*leave it out with disabled = true there"):
        Settings()
    mine = {"command": "y", "timeout": 90_000}  # an entry of ours beside theirs is in seconds
    also = {**whole, "off": {"command": "y", "enabled": False}, "servers": mine}
    monkeypatch.setenv("WORLDAGENT_MCP_SERVERS", json.dumps(also))
    assert (
        Settings().servers()
        == Settings(mcp_files=(file,)).servers()
        == {
            "ours": McpServer(StdioHost(["z"], {}), timeout=90),
            "servers": McpServer(StdioHost(["y"], {}), timeout=90_000),
        }
    )


@pytest.mark.requirement("H2")
@pytest.mark.parametrize(
    ("entry", "seconds"),
    [
        ({"timeout": 30}, 30),
        ({"timeout": 30_000}, 30),
        ({"timeout": 500, "trust": False}, 0.5),
        ({"timeout": 1800, "alwaysAllow": []}, 1800),
        ({"timeout": 1800}, None),
    ],
)
def test_a_timeout_has_the_unit_of_its_program(tmp_path: Path, entry: dict[str, Any], seconds: float | None) -> None:
    file = written(tmp_path, "servers.json", json.dumps({"mcpServers": {"a": {"command": "x", **entry}}}))
    if seconds is not None:
        assert Settings(mcp_files=[file]).servers()["a"].timeout == seconds
        return
    with pytest.raises(SettingsInvalid, match=r"a\.timeout is in seconds in some programs and in milliseconds in"):
        Settings(mcp_files=[file])
    own = Settings(mcp_files=[file], mcp_servers={"a": {"command": "x", "timeout": 1800}})
    assert own.servers()["a"].timeout == 1800


@pytest.mark.requirement("H2")
@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("missing.json", None, "cannot be read (FileNotFoundError)"),
        ("a.json", '{"mcpServers": {\n"s3cret": }', "is not valid JSON, line 2"),
        ("a.json", "[" * 100_000, "is not valid JSON"),
        ("a.json", '["s3cret"]', "must be a JSON object"),
        ("a.toml", 'token = "s3cret', "is not valid TOML"),
        ("a.json", '{"theme": "s3cret"}', "has no MCP servers; name them in mcpServers, servers"),
        ("a.json", '{"mcpServers": {"a": {"command": "x", "comand": "s3cret"}}}', "a.comand: there is no such key"),
        ("a.json", '{"mcpServers": {"a": {"args": "s3cret"}}}', "a.args: Input should be a valid tuple"),
        ("a.json", '{"mcpServers": {"a": {"command": "x", "enabled": "s3cret"}}}', "a.enabled must be true or false"),
        ("a.toml", '[mcp_servers.a]\ncommand = "x"\nenv_vars = [{nom = "s3cret"}]', "a.env_vars must be names"),
        (
            "a.json",
            '{"mcpServers": {"a": {"command": "x", "args": ["${KEY}"]}}}',
            "a: `args.0` needs the variable 'KEY'",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, name: str, text: str | None, problem: str) -> None:
    file = tmp_path / name if text is None else written(tmp_path, name, text)
    with pytest.raises(SettingsInvalid) as refused:
        Settings(mcp_files=[file])
    assert f"{str(file)!r}" in refused.value.problem
    assert problem in str(refused.value)
    assert "settings.toml" not in refused.value.remedy, "which is not at fault"
    assert "s3cret" not in str(refused.value)


@pytest.mark.requirement("H2", "P1")
async def test_denied_tools_do_not_exist_and_one_warning_names_what_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program, *arguments = command()
    entry = {"command": "${PYTHON}", "args": arguments, "excludeTools": ["count"], "trust": True, "description": "d"}
    file = written(tmp_path, ".gemini/settings.json", json.dumps({"mcpServers": {"t": entry}}))
    settings = {"mcp_files": [file], "mcp_variables": {"PYTHON": program}}
    with caplog.at_level(logging.WARNING, "worldagent.mcp"):
        async with scripted_agent(tmp_path, answering(), settings=settings) as agent:
            assert await agent.call("t_echo", {"text": "hello"}) == "hello"
            assert "count" not in agent.get(Mcp)["t"].functions
        Settings(**settings)
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        f"keys of other programs that have no meaning here are not used: {str(file)!r}: t: description, trust"
    ]


@pytest.mark.requirement("P6")
async def test_a_server_of_a_profile_can_be_off(tmp_path: Path) -> None:
    shop, off = McpEntry(command="no-such-program"), McpEntry(command="no-such-program", disabled=True)
    profile = Profile("p", mcp_servers={"shop": shop, "off": off})
    leaving_out = {"mcp_servers": {"shop": {"enabled": False}}}
    for settings, servers in (({}, ["shop"]), (leaving_out, [])):
        async with scripted_agent(tmp_path, answering(), profile=profile, settings=settings) as agent:
            assert [*inside(agent).opened.get("mcp", ())] == servers
