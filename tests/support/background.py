"""An agent whose conversation lets a worker read in the background."""

import asyncio
from pathlib import Path
from typing import Any

from support.agents import answering, approving, scripted_agent
from support.processes import eventually
from support.shop import home
from worldagent import Worker, WorldAgent, tool
from worldagent.harness import Policy
from worldagent.testing import ScriptedCall, ScriptedLM

READER = Worker("reader", "You read books.", "reads a book", tools=("look",), background=True)


class Library:
    """An agent with a worker `reader`, its tool `look`, and a conversation that sends it off.

    Attributes:
        begun: Set once the tool runs.
        may: Lets it end.
        said: What the conversation's model read at each step, as text.
        read: What the worker's model read at each step, as text.
        looked: How often the tool ran.
    """

    def __init__(self, *, dispatch: dict[str, Any] | None = None, result: str = "It is about whales.") -> None:
        self.begun, self.may = asyncio.Event(), asyncio.Event()
        self.said: list[str] = []
        self.read: list[str] = []
        self.looked = 0
        self.dispatch = dispatch or {"name": "reader", "request": "Read Moby Dick."}
        self.calls: list[dict[str, Any]] = []
        self.result = result
        self.lm = ScriptedLM(self._reply)

        @tool(risk="write")
        async def look(book: str) -> str:
            """Look into a book."""
            self.looked += 1
            self.begun.set()
            await self.may.wait()
            return f"looked into {book}"

        self.look = look

    def _reply(self, call: ScriptedCall) -> dict[str, Any]:
        text = "\n".join(str(message) for message in call.messages)
        if "request" in call.fields:
            self.read.append(text)
            if "looked into" not in text:
                return {"calls": [{"tool": "look", "arguments": {"book": "Moby Dick"}}]}
            return {"result": self.result}
        self.said.append(text)
        if self.calls:
            return {"reply": "", "calls": [self.calls.pop(0)]}
        if "dispatched" not in text:
            return {"reply": "", "calls": [{"tool": "background_start", "arguments": self.dispatch}]}
        return {"reply": "Whales!" if "about whales" in text else "I let it be read."}

    def agent(self, home: Path, **more: Any) -> WorldAgent:
        given: dict[str, Any] = {
            "tools": [self.look],
            "workers": [READER],
            "policy": Policy(rules=(approving("look"),)),
            "background": True,
        }
        return scripted_agent(home, self.lm, **(given | more))


async def settled(agent: WorldAgent) -> None:
    """Wait until nothing more begins on any thread of the agent."""
    async with asyncio.timeout(30):
        await agent._runner.pending.settled()


def shop() -> WorldAgent:
    """Make an agent for commands, with `--app support.background:shop`; its worker answers without a tool."""
    return WorldAgent("shop", lm=answering(), workers=[Worker("reader", "You read books.")], background=True)


def desk() -> WorldAgent:
    """Make an agent for chats; its worker asks for approval, and ends once there is a file `go` in the home."""

    @tool(risk="write", approval=True)
    async def look(book: str) -> str:
        """Look into a book."""
        return f"looked into {book}"

    async def reply(call: ScriptedCall) -> dict[str, Any]:
        text = "\n".join(str(message) for message in call.messages)
        if "request" in call.fields:
            assert await eventually((home() / "go").exists, 60)
            if "looked into" not in text:
                return {"calls": [{"tool": "look", "arguments": {"book": "Moby Dick"}}]}
            return {"result": "It is about whales."}
        if "about whales" in text:
            return {"reply": "Whales!"}
        if "dispatched" in text:
            return {"reply": "I let it be read."}
        arguments = {"name": "reader", "request": "Read Moby Dick."}
        return {"reply": "", "calls": [{"tool": "background_start", "arguments": arguments}]}

    policy = Policy(rules=(approving("background_start"),))
    given: dict[str, Any] = {"tools": [look], "workers": [READER], "policy": policy, "background": True}
    return WorldAgent("shop", lm=ScriptedLM(reply), **given)
