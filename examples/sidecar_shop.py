"""An agent to try the clients of a sidecar with: `worldagent serve --app sidecar_shop:agent --stdio`, in this folder.

Its model is a script that needs no key. It counts, a word at a time. If a message asks it to buy something, the
payment needs an approval.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from pydantic import BaseModel

from worldagent import WorldAgent
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import tool
from worldagent.testing import ScriptedCall, ScriptedLM

PACE = float(os.environ.get("SHOP_PACE", "0.2"))  # seconds before each word
NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


class Order(BaseModel):
    """What is bought."""

    what: str


class Receipt(BaseModel):
    """What was paid."""

    text: str


@tool(approval=True)
async def pay(what: str) -> str:
    """Pay for something."""
    return f"paid for the {what}"


async def buy(order: Order, ctx: TaskContext) -> Receipt:
    """Buy something."""
    return Receipt(text=await ctx.call("pay", {"what": order.what}))


async def answer(call: ScriptedCall) -> Any:
    """What the model says: a plan to buy, its result, or numbers."""
    message = call.fields["message"]
    if not message.startswith("buy "):
        last = message.split()[-1]
        return spoken(NUMBERS[: NUMBERS.index(last) + 1] if last in NUMBERS else NUMBERS)
    if not call.steps:
        order = {"tool": "buy", "arguments": {"what": message.split()[-1]}}
        return {"reply": "I will see to it.", "calls": [order]}
    return spoken(["It", "is", "yours."] if "paid for" in call.steps[0] else ["Then", "not."])


async def spoken(words: Sequence[str]) -> AsyncGenerator[str]:
    """A reply as a model writes it, a word at a time."""
    yield "[[ ## reply ## ]]\n"
    for place, word in enumerate(words):
        await asyncio.sleep(PACE)
        yield f" {word}" if place else word
    yield "\n\n[[ ## calls ## ]]\n[]\n\n[[ ## completed ## ]]"


def agent() -> WorldAgent:
    """Make the agent."""
    shapes = [Shape("buy", Order, Receipt, buy, description="buys something")]
    return WorldAgent("shop", lm=ScriptedLM(answer), tools=[pay], shapes=shapes)
