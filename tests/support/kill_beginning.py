"""A turn that a message of the inbox began is killed before a checkpoint has that message; another turn abandons it.

As a program it prints one JSON object for each case, with what the conversation has, after the turn that abandons it
and after the next process.
"""

import asyncio
import signal
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from support.databases import Engine, made, removed
from support.inbox import texts
from support.kill_points import AFTER, BEFORE, Killer, Point, armed, bare_agent
from support.processes import be_program, forked_result
from worldagent import WorldAgent
from worldagent.agent import Say, Thread
from worldagent.testing import ScriptedCall, ScriptedLM

KINDS = ("steer", "queue", "report")
LIMIT = 60  # seconds for one process
BEGUN, READ = "the turn: begun", "ConversationLog.append_made"


def agent_of(home: Path, **settings: Any) -> WorldAgent:
    def answer(call: ScriptedCall) -> dict[str, Any]:
        return {"reply": f"re {call.fields['message']}"}

    return bare_agent(home, ScriptedLM(answer), settings=settings, background=True)


async def _killed(home: Path, killer: Killer, kind: str, *, fresh: bool) -> None:
    """Put in a message that begins a turn, and die with that."""
    async with agent_of(home) as agent:
        thread = agent.thread("t", account="ana")
        if not fresh:
            await thread.converse("first")
        killer.on = True
        match kind:
            case "steer":
                await thread.steer("steer", begin=True)
            case "queue":
                await thread.queue("queue")
            case _:
                await agent.background(Say("report"), thread=thread, key="work")
        await agent._runner.pending.settled()


async def _abandons(home: Path, account: str, *, interrupt: bool) -> dict[str, Any]:
    """Begin another turn, in a process that begins nothing that waits."""
    async with agent_of(home, begin_queued=False) as agent:
        agent._runner.pending.begins = False
        thread = agent.thread("t", account=account)
        await thread.converse("next", interrupt=interrupt)
        return await _found(thread)


def _ran(work: Callable[[], Coroutine[Any, Any, dict[str, Any]]]) -> dict[str, Any]:
    return asyncio.run(work())


async def _last(home: Path) -> dict[str, Any]:
    """Begin what waits, and nothing else."""
    async with agent_of(home) as agent, asyncio.timeout(LIMIT):
        await agent._runner.pending.settled()
        return await _found(agent.thread("t", account="ana"))


async def _found(thread: Thread) -> dict[str, Any]:
    said = [[kind, text.rpartition("\n")[2]] for kind, text in await texts(thread) if kind != "answer"]
    marks = [each.body.get("untrusted") for each in await thread.history() if each.kind == "message"]
    return {"said": said, "queued": [each.kind for each in await thread.queued()], "marks": marks[-1]}


def killed_at_its_end(engine: Engine) -> Iterator[dict[str, Any]]:
    """Kill a process as a background task has its answer and its end is not written yet, and let another one go on."""
    with tempfile.TemporaryDirectory() as folder:
        home = made(engine, Path(folder) / "home")
        killer = Killer(Point(BEFORE, "the turn: done", 1), home / "where")

        def dies() -> None:
            armed(killer)
            asyncio.run(_killed(home, killer, "report", fresh=True))

        code, _ = forked_result(dies)
        assert code == -signal.SIGKILL, f"the process ended with {code}"
        code, told = forked_result(lambda: asyncio.run(_last(home)))
        assert code == 0, f"a process ended with {code}"
        removed(home)
    yield told


def killed(engine: Engine, *, at_its_end: bool = False) -> Iterator[dict[str, Any]]:
    """Kill a process with each kind of message, on a new thread too, and let its account or another one go on."""
    if at_its_end:
        yield from killed_at_its_end(engine)
        return
    for kind in KINDS:
        # The turn that a report begins comes after that of the task.
        point = Point(AFTER, BEGUN, 2 if kind == "report" else 1)
        for account, interrupt in (("ana", False), ("eve", False), ("ana", True)):
            fresh = account == "eve"
            with tempfile.TemporaryDirectory() as folder:
                home = made(engine, Path(folder) / "home")
                killer = Killer(point, home / "where")

                def dies(home: Path = home, killer: Killer = killer, kind: str = kind, fresh: bool = fresh) -> None:
                    armed(killer)
                    asyncio.run(_killed(home, killer, kind, fresh=fresh))

                code, _ = forked_result(dies)
                assert code == -signal.SIGKILL, f"{kind}: the process ended with {code}"
                found: list[Any] = []
                for work in (partial(_abandons, home, account, interrupt=interrupt), partial(_last, home)):
                    code, told = forked_result(partial(_ran, work))
                    assert code == 0, f"{kind} of {account}: a process ended with {code}"
                    found.append(told)
                removed(home)
            case = {"kind": kind, "fresh": fresh, "account": account, "interrupt": interrupt}
            yield case | {"after": found[0], "last": found[1]}


if __name__ == "__main__":
    be_program(killed)
