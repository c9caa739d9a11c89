"""A process of its own for the leak suite: `leak_child.py CASE-AS-JSON HOME`. It tells when the model has the prompt.

With LangSmith's variables set it is traced; with `DEBUG` in the environment LangChain prints all it does.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path

from langchain_core.globals import set_debug
from langchain_core.tracers.langchain import wait_for_all_tracers

from support.leak_cases import Case
from support.leak_turns import Behaviour, ask, opened, put_role
from worldagent.graphs.checkpoints import DURABILITY
from worldagent.testing import ScriptedLM


async def main(case: Case, home: Path) -> None:
    DURABILITY.set(case.mode)  # type: ignore[arg-type]  # one of its three words
    behaviour = Behaviour(case)
    async with opened(case, home, ScriptedLM(behaviour)) as agent:
        role = await put_role(case, agent)
        turn = asyncio.create_task(ask(case, agent.thread("t1", account="ana", channel="den"), role))
        held = asyncio.create_task(behaviour.held.wait())
        await asyncio.wait({turn, held}, return_when=asyncio.FIRST_COMPLETED)
        if held.done():
            print("held", flush=True)  # noqa: T201 -- its parent reads it
        await asyncio.gather(turn, return_exceptions=True)
        held.cancel()
    wait_for_all_tracers()
    print("done", flush=True)  # noqa: T201 -- its parent reads it


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG)
    set_debug("DEBUG" in os.environ)
    asyncio.run(main(Case(**json.loads(sys.argv[1])), Path(sys.argv[2])), debug=True)
