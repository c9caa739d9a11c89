"""An agent with a function that sends a message and waits for the reply, and the process that is killed after it."""

from pathlib import Path
from typing import Any

from support.agents import approving, calls, scripted_agent, shape
from support.processes import add, lines, wait_for_kill
from worldagent import Policy, WorldAgent
from worldagent.core.errors import PauseExpired
from worldagent.core.pauses import Pause
from worldagent.graphs import TaskContext
from worldagent.harness import CallContext, Function, flow, tool
from worldagent.harness.context import wait_for_reply
from worldagent.harness.journal import Reply
from worldagent.testing import ScriptedCall, ScriptedLM


def sent(home: Path) -> list[str]:
    """What was sent and what was noted, once for each time that it was done."""
    return lines(home / "sent") if (home / "sent").exists() else []


def functions(home: Path) -> list[Function]:
    @tool(risk="write")
    async def send(text: str) -> str:
        add(home / "sent", text)
        return f"message-{text}"

    @tool
    async def write(text: str) -> str:
        add(home / "sent", text)
        return text

    @flow(risk="write")
    async def request(ctx: CallContext, text: str, seconds: float | None = None) -> str:
        """Ask another role."""
        message_id = await ctx.call("send", {"text": text})
        try:
            reply = await wait_for_reply(ctx, message_id, seconds=seconds)
        except PauseExpired:
            return "no reply"
        await ctx.call("send", {"text": f"got {reply['text']}"})
        return str(reply["text"])

    return [send, write, request]


async def waits_and_writes(ctx: TaskContext) -> str:
    reply = await wait_for_reply(ctx.calls, "m1")
    return str(await ctx.call("write", {"text": reply}))


def requesting(home: Path, *, seconds: float | None = None, hang: bool = False, **more: Any) -> WorldAgent:
    """An agent whose conversation requests `hat` from another role, and says what it was told.

    Args:
        home: Its home; the file `sent` in it has the effects.
        seconds: How long the request waits.
        hang: Whether the model never ends its second step.
        more: Further arguments of the agent.
    """

    async def answer(call: ScriptedCall) -> dict[str, Any]:
        if not call.steps:
            return {"reply": "", **calls(("request", {"text": "hat", "seconds": seconds}))}
        if hang:
            await wait_for_kill()
        return {"reply": call.steps[0].rsplit("\n", 1)[-1]}

    every = [*functions(home), *more.pop("tools", ())]
    given: dict[str, Any] = {
        "shapes": [shape(waits_and_writes)],
        "policy": Policy(rules=(approving("send"), approving("request"))),
        **more,
    }
    return scripted_agent(home, ScriptedLM(answer), tools=every, **given)


async def reply_and_die(home: Path, pause_id: str) -> None:
    """Resume the turn with a reply in this process, up to the model's second step, which never ends."""
    async with requesting(home, hang=True) as agent:
        await agent.thread("t").resume({pause_id: Reply({"text": "blue"})})


class Noting:
    """A notifier that notes what it is called for."""

    def __init__(self) -> None:
        self.pauses: list[Pause] = []

    async def notify(self, pause: Pause) -> None:
        self.pauses.append(pause)
