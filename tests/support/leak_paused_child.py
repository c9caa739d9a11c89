"""A process to be killed, for the leak suite: `leak_paused_child.py CASE-AS-JSON HOME`. It tells when it is there."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

from support.leak_paused_cases import PausedCase
from support.leak_pauses import Paused
from worldagent.graphs.checkpoints import DURABILITY


async def main(case: PausedCase, home: Path) -> None:
    DURABILITY.set(case.mode)  # type: ignore[arg-type]  # one of its three words
    turn = Paused(case, home)
    turn.hold = case.path == "killed while running"
    async with turn.on_thread() as thread:
        running = asyncio.create_task(_run(turn, thread))
        held = asyncio.create_task(turn.held.wait())
        await asyncio.wait({running, held}, return_when=asyncio.FIRST_COMPLETED)
        if not held.done():
            await running  # it is paused, or failed and says why
        print("there", flush=True)  # noqa: T201 -- its parent reads it
        await asyncio.Event().wait()


async def _run(turn: Paused, thread: object) -> None:
    begun = await turn.begin(thread)  # type: ignore[arg-type]  # a Thread
    if turn.case.path == "killed in the resume":
        turn.hold = True
        await turn.resume(thread, turn.answers(begun.pauses))  # type: ignore[arg-type]  # a Thread


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG)
    asyncio.run(main(PausedCase(**json.loads(sys.argv[1])), Path(sys.argv[2])), debug=True)
