"""A turn that is killed between any two of its writes, gone on with by another process, and its effects counted.

As a program: `python kill_matrix.py FOLDER EVERY SEED` gives a line of JSON for each point at which it killed.
The turn runs in a fork of this process, which has everything loaded, and so does whoever goes on with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from worldagent import Role, Settings, Storage, WorldAgent
from worldagent.core.errors import NothingToResume
from worldagent.core.pauses import Happened, RunAgain
from worldagent.graphs import Shape, TaskContext
from worldagent.graphs import _checkpoints as checkpoints
from worldagent.harness import CallContext, Worker, flow, tool
from worldagent.storage import _lane as lane
from worldagent.testing import ScriptedCall, ScriptedLM

ROLE = Role("critic", "Be as harsh as the keeper of the seventh lighthouse.")
EFFECTS = [f"{part}{place}" for part in ("first-", "nested-", "second-") for place in range(3)]


class Part(BaseModel):
    part: str


class Done(BaseModel):
    text: str


class Killer:
    """Kills this process at one of the points that it passes; without one it counts them."""

    def __init__(self, at: int | None, log: Path) -> None:
        self.at, self.log, self.passed = at, log, 0

    def __call__(self, where: str) -> None:
        self.passed += 1
        if self.passed == self.at:
            self.log.write_text(where)
            os.kill(os.getpid(), signal.SIGKILL)


def armed(killer: Callable[[str], None]) -> None:
    """Have the killer passed before and after each write of a database and each checkpoint."""
    run, write = lane.Lane.run, checkpoints.WholeSaver._write

    async def lane_run(self: Any, work: Any) -> Any:
        if self._read_only:
            return await run(self, work)
        killer("before a write")
        done = await run(self, work)
        killer("after a write")
        return done

    async def saver_write(self: Any, given: Any) -> Any:
        killer("before a checkpoint")
        done = await write(self, given)
        killer("after a checkpoint")
        return done

    lane.Lane.run = lane_run  # type: ignore[method-assign]  # a kill between two writes has no other way in
    checkpoints.WholeSaver._write = saver_write  # type: ignore[method-assign,assignment]  # likewise


def agent_of(home: Path, killer: Callable[[str], None]) -> WorldAgent:
    effects = home / "effects"

    async def put(what: str) -> str:
        killer("before an effect")
        with effects.open("a") as out:
            out.write(f"{what}\n")
            out.flush()
            os.fsync(out.fileno())
        killer("after an effect")
        return what

    async def several(ctx: CallContext, part: str) -> list[str]:
        return list(await asyncio.gather(*(ctx.call("put", {"what": f"{part}-{place}"}) for place in range(3))))

    async def handle(params: Part, ctx: TaskContext) -> Done:
        first = [await ctx.call("put", {"what": f"{params.part}-{place}"}) for place in range(3)]
        nested = await ctx.call("several", {"part": "nested"}) if params.part == "first" else []
        judged = await ctx.task("subagent", {"worker": "critic", "request": "Judge it."})
        return Done(text=" ".join([*first, *nested, judged.text]))

    def plan(call: ScriptedCall) -> dict[str, Any]:
        if "request" in call.fields:
            return {"result": f"judged {random.random()}"}  # it never says the same again
        told = " ".join(str(message) for message in call.messages)
        for part in ("first", "second"):
            if f"{part}-0" not in told:
                return {"reply": "", "dispatches": [{"to": "job", "params": {"part": part}}]}
        return {"reply": "All done."}

    return WorldAgent(
        "novel",
        lm=ScriptedLM(plan),
        functions=[tool(name="put")(put), flow(name="several")(several)],
        workers=[Worker("critic", "You judge.", "judges")],
        shapes=[Shape("job", Part, Done, handle, description="does a part")],
        storage=Storage(home=home),
        settings=Settings(model_attempts=1),
    )


async def begin(home: Path, killer: Killer) -> None:
    armed(killer)
    async with agent_of(home, killer) as agent:
        killer.passed = 0
        await agent.thread("t").converse("Do all parts.", role=ROLE)
    (home / "passed").write_text(str(killer.passed))


async def go_on(home: Path) -> dict[str, Any]:
    """What becomes of the turn in the next process; a person looks at the effects where one is uncertain."""
    asked = 0
    async with agent_of(home, lambda where: None) as agent:
        thread = agent.thread("t")
        turn, state = None, "cut off"
        try:
            turn = await thread.resume(role=ROLE)
        except NothingToResume:
            if not any(message.kind == "answer" for message in await thread.history()):
                return {"state": "no turn", "uncertain": 0}
            state = "done"
        while turn is not None and turn.status == "paused":
            answers: dict[str, Any] = {}
            for pause in turn.pauses:
                asked += 1
                what = pause.arguments["what"]
                happened = what in (home / "effects").read_text().split() if (home / "effects").exists() else False
                answers[pause.id] = Happened(what) if happened else RunAgain()
            turn = await thread.resume(answers, role=ROLE)
        text = turn.text if turn is not None else (await thread.history())[-1].body["text"]
    return {"state": state, "uncertain": asked, "text": text}


def forked(work: Callable[[], None]) -> int:
    """Run `work` in a fork of this process; gives how it ended."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def point(folder: Path, at: int | None) -> dict[str, Any] | None:
    """Kill at one point and go on; None where the turn passes fewer points."""
    home = folder / f"point{at}"
    home.mkdir()
    log = home / "where"
    code = forked(lambda: asyncio.run(begin(home, Killer(at, log))))
    if code == 0:
        return None
    assert code == -signal.SIGKILL, f"the turn ended with {code}"
    result = home / "result"
    assert forked(lambda: _write(result, asyncio.run(go_on(home)))) == 0, f"nobody could go on after point {at}"
    told: dict[str, Any] = json.loads(result.read_text())
    effects = Counter((home / "effects").read_text().split()) if (home / "effects").exists() else Counter[str]()
    return {"point": at, "where": log.read_text(), "effects": effects} | told


def _write(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value))


def main(folder: Path, every: int, seed: int) -> None:
    at = 1 + seed % every
    while (found := point(folder, at)) is not None:
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
        at += every


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
