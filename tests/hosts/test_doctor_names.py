"""The check of a role host that calls its tools something else, as the settings say."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from support.broken_hosts import broken_over_http
from worldagent.hosts.cli.app import app
from worldagent.mcp_client import TOOLS

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
