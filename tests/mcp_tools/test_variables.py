"""Variables in entries of MCP servers: filled in if they are named, refused otherwise, and never shown."""

from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.mcp_tool_server import command
from support.mcp_tools import over_http
from worldagent import Settings
from worldagent.core.errors import InvalidArgument, ProfileInvalid, SettingsInvalid
from worldagent.mcp_client import HttpHost, StdioHost
from worldagent.mcp_client.tools import Mcp, McpEntry
from worldagent.profiles import Profile


@pytest.mark.requirement("H2")
@pytest.mark.parametrize(
    ("place", "entry"),
    [
        ("command", {"command": "${NAME}/server"}),
        ("args.1", {"command": "x", "args": ["-k", "${env:NAME}"]}),
        ("env.KEY", {"command": "x", "env": {"KEY": "a ${input:NAME}"}}),
        ("env.KEY", {"command": "x", "env": {"KEY": "$NAME"}}),
        ("cwd", {"command": "x", "cwd": "${NAME}"}),
        ("url", {"url": "https://${NAME}/mcp"}),
        ("headers.Authorization", {"url": "https://a.example", "headers": {"Authorization": "Bearer $NAME"}}),
        ("token", {"url": "https://a.example", "token": "${NAME}"}),
    ],
)
def test_a_variable_is_filled_in_if_it_is_named_and_refused_otherwise(
    place: str, entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAME", "value-of-it")  # which is not enough
    problem = rf"mcp_servers\.a: `{place}` needs the variable 'NAME', which has no value; name it in .* mcp_variables"
    with pytest.raises(SettingsInvalid, match=problem):
        Settings(mcp_servers={"a": entry})
    with pytest.raises(InvalidArgument, match="needs the variable 'NAME'"):
        McpEntry(**entry).server()
    monkeypatch.setenv("WORLDAGENT_MCP_VARIABLES", '["NAME", "NO_SUCH_VARIABLE"]')
    settings = Settings(mcp_servers={"a": entry})
    host = settings.servers()["a"].host
    parts = (host.url, host.token, host.headers) if isinstance(host, HttpHost) else (host.argv, host.env, host.cwd)
    assert "value-of-it" in str(parts)
    assert "$" not in str(parts)
    assert "value-of-it" not in repr(settings)
    assert "value-of-it" not in repr(settings.servers()) or place == "url"  # the server's address is not a secret


@pytest.mark.requirement("H2")
def test_values_defaults_and_what_begins_no_variable() -> None:
    def argument(text: str, **variables: str) -> str:
        settings = Settings(mcp_servers={"a": {"command": "x", "args": [text]}}, mcp_variables=variables)
        host = settings.servers()["a"].host
        assert isinstance(host, StdioHost)
        return host.argv[1]

    assert argument("${A:-x}") == "x"
    assert argument("${A:-x}", A="") == "x"
    assert argument("${A:-}-${B}", B="${A} $C") == "-${A} $C"  # a value is not searched
    assert argument("costs $5, $HOME stays", A="b") == "costs $5, $HOME stays"  # only the shell's own in arguments
    for text in ("${", "${A", "${}", "${A:-${B}}", "${A:-{}}${"):
        with pytest.raises(SettingsInvalid, match=r"`args\.0` has a '\$\{' that begins no variable"):
            argument(text, A="s3cret", B="s3cret")
    with pytest.raises(SettingsInvalid) as refused:
        Settings(mcp_servers={"a": {"url": "${A}", "token": "${B:-s3cret}"}}, mcp_variables={"A": "s3cret"})
    assert "s3cret" not in str(refused.value)


@pytest.mark.requirement("H2")
async def test_the_address_of_a_server_can_be_a_variable(tmp_path: Path) -> None:
    async with over_http(tmp_path) as host:
        base, _, path = host.url.rpartition("/")
        settings = {"mcp_servers": {"h": {"url": f"${{BASE}}/{path}"}}, "mcp_variables": {"BASE": base}}
        async with scripted_agent(tmp_path, answering(), settings=settings) as agent:
            assert await agent.call("h_echo", {"text": "hello"}) == "hello"


@pytest.mark.requirement("P6")
async def test_a_server_of_a_profile_gets_variables_of_the_settings(tmp_path: Path) -> None:
    program, *arguments = command()
    profile = Profile("p", mcp_servers={"t": McpEntry(command="${PYTHON}", args=tuple(arguments))})
    with pytest.raises(ProfileInvalid, match=r"'mcp_servers\.t': `command` needs the variable 'PYTHON'"):
        scripted_agent(tmp_path, answering(), profile=profile)
    settings = {"mcp_variables": {"PYTHON": program}}
    async with scripted_agent(tmp_path, answering(), profile=profile, settings=settings) as agent:
        assert [*agent.get(Mcp)] == ["t"]
        assert agent.get(Mcp)["t"].connected
