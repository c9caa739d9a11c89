"""What a turn has used counts exactly once, whichever processes it ran in and however they ended (H4)."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from support.processes import run_script, start_script

pytestmark = [pytest.mark.on_every_database, pytest.mark.timeout(400)]

BOUND = 180

SCRIPT = """
import asyncio, json, os, signal, sys
from pathlib import Path
from support.agents import scripted_agent
from support.agents import calls, to, told
from worldagent.core.errors import LimitReached
from worldagent.core.pauses import Approve, RunAgain
from worldagent.harness import Worker, tool
from worldagent.harness.limits import Limits
from worldagent.testing import ScriptedLM

home, part, kill = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

@tool(risk="read_only")
async def look(what: str) -> str:
    with (home / "done").open("a") as log:
        log.write(what + "\\n")
    if what == kill:
        os.kill(os.getpid(), signal.SIGKILL)
    return "seen " + what

@tool(risk="write")
async def pay(what: str) -> str:
    return "paid " + what

def reply(call):
    heard = " ".join(told(call))
    if "request" not in call.fields:
        return {"reply": "Done."} if "scout" in heard else to("scout")
    count = heard.count("You called")
    if "limit_reached" in heard or count >= 5:
        return {"result": "enough" if "limit_reached" in heard else "all"}
    return calls(("pay" if count == 3 else "look", {"what": str(count)}))

async def main():
    worker = Worker("scout", "You look.", "looks", tools=("look", "pay"), limits=Limits(calls=5, tokens=10**6))
    agent = scripted_agent(
        home, ScriptedLM(reply), workers=[worker], tools=[look, pay],
        settings={"turn_tokens": 10**6, "account_limits": {"calls": 10**6}},
    )
    async with agent:
        thread = agent.thread("t", account="ada")
        turn = await (thread.converse("Go") if part == "begin" else thread.resume(
            {pause.id: RunAgain() if pause.kind == "uncertain" else Approve() for pause in await thread.pauses()}))
        used = await agent.usage(account="ada")
        assert used == await agent.usage()
        print(json.dumps({"status": turn.status, "calls": used.calls, "tokens": used.tokens}))

asyncio.run(main())
"""


async def run(home: Path, part: str, kill: str = "") -> dict[str, Any]:
    home.mkdir(exist_ok=True)
    found: dict[str, Any] = json.loads(await run_script(SCRIPT, home, part, kill, limit=BOUND))
    return found


async def killed(home: Path, part: str, kill: str) -> None:
    home.mkdir(exist_ok=True)
    process = await start_script(SCRIPT, home, part, kill)
    await asyncio.wait_for(process.communicate(), BOUND)
    assert process.returncode == -signal.SIGKILL


def done(home: Path) -> list[str]:
    return (home / "done").read_text().split()


@pytest.mark.requirement("H4", "T5")
async def test_killed_turn_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_engine: str) -> None:
    home = tmp_path / "home"
    await killed(home, "begin", "2")
    assert (await run(home, "resume"))["status"] == "paused"  # was it done or not
    assert (await run(home, "resume"))["status"] == "paused"  # for leave
    seen = await run(home, "resume")
    assert seen["status"] == "done"
    assert done(home) == ["0", "1", "2", "2", "4"]
    if database_engine == "postgres":
        from support.postgres import new_database

        monkeypatch.setenv("WORLDAGENT_DATABASE_URL", new_database())
    whole = tmp_path / "whole"
    await run(whole, "begin")
    assert seen == await run(whole, "resume")
    assert seen["calls"] == 6  # the worker and its five
