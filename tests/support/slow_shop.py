"""An agent whose model, and whose function `slow`, wait until they may go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from support.agents import Writing, scripted_agent, shape
from worldagent import WorldAgent
from worldagent.graphs import TaskContext
from worldagent.testing import ScriptedCall, ScriptedLM


class SlowShop:
    """What waits, and agents that do.

    Args:
        home: The home of its agents.
        url: Their database.

    Attributes:
        writing: What was done, and what lets `slow` go on.
        asked: Set once the model is asked.
        answer: Lets it answer.
    """

    def __init__(self, home: Path, url: str) -> None:
        self._home, self._url = home, url
        self.writing = Writing()
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    def agent(self) -> WorldAgent:
        """One more agent on the home and the database."""
        return scripted_agent(
            self._home,
            ScriptedLM(self._reply),
            tools=self.writing.functions,
            shapes=[shape(self._job)],
            settings={"database_url": self._url},
        )

    async def _job(self, ctx: TaskContext) -> str:
        slow = await ctx.call("slow", {"what": "slow"})
        return f"{slow} {await ctx.call('write', {'what': 'last'})}"

    async def _reply(self, call: ScriptedCall) -> dict[str, Any]:
        self.asked.set()
        await self.answer.wait()
        return {"reply": "Fine."}
