"""`worldagent schedule add`, `list`, `show`, `pause`, `run`, `rm` and `history`, and `worldagent worker`."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from support.command_line import APP, BOUND, Run, as_json, home, refusal, run, started
from support.postgres import new_database
from worldagent import Roles, Storage, WorldAgent
from worldagent.core.errors import SettingsInvalid
from worldagent.mcp_client import HttpHost
from worldagent.role_resolution.keys import RoleKey
from worldagent.scheduling import check_shared
from worldagent.testing import ScriptedLM

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("T7")

ADD = ("--cron", "30 7 * * MON-FRI", "--zone", "Europe/Berlin", "--message", "What is new?")


async def test_a_schedule_is_added_listed_run_and_removed(run: Run, home: Path) -> None:
    assert (await run("schedule", "list")).stdout == "there are no schedules\n"
    added = await as_json(run, "schedule", "add", "report", *ADD)
    assert added["next"].endswith(("T05:30:00Z", "T06:30:00Z"))
    [listed] = (await as_json(run, "schedule", "list"))["schedules"]
    assert (listed["id"], listed["when"], listed["starts"]) == (
        "report",
        {"cron": "30 7 * * MON-FRI"},
        {"message": "What is new?"},
    )
    assert "zone: Europe/Berlin" in (await run("schedule", "show", "report")).stdout
    assert (await as_json(run, "schedule", "pause", "report"))["paused"] is True
    made = (await as_json(run, "schedule", "run", "report"))["run"]
    assert made["status"] == "done"
    assert (await as_json(run, "schedule", "pause", "report", "--off"))["paused"] is False
    [kept] = (await as_json(run, "schedule", "history", "report"))["runs"]
    assert kept == made
    assert made["turn"] in (await run("schedule", "history", "report")).stdout
    assert (await run("schedule", "rm", "report")).exit_code == 0
    assert (await refusal(run, "schedule", "show", "report"))["code"] == "unknown_schedule"
    assert (await as_json(run, "schedule", "add", "report", *ADD, *APP))["schedule"][
        "workspace"
    ] == "shop"  # the workspace of the app's agent
    added = await as_json(run, "schedule", "add", "daily", "--cron", "@daily", "--message", "What is new?")
    assert (added["schedule"]["when"], added["next"][-10:]) == ({"cron": "@daily"}, "T00:00:00Z")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--cron", "@reboot", "--message", "x"), "'@reboot' cannot be read: a schedule has no start of a machine"),
        (("--at", "soon", "--message", "x"), "--at is not a time"),
        (("--at", "2020-01-01T00:00", "--message", "x"), "never fires from now on"),
        (("--message", "x"), "a schedule needs one of --cron, --every, --at, got none"),
        (("--every", "60"), "a schedule needs one of --message, --task, --skill, --event, got none"),
        (("--every", "60", "--message", "x", "--task", "buy"), "got --message and --task"),
        (("--every", "60", "--skill", "tea"), "a schedule needs one of --request, --params, got none"),
        (("--every", "60", "--message", "x", "--params", "{}"), "--params has no effect without --task, --skill or"),
        (("--every", "60", "--event", "a.b"), "--event has no effect without --domain"),
        (("--every", "60", "--message", "x", "--domain", "d"), "--domain has no effect without --event"),
        (("--every", "60", "--event", "a.b", "--domain", "d"), "has no society"),
        (("--every", "60", "--task", "buy", "--request", "x"), "--request has no effect without --skill"),
        (("--every", "60", "--skill", "tea", "--request", "x"), "there is no skill 'tea'"),
        (("--every", "60", "--message", "x", "--role", "Be brief."), "a call role is never stored"),
    ],
)
async def test_what_cannot_be_scheduled(run: Run, home: Path, words: tuple[str, ...], problem: str) -> None:
    refused = await run("schedule", "add", "x", *words)
    assert refused.exit_code == 2, refused.output
    assert problem in refused.stderr
    assert "remedy: " in refused.stderr
    assert (await as_json(run, "schedule", "list"))["schedules"] == []


async def test_a_worker_fires_until_it_is_stopped(run: Run, home: Path) -> None:
    assert (await run("schedule", "add", "beat", "--every", "1", "--message", "Beat.")).exit_code == 0

    async def fired() -> bool:
        return any(each["status"] == "done" for each in (await as_json(run, "schedule", "history", "beat"))["runs"])

    async with started(home, "worker") as process:
        async with asyncio.timeout(BOUND):
            while not await fired():
                pass
        process.send_signal(signal.SIGTERM)
        _, told = await asyncio.wait_for(process.communicate(), BOUND)
    assert process.returncode == 143, told
    assert b"worker of the workspace 'default': 1 schedules" in told


async def _worker_starts(home: Path, *words: str, **settings: str) -> bool:
    """Whether a worker reports that it runs; it is then stopped. Otherwise it has refused the settings."""
    async with started(home, "worker", *words, **settings) as process:
        assert process.stderr is not None
        while line := await asyncio.wait_for(process.stderr.readline(), BOUND):
            if b"worker of the workspace" in line:
                process.send_signal(signal.SIGTERM)
                await asyncio.wait_for(process.communicate(), BOUND)
                return True
            if b"the database is on a server" in line:
                assert await asyncio.wait_for(process.wait(), BOUND) == 2
                assert b"start with --home-roles" in await process.stderr.read()
                return False
    raise AssertionError("it ended without a word")


@pytest.mark.requirement("R9")
async def test_a_worker_on_postgres_needs_roles_and_a_role_key_that_all_machines_have(home: Path) -> None:
    settings = {"WORLDAGENT_DATABASE_URL": new_database(), "WORLDAGENT_LM": "openai/none"}
    hosted = settings | {"WORLDAGENT_ROLE_HOST": "http://127.0.0.1:9/mcp"}
    assert not await _worker_starts(home, **settings)
    assert await _worker_starts(home, **hosted, WORLDAGENT_ROLE_KEY="0123456789abcdef" * 4)
    assert not await _worker_starts(home, "--role-host", "embedded", **hosted)
    assert await _worker_starts(home, "--home-roles", **settings)


async def test_an_agent_reports_what_other_machines_lack(tmp_path: Path) -> None:
    given: dict[str, Any] = {"lm": ScriptedLM([])}
    here = Storage(home=tmp_path)
    agent = WorldAgent("shop", storage=here, **given)
    assert check_shared(agent) is agent
    server = Storage(home=tmp_path, url="postgresql://ana@db.example/agents")
    with pytest.raises(SettingsInvalid, match="stored roles are in the home"):
        check_shared(WorldAgent("shop", storage=server, **given))
    roles = Roles(host=HttpHost("http://127.0.0.1:9/mcp"))
    with pytest.raises(SettingsInvalid, match="role key that other machines lack"):
        check_shared(WorldAgent("shop", storage=server, roles=roles, **given))
    RoleKey.open(server.role_key)
    check_shared(WorldAgent("shop", storage=server, roles=roles, **given))
