"""Messages that arrive around each transaction of turns, in two processes of which one is killed; what came of them.

One process runs a turn: with calls, a worker, a pause that it answers, or a task of a worker. At random points before
and after its transactions, and amid its effects, it steers, queues, or has the other process do so, and amid its open
transactions the other process alone can. One of the two is killed at a random point. A last process opens then.
"""

import asyncio
import contextlib
import os
import random
import select
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.agents import open_pauses
from support.databases import Engine, made, removed
from support.kill_points import IN, WITHIN, Killer, armed, bare_agent
from support.kill_turn import effect
from support.processes import add, be_program, forked_result, lines, started
from worldagent import WorldAgent
from worldagent.agent import Thread
from worldagent.core.errors import NothingToResume, ThreadBusy, WorldAgentError
from worldagent.core.pauses import Approve, Happened, Pause, RunAgain
from worldagent.harness import Worker, tool
from worldagent.testing import ScriptedCall, ScriptedLM

REQUEST = "Do it."
SURFACES = ("message", "task")
LIMIT = 90  # seconds for one process
MOST = 8  # messages of one run
PASSED = {"message": 260, "task": 150}  # about how many points the first process passes
_OF_OTHER = 40  # and the other one

STEPS = {
    "message": [("put", {"what": "first"}), ("clerk", {"request": REQUEST}), ("pay", {"what": "paid"})],
    "clerk": [("put", {"what": "nested"}), ("put", {"what": "deep"})],
}
EFFECTS = {"message": ["deep", "first", "nested", "paid"], "task": ["deep", "nested"]}


class Arriving(Killer):
    """Puts in messages where it is passed, and kills this process where it is passed for the `last` time.

    Args:
        home: The home, with the files `said` and `where`.
        source: Decides where messages arrive.
        last: After how many points it kills; 0 never does.
        other: Where a line has the other process put in a message; None where it is that one.
    """

    def __init__(self, home: Path, source: random.Random, last: int, other: int | None) -> None:
        super().__init__(None, home / "where")
        self.home, self.source, self.last, self.other = home, source, last, other
        self.thread: Thread | None = None
        self.count = self.sent = 0
        self._arriving = False

    async def __call__(self, when: str, what: str) -> bool:
        self._pass_here(when, what)
        if self.thread is not None and self.other is not None and not self._arriving and self._is_due():
            self._arriving = True
            try:
                await self._arrive()
            finally:
                self._arriving = False
        return False

    def within(self, what: str, transaction: Any) -> None:
        self._pass_here(WITHIN, what)
        if self.other is not None and self._is_due():
            self._send()

    def _pass_here(self, when: str, what: str) -> None:
        if not self.on:
            return
        self.count += 1
        if self.count == self.last:
            self.log.write_text(f"{when} {what}")
            os.kill(os.getpid(), signal.SIGKILL)

    def _is_due(self) -> bool:
        return self.on and self.sent < MOST and self.source.random() < 0.1

    def _message(self) -> str:
        self.sent += 1
        return f"{self.source.choice(('steer', 'queue'))}-{self.sent}"

    def _send(self) -> None:
        assert self.other is not None
        with contextlib.suppress(BrokenPipeError):  # the other process was killed
            os.write(self.other, f"{self._message()}\n".encode())

    async def _arrive(self) -> None:
        if self.source.random() < 0.3:
            self._send()
            return
        assert self.thread is not None
        await put(self.home, self.thread, self._message())


async def put(home: Path, thread: Thread, text: str) -> None:
    """Put in a message, and write down that it was."""
    add(home / "said", f"tried {text}")
    kind, _, number = text.partition("-")
    try:
        if kind == "steer":
            await thread.steer(text, key=text, begin=int(number) % 2 == 0)
        else:
            await thread.queue(text, key=text)
    except WorldAgentError as error:
        add(home / "said", f"refused {text} {error.code}")
    else:
        add(home / "said", f"put {text}")


def agent_of(home: Path, killer: Killer, **settings: Any) -> WorldAgent:
    """The agent. Each queued message makes one effect."""

    async def answer(call: ScriptedCall) -> dict[str, Any]:
        await killer(IN, "a model call")
        if "request" in call.fields:
            steps, field = STEPS["clerk"], "result"
        else:
            text, field = str(call.fields["message"]), "reply"
            steps = STEPS["message"] if text == REQUEST else [("put", {"what": text})] if "queue" in text else []
        made = sum(not step.startswith("While you worked") for step in call.steps)
        calls = [{"tool": name, "arguments": arguments} for name, arguments in steps[made : made + 1]]
        return {field: "" if calls else "Done.", "calls": calls}

    async def write(what: str) -> str:
        return await effect(what, home, killer)

    async def pay(what: str) -> str:
        return await effect(what, home, killer)

    return bare_agent(
        home,
        ScriptedLM(answer, form="native"),
        *("put", "clerk"),
        tools=[tool(risk="write", name="put")(write), tool(approval=True, risk="write")(pay)],
        workers=[Worker("clerk", "You do it.", "does it", tools=("put",))],
        settings={"thread_wait": 20, **settings},
    )


async def _first(home: Path, surface: str, killer: Arriving) -> None:
    """Run the turn to its end, and what messages begin."""
    async with agent_of(home, killer) as agent:
        thread = killer.thread = agent.thread("t")
        killer.on = True
        if surface == "task":
            await thread.task("subagent", {"worker": "clerk", "request": REQUEST})
        else:
            await thread.converse(REQUEST)
        await to_the_end(thread, home)
        killer.on = False
        killer.thread = None


async def _other(home: Path, killer: Arriving, reading: int) -> None:
    """Put in what the first process says, until that ends, and maybe begin what waits."""
    async with agent_of(home, killer, begin_queued=killer.source.random() < 0.5) as agent:
        killer.on = True
        while found := await asyncio.to_thread(os.read, reading, 10_000):
            for text in found.decode().split():
                await put(home, agent.thread("t"), text)


async def to_the_end(thread: Thread, home: Path) -> None:
    """Answer and resume until nothing waits."""

    def answer(pause: Pause) -> object:
        if pause.kind != "uncertain":
            return Approve()
        what = pause.arguments["what"]
        return Happened(what) if what in lines(home / "effects") else RunAgain()

    async with asyncio.timeout(LIMIT):
        while True:
            await thread._runner.pending.settled()
            state = await thread.state()
            if state is None or state.status in ("done", "cancelled", "abandoned"):
                if not await thread.queued():
                    return
                thread._runner.pending.wake(thread.scope)
                continue
            try:
                await thread.resume({pause.id: answer(pause) for pause in await open_pauses(thread)})
            except (NothingToResume, ThreadBusy):
                continue  # another process does


async def _last(home: Path) -> dict[str, Any]:
    killer = Killer(None, home / "nowhere")
    async with agent_of(home, killer) as agent:
        thread = agent.thread("t")
        await to_the_end(thread, home)
        history = await thread.history(limit=1000)
        return {
            "read": [each.body["text"] for each in history if each.kind in ("message", "word")],
            "kinds": [each.kind for each in history],
            "effects": Counter(lines(home / "effects")),
            "said": lines(home / "said"),
            "left": [each.text for each in await thread.queued()],
        }


def _waited(child: int) -> int:
    ended = os.pidfd_open(child)
    try:
        if not select.select([ended], [], [], LIMIT)[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return 1
    finally:
        os.close(ended)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run(home: Path, surface: str, source: random.Random, *, first_dies: bool, last: int) -> int:
    """Run the two processes; returns how the one ended that is to be killed."""
    reading, writing = os.pipe()
    seed = source.random()

    def first() -> None:
        os.close(reading)
        killer = Arriving(home, random.Random(seed), last if first_dies else 0, writing)
        armed(killer)
        asyncio.run(_first(home, surface, killer))

    def other() -> None:
        os.close(writing)
        killer = Arriving(home, random.Random(seed), 0 if first_dies else last, None)
        armed(killer)
        asyncio.run(_other(home, killer, reading))

    children = started(first), started(other)
    os.close(reading)
    os.close(writing)
    codes = [_waited(child) for child in children]
    dying, living = codes if first_dies else codes[::-1]
    assert living == 0, f"the process that is not killed ended with {living}"
    return dying


def killed(engine: Engine, kills: int, *, seed: int | None = None) -> Iterator[dict[str, Any]]:
    """Kill so often, each time in a home of its own, and say what came of the messages."""
    for number in range(kills):
        chosen = int.from_bytes(os.urandom(4), "big") if seed is None else seed
        source = random.Random(chosen)
        with tempfile.TemporaryDirectory() as folder:
            home = made(engine, Path(folder) / "home")
            surface, first_dies = SURFACES[number % 2], source.random() < 0.8
            last = source.randint(1, PASSED[surface] if first_dies else _OF_OTHER)
            ended = _run(home, surface, source, first_dies=first_dies, last=last)
            assert ended in (0, -signal.SIGKILL), f"seed {chosen}: the process ended with {ended}"
            where = home / "where"
            code, found = forked_result(lambda: asyncio.run(_last(home)))  # noqa: B023 -- it runs at once
            assert code == 0, f"seed {chosen}: no process could finish"
            point = where.read_text() if where.exists() else ""
            removed(home)
        yield {"seed": chosen, "surface": surface, "killed": point, "first": first_dies} | found


if __name__ == "__main__":
    be_program(killed)
