"""The page of the contract of role hosts: its schemas and options are the host's, its conversations are replayed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, get_args

import pytest

from support.command_line import options_of
from support.house import pyproject
from support.pages import DOCS, Block, blocks, rows
from support.processes import clean_environment
from support.role_hosts import BOUND, COMMAND
from worldagent.hosts.role_host import Grant, read_token_file, schemas
from worldagent.hosts.role_host.contract import TOOLS, Code

PAGE = DOCS / "reference" / "role-host.md"


def of_page(language: str) -> list[Block]:
    found = [block for block in blocks(language) if block.page == PAGE]
    assert found
    return found


def of_this_version(said: dict[str, Any]) -> dict[str, Any]:
    """Give what the page lets the host say with the package's version where the page shows an older one."""
    result = said["result"]
    for server in (result.get("serverInfo"), result.get("_meta", {}).get("io.modelcontextprotocol/serverInfo")):
        if server is not None:
            assert server["version"]
            server["version"] = pyproject()["project"]["version"]
    return said


@pytest.mark.requirement("R9")
def test_the_schemas_of_the_page_are_those_of_the_host() -> None:
    made = schemas()
    assert made["role_get.input"] == made["role_delete.input"]
    assert made["role_get.output"] == made["role_put.output"] == made["role_delete.output"]
    shown = ["role_list.input", "role_list.output", "role_get.input", "role_put.input", "role_get.output", "error"]
    assert [json.loads(block.code) for block in of_page("json")] == [made[name] for name in shown]


def test_the_tools_codes_and_options_of_the_page_are_those_of_the_host() -> None:
    tools = [row.split("|")[1].strip(" `") for row in rows(PAGE, "tool")]
    assert tools == list(TOOLS)
    for row, spec in zip(rows(PAGE, "tool"), TOOLS.values(), strict=True):
        assert [name for name in spec.arguments.model_fields if f"`{name}`" not in row] == []
    assert [row.split("|")[1].strip(" `") for row in rows(PAGE, "code")] == list(get_args(Code))
    options = "\n".join(rows(PAGE, "option"))
    assert [name for name in options_of("role-host") if f"`{name}" not in options] == []


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("exchange", of_page("text"), ids=str)
async def test_the_conversation_of_the_page_is_what_the_host_says(exchange: Block, tmp_path: Path) -> None:
    host = await asyncio.create_subprocess_exec(
        *COMMAND,
        "--stdio",
        "--store",
        str(tmp_path / "roles.db"),
        env=clean_environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert host.stdin is not None
    assert host.stdout is not None
    try:
        for row in exchange.code.splitlines():
            said: dict[str, Any] = json.loads(row[2:])
            if row.startswith("> "):
                host.stdin.write(json.dumps(said).encode() + b"\n")
                continue
            assert row.startswith("< ")
            assert json.loads(await asyncio.wait_for(host.stdout.readline(), BOUND)) == of_this_version(said)
        host.stdin.close()
        assert await asyncio.wait_for(host.stdout.read(), BOUND) == b""
        assert await asyncio.wait_for(host.wait(), BOUND) == 0
    finally:
        if host.returncode is None:
            host.kill()
            await host.wait()


def test_the_token_file_of_the_page_is_one(tmp_path: Path) -> None:
    [example] = of_page("toml")
    file = tmp_path / "tokens.toml"
    file.write_text(example.code, encoding="utf-8")
    assert repr(read_token_file(file, Grant({}))) == "<2 tokens>"
