"""An app for `--app support.hat_shop:agent`: shapes that wait for a person, functions that leave a line in a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from support.agents import Muse
from worldagent import Settings, WorldAgent
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import tool
from worldagent.testing import ScriptedLM

WORKSPACE = "shop"
BOUND = 600  # seconds: more than any test has, so that what is held is held for as long as one looks


class Order(BaseModel):
    """What is bought."""

    what: str


class Receipt(BaseModel):
    """What every shape gives."""

    text: str


def effects(home: Path) -> list[str]:
    """What functions did, oldest first."""
    file = home / "effects.txt"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def _home() -> Path:
    home = Settings().home
    assert home is not None
    return home


def _do(what: str) -> None:
    with open(_home() / "effects.txt", "a", encoding="utf-8") as file:
        file.write(f"{what}\n")


async def pay(what: str) -> str:
    """Pay for something."""
    _do(f"paid {what}")
    return f"paid for the {what}"


async def wrap(what: str) -> str:
    """Wrap something."""
    _do(f"wrapped {what}")
    return f"wrapped the {what}"


async def deliver(what: str) -> str:
    """Deliver something, once there is a file `go`."""
    _do(f"begun {what}")
    async with asyncio.timeout(BOUND):
        while not (_home() / "go").exists():  # noqa: ASYNC110 -- another process makes it
            await asyncio.sleep(0.01)
    _do(f"delivered {what}")
    return f"delivered the {what}"


async def _buy(order: Order, ctx: TaskContext) -> Receipt:
    return Receipt(text=await ctx.call("pay", {"what": order.what}))


async def _pick(order: Order, ctx: TaskContext) -> Receipt:
    colour, paid = await asyncio.gather(
        ctx.calls.ask_person(f"Which {order.what}?", ["red", "blue"]), ctx.call("pay", {"what": order.what})
    )
    return Receipt(text=f"{colour}: {paid}")


async def _send(order: Order, ctx: TaskContext) -> Receipt:
    first = await ctx.call("deliver", {"what": order.what})
    return Receipt(text=f"{first}, {await ctx.call('wrap', {'what': order.what})}")


def agent() -> WorldAgent:
    """Make the agent."""
    handlers: dict[str, Any] = {"buy": _buy, "pick": _pick, "send": _send}
    shapes = [Shape(key, Order, Receipt, handler, entry=Muse) for key, handler in handlers.items()]
    lm = ScriptedLM(lambda call: {"reply": "Welcome to the shop."})
    return WorldAgent(WORKSPACE, lm=lm, tools=[tool(approval=True)(pay), tool(wrap), tool(deliver)], shapes=shapes)
