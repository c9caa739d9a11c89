"""What becomes of the turns of the leak suite whose answers are judged: a function for each path of `leak_verified`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from support import forks, leak_verified_child
from support.house import ROOT
from support.leak_verified import Verified
from support.leaks import on_the_server
from worldagent.core.errors import ModelUnavailable, RoleEchoed
from worldagent.testing import assert_no_role_leak

Path_ = Callable[[Verified], Awaitable[None]]
PATHS: dict[str, Path_] = {}
_WAIT = 60.0


def path(*names: str) -> Callable[[Path_], Path_]:
    def add(work: Path_) -> Path_:
        PATHS.update(dict.fromkeys(names, work))
        return work

    return add


async def run_case(turn: Verified) -> None:
    """Carry out the path of a case."""
    await PATHS[turn.case.path](turn)


async def ends(turn: Verified, **how: Any) -> None:
    """Go on with the turn in an agent of its own, to its end."""
    async with turn.agent() as agent:
        thread = await turn.thread_of(agent)
        ended = await turn.told(turn.resume(thread, **how))
        assert ended.status == "done", ended
        assert ended.text.startswith("Mended."), ended
        await turn.look(agent)


@path(
    "satisfied at once",
    "wanting once",
    "wanting to the last",
    "judge refuses and quotes the prompts",
    "judge cannot be parsed and quotes the prompts",
)
async def _(turn: Verified) -> None:
    # How many answers are judged, and whether another one stands at the end.
    judged, mended = {"wanting once": (2, True), "wanting to the last": (2, True)}.get(turn.case.path, (1, False))
    async with turn.agent() as agent:
        ended = await turn.told(turn.begin(await turn.thread_of(agent)))
        assert ended.text.startswith("Mended." if mended else "Draft."), ended
        turn.seen.kept.append(agent.program("CheckAnswer").dump_state())  # type: ignore[union-attr]  # it is there
        await turn.look(agent)
    assert len(turn.judged) == judged


@path("judge crashes and quotes the prompts")
async def _(turn: Verified) -> None:
    turn.out = True
    async with turn.agent() as agent:
        failed = await turn.told(turn.begin(await turn.thread_of(agent)))
        assert isinstance(failed, ModelUnavailable), failed
        await turn.look(agent)
    turn.out = False
    await ends(turn)


@path("model repeats the role and echo is fail", "judge repeats the role and echo is fail")
async def _(turn: Verified) -> None:
    async with turn.agent() as agent:
        failed = await turn.told(turn.begin(await turn.thread_of(agent)))
        assert isinstance(failed, RoleEchoed), failed
        await turn.look(agent)


@path("paused while it mends")
async def _(turn: Verified) -> None:
    async with turn.agent() as agent:
        begun = await turn.told(turn.begin(await turn.thread_of(agent)))
        assert begun.status == "paused", begun
        await turn.look(agent)
    await ends(turn, answers=dict.fromkeys((pause.id for pause in begun.pauses), "red"))


@path("goes on under another role")
async def _(turn: Verified) -> None:
    async with turn.agent() as agent:
        thread = await turn.thread_of(agent)
        begun = await turn.told(turn.begin(thread))
        await turn.look(agent)
        await turn.roled(agent, thread, "another")
        answers = dict.fromkeys((pause.id for pause in begun.pauses), "red")
        since = len(turn.lm.calls)
        ended = await turn.told(turn.resume(thread, answers, on_role_change="refresh"))
        assert ended.text.startswith("Mended."), ended
        assert turn.now.content in turn.sent(since)
        assert turn.case.role("first").content not in turn.sent(since)
        await turn.look(agent)


@path("cancelled while judged", "cancelled while it mends")
async def _(turn: Verified) -> None:
    turn.hold = _held_in(turn)
    async with turn.agent() as agent:
        thread = await turn.thread_of(agent)
        running = asyncio.create_task(turn.told(turn.begin(thread)))
        await asyncio.wait_for(turn.held.wait(), _WAIT)
        assert await thread.cancel()
        ended = await asyncio.wait_for(running, _WAIT)
        assert isinstance(ended, asyncio.CancelledError) or ended.status == "cancelled", ended
        await turn.look(agent)
        assert (await turn.told(turn.begin(thread))).text.startswith("Mended.")
        await turn.look(agent)


@path("drained while judged")
async def _(turn: Verified) -> None:
    turn.hold = "judged"
    async with turn.agent() as agent:
        running = asyncio.create_task(turn.told(turn.begin(await turn.thread_of(agent))))
        await asyncio.wait_for(turn.held.wait(), _WAIT)
        await agent.drain(0.05)
        await running
        await turn.look()
    await ends(turn)


@path("killed while judged", "killed while it mends")
async def _(turn: Verified) -> None:
    """Kill a process of the turn where the model has the call, and go on here."""
    apart = turn.home.with_name(f"child of {turn.home.name}")
    apart.mkdir()
    child = await forks.start(
        (sys.executable, "-P", leak_verified_child.__file__, json.dumps(asdict(turn.case)), turn.home),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=apart,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT / '.dev'}{os.pathsep}{ROOT / 'tests'}",
            "TMPDIR": str(apart),
        },
    )
    assert child.stdout is not None
    async with asyncio.timeout(_WAIT):
        line = await child.stdout.readline()
        child.kill()
        out, err = await child.communicate()
    assert line == b"held\n", (line, err.decode()[-2000:])
    # Its folder as well: a core, or what it keeps for itself for a while, would be left there.
    texts = [text for role in turn.case.roles for text in (role.content, role.name)]
    assert_no_role_leak([apart, out, err, on_the_server()], texts)
    await turn.look()
    await ends(turn)


def _held_in(turn: Verified) -> str:
    return "judged" if turn.case.path.endswith("judged") else "mends"


__all__ = ["PATHS", "run_case"]
