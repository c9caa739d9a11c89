"""Work in the background whose process is killed at a random instant, again and again, until one process finishes.

As a program it prints one JSON object with what came of the effects and of the reports. Each conversation sends off two
workers; a worker has one effect that cannot be taken back. Each process is a fork of this one.
"""

import asyncio
import os
import random
import re
import select
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.agents import approving, open_pauses
from support.databases import Engine, made, removed
from support.kill_points import bare_agent
from support.processes import add, be_program, forked_result, lines, started
from worldagent import Worker, WorldAgent
from worldagent.agent import Say, Thread
from worldagent.core.pauses import Happened, RunAgain
from worldagent.harness import Function, tool
from worldagent.testing import ScriptedCall, ScriptedLM

THREADS = 6
WORKS = ("a", "b")
SPAN = 3.0  # seconds after its agent is open within which a process is killed
POLL, MOST_POLLS = 0.01, 6000  # seconds between two looks whether it is, and how many
_EFFECTS, _OPEN = "effects", "open"
_REPORT = re.compile(r"The background task (\w+) \((\w+)\) is done\. Its result:\n(\S+)")


def functions(home: Path) -> list[Function]:
    @tool(risk="write")
    async def put(what: str) -> str:
        """Have an effect."""
        await asyncio.sleep(0)
        add(home / _EFFECTS, what)
        await asyncio.sleep(0)
        return f"put {what}"

    return [put]


def _answer(call: ScriptedCall) -> dict[str, Any]:
    told = "\n".join(str(message) for message in call.messages)
    if "request" in call.fields:
        what = str(call.fields["request"])
        if f"put {what}" in told:
            return {"result": what}
        return {"calls": [{"tool": "put", "arguments": {"what": what}}]}
    asked = str(call.fields["message"])
    if not asked.startswith("Go ") or f"{asked[3:]}.{WORKS[0]}" in told:
        return {"reply": "Noted."}
    works = [{"name": "hand", "request": f"{asked[3:]}.{each}"} for each in WORKS]
    return {"reply": "", "calls": [{"tool": "background_start", "arguments": each} for each in works]}


def agent_of(home: Path) -> WorldAgent:
    hand = Worker("hand", "You have effects.", "has an effect", tools=("put",), background=True)
    given: dict[str, Any] = {"tools": functions(home), "workers": [hand], "background": True}
    # The conversation has read what the worker reported, so only a rule that names this approves what comes after.
    rules = [approving("put", after=("worker:hand",), arguments={"what": "t*"})]
    return bare_agent(home, ScriptedLM(_answer), "put", rules=rules, **given)


async def _live(agent: WorldAgent, name: str, home: Path, *, last: bool) -> None:
    """Send off work again and again, each time when that of before is over; what is there goes on by itself."""
    thread, number, new = agent.thread(name, account="ana"), 0, False
    while not (last and new):
        number += 1
        new = not await thread.repeats(f"go{number}")
        await thread.run(Say(f"Go {name}.{number}", key=f"go{number}"))
        works = await agent.background_tasks(thread)
        assert len(works) >= number * len(WORKS), works
        for work in works[-len(WORKS) :]:
            while (status := (await work.state()).status) != "done":
                if status == "paused":  # also if a killed process has stored the answers, and did not resume
                    await answered(work.thread, home / _EFFECTS)
                await asyncio.sleep(0.01)


async def answered(thread: Thread, effects: Path) -> None:
    """Answer whether an effect that a kill interrupted happened, as a file says, and resume the turn."""
    there = set(lines(effects))
    pauses = await open_pauses(thread)
    answers = {
        pause.id: Happened(f"put {pause.arguments['what']}") if pause.arguments["what"] in there else RunAgain()
        for pause in pauses
    }
    await thread.resume(answers)


def _run(home: Path, *, last: bool = False) -> dict[str, list[str]]:
    """Work to the end; gives what was said on each thread. Only the last process ends."""

    async def work() -> dict[str, list[str]]:
        async with agent_of(home) as agent:
            add(home / _OPEN, "open")
            names = [f"t{number}" for number in range(THREADS)]
            await asyncio.gather(*(_live(agent, name, home, last=last) for name in names))
            await agent._runner.pending.settled()
            threads = [agent.thread(name, account="ana") for name in names]
            assert [await thread.queued() for thread in threads] == [()] * THREADS
            return {
                thread.scope.thread or "": [
                    str(each.body["text"])
                    for each in await thread.history(limit=1000)
                    if each.kind in ("message", "word")
                ]
                for thread in threads
            }

    return asyncio.run(work())


def _killed(home: Path, seconds: float) -> None:
    """Run a process, and kill it so many seconds after its agent is open."""
    before = len(lines(home / _OPEN))
    child = started(lambda: _run(home))
    ended = os.pidfd_open(child)
    try:
        for _ in range(MOST_POLLS):
            if len(lines(home / _OPEN)) > before or select.select([ended], [], [], POLL)[0]:
                break
        select.select([ended], [], [], seconds)
    finally:
        os.close(ended)
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == -signal.SIGKILL, f"it ended with {code}"


def killed(engine: Engine, kills: int) -> Iterator[dict[str, Any]]:
    """Kill so many processes, let one finish, and say what came of the effects and the reports."""
    seed = int.from_bytes(os.urandom(4), "big")
    source = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        home, progress = made(engine, Path(folder) / "home"), [0]
        for _ in range(kills):
            _killed(home, source.uniform(0, SPAN))
            progress.append(len(lines(home / _EFFECTS)))
        code, told = forked_result(lambda: _run(home, last=True))
        assert code == 0, f"seed {seed}: no process could finish"
        effects = Counter(lines(home / _EFFECTS))
        removed(home)
    expected = {
        name: {f"{asked[3:]}.{each}" for asked in said if asked.startswith("Go ") for each in WORKS}
        for name, said in told.items()
    }
    reports = {
        name: Counter(found[2] for text in said for found in _REPORT.findall(text)) for name, said in told.items()
    }
    yield {
        "seed": seed,
        "kills": kills,
        "works": sum(map(len, expected.values())),
        "progress": progress,
        "effects": effects.total(),
        "repeated": sorted(each for each, count in effects.items() if count > 1),
        "lost": sorted(set().union(*expected.values()) - set(effects)),
        "reports": sum(each.total() for each in reports.values()),
        "reported_twice": sorted(what for each in reports.values() for what, count in each.items() if count > 1),
        "not_reported": sorted(what for name in told for what in expected[name] - set(reports[name])),
    }


if __name__ == "__main__":
    be_program(killed)
