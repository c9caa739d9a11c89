"""An app for `--app support.painter:agent`: its tool paints until there is a file `go`."""

from typing import Any

from support.agents import approving
from support.processes import eventually
from support.shop import home
from worldagent import WorldAgent, tool
from worldagent.harness import Policy
from worldagent.testing import ScriptedCall, ScriptedLM

BOUND = 600  # seconds: more than any test has


@tool
async def paint(thing: str) -> str:
    """Paint a thing."""
    (home() / "begun").touch()
    assert await eventually((home() / "go").exists, BOUND)
    return f"painted {thing}"


def _reply(call: ScriptedCall) -> dict[str, Any]:
    read = "\n".join(map(str, call.messages))
    if "Paint" in read and "painted door" not in read:
        return {"reply": "", "calls": [{"tool": "paint", "arguments": {"thing": "door"}}]}
    return {"reply": "In blue." if "blue" in read else "In red."}


def agent() -> WorldAgent:
    """Make the agent."""
    return WorldAgent("shop", lm=ScriptedLM(_reply), tools=[paint], policy=Policy(rules=(approving("paint"),)))
