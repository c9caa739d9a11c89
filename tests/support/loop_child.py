"""A process whose worker loops over tools, and that is killed in the middle of a model call if so told.

Each order is done in a process of its own: a home, what to do (`begin`, `approve` or `resume`), which model call kills
it (0 for none, -1 for a tool instead), the surface, and how tools are offered. Each model call and each effect adds a
line to a file of the home.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.agents import approving
from support.databases import storage_of
from support.processes import add, be_program
from worldagent import Role, Settings, WorldAgent
from worldagent.core.pauses import Approve, Happened
from worldagent.harness import Policy, Worker, tool
from worldagent.testing import ScriptedCall, ScriptedLM

ROLE = Role("critic", "Be as harsh as the keeper of the seventh lighthouse.")
INSIDE = -1
"""Instead of a model call: a process is killed after the effect of a tool, before that is recorded."""

STEPS: list[list[tuple[str, str]]] = [[("put", "one"), ("put", "two")], [("put", "three")], [("pay", "four")]]


def agent_of(home: Path, kill: int, native: bool) -> WorldAgent:
    @tool(risk="write")
    async def put(what: str) -> str:
        add(home / "effects", what)
        if what == "three" and kill == INSIDE:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"put {what}"

    @tool(risk="write", approval=True)
    async def pay(what: str) -> str:
        add(home / "effects", what)
        return f"paid {what}"

    @tool(risk="read_only")
    async def other(what: str) -> str:
        return what

    def reply(call: ScriptedCall) -> dict[str, Any]:
        planner = "message" in call.fields
        notes = len(call.steps)
        add(home / "asked", f"{'planner' if planner else 'worker'} {notes} {'role' if call.role else 'none'}")
        if call.index == kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if planner:
            return (
                {"reply": "Done."}
                if notes
                else {"reply": "", "calls": [{"tool": "looper", "arguments": {"request": "Go."}}]}
            )
        done = 0
        for step in STEPS:
            if notes == done:
                return {"calls": [{"tool": name, "arguments": {"what": what}} for name, what in step]}
            done += len(step)
        return {"result": "All four."}

    worker = Worker("looper", "You loop.", "loops", tools=("put", "pay", "other"))
    return WorldAgent(
        "novel",
        lm=ScriptedLM(reply, form="native" if native else "chat"),
        workers=[worker],
        tools=[put, pay, other],
        policy=Policy(rules=(approving("put"),)),
        settings=Settings(model_attempts=1),
        storage=storage_of(home),
    )


async def main(home: Path, what: str, kill: int, surface: str, native: bool) -> str:
    async with agent_of(home, kill, native) as agent:
        thread = agent.thread("t")
        if what == "begin" and surface == "task":
            turn = await thread.task("subagent", {"worker": "looper", "request": "Go."}, role=ROLE)
        elif what == "begin":
            turn = await thread.converse("Go", role=ROLE)
        else:
            pauses = await thread.pauses() if what == "approve" else ()
            known = {"approval": Approve(), "uncertain": Happened("put three")}
            turn = await thread.resume({pause.id: known[pause.kind] for pause in pauses}, role=ROLE)
        return " ".join([turn.status, *(pause.function for pause in turn.pauses)])


def run(home: str, how: str, **order: Any) -> Iterator[str]:
    """Do an order."""
    yield asyncio.run(main(Path(home), native=how == "native", **order))


if __name__ == "__main__":
    be_program(run)
