"""A process that edits a memory entry whenever it is asked to, so that two of them do it at once."""

import asyncio
import sys
from pathlib import Path

from support.agents import answering, scripted_agent
from worldagent import Memory
from worldagent.core.errors import EntryChanged


async def edit(home: Path, who: str, entry: str) -> None:
    """Edit the version of an entry of the account `ana` that a line says, 0 for any, and say what came of it.

    Args:
        home: The home.
        who: Is in the texts.
        entry: The id of the entry.
    """
    async with scripted_agent(home, answering(), memory=Memory()) as agent:
        _tell("ready")
        while line := await asyncio.to_thread(sys.stdin.readline):
            try:
                made = await agent.memory.edit(
                    entry, f"{who} edits {int(line)}", version=int(line) or None, account="ana"
                )
                _tell(f"version {made.version}")
            except EntryChanged:
                _tell("EntryChanged")


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
