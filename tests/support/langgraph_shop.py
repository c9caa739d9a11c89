"""The app of tests of LangGraph's server: a shop whose model is scripted, and users by their tokens.

A test copies this file to `shop.py`, next to the `langgraph.json` that ships.
"""

import os
from pathlib import Path
from typing import Any

from langgraph_sdk import Auth

from worldagent import Settings, Storage, Worker, WorldAgent, tool
from worldagent.testing import ScriptedCall, ScriptedLM

USERS = {"Bearer token-of-ana": "ana", "Bearer token-of-bo": "bo"}

auth = Auth()


@auth.authenticate
async def user_of(authorization: str | None) -> Auth.types.MinimalUserDict:
    """Find the user of a token."""
    if authorization not in USERS:
        raise Auth.exceptions.HTTPException(status_code=401, detail="unknown token")
    return {"identity": USERS[authorization]}


@tool(risk="write")
def buy(item: str) -> str:
    """Buy an item."""
    return f"one {item} is on its way"


def reply(call: ScriptedCall) -> dict[str, Any]:
    """What the model says: it asks the critic, or buys, and tells which words of roles it was shown."""
    if "request" in call.fields:
        return {"result": "It is dull." if call.role is None else "The critic has a role."}
    if not call.steps:
        asked = ("buy", {"item": "hat"}) if "buy" in call.fields["message"] else ("critic", {"request": "A text."})
        return {"reply": "One moment.", "calls": [{"tool": asked[0], "arguments": asked[1]}]}
    seen = sorted(word for word in ("workspace", "ana", "bo") if f"role of {word}" in (call.role or ""))
    return {"reply": f"{call.steps[-1].splitlines()[-1]} Roles: {', '.join(seen)}."}


def agent() -> WorldAgent:
    """Make the agent."""
    critic = Worker("critic", "Say what is wrong.", description="Finds what is wrong.")
    storage = Storage(home=Path(os.environ["SHOP_HOME"]))
    lm = ScriptedLM(reply, form="native")
    return WorldAgent("shop", lm=lm, tools=[buy], workers=[critic], storage=storage, settings=Settings())
