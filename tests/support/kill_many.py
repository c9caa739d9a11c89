"""Fifty turns with effects at once in a process that is killed at a random instant, again and again.

As a program it kills so many times, lets a last process finish, and prints one JSON
object with what came of it. Each process is a fork of this one, which has everything loaded. The next process resumes
what the one before left, and begins the next turn of each thread that has none.
"""

import asyncio
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
from support.kill_points import bare_agent
from support.processes import be_program, forked_result, lines, started
from worldagent import WorldAgent
from worldagent.agent import Thread
from worldagent.core.errors import NothingToResume
from worldagent.core.pauses import Happened, RunAgain
from worldagent.harness import Function, tool
from worldagent.memory import Message
from worldagent.testing import ScriptedCall, ScriptedLM

THREADS = 50
PLAIN, NOTED = ("a", "b"), ("n",)
"""What each turn does: two effects side by side that cannot be taken back, and one whose receiver knows its key."""

SPAN, MAX_SPAN = 2.5, 15.0  # seconds after its start within which a process is killed, on an idle and on a busy machine
TURN = ("message", "plan", "result", "result", "result", "answer")
_EFFECTS, _ASKED = "effects", "asked"


class Effects:
    """Effects that are in the file when the call returns; a kill leaves a line whole or not at all.

    Args:
        home: Where the file is.
    """

    def __init__(self, home: Path) -> None:
        self._file = os.open(home / _EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.there = set(lines(home / _EFFECTS))

    def add(self, what: str) -> None:
        os.write(self._file, f"{what}\n".encode())
        self.there.add(what)

    @property
    def functions(self) -> list[Function]:
        """What the turns call."""

        async def put(what: str) -> str:
            await asyncio.sleep(0)
            self.add(what)
            await asyncio.sleep(0)
            return what

        async def note(what: str) -> str:
            await asyncio.sleep(0)
            if what not in self.there:  # the receiver's part
                self.add(what)
            return what

        return [tool(risk="write")(put), tool(idempotent=True, risk="write")(note)]


def names(turn: str) -> list[str]:
    """The effects of a turn."""
    return [f"{turn}.{each}" for each in (*PLAIN, *NOTED)]


def agent_of(home: Path, effects: Effects) -> WorldAgent:
    async def answer(call: ScriptedCall) -> dict[str, Any]:
        await asyncio.sleep(0)
        turn, told = str(call.fields["message"]), " ".join(str(message) for message in call.messages)
        if f"{turn}.{NOTED[-1]}" in told:
            return {"reply": f"Done {turn}."}
        plain = [{"tool": "put", "arguments": {"what": f"{turn}.{each}"}} for each in PLAIN]
        return {"reply": "", "calls": [*plain, *({"tool": "note", "arguments": {"what": f"{turn}.n"}} for _ in NOTED)]}

    return bare_agent(home, ScriptedLM(answer, form="native"), "put", "note", tools=effects.functions)


async def _live(thread: Thread, name: str, home: Path, effects: Effects, *, last: bool) -> None:
    """Resume what was left of a thread's turn, and take one turn after the other."""
    while True:
        pauses = await open_pauses(thread)
        for pause in pauses:
            assert pause.kind == "uncertain", pause
            with (home / _ASKED).open("a") as asked:
                asked.write(f"{pause.arguments['what']}\n")
        answers = {
            pause.id: Happened(pause.arguments["what"]) if pause.arguments["what"] in effects.there else RunAgain()
            for pause in pauses
        }
        try:
            await thread.resume(answers)
        except NothingToResume:
            said = await thread.history(limit=len(TURN))
            assert not said or said[-1].kind == "answer", said
            number = int(said[0].body["text"].partition(".")[2]) if said else 0
            if last and number:
                return
            await thread.converse(f"{name}.{number + 1}")


def _run(home: Path, *, last: bool = False) -> dict[str, list[tuple[str, str]]]:
    """Run the turns for ever, or where it is the `last` process, to their ends; gives what was said on each thread."""

    async def work() -> dict[str, list[tuple[str, str]]]:
        effects = Effects(home)
        async with agent_of(home, effects) as agent:
            threads = [f"t{number}" for number in range(THREADS)]
            lives = (_live(agent.thread(name), name, home, effects, last=last) for name in threads)
            await asyncio.gather(*lives)
            return {name: [_text(each) for each in await agent.thread(name).history(limit=1000)] for name in threads}

    return asyncio.run(work())


def _text(message: Message) -> tuple[str, str]:
    return message.kind, str(message.body.get("text", ""))


def _killed(home: Path, seconds: float) -> None:
    """Run a process and kill it after so many seconds.

    Raises:
        AssertionError: It ended by itself, which it never does.
    """
    child = started(lambda: _run(home))
    ended = os.pidfd_open(child)
    try:
        select.select([ended], [], [], seconds)
    finally:
        os.close(ended)
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == -signal.SIGKILL, f"it ended with {code}"


def killed(engine: Engine, kills: int) -> Iterator[dict[str, Any]]:
    """Kill so many processes, let one finish, and say what came of the effects."""
    seed = int.from_bytes(os.urandom(4), "big")
    source = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        home = made(engine, Path(folder) / "home")
        progress, span = [0], SPAN
        for _ in range(kills):
            _killed(home, source.uniform(0, span))
            progress.append(len(lines(home / _EFFECTS)))
            # On a busy machine a process takes longer to get to its effects, and kills must still come amid them.
            span = min(span * 1.1, MAX_SPAN) if progress[-1] == progress[-2] else max(span / 1.1, SPAN)
        code, told = forked_result(lambda: _run(home, last=True))
        assert code == 0, f"seed {seed}: no process could finish"
        effects, asked = Counter(lines(home / _EFFECTS)), lines(home / _ASKED)
        removed(home)
    turns = {name: len(said) // len(TURN) for name, said in told.items()}
    expected = [each for name, most in turns.items() for n in range(1, most + 1) for each in names(f"{name}.{n}")]
    yield {
        "seed": seed,
        "kills": kills,
        "turns": sum(turns.values()),
        "effects": effects.total(),
        "progress": progress,
        "asked": len(asked),
        "lost": sorted(set(expected) - set(effects)),
        "repeated": sorted(name for name, count in effects.items() if count > 1),
        "unknown": sorted(set(effects) - set(expected)),
        "broken": [name for name, said in told.items() if not _is_whole(name, said)],
    }


def _is_whole(name: str, said: list[tuple[str, str]]) -> bool:
    """Whether a thread has all messages of each of its turns, in order."""
    turns = range(1, len(said) // len(TURN) + 1)
    asked = [text for kind, text in said if kind == "message"]
    answered = [text for kind, text in said if kind == "answer"]
    return (
        [kind for kind, _ in said] == [*TURN] * len(turns)
        and asked == [f"{name}.{n}" for n in turns]
        and answered == [f"Done {name}.{n}." for n in turns]
    )


if __name__ == "__main__":
    be_program(killed)
