"""The check of a role host that calls its tools something else, as the settings say."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from support.broken_hosts import broken_host, broken_over_http
from worldagent.hosts.cli.app import app
from worldagent.mcp_client import TOOLS, HttpHost
from worldagent.testing.role_host_conformance import HostCheckOptions, check_host

NAMES = {tool: f"my_{tool}" for tool in TOOLS}
BARE = re.compile(rf"\b({'|'.join(TOOLS)})\b")


@pytest.mark.requirement("R9")
def test_doctor_calls_the_tools_as_the_settings_do_and_says_so() -> None:
    with broken_over_http(prefix="my_") as (url, host):
        words = ["doctor", "--role-host", url, "--write"]
        env = {"COLUMNS": "80", "TERM": "dumb"}
        unnamed = CliRunner().invoke(app, words, env=env)
        named = CliRunner().invoke(app, words, env=env | {"WORLDAGENT_ROLE_HOST_TOOLS": json.dumps(NAMES)})
        assert host.store.kept == {}
    assert named.exit_code == 0, named.output
    assert "[ ok ] list.answer        my_role_list answers with roles" in named.stdout
    assert not BARE.search(named.stdout)
    assert unnamed.exit_code == 1
    told = " ".join(unnamed.stdout.split())
    assert "it has no role_list and no role_get and no role_put and no role_delete" in told
    assert "the setting role_host_tools" in told


@pytest.mark.requirement("R9")
@pytest.mark.parametrize(
    ("fault", "point"),
    [
        ("requires nothing", "tools.arguments"),
        ("names no contract", "answer.contract"),
    ],
)
async def test_what_is_wrong_is_told_with_the_names_of_the_host(fault: str, point: str) -> None:
    async with broken_host(fault, prefix="my_") as (url, _):
        results = await check_host(HttpHost(url, tools=NAMES), HostCheckOptions(write=True))
    [broken] = [result for result in results if result.status == "fail"]
    assert broken.id == point
    assert "my_role_" in f"{broken.problem} {broken.title}"
    assert not [each for each in results if BARE.search(f"{each.title} {each.problem} {each.remedy} {each.detail}")]


async def test_names_that_are_swapped_are_not_mixed_up() -> None:
    swapped = {"role_get": "role_delete", "role_delete": "role_get"}
    async with broken_host("lacks a tool") as (url, _):  # it has no role_get
        results = {result.id: result for result in await check_host(HttpHost(url, tools=swapped))}
    assert results["tools.present"].problem == "it has no role_get"
    assert results["get.not_found"].title == "role_delete of no role is not_found"
