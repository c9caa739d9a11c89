"""A turn that is edited, with an effect in each of its two versions. Effects are lines of the file `effects`."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

from support import kill_prefix
from support.agents import open_pauses
from support.databases import storage_of
from support.effects import add, lines
from support.kill_points import Killer
from support.kill_turn import status_of
from worldagent import Settings, WorldAgent
from worldagent.agent import Thread
from worldagent.core.errors import NothingToResume, StorageUnavailable
from worldagent.core.pauses import Happened, Pause, RunAgain
from worldagent.harness import tool
from worldagent.testing import ScriptedCall, ScriptedLM

OLD, NEW, KEPT = "Order the old one.", "Order the new one.", "as it was"


def agent_of(home: Path) -> WorldAgent:
    async def order(which: str) -> str:
        add(home / "effects", which)
        return which

    def answer(call: ScriptedCall) -> dict[str, Any]:
        told = str(call.messages[-1])
        for which, text in (("old", OLD), ("new", NEW)):
            if text in told:
                return {"reply": "", "calls": [{"tool": "order", "arguments": {"which": which}}]}
        return {"reply": "Ordered."}

    return WorldAgent(
        "novel",
        lm=ScriptedLM(answer, form="native"),
        tools=[tool(risk="read_only")(order)],
        storage=storage_of(home),
        settings=Settings(model_attempts=1, trace=False),
    )


async def through(home: Path, killer: Killer) -> dict[str, Any]:
    """Run a turn and edit it; if a write of the edit fails, resume it in this agent or in another one."""
    async with agent_of(home) as here, agent_of(home) as there:
        kill_prefix.prepare(home)
        if await here.thread("t").state() is None:
            await here.thread("t").converse(OLD)
        killer.on, resuming, states = True, here, list[str]()
        while True:
            thread = resuming.thread("t")
            try:
                await _to_the_end(thread, home)
                break
            except StorageUnavailable as error:
                resuming = there if killer.mend(error) else here
                states.append(await status_of(thread))
        killer.on = False
        histories = [await _said(agent.thread(name)) for agent in (here, there) for name in ("t", KEPT)]
        threads = sorted([item.thread for item in await here.threads()])
    [now, kept, *same] = histories
    return {
        "states": states,
        "effects": Counter(lines(home / "effects")),
        "now": now,
        "kept": kept,
        "threads": threads,
        "same": [now, kept] == same,
    }


async def _to_the_end(thread: Thread, home: Path) -> None:
    """Edit, unless that is written, and resume until the turn is done; a person looks at the effects."""
    if (await _said(thread))[0] != NEW:
        await thread.edit(NEW, keep_as=KEPT)
    with contextlib.suppress(NothingToResume):
        while (await thread.resume({pause.id: _answer(pause, home) for pause in await open_pauses(thread)})).pauses:
            pass


def _answer(pause: Pause, home: Path) -> object:
    which = pause.arguments["which"]
    return Happened(which) if which in lines(home / "effects") else RunAgain()


async def _said(thread: Thread) -> list[str]:
    return [str(message.body.get("text", message.kind)) for message in await thread.history()]
