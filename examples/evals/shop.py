"""An agent of a hat shop, to be evaluated. Without WORLDAGENT_LM its model is a script, so it needs no key."""

import os
from typing import Any

from worldagent import WorldAgent, tool
from worldagent.testing import ScriptedCall, ScriptedLM

PRICES = {"red": 12, "blue": 9}


@tool(risk="read_only")
async def price(color: str) -> str:
    """Look up what a hat costs."""
    return f"{PRICES[color]} euros" if color in PRICES else f"we do not have a {color} hat"


@tool(approval=True)
async def buy(color: str) -> str:
    """Buy a hat for the customer."""
    return f"bought the {color} hat"


def script(call: ScriptedCall) -> dict[str, Any]:
    """Play a model: it calls the tool that the message is about, and repeats the result."""
    message = call.fields["message"]
    color = next(color for color in ("red", "blue", "green") if color in message)
    if not call.steps:
        return {"reply": "", "calls": [{"tool": "buy" if "Buy" in message else "price", "arguments": {"color": color}}]}
    if "Buy" in message:
        return {"reply": "I could not buy it, because a person must approve that.", "calls": []}
    result = call.steps[-1].splitlines()[-1]
    return {"reply": f"Arr, {result}!" if call.role else f"The answer: {result}.", "calls": []}


def agent() -> WorldAgent:
    """Make the agent."""
    return WorldAgent("shop", lm=os.environ.get("WORLDAGENT_LM") or ScriptedLM(script), tools=[price, buy])
