"""Background tasks of one account over several worker processes that are killed at random, and begun again.

As a program it prints one JSON object with what came of the effects and the reports. Each task has one effect that
cannot be taken back. Of each conversation every second task begins a turn with its report.
"""

import asyncio
import os
import random
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.databases import Engine, made, removed
from support.kill_background import answered
from support.kill_points import bare_agent
from support.processes import add, be_program, forked_result, lines, started
from worldagent import WorldAgent
from worldagent.agent import BackgroundTask, Say, Thread
from worldagent.harness import tool
from worldagent.memory.reports import ReportMode
from worldagent.testing import ScriptedCall, ScriptedLM

OF_THREAD = 8  # tasks of a conversation
POLL, QUIET, LIMIT = 0.02, 30, 900  # seconds between two looks, without news, and for all of it
_EFFECTS, _SENT = "effects", "sent"
_REPORT = re.compile(r"The background task \w+ \(conversation\) is done\. Its result:\ndid (\S+)")


def agent_of(home: Path) -> WorldAgent:
    @tool(risk="write")
    async def put(what: str) -> str:
        """Have an effect."""
        await asyncio.sleep(0)
        add(home / _EFFECTS, what)
        await asyncio.sleep(0)
        return what

    def answer(call: ScriptedCall) -> dict[str, Any]:
        verb, _, what = str(call.fields["message"]).partition(" ")
        if verb != "put":
            return {"reply": "Noted."}
        calls = [] if call.steps else [{"tool": "put", "arguments": {"what": what}}]
        return {"reply": f"did {what}" if call.steps else "", "calls": calls}

    most = {"background_of_thread": 1000, "background_of_account": 1000, "model_timeout": 600}
    return bare_agent(home, ScriptedLM(answer), "put", tools=[put], background=True, settings=most)


def _thread(agent: WorldAgent, number: int) -> Thread:
    return agent.thread(f"t{number // OF_THREAD}", account="ana")


async def _task(agent: WorldAgent, number: int) -> BackgroundTask:
    modes: tuple[ReportMode, ...] = ("next", "turn")
    how: dict[str, Any] = {"thread": _thread(agent, number), "key": f"w{number}"}
    return await agent.background(Say(f"put {number}"), report=modes[number % 2], **how)


async def _work(home: Path, tasks: range, opened: Path) -> None:
    """Dispatch what is left of these tasks, and begin what waits, for ever."""
    async with agent_of(home) as agent:
        add(opened, "open")
        async with asyncio.TaskGroup() as group:
            group.create_task(agent._runner.pending.watch(agent.workspace))
            sent = {*lines(home / _SENT)}
            for number in tasks:
                if str(number) not in sent:
                    await _task(agent, number)
                    add(home / _SENT, str(number))


async def _end(home: Path, count: int) -> dict[str, Any]:
    """Dispatch what is left, wait for all tasks, and let each conversation read what it was told."""
    async with agent_of(home) as agent, asyncio.timeout(LIMIT):
        looking = asyncio.ensure_future(agent._runner.pending.watch(agent.workspace))
        for number in range(count):
            task = await _task(agent, number)
            while (await task.wait()).status == "paused":  # a kill has interrupted its effect
                await answered(task.thread, home / _EFFECTS)
        looking.cancel()
        await agent._runner.pending.settled()
        said: list[str] = []
        for number in range(0, count, OF_THREAD):
            thread = _thread(agent, number)
            await thread.converse("Well?")
            assert await thread.queued() == ()
            said += [str(each.body.get("text", "")) for each in await thread.history(limit=1000)]
        return {"reports": Counter(found for text in said for found in _REPORT.findall(text))}


def _killed(home: Path, count: int, processes: int, kills: int, source: random.Random) -> int:
    """Keep so many processes at work, and kill each after it, and those beside it, have come some way.

    Returns:
        How many were killed until so many were, or nothing went on any more.
    """
    opened, done = [home / f"open{slot}" for slot in range(processes)], 0
    running: dict[int, tuple[int, int, int | None]] = {}  # its id, how often it was open, and how far it may come
    reach = 3 * count * processes // kills  # on average half of it, and all come as far as twice the count of tasks
    way, until = 0, time.monotonic() + LIMIT
    while done < kills and time.monotonic() < until:
        if (now := len(lines(home / _SENT)) + len(lines(home / _EFFECTS))) > way:
            way, until = now, time.monotonic() + QUIET
        for slot, file in enumerate(opened):
            if slot not in running:
                tasks = range(slot, count, processes)
                work = started(lambda tasks=tasks, file=file: asyncio.run(_work(home, tasks, file)))  # type: ignore[misc]
                running[slot] = work, len(lines(file)), None
                continue
            child, before, most = running[slot]
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "a process ended before it was killed"
            if most is None and len(lines(file)) > before:
                running[slot] = child, before, way + source.randint(0, reach)
            elif most is not None and way >= most:
                _kill(child)
                del running[slot]
                done += 1
        time.sleep(POLL)
    for child, _, _ in running.values():
        _kill(child)
    return done


def _kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def killed(engine: Engine, count: int, processes: int, kills: int) -> Iterator[dict[str, Any]]:
    """Kill so many processes, let one finish, and say what came of the effects and the reports."""
    seed = int.from_bytes(os.urandom(4), "big")
    with tempfile.TemporaryDirectory() as folder:
        home, began = made(engine, Path(folder) / "home"), time.monotonic()
        done = _killed(home, count, processes, kills, random.Random(seed))
        left, middle = count - len(set(lines(home / _EFFECTS))), time.monotonic()
        code, told = forked_result(lambda: asyncio.run(_end(home, count)))
        assert code == 0, f"seed {seed}: no process could finish"
        effects, ended = Counter(lines(home / _EFFECTS)), time.monotonic()
        removed(home)
    expected = set(map(str, range(count)))
    yield {
        "seed": seed,
        "kills": done,
        "seconds": [round(middle - began, 1), round(ended - middle, 1)],
        "left": left,
        "repeated": sorted(each for each, times in effects.items() if times > 1),
        "lost": sorted(expected - set(effects)),
        "reported_twice": sorted(each for each, times in told["reports"].items() if times > 1),
        "not_reported": sorted(expected - set(told["reports"])),
    }


if __name__ == "__main__":
    be_program(killed)
