"""Agents in the process of the test that wait for an approval, or for two answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from support.agents import Muse, answering, scripted_agent, shape
from worldagent import WorldAgent
from worldagent.graphs import Shape, TaskContext
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


class Order(BaseModel):
    """What is bought."""

    what: str


class Receipt(BaseModel):
    """What it gives."""

    text: str


@tool(name="pay", approval=True)
async def _pay_in_colour(what: str, colour: str) -> str:
    """Pay for something."""
    return f"paid for the {colour} {what}"


async def _buy_in_colour(order: Order, ctx: TaskContext) -> Receipt:
    colour = await ctx.calls.ask_person(f"Which {order.what}?", ["red", "blue"])
    return Receipt(text=await ctx.call("pay", {"what": order.what, "colour": colour}))


def asking_shop(home: Path, **more: Any) -> WorldAgent:
    """An agent of the workspace `novel` whose shape `buy` waits for a person twice."""
    return scripted_agent(
        home, answering(), tools=[_pay_in_colour], shapes=[Shape("buy", Order, Receipt, _buy_in_colour)], **more
    )
