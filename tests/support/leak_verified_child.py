"""A process to be killed, for the leak suite: `leak_verified_child.py CASE-AS-JSON HOME`. It tells when it is there."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

from support.leak_verified import Verified, VerifiedCase
from worldagent.graphs.checkpoints import DURABILITY


async def main(case: VerifiedCase, home: Path) -> None:
    DURABILITY.set(case.mode)  # type: ignore[arg-type]  # one of its three words
    turn = Verified(case, home)
    turn.hold = "judged" if case.path.endswith("judged") else "mends"
    async with turn.on_thread() as thread:
        running = asyncio.create_task(turn.begin(thread))
        held = asyncio.create_task(turn.held.wait())
        await asyncio.wait({running, held}, return_when=asyncio.FIRST_COMPLETED)
        if not held.done():
            await running  # it failed, and says why
        print("held", flush=True)  # noqa: T201 -- its parent reads it
        await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG)
    asyncio.run(main(VerifiedCase(**json.loads(sys.argv[1])), Path(sys.argv[2])), debug=True)
