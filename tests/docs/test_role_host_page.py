"""The page of the contract of role hosts: its schemas and options are the host's, its conversations are replayed."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from support.command_line import options_of
from support.example_hosts import conversation
from support.house import pyproject
from support.pages import DOCS, Block, blocks, rows
from support.processes import clean_environment
from support.role_hosts import COMMAND
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
    command = [*COMMAND, "--stdio", "--store", str(tmp_path / "roles.db")]
    async with conversation(command, tmp_path / "errors", env=clean_environment()) as host:
        for row in exchange.code.splitlines():
            said: dict[str, Any] = json.loads(row[2:])
            if row.startswith("> "):
                await host.say(said)
                continue
            assert row.startswith("< ")
            assert await host.hear() == of_this_version(said)
        assert await host.end() == b""


def test_the_token_file_of_the_page_is_one(tmp_path: Path) -> None:
    [example] = of_page("toml")
    file = tmp_path / "tokens.toml"
    file.write_text(example.code, encoding="utf-8")
    assert repr(read_token_file(file, Grant({}))) == "<2 tokens>"
