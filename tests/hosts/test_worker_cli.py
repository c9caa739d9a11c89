"""`worldagent worker` with an app: it runs submitted turns, is listed by `ps`, and drains at SIGTERM."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.command_line import BOUND, Run, home, run, started
from worldagent import Storage, WorldAgent
from worldagent.scheduling import Queue, StartMessage
from worldagent.testing import ScriptedLM

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("T10")

_APP = """
import asyncio
from pathlib import Path
from worldagent import Storage, WorldAgent
from worldagent.scheduling import Queue
from worldagent.testing import ScriptedLM

def reply(call):
    if "wait" not in call.user:
        return {"reply": "Hello."}
    async def later():
        Path("asked").touch()
        await asyncio.sleep(1)
        return {"reply": "Late."}
    return later()

def agent():
    return WorldAgent("shop", lm=ScriptedLM(reply), storage=Storage(home=Path("data")), queue=Queue())
"""


def _agent(home: Path) -> WorldAgent:
    return WorldAgent("shop", lm=ScriptedLM([]), storage=Storage(home=home / "data"), queue=Queue())


async def _workers(run: Run, home: Path) -> list[dict[str, Any]]:
    result = await run("ps", "--json", "--home", str(home / "data"))
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["workers"]
    return found


async def _pages_of(root: str) -> None:
    async with httpx2.AsyncClient() as http:
        health = await http.get(f"{root}/health")
        assert (health.status_code, health.json()["turns_begun_total"], health.json()["turns"]) == (200, 1, 0)
        ready = await http.get(f"{root}/ready")
        assert (ready.status_code, ready.json()["ready"]) == (200, True)
        metrics = await http.get(f"{root}/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "# TYPE worldagent_turns gauge\nworldagent_turns 0\n" in metrics.text
        assert "# TYPE worldagent_turns_ended_total counter\nworldagent_turns_ended_total 1\n" in metrics.text
        assert (await http.get(f"{root}/mcp")).status_code == 404


async def _until(path: Path) -> None:
    for _ in range(int(BOUND * 50)):
        if path.exists():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{path} is not there")


async def test_a_worker_runs_submitted_turns_and_drains(run: Run, home: Path) -> None:
    (home / "app.py").write_text(_APP)
    async with _agent(home) as agent:
        submission = await agent.submit(StartMessage("Hello."), thread=agent.thread("t1"))
        words = ("worker", "--app", "app:agent", "--concurrency", "5", "--queue-concurrency", "50", "--no-schedules")
        async with started(home, *words, "--port", "0") as process:
            assert (await asyncio.wait_for(submission.wait(), BOUND)).text == "Hello."
            [worker] = await _workers(run, home)
            assert (worker["workspace"], worker["state"], worker["pid"]) == ("shop", "alive", process.pid)
            assert worker["worker"] in (await run("ps", "--home", str(home / "data"))).stdout
            assert process.stderr is not None
            first, second = [await asyncio.wait_for(process.stderr.readline(), BOUND) for _ in range(2)]
            assert first.startswith(b"worker of the workspace 'shop': submitted turns, as ")
            pages = second.decode().split()[-1].removesuffix("/health")
            await _pages_of(pages)
            late = await agent.submit(StartMessage("Please wait."), thread=agent.thread("t2"))
            await _until(home / "asked")
            process.send_signal(signal.SIGTERM)
            _, told = await asyncio.wait_for(process.communicate(), BOUND)
        assert process.returncode == 143, told
        assert await late.status() == "done"
    assert b"worker ended: 2 turns ended or wait for a person, 0 failed, 0 left to resume" in told
    assert await _workers(run, home) == []


async def test_a_killed_worker_is_listed_as_dead(run: Run, home: Path) -> None:
    (home / "app.py").write_text(_APP)
    async with started(home, "worker", "--app", "app:agent") as process:
        assert process.stderr is not None
        line = await asyncio.wait_for(process.stderr.readline(), BOUND)
        assert line.endswith(b", 0 schedules, queued messages\n"), line
        for _ in range(500):
            if await _workers(run, home):
                break
            await asyncio.sleep(0.02)
        process.kill()
        await process.wait()
    assert [each["state"] for each in await _workers(run, home)] == ["dead"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--concurrency", "5"), "--concurrency is for an agent with a queue"),
        (("--no-schedules",), "--no-schedules is for an agent with a queue"),
        (("--app", "app:agent", "--concurrency", "0"), "`worker_concurrency` must be an integer from 1 to 10000"),
    ],
)
async def test_options_that_do_not_fit(run: Run, home: Path, words: tuple[str, ...], problem: str) -> None:
    (home / "app.py").write_text(_APP)
    async with started(home, "worker", *words) as process:
        _, told = await asyncio.wait_for(process.communicate(), BOUND)
    assert process.returncode == 2
    assert problem in told.decode()


_TEAM = """
from pathlib import Path
from worldagent import Policy, Rule, Storage, WorldAgent, tool
from worldagent.members import AuthorityConfig, RoleSpec, Route, WorkspaceConfig
from worldagent.testing import ScriptedLM

@tool(risk="write")
async def qualify(lead: str) -> str:
    return lead

CRO = RoleSpec(
    role_id="cro", workspace="shop", soul="You are the CRO.", domains=("revenue",), reports_to="",
    operator_ids=("qualify",), authority=AuthorityConfig(autonomous=("qualify",)),
    routes=(Route(event="lead.*", operator="qualify", capability="qualify"),),
)

def agent():
    return WorldAgent(
        "shop", lm=ScriptedLM([]), storage=Storage(home=Path("data")), tools=[qualify],
        policy=Policy(rules=(Rule(decision="approve", function="qualify"),)),
        society=WorkspaceConfig(id="shop", owner="charles", roles=(CRO,)),
    )
"""


@pytest.mark.requirement("A12", "A18")
async def test_a_worker_handles_the_events_of_members(run: Run, home: Path) -> None:
    (home / "app.py").write_text(_TEAM)
    stored = ("--workspace", "shop", "--home", str(home / "data"), "--json")
    async with started(home, "worker", "--app", "app:agent", "--port", "0") as process:
        assert process.stderr is not None
        told = await asyncio.wait_for(process.stderr.readline(), BOUND)
        assert b"messages and events of members" in told
        pages = (await asyncio.wait_for(process.stderr.readline(), BOUND)).decode().split()[-1].removesuffix("/health")
        words = ("workspace", "emit", "lead.created", "--domain", "revenue", "--payload", '{"lead": "Ada"}')
        assert (await run(*words, *stored)).exit_code == 0
        async with asyncio.timeout(BOUND):
            while True:
                [posted] = json.loads((await run("workspace", "events", *stored)).stdout)["events"]
                if posted["state"] == "done":
                    break
        assert (posted["member"], posted["result"]) == ("cro", "done")
        async with httpx2.AsyncClient() as http:
            metrics = (await http.get(f"{pages}/metrics")).text
        for kind in ("long_wait", "mailbox", "ping_pong", "forwards"):
            assert f"# TYPE worldagent_stalls_{kind} gauge\nworldagent_stalls_{kind} 0\n" in metrics
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), BOUND)
