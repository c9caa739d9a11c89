"""What becomes of the turns of the leak suite that pause: one function for each path of `leak_paused_cases`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from support import leak_paused_child
from support.house import ROOT
from support.leak_paused_cases import ANOTHER, PausedCase
from support.leak_pauses import Paused
from support.leaks import on_the_server
from worldagent.agent import Thread
from worldagent.core.errors import (
    AlreadyAnswered,
    AnswerInvalid,
    ModelUnavailable,
    NothingToResume,
    RoleChanged,
    RoleKeyMismatch,
    RoleRequired,
    UnknownPause,
)
from worldagent.core.pauses import Happened
from worldagent.testing import VirtualClock, assert_no_role_leak

Path_ = Callable[[Paused], Awaitable[None]]
PATHS: dict[str, Path_] = {}
_WAIT = 60.0
_EMPTY = 21  # bytes that `COPY` gives of a table without rows


def path(name: str) -> Callable[[Path_], Path_]:
    def add(work: Path_) -> Path_:
        PATHS[name] = work
        return work

    return add


async def run_case(turn: Paused) -> None:
    """Carry out the path of a case."""
    await PATHS[turn.case.path](turn)


# --- resumed --------------------------------------------------------------------------------------------------------


async def paused(turn: Paused, thread: Thread) -> Any:
    """Begin the turn, see that it waits, and that there is much to look into; gives the answers."""
    begun = await turn.told(turn.begin(thread))
    assert begun.status == "paused", begun
    found = {file.name for file in turn.home.rglob("*")}
    if tables := on_the_server():
        assert all(len(tables[name]) > _EMPTY for name in ("wa_message", "wa_turn", "wa_call", "checkpoints")), tables
        assert "agent.db" not in found
    else:
        assert {"agent.db", "agent.db-wal", "agent.db-shm"} <= found, found
        assert any(name.endswith(".lock") for name in found), found
    assert "role.key" in found
    await turn.look(thread)
    return turn.answers(begun.pauses)


async def ends(turn: Paused, thread: Thread, answers: Any = None, *, roled: bool = True, **how: Any) -> None:
    """Go on with the turn to its end, under its role where it is `roled`."""
    since = len(turn.lm.calls)
    resumed = await turn.told(turn.resume(thread, answers, **how))
    assert resumed.status == "done", resumed
    sent = turn.sent(since)
    assert [text in sent for text in turn.planted] == [roled] * len(turn.planted), "the role came back, or did not"
    await turn.look(thread)


async def fails(turn: Paused, error: type[Exception], thread: Thread, answers: Any = None, **how: Any) -> None:
    """See that the turn cannot go on in this way, and that no model was asked."""
    since = len(turn.lm.calls)
    assert type(await turn.told(turn.resume(thread, answers, **how))) is error
    # What code passes is looked at where it passes it, which may be after a call that has no role.
    assert not [call for call in turn.lm.calls[since:] if any(text in call.text for text in turn.case.contents)]
    await turn.look(thread)


@path("resumed here")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread:
        await ends(turn, thread, await paused(turn, thread))


@path("resumed elsewhere")
async def _(turn: Paused) -> None:
    """One answer at a time, each in an agent of its own."""
    async with turn.on_thread() as thread:
        answers = await paused(turn, thread)
    await turn.look()
    *first, last = answers.items()
    for answer in first:
        async with turn.on_thread() as thread:
            resumed = await turn.told(turn.resume(thread, dict([answer])))
            assert resumed.status == "paused"
            await turn.look(thread)
    async with turn.on_thread() as thread:
        await ends(turn, thread, dict([last]))


@path("resumed by two at once")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as one, turn.on_thread() as other:
        answers = await paused(turn, one)
        outcomes = await asyncio.gather(*(turn.told(turn.resume(thread, answers)) for thread in (one, other)))
        told = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert [type(error) for error in told] == [AlreadyAnswered]
        await turn.look(one, other)


@path("answers are refused")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread:
        answers = await paused(turn, thread)
        await fails(turn, UnknownPause, thread, {"call_1": "red"})
        await fails(turn, AnswerInvalid, thread, dict.fromkeys(answers, Happened("red")))
        await ends(turn, thread, answers)


@path("model fails after the resume")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread:
        answers = await paused(turn, thread)
        turn.fail = True
        failed = await turn.told(turn.resume(thread, answers))
        assert isinstance(failed, ModelUnavailable) or turn.case.source == "code", failed
        await turn.look(thread)
    if not isinstance(failed, BaseException):
        return  # the planner was told that the task failed, and answered
    async with turn.on_thread() as thread:
        await ends(turn, thread)


# --- another role ---------------------------------------------------------------------------------------------------


@path("role left out")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread:
        answers = await paused(turn, thread)
    async with turn.on_thread() as thread:
        if turn.case.source == "thread":
            thread.role.clear()
        await fails(turn, RoleRequired, thread, answers, again=False)
        turn.set_thread_role(thread)
        await ends(turn, thread, answers)


@path("role changed")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread:
        answers = await paused(turn, thread)
        await changed(turn, thread, answers)
        turn.set_thread_role(thread)
        turn.code_role = turn.role("code") if turn.code_role is not None else None
        await ends(turn, thread, answers)


async def changed(turn: Paused, thread: Thread, answers: Any) -> None:
    """Resume under another role."""
    another = turn.role(ANOTHER)
    match turn.case.source:
        case "call":
            await fails(turn, RoleChanged, thread, answers, role=another)
            return
        case "code":
            turn.code_role = another
        case _:
            thread.role.set(another)
    await fails(turn, RoleChanged, thread, answers)


@path("key changed")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread:
        answers = await paused(turn, thread)
    async with turn.on_thread(role_key="another key of some length") as thread:
        await fails(turn, RoleKeyMismatch, thread, answers)
    async with turn.on_thread() as thread:
        await ends(turn, thread, answers)


@path("refreshed with another role")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread:
        answers = await paused(turn, thread)
        thread.role.set(turn.role(ANOTHER))
        since = len(turn.lm.calls)
        await ends(turn, thread, answers, roled=False, role=None, on_role_change="refresh")
        assert turn.case.content(ANOTHER) in turn.sent(since)


@path("without a role on purpose")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread:
        answers = await paused(turn, thread)
        thread.role.clear()
        await ends(turn, thread, answers, roled=False, role=None)


@path("pinned")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread:
        answers = await paused(turn, thread)
        thread.role.clear()
        await ends(turn, thread, answers, again=False, on_role_change="pin")


@path("pinned elsewhere")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread:
        answers = await paused(turn, thread)
    async with turn.on_thread() as thread:
        await fails(turn, RoleRequired, thread, answers, on_role_change="pin")
        await ends(turn, thread, answers)


@path("thread role expired")
async def _(turn: Paused) -> None:
    turn.clock = VirtualClock()
    async with turn.on_thread(thread_role_ttl=100) as thread:
        answers = await paused(turn, thread)
        await turn.clock.advance(100)
        await fails(turn, RoleRequired, thread, answers)
        turn.set_thread_role(thread)
        await ends(turn, thread, answers)


@path("thread role replaced while running")
async def _(turn: Paused) -> None:
    turn.hold = True
    async with turn.on_thread() as thread:
        running = asyncio.create_task(turn.told(turn.begin(thread)))
        await asyncio.wait_for(turn.held.wait(), _WAIT)
        thread.role.set(turn.role(ANOTHER))
        turn.release.set()
        begun = await running
        assert begun.status == "paused"
        answers = turn.answers(begun.pauses)
        await fails(turn, RoleChanged, thread, answers)
        turn.set_thread_role(thread)
        await ends(turn, thread, answers)


# --- cancelled, drained ---------------------------------------------------------------------------------------------


@path("cancelled while paused")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread:
        answers = await paused(turn, thread)
        assert await thread.cancel()
        await fails(turn, NothingToResume, thread, answers)
        assert (await turn.told(turn.begin(thread))).status == "paused"
        await turn.look(thread)


@path("cancelled while paused from elsewhere")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread, turn.on_thread() as other:
        answers = await paused(turn, thread)
        assert await other.cancel()
        await fails(turn, NothingToResume, thread, answers)
        await turn.look(thread, other)


async def _cancelled(turn: Paused, thread: Thread, by: Thread) -> None:
    turn.hold = True
    running = asyncio.create_task(turn.told(turn.begin(thread)))
    await asyncio.wait_for(turn.held.wait(), _WAIT)
    assert await by.cancel()
    ended = await asyncio.wait_for(running, _WAIT)
    assert isinstance(ended, asyncio.CancelledError) or ended.status == "cancelled", ended
    assert all(text in turn.sent() for text in turn.planted[:1])
    await turn.look(thread, by)
    assert (await turn.told(turn.begin(thread))).status == "paused"
    await turn.look(thread, by)


@path("cancelled while running")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread:
        await _cancelled(turn, thread, thread)


@path("cancelled while running from elsewhere")
async def _(turn: Paused) -> None:
    async with turn.on_thread() as thread, turn.on_thread() as other:
        await _cancelled(turn, thread, other)


async def _drained(turn: Paused, seconds: float, *, released: bool) -> None:
    turn.hold = True
    async with turn.agent() as agent:
        thread = turn.thread_of(agent)
        running = asyncio.create_task(turn.told(turn.begin(thread)))
        await asyncio.wait_for(turn.held.wait(), _WAIT)
        draining = asyncio.create_task(agent.drain(seconds))
        if released:
            await asyncio.sleep(0)
            turn.release.set()
        await draining
        await running
        await turn.look()
    turn.hold = False
    turn.release.set()
    async with turn.on_thread() as thread:
        ended = await turn.told(turn.to_the_end(thread))
        assert ended.status == "done", ended
        assert all(text in turn.sent() for text in turn.planted)
        await turn.look(thread)


@path("drained")
async def _(turn: Paused) -> None:
    await _drained(turn, _WAIT, released=True)


@path("drained and cut off")
async def _(turn: Paused) -> None:
    await _drained(turn, 0.05, released=False)


# --- killed ---------------------------------------------------------------------------------------------------------


async def _killed(turn: Paused) -> None:
    """Kill a process of the turn where `leak_paused_child` says that it is there, and go on here."""
    apart = turn.home.with_name(f"child of {turn.home.name}")
    apart.mkdir()
    child = await start(turn.case, turn.home, apart)
    assert child.stdout is not None
    async with asyncio.timeout(_WAIT):
        line = await child.stdout.readline()
        child.kill()
        out, err = await child.communicate()
    assert line == b"there\n", (line, err.decode()[-2000:])
    # Its folder as well: a core, or what it keeps for itself for a while, would be left there.
    assert_no_role_leak([turn.home, apart, out, err, on_the_server()], [*turn.case.contents, *turn.case.labels])
    async with turn.on_thread() as thread:
        ended = await turn.told(turn.to_the_end(thread))
        assert ended.status == "done", ended
        assert all(text in turn.sent() for text in turn.planted)
        await turn.look(thread)


async def start(case: PausedCase, home: Path, apart: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        leak_paused_child.__file__,
        json.dumps(asdict(case)),
        str(home),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=apart,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT / '.dev'}{os.pathsep}{ROOT / 'tests'}",
            "TMPDIR": str(apart),
            "DSPY_CACHEDIR": str(apart),
        },
    )


for _name in ("killed while running", "killed while paused", "killed in the resume"):
    path(_name)(_killed)
