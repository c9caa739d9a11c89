"""Agents whose schedules a virtual clock fires, also in a child process."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support.agents import calls, scripted_agent
from support.processes import wait_for_kill
from worldagent import Policy, Rule, WorldAgent, tool
from worldagent.scheduling import Every, Schedule, Schedules, StartMessage
from worldagent.testing import ScriptedLM, VirtualClock

START = datetime(2030, 1, 1, tzinfo=UTC)


def hourly(schedule_id: str = "tide", **more: Any) -> Schedule:
    given: dict[str, Any] = {"when": Every(3600), "starts": StartMessage("What is the tide?")}
    given |= {"workspace": "novel", **more}
    return Schedule(id=schedule_id, **given)


@asynccontextmanager
async def opened(home: Path, lm: Any, clock: VirtualClock, **more: Any) -> AsyncGenerator[tuple[WorldAgent, Schedules]]:
    targets = more.pop("targets", None)
    async with scripted_agent(home, lm, clock=clock, **more) as agent:
        yield agent, Schedules(agent, targets=targets)


async def passes(schedules: Schedules, clock: VirtualClock, hours: float) -> None:
    await clock.advance(hours * 3600)
    await schedules.fire_due()


def noting(folder: Path) -> ScriptedLM:
    """A model that notes the slot of each turn in a file, which several processes share."""

    def reply(call: Any) -> dict[str, str]:
        if "message" not in call.fields:  # the thread is long by now
            return {"summary": "The tide was low."}
        with (folder / "turns.txt").open("a") as file:
            file.write(f"{re.findall(r'2030-[0-9T:-]+', call.fields['message'])[-1]}\n")
        return {"reply": "Low."}

    return ScriptedLM(reply)


async def fire_all(home: Path, hours: int) -> None:
    """Fire the schedule in this process, hour after hour, as fast as it goes."""
    clock = VirtualClock(START)
    async with opened(home, noting(home.parent), clock) as (_, schedules):
        for _ in range(hours):
            await passes(schedules, clock, 1)
            while any(run.status not in ("done", "skipped") for run in await schedules.history("tide")):
                await asyncio.sleep(0.002)
                await schedules.fire_due()


async def die(home: Path) -> None:
    """Begin a run of the schedule in this process; its model never answers."""

    async def reply(_: Any) -> dict[str, str]:
        await wait_for_kill()
        return {}

    clock = VirtualClock(START)
    async with opened(home, ScriptedLM(reply), clock) as (_, schedules):
        await passes(schedules, clock, 1)
        await asyncio.Event().wait()


def ringing(home: Path, *, dies: bool = False) -> Any:
    """A tool that notes that it rings; with `dies` it then waits for its process to be killed."""

    @tool(risk="write")
    async def ring(times: int) -> str:
        """Ring a bell."""
        with (home.parent / "rung.txt").open("a") as file:
            file.write(f"{times}\n")
        if dies:
            await wait_for_kill()
        return "rung"

    return ring


@asynccontextmanager
async def rings(home: Path, clock: VirtualClock, *, dies: bool = False) -> AsyncGenerator[tuple[WorldAgent, Schedules]]:
    """An agent that rings the bell in each turn, without asking."""
    lm = ScriptedLM(lambda call: {"reply": "Rung."} if call.steps else {"reply": "", **calls(("ring", {"times": 3}))})
    policy = Policy(rules=(Rule(decision="approve", function="ring"),))
    async with opened(home, lm, clock, tools=[ringing(home, dies=dies)], policy=policy) as found:
        yield found


async def die_in_an_effect(home: Path) -> None:
    """Begin a run of the schedule in this process, which is killed in the effect of its tool."""
    clock = VirtualClock(START)
    async with rings(home, clock, dies=True) as (_, schedules):
        await passes(schedules, clock, 1)
        await asyncio.Event().wait()


class Waits:
    """A target that never returns."""

    async def fire(self, *_: Any) -> None:
        await wait_for_kill()


async def die_in_a_target(home: Path) -> None:
    """Call a target in this process, which never returns."""
    clock = VirtualClock(START)
    async with opened(home, ScriptedLM([]), clock, targets={"bell": Waits()}) as (_, schedules):
        await passes(schedules, clock, 1)
