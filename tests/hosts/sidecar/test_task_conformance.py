"""The scenarios for tasks of MCP's own conformance suite, on a sidecar over HTTP (T4)."""

import asyncio
import json
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from support.example_hosts import FOLDER, NODE
from support.processes import clean_environment, ending
from support.sidecar_served import served
from support.task_tools import sidecar

pytestmark = [pytest.mark.requirement("T4"), pytest.mark.timeout(180)]

SUITE = FOLDER / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
BOUND = 90  # seconds: a scenario waits for tasks of a second or two
SCENARIOS = {
    "tasks-lifecycle": 9,
    "tasks-capability-negotiation": 5,
    "tasks-wire-fields": 4,
    "tasks-request-state-removal": 3,
    "tasks-mrtr-input": 4,
    "tasks-request-headers": 5,
    "tasks-dispatch-and-envelope": 9,
    "tasks-required-task-error": 3,
    "tasks-mrtr-composition": 2,
    "tasks-status-notifications": 1,
}
"""Its scenarios for tasks, with the number of checks of each."""
SKIPPED = ("tasks-status-notifications",)
"""Scenarios that the suite itself skips, in every server."""


async def run(*words: str) -> str:
    """Run the suite and give what it printed."""
    assert SUITE.is_file(), "the conformance suite is missing: run `make setup`"
    process = await asyncio.create_subprocess_exec(
        NODE, str(SUITE), *words, stdout=PIPE, stderr=STDOUT, env=clean_environment()
    )
    async with ending(process):
        printed, _ = await asyncio.wait_for(process.communicate(), BOUND)
    return printed.decode()


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_scenario(scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(sidecar(tmp_path / "home", monkeypatch)) as url:
        printed = await run("server", "--url", url, "--scenario", scenario, "--output-dir", str(tmp_path / "out"))
    [file] = (tmp_path / "out").rglob("checks.json")
    checks = json.loads(file.read_text(encoding="utf-8"))
    expected = "SKIPPED" if scenario in SKIPPED else "SUCCESS"
    wrong = [f"{check['id']}: {check.get('errorMessage')}" for check in checks if check["status"] != expected]
    assert wrong == [], printed
    assert len(checks) == SCENARIOS[scenario]


async def test_no_scenario_for_tasks_is_left_out() -> None:
    listed = [line.split() for line in (await run("list", "--server")).splitlines()]
    assert sorted(words[1] for words in listed if words[1:] and words[1].startswith("tasks-")) == sorted(SCENARIOS)
