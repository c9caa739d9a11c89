"""A fork, a replay and an edit that are killed at any point, and what is found afterwards.

As a program it prints one JSON object for each kill.
"""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from support.databases import Engine, contents_of, copied, made, removed, storage_of
from support.homes import said
from support.kill_points import IN, Killer, Passed, Point, armed, points_of, some
from support.processes import be_program, forked, forked_result
from worldagent import Role, Settings, WorldAgent
from worldagent.agent import Thread
from worldagent.testing import ScriptedCall, ScriptedLM, scan_for_roles

WAYS = ("fork", "replay", "edit")
OLD = ["one", "Fine.", "two", "Fine."]
EDITED = ["one", "Fine.", "TWO", "Fine."]
ROLE = Role("critic", "Be as harsh as the keeper of the seventh lighthouse.")


def agent_of(home: Path, killer: Killer) -> WorldAgent:
    async def answer(call: ScriptedCall) -> dict[str, Any]:
        await killer(IN, "a model call")
        return {"reply": "Fine."}

    settings = Settings(model_attempts=1, trace=False)  # traces are written beside the turn, whenever there is time
    return WorldAgent("novel", lm=ScriptedLM(answer), storage=storage_of(home), settings=settings)


async def branched(way: str, thread: Thread) -> None:
    """Branch the thread; what is new, or what was, gets the name `new`."""
    match way:
        case "fork":
            await thread.fork(to="new")
        case "replay":
            await thread.replay(to="new", role=ROLE)
        case _:
            await thread.edit("TWO", keep_as="new", role=ROLE)


def _before(home: Path) -> None:
    async def work() -> None:
        async with agent_of(home, Killer(None, home / "where")) as agent:
            for text in OLD[::2]:
                await agent.thread("t").converse(text)

    asyncio.run(work())


def _branch(home: Path, way: str, killer: Killer) -> Passed:
    """Branch; gives how often each point was passed."""

    async def work() -> None:
        async with agent_of(home, killer) as agent:
            killer.on = True
            await branched(way, agent.thread("t"))
            killer.on = False

    armed(killer)
    asyncio.run(work())
    return killer.counted()


def _look(home: Path, way: str) -> dict[str, Any]:
    """See what there is, continue it, and do it again where nothing is there."""

    async def work() -> dict[str, Any]:
        async with agent_of(home, Killer(None, home / "where")) as agent:
            thread, new = agent.thread("t"), agent.thread("new")
            found: dict[str, Any] = {"found": [await said(thread), await said(new)]}
            for each in (thread, new):
                state = await each.state()
                if state is not None and state.resumable:
                    await each.resume(role=ROLE)
            if await new.state() is None:
                await branched(way, thread)
            found["then"] = [await said(thread), await said(new)]
            for each in (thread, new):
                await each.converse("on")
            found["on"] = [await said(thread), await said(new)]
            return found

    return asyncio.run(work())


def points(folder: Path, way: str) -> list[Point]:
    """Every point that it passes."""
    home = folder / f"counted {way}"
    copied(folder / "before", home)
    code, passed = forked_result(lambda: _branch(home, way, Killer(None, home / "where")))
    assert code == 0
    removed(home)
    return points_of(passed)


def kill(folder: Path, way: str, point: Point) -> dict[str, Any]:
    """Kill at a point and say what is found."""
    home = folder / "killed"
    copied(folder / "before", home)
    ended = forked(lambda: _branch(home, way, Killer(point, home / "where")))
    assert ended == -signal.SIGKILL, f"{point} was not passed: it ended with {ended}"
    leaks = [str(finding) for finding in scan_for_roles([contents_of(home)], ROLE.content).findings]
    code, found = forked_result(lambda: _look(home, way))
    assert code == 0, f"no process could resume after {way}, {point}"
    removed(home)
    return {"way": way, "point": [point.when, point.what, point.nth], "leaks": leaks, **found}


def kills(
    engine: Engine, ways: Sequence[str] = WAYS, sample: int | None = None, seed: int = 0
) -> Iterator[dict[str, Any]]:
    """Kill at every point of each way, or at `sample` of them."""
    source = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = made(engine, folder / "before")
        assert forked(lambda: _before(before)) == 0
        for way in ways:
            for point in some(points(folder, way), sample, source):
                yield kill(folder, way, point)
        removed(before)


if __name__ == "__main__":
    be_program(kills)
