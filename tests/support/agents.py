"""An agent over a scripted model, for tests that drive the public API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from worldagent import Settings, Storage, WorldAgent
from worldagent.agent import Thread, TurnStream
from worldagent.core import events as ev
from worldagent.core.pauses import Pause
from worldagent.harness import Worker
from worldagent.testing import ScriptedCall, ScriptedLM

CRITIC = Worker("critic", "You judge what you are given.", "judges texts")


def scripted_agent(home: Path, lm: Any, *, settings: Mapping[str, Any] | None = None, **more: Any) -> WorldAgent:
    """An agent of the workspace `novel` whose model calls fail at once instead of being tried again."""
    chosen = Settings(model_backoff=0, **{"model_attempts": 1, **(settings or {})})
    return WorldAgent("novel", lm=lm, storage=Storage(home=home), settings=chosen, **more)


async def open_pauses(thread: Thread) -> list[Pause]:
    """The pauses of a thread that have no answer yet."""
    return [pause for pause in await thread.pauses() if not pause.answered]


def answering(text: str = "Fine.") -> ScriptedLM:
    """A model that says the same to everything, whatever the Signature asks for."""

    def reply(call: ScriptedCall) -> dict[str, Any]:
        return {"result": text} if "request" in call.fields else {"reply": text}

    return ScriptedLM(reply)


class Thinking:
    """A model that thinks until it may answer.

    Attributes:
        asked: Set once it is asked.
        may: Lets it answer.
    """

    def __init__(self, text: str = "Fine.") -> None:
        self.asked, self.may = asyncio.Event(), asyncio.Event()
        self.lm, self._answer = ScriptedLM(self._reply), {"reply": text}

    async def _reply(self, call: ScriptedCall) -> dict[str, str]:
        self.asked.set()
        await self.may.wait()
        return self._answer


@asynccontextmanager
async def under_way(home: Path) -> AsyncGenerator[tuple[Thinking, WorldAgent, TurnStream]]:
    """A detached turn `1` of the thread `t` that waits for its model; with its agent and its stream."""
    model = Thinking()
    async with scripted_agent(home, model.lm) as agent:
        async with agent.thread("t").stream("1", detach=True) as stream:
            await asyncio.wait_for(model.asked.wait(), 20)
        yield model, agent, stream


async def taken(events: AsyncIterator[ev.Event]) -> list[ev.Event]:
    """All events up to the end."""
    async with asyncio.timeout(20):
        return [event async for event in events]


def standing(events: list[Any]) -> str:
    """What a reader who follows deltas and replacements sees at the end."""
    text = ""
    for event in events:
        if isinstance(event, ev.TextDelta):
            text += event.text
        elif isinstance(event, ev.TextReplaced):
            text = event.text
        elif isinstance(event, ev.StepEnded) and event.interim:
            text = ""
    return text
