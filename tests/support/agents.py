"""An agent over a scripted model, for tests that drive the public API."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from worldagent import Settings, Storage, WorldAgent
from worldagent.agent import Thread
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
