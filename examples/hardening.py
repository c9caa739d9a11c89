"""A worker that calls a tool that calls a worker, and how it hardens into Python step by step: no caller changes.

    python examples/hardening.py

At first models decide everything. Once it is clear what the inner worker does, a function of the same name replaces it.
Then a function replaces the outer worker. The caller of `refund` notices only the speed. The models are scripted, so
the program runs without a key; the functions are real.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from pathlib import Path
from typing import Any

# Otherwise dspy asks the network for a price list at its first call.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

from worldagent import Storage, WorldAgent
from worldagent.harness import CallContext, Function, Worker, flow, tool
from worldagent.testing import ScriptedCall, ScriptedLM

LETTER = "Hello! My order 1007 came broken. Best, Ana"
ORDERS = {"1007": 30, "1008": 250}
LIMIT = 100

# --- 1: models decide -----------------------------------------------------------------------------------------------

READER = Worker("reader", "Find the number of the order in a letter. Answer with the number alone.")
REFUND = Worker(
    "refund",
    "Decide about a refund. Look the order up first. Up to 100 is refunded, more is for a person to decide.",
    description="decides about refunds",
    tools=("order_of",),
)


@flow
async def order_of(ctx: CallContext, letter: str) -> str:
    """Find the order of a letter, and what it cost."""
    number = await ctx.call("reader", {"request": letter})
    return f"order {number}: {ORDERS.get(number, 'unknown')}"


# --- 2: the inner worker has become a function ------------------------------------------------------------------------


@tool(name="reader", risk="read_only")
def read_number(request: str) -> str:
    """Find the number of the order in a letter."""
    found = re.search(r"\border (\d+)", request)
    return found[1] if found else "none"


# --- 3: and so has the outer worker ---------------------------------------------------------------------------------


@flow(name="refund")
async def decide(ctx: CallContext, request: str) -> str:
    """Decide about refunds."""
    order = await ctx.call("order_of", {"letter": request})
    price = order.rpartition(" ")[2]
    return "Refund it." if price.isdigit() and int(price) <= LIMIT else "A person decides."


STAGES: dict[str, list[Worker | Function]] = {
    "models think": [REFUND, READER],
    "the reader is Python": [REFUND, read_number],
    "all of it is Python": [decide, read_number],
}


def scripted(call: ScriptedCall) -> dict[str, Any]:
    """What the models say: the conversation hands over, `refund` looks up before it decides, `reader` reads."""
    if "message" in call.fields:
        asked = [{"tool": "refund", "arguments": {"request": LETTER}}]
        return {
            "reply": "Refund it." if call.messages[1:-1] else "",
            "calls": [] if call.messages[1:-1] else asked,
        }
    if READER.instructions in call.system:
        return {"result": "1007"}
    if any("order 1007: 30" in text for _, text in call.messages):
        return {"calls": [], "result": "Refund it."}
    return {"calls": [{"tool": "order_of", "arguments": {"letter": LETTER}}], "result": ""}


async def main() -> None:
    """Run each stage behind the same two callers: code, and a conversation."""
    for stage, workers in STAGES.items():
        lm = ScriptedLM(scripted)
        home = Path(tempfile.mkdtemp(prefix="worldagent-"))
        async with WorldAgent("shop", lm=lm, workers=workers, tools=[order_of], storage=Storage(home=home)) as agent:
            by_code = await agent.call("refund", {"request": LETTER})
            thought = len(lm.calls)
            turn = await agent.thread("t1").converse("What about Ana's letter?")
        print(f"{stage}: {by_code!r} to code, {turn.text!r} in a conversation; {thought} model calls below refund")


if __name__ == "__main__":
    asyncio.run(main())
