"""A process of the leak suite: `leak_child.py KIND CASE-AS-JSON HOME`. It prints a line when it is there.

The kinds are `turn`, which ends by itself where the model is not held, and `paused`, `verified` and `disclosing`, which
are killed.
With LangSmith's variables set it is traced; with `DEBUG` in the environment LangChain prints all it does.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from langchain_core.globals import set_debug
from langchain_core.tracers.langchain import wait_for_all_tracers

from support.leak_cases import Case
from support.leak_disclosures import Disclosing, Killed
from support.leak_pauses import Paused, PausedCase
from support.leak_turns import Behaviour, ask, opened, put_role
from support.leak_verified import Verified, VerifiedCase
from worldagent.agent import Thread
from worldagent.graphs.checkpoints import DURABILITY
from worldagent.testing import ScriptedLM


def say(what: str) -> None:
    print(what, flush=True)  # noqa: T201 -- its parent reads it


async def until_held(running: Coroutine[Any, Any, object], held: asyncio.Event) -> asyncio.Task[object]:
    """Wait until the model has the prompt, or the turn is over; gives the turn."""
    turn, holding = asyncio.create_task(running), asyncio.create_task(held.wait())
    await asyncio.wait({turn, holding}, return_when=asyncio.FIRST_COMPLETED)
    holding.cancel()
    if held.is_set():
        say("held")
    return turn


async def turn(given: dict[str, Any], home: Path) -> None:
    case = Case(**given)
    DURABILITY.set(case.mode)
    behaviour = Behaviour(case)
    async with opened(case, home, ScriptedLM(behaviour)) as agent:
        role = await put_role(case, agent)
        thread = agent.thread("t1", account="ana", channel="den")
        await asyncio.gather(await until_held(ask(case, thread, role), behaviour.held), return_exceptions=True)
    wait_for_all_tracers()
    say("done")


async def killed(turn: Paused | Verified | Disclosing) -> None:
    """Run a turn to where it is held, or waits for a person, and stay there."""
    DURABILITY.set(turn.case.mode)
    async with turn.on_thread() as thread:
        running = await until_held(_run(turn, thread), turn.held)
        if not turn.held.is_set():
            await running  # it is paused, or failed and says why
            say("held")
        await asyncio.Event().wait()


async def _run(turn: Paused | Verified | Disclosing, thread: Thread) -> None:
    begun: Any = await turn.begin(thread)
    if isinstance(turn, Paused) and turn.case.path == "killed in the resume":
        turn.hold = True
        await turn.resume(thread, turn.answers(begun.pauses))


def main(kind: str, given: dict[str, Any], home: Path) -> Coroutine[Any, Any, None]:
    if kind == "turn":
        return turn(given, home)
    if kind == "disclosing":
        return killed(Disclosing(Killed(**given), home, hold=True))
    if kind == "verified":
        verified = Verified(VerifiedCase(**given), home)
        verified.hold = verified.held_in
        return killed(verified)
    paused = Paused(PausedCase(**given), home)
    paused.hold = paused.case.path == "killed while running"
    return killed(paused)


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG)
    set_debug("DEBUG" in os.environ)
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])), debug=True)
