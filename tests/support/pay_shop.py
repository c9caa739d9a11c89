"""An agent with one shape that pays once it is approved, for tests of answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.agents import Muse, answering, scripted_agent, shape
from worldagent import WorldAgent
from worldagent.graphs import TaskContext
from worldagent.harness import Function, tool


def pay(done: list[str], **more: Any) -> Function:
    async def pay(what: str) -> str:
        done.append(what)
        return f"paid for the {what}"

    made: Function = tool(approval=True, **more)(pay)
    return made


async def buy(ctx: TaskContext) -> str:
    return str(await ctx.call("pay", {"what": "hat"}))


def shop(home: Path, done: list[str], **more: Any) -> WorldAgent:
    given: dict[str, Any] = {"tools": [pay(done)], "shapes": [shape(buy, entry=Muse)], **more}
    return scripted_agent(home, answering(), **given)
