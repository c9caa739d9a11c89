"""Agents whose turns messages meet while they run."""

import asyncio
from pathlib import Path
from typing import Any

from support.agents import approving, scripted_agent
from worldagent import WorldAgent, tool
from worldagent.agent import Thread
from worldagent.harness import Policy
from worldagent.testing import ScriptedCall, ScriptedLM

CALLING = {"reply": "", "calls": [{"tool": "paint", "arguments": {"thing": "door"}}]}


class Painting:
    """An agent's tool `paint`, which runs until it may end, and its model, which paints and then answers.

    Attributes:
        begun: Set once the tool runs.
        may: Lets it end.
        read: What the model read at each step, as text.
        painted: How often it painted.
    """

    def __init__(self, *, steps: int = 1) -> None:
        self.begun, self.may = asyncio.Event(), asyncio.Event()
        self.read: list[str] = []
        self.painted = 0
        self._steps = steps
        self.lm = ScriptedLM(self._reply)

        @tool
        async def paint(thing: str) -> str:
            """Paint a thing."""
            self.painted += 1
            self.begun.set()
            await self.may.wait()
            return f"painted {thing}"

        self.tool = paint

    def _reply(self, call: ScriptedCall) -> dict[str, Any]:
        self.read.append("\n".join(str(message) for message in call.messages))
        if self.read[-1].count("painted door") < self._steps:
            return CALLING
        return {"reply": "in blue" if "blue" in self.read[-1] else "in red"}

    def agent(self, home: Path, **more: Any) -> WorldAgent:
        """The agent, whose calls of the tool are approved."""
        return scripted_agent(home, self.lm, tools=[self.tool], policy=Policy(rules=(approving("paint"),)), **more)


async def ended(thread: Thread) -> None:
    """Wait until nothing more begins on any thread of the agent."""
    async with asyncio.timeout(30):
        await thread._runner.pending.settled()


async def texts(thread: Thread) -> list[tuple[str, str]]:
    """What was said on a thread: kinds and texts."""
    said = [each for each in await thread.history() if each.kind in ("message", "word", "answer")]
    return [(each.kind, each.body["text"]) for each in said]
