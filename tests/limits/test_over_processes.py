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
from worldagent.harness import Policy, Worker, tool
from worldagent.harness.gate import Rule
from worldagent.harness.limits import Limits
from worldagent.testing import ScriptedLM

home, part, kill, risk = Path(sys.argv[1]), *sys.argv[2:]

@tool(risk=risk)
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
        policy=Policy(rules=(Rule(decision="approve", function="look"),)),
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


async def run(home: Path, part: str, risk: str) -> dict[str, Any]:
    home.mkdir(exist_ok=True)
    found: dict[str, Any] = json.loads(await run_script(SCRIPT, home, part, "", risk, limit=BOUND))
    return found


async def killed(home: Path, part: str, kill: str, risk: str) -> None:
    home.mkdir(exist_ok=True)
    process = await start_script(SCRIPT, home, part, kill, risk)
    await asyncio.wait_for(process.communicate(), BOUND)
    assert process.returncode == -signal.SIGKILL


def done(home: Path) -> list[str]:
    return (home / "done").read_text().split()


@pytest.mark.requirement("H4", "T5")
@pytest.mark.parametrize("risk", ["write", "read_only"])
async def test_killed_turn_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_engine: str, risk: str
) -> None:
    home = tmp_path / "home"
    await killed(home, "begin", "2", risk)
    if risk == "write":
        assert (await run(home, "resume", risk))["status"] == "paused"  # was it done or not
    assert (await run(home, "resume", risk))["status"] == "paused"  # for leave
    seen = await run(home, "resume", risk)
    assert seen["status"] == "done"
    if risk == "write":
        assert done(home) == ["0", "1", "2", "2", "4"]
    else:  # nobody was asked; those of the last second before the kill run again as well
        assert done(home) in [["0", "1", *again, "2", "4"] for again in (["2"], ["2", "1"], ["2", "0", "1"])]
    if database_engine == "postgres":
        from support.postgres import new_database

        monkeypatch.setenv("WORLDAGENT_DATABASE_URL", new_database())
    whole = tmp_path / "whole"
    await run(whole, "begin", risk)
    counted = await run(whole, "resume", risk)
    if risk == "read_only":
        assert seen.pop("tokens") >= counted.pop("tokens")  # model calls of that second were made again, and paid again
    assert seen == counted
    assert seen["calls"] == 6  # the worker and its five
