"""One paused thread, several processes: who answers first, in which order, what the one who is late is told (T4)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.processes import next_line, start_script

pytestmark = [pytest.mark.on_every_database, pytest.mark.usefixtures("database_engine")]

SHOP = """
import asyncio, json, sys
from pathlib import Path
from pydantic import BaseModel
from support.agents import answering, scripted_agent
from worldagent.core.errors import WorldAgentError
from worldagent.core.pauses import Approve
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import tool

home = Path(sys.argv[1])

class Order(BaseModel):
    what: str

class Said(BaseModel):
    text: str

def happen(what):
    with (home / "effects").open("a") as log:
        log.write(what + "\\n")

@tool(approval=True)
async def pay(what: str) -> str:
    happen("pay-" + what)
    return "paid"

@tool
async def write(what: str) -> str:
    happen("write-" + what)
    return "wrote"

async def buy(params: Order, ctx: TaskContext) -> Said:
    three = await asyncio.gather(
        ctx.call("pay", {"what": params.what}),
        ctx.calls.ask_person("Which colour?", ["red", "blue"]),
        ctx.call("write", {"what": params.what}),
    )
    return Said(text=" ".join([*three, await ctx.call("write", {"what": params.what + "-end"})]))

async def ordered(agent, order):
    thread = agent.thread(order["thread"])
    try:
        if order["do"] == "begin":
            turn = await thread.task("buy", {"what": order["thread"]})
        else:
            answers = {one: Approve() if what == "approve" else what for one, what in order["answers"].items()}
            turn = await thread.resume(answers)
    except WorldAgentError as error:
        return {"error": error.code}
    pauses = {pause.kind: pause.id for pause in turn.pauses}
    return {"status": turn.status, "text": turn.result.text if turn.result else "", "pauses": pauses}

async def main():
    loop = asyncio.get_running_loop()
    async with scripted_agent(
        home, answering(), tools=[pay, write], shapes=[Shape("buy", Order, Said, buy)]
    ) as agent:
        print("open", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps(await ordered(agent, json.loads(line))), flush=True)

asyncio.run(main())
"""

Told = dict[str, Any]


class Shop:
    """A process with an agent, which does what it is told."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def order(self, do: str, thread: str, **answers: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, "thread": thread, "answers": answers}).encode() + b"\n")

    async def told(self) -> Told:
        found: Told = json.loads(await next_line(self._process))
        return found

    async def done(self, do: str, thread: str, **answers: str) -> Told:
        self.order(do, thread, **answers)
        return await self.told()


@asynccontextmanager
async def shops(home: Path, count: int) -> AsyncGenerator[list[Shop]]:
    processes = await asyncio.gather(*(start_script(SHOP, home) for _ in range(count)))
    try:
        for process in processes:
            assert await next_line(process) == "open"
        yield [Shop(process) for process in processes]
        for process in processes:
            out, error = await asyncio.wait_for(process.communicate(b""), 30)
            assert (process.returncode, out, error) == (0, b"", b"")
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def effects(home: Path) -> Counter[str]:
    return Counter((home / "effects").read_text().split())


def once(*threads: str) -> Counter[str]:
    return Counter(what for thread in threads for what in (f"pay-{thread}", f"write-{thread}", f"write-{thread}-end"))


@pytest.mark.requirement("T4")
async def test_of_two_processes_that_resume_at_once_one_runs_the_effect_and_the_other_is_told(tmp_path: Path) -> None:
    threads = [f"t{number}" for number in range(8)]
    lost = Counter[str]()
    async with shops(tmp_path, 2) as pair:
        for number, thread in enumerate(threads):
            ids = (await pair[0].done("begin", thread))["pauses"]
            answers = {ids["approval"]: "approve", ids["question"]: "red"}
            for shop in pair[:: 1 if number % 2 else -1]:
                shop.order("resume", thread, **answers)
            found = [await shop.told() for shop in pair]
            [winner] = [told for told in found if "error" not in told]
            assert (winner["status"], winner["text"]) == ("done", "paid red wrote wrote")
            lost.update(told["error"] for told in found if "error" in told)
    assert effects(tmp_path) == once(*threads)
    assert lost == {"already_answered": len(threads)}


@pytest.mark.requirement("T4")
async def test_two_processes_that_each_answer_one_of_two_pauses_at_once_end_the_turn_together(tmp_path: Path) -> None:
    threads = [f"t{number}" for number in range(6)]
    async with shops(tmp_path, 2) as (one, other):
        for thread in threads:
            ids = (await one.done("begin", thread))["pauses"]
            one.order("resume", thread, **{ids["approval"]: "approve"})
            other.order("resume", thread, **{ids["question"]: "red"})
            found = [await shop.told() for shop in (one, other)]
            done = [told for told in found if told.get("status") == "done"]
            assert done, found
            assert all(told["text"] == "paid red wrote wrote" for told in done)
            # The other saw the end, a pause that was still open, or a turn that had gone on without it.
            assert all(told.get("status") in ("done", "paused") for told in found), found
    assert effects(tmp_path) == once(*threads)
