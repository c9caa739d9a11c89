"""A turn whose call a server goes on with as a task is killed at every point; as a program it prints what came of it.

The task asks a person, and ends after that. The server keeps its tasks, and is started anew by each process. With
`times`, it also dies at random, and the turn is killed so often at each step of its task.
"""

import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.databases import Engine
from support.kill_matrix import ANSWERED, FIRST, Matrix, kills
from support.kill_points import Killer, bare_agent, prepare
from support.kill_turn import ROLE, to_the_end
from support.processes import be_program, lines
from support.task_server import command, requests_in
from worldagent import WorldAgent
from worldagent.core.pauses import Happened, Pause, RunAgain
from worldagent.mcp_client import StdioHost
from worldagent.mcp_client.tools import McpServer
from worldagent.testing import ScriptedCall

REQUEST = "Which colour is it?"


def agent_of(home: Path) -> WorldAgent:
    async def answer(call: ScriptedCall) -> dict[str, Any]:
        return {"reply": "It has one.", "calls": []} if call.steps else {"reply": "", "calls": [CALL]}

    server = McpServer(StdioHost(command(home / "server", server_mode), connect_timeout=60), elicitation=True)
    return bare_agent(home, answer, "t_ask", mcp={"t": server})


server_mode = ""  # of the server
STEPS = {
    FIRST: (
        "a round: begun",
        "a round: done",
        "KeptTasks.add",
        "a question: waits for a person",
        "the turn: paused",
    ),
    ANSWERED: (
        "a person's answer",
        "the turn: running",
        "a question: done",
        "a round: done",
        "KeptTasks.drop",
        "a flow: done",
    ),
}
"""What is written while a task is followed, by what is killed."""
CALL = {"tool": "t_ask", "arguments": {"polls": 1}}


async def begin(home: Path, killer: Killer) -> None:
    """Run the turn until it waits for a person."""
    async with agent_of(home) as agent:
        prepare(home)
        killer.on = True
        turn = await agent.thread("t").converse(REQUEST, role=ROLE)
        killer.on = False
    assert turn.status == "paused", turn


async def go_on(home: Path, killer: Killer) -> dict[str, Any]:
    """Take the turn to its end in this process; gives what came of it."""

    def answer(pause: Pause) -> object:
        if pause.kind == "question":
            return {"colour": "red"}
        return Happened("it did") if lines(home / "server" / "effects") else RunAgain()

    async with agent_of(home) as agent:
        prepare(home)
        killer.on = True
        thread = agent.thread("t")
        await to_the_end(thread, answer, lambda: thread.converse(REQUEST, role=ROLE))
        killer.on = False
        [result] = [each.body for each in await thread.history() if each.kind == "result"]
    asked = requests_in(home / "server")
    return {
        "effects": lines(home / "server" / "effects"),
        "value": result["result"]["value"],
        "tasks": len({each["params"]["taskId"] for each in asked if each["method"].startswith("tasks/")}),
        "processes": len({each["pid"] for each in asked}),
        "cancelled": [each for each in asked if each["method"] == "tasks/cancel"],
    }


def often(times: int, phase: str, seed: int) -> Iterator[dict[str, Any]]:
    """Kill at each step of a phase so often, before, within or after it, while the server dies at random."""
    global server_mode
    server_mode, source = "unsteady", random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        points = Matrix(phase, Path(folder), turn=sys.modules[__name__]).points()
    for step in STEPS[phase] * times:
        with tempfile.TemporaryDirectory() as folder:
            point = source.choice([each for each in points if each.what == step])
            yield Matrix(phase, Path(folder), turn=sys.modules[__name__]).kill(point)


def found(*, engine: Engine = "sqlite", times: int = 0, **how: Any) -> Iterator[dict[str, Any]]:
    """Kill at every point of the first run and of the run that brings the answer, or at so many of each."""
    if times:
        return often(times, **how)
    return kills((FIRST, ANSWERED), turn=sys.modules[__name__], engine=engine, **how)


if __name__ == "__main__":
    be_program(found)
