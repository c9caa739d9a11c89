"""The commands `mcp list`, `login` and `logout`, as people run them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from support.authorization import SCOPE, authorization
from support.command_line import BOUND, command, started

pytestmark = pytest.mark.requirement("H2")


async def test_a_person_logs_in_at_the_printed_address_and_logs_out(tmp_path: Path) -> None:
    with authorization() as (state, host):
        servers = {"t": {"url": host.url, "scope": SCOPE}, "u": {"command": "x"}, "v": {"url": host.url, "token": "x"}}
        settings: Any = {"WORLDAGENT_MCP_SERVERS": json.dumps(servers)}

        async def listed() -> list[dict[str, str]]:
            found = json.loads((await command(tmp_path, "mcp", "list", "--json", **settings)).out)["servers"]
            return [each | {"address": None} for each in found]

        entry = {"name": "t", "address": None, "by": "workspace", "until": None}
        assert await listed() == [{**entry, "state": "none"}]
        async with started(tmp_path, "mcp", "login", "t", "--no-browser", "--json", **settings) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            async with asyncio.timeout(BOUND):
                line = (await process.stderr.readline()).decode()
                assert line.startswith("log in here: http://127.0.0.1:")
                await state.visit(line.rpartition(" ")[2].strip())
                out = await process.stdout.read()
                told = (await process.stderr.read()).decode()
        assert json.loads(out) == {"login": {"name": "t", "state": "active", "until": None}}
        assert "logged in to the MCP server 't' for the workspace 'default'" in told
        assert not any(secret in line + told + out.decode() for secret in state.secrets)
        assert await listed() == [{**entry, "state": "active"}]
        removed = await command(tmp_path, "mcp", "logout", "t", **settings)
        assert removed.code == 0
        assert (await command(tmp_path, "mcp", "logout", "t", **settings)).code == 1
        assert await listed() == [{**entry, "state": "none"}]
        assert (await command(tmp_path, "mcp", "login", "t", "--port", "70000", **settings)).code == 2
        unknown = await command(tmp_path, "mcp", "login", "u", **settings)
        assert unknown.code == 2
        assert "'u' is not an MCP server that can be logged in to: it is a program, or has a token" in unknown.told
        assert "remedy: name one of these: t" in unknown.told
        assert "url and without a token" in (await command(tmp_path, "mcp", "login", "w")).told


async def test_an_account_logs_in_for_itself_alone(tmp_path: Path) -> None:
    with authorization() as (state, host):
        settings: Any = {"WORLDAGENT_MCP_SERVERS": json.dumps({"t": {"url": host.url, "login": "account"}})}

        async def state_of(*whose: str) -> str:
            listed = await command(tmp_path, "mcp", "list", "--json", *whose, **settings)
            [found] = json.loads(listed.out)["servers"]
            return str(found["state"])

        without = await command(tmp_path, "mcp", "login", "t", **settings)
        assert (without.code, "name it with --account" in without.told) == (2, True)
        login = ("mcp", "login", "t", "--account", "ana", "--no-browser")
        async with started(tmp_path, *login, **settings) as process:
            assert process.stderr is not None
            async with asyncio.timeout(BOUND):
                await state.visit((await process.stderr.readline()).decode().rpartition(" ")[2].strip())
                told = (await process.stderr.read()).decode()
        assert "logged in to the MCP server 't' for the account 'ana'" in told
        states = [await state_of(*whose) for whose in (("--account", "ana"), ("--account", "ben"), ())]
        assert states == ["active", "none", "for each account"]
