"""An agent with functions that ask a person, for `--app support.shop:agent`.

What it bought is in the file `bought` of its home. Where there is a file `hang`, paying does not end.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from worldagent import Storage, WorldAgent
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import Worker, tool

HOME = "WORLDAGENT_HOME"


class Order(BaseModel):
    what: str = "hat"


class Receipt(BaseModel):
    text: str


class Address(BaseModel):
    """Where to send it."""

    street: str = Field(min_length=3)
    number: int = Field(ge=1)


def home() -> Path:
    return Path(os.environ[HOME])


async def pay(what: str) -> str:
    """Pay for something."""
    with (home() / "bought").open("a", encoding="utf-8") as file:
        file.write(f"{what}\n")
    if (home() / "hang").exists():
        await asyncio.Event().wait()
    return f"paid for the {what}"


async def buy(params: Order, ctx: TaskContext) -> Receipt:
    """One approval."""
    return Receipt(text=await ctx.call("pay", {"what": params.what}))


async def both(params: Order, ctx: TaskContext) -> Receipt:
    """A question and an approval side by side."""
    colour, paid = await asyncio.gather(
        ctx.calls.ask_person(f"Which {params.what}?", ["red", "blue"]), ctx.call("pay", {"what": params.what})
    )
    return Receipt(text=f"{colour}: {paid}")


async def choose(params: Order, ctx: TaskContext) -> Receipt:
    """The same, then a form."""
    receipt = await both(params, ctx)
    address = await ctx.calls.ask_person("Where to?", form=Address)
    return Receipt(text=f"{receipt.text}, to {address.street} {address.number}")


async def ask(params: Order, ctx: TaskContext) -> Receipt:
    """A question that any text answers."""
    return Receipt(text=await ctx.calls.ask_person(f"What about the {params.what}?"))


def shapes(*handlers: Any) -> list[Shape[Any, Any]]:
    return [
        Shape(handler.__name__, Order, Receipt, handler, description=f"{handler.__name__} something")
        for handler in handlers
    ]


def agent() -> WorldAgent:
    return WorldAgent(
        "shop",
        lm="openai/answer",
        workers=[Worker("critic", "You judge in one sentence.")],
        tools=[tool(approval=True)(pay)],
        shapes=shapes(buy, choose, ask),
        storage=Storage(home=home()),
    )
