"""A shop that asks for a colour and then for leave to pay, without any file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from support.agents import answering, scripted_agent
from worldagent import WorldAgent
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import tool


class Order(BaseModel):
    """What is bought."""

    what: str


class Receipt(BaseModel):
    """What it gives."""

    text: str


@tool(approval=True)
async def pay(what: str, colour: str) -> str:
    """Pay for something."""
    return f"paid for the {colour} {what}"


async def _buy(order: Order, ctx: TaskContext) -> Receipt:
    colour = await ctx.calls.ask_person(f"Which {order.what}?", ["red", "blue"])
    return Receipt(text=await ctx.call("pay", {"what": order.what, "colour": colour}))


def asking_shop(home: Path, **more: Any) -> WorldAgent:
    """An agent of the workspace `novel` whose shape `buy` waits for a person twice."""
    return scripted_agent(home, answering(), tools=[pay], shapes=[Shape("buy", Order, Receipt, _buy)], **more)


__all__ = ["Order", "Receipt", "asking_shop"]
