"""The agent that the sidecar and all workers of this deployment run: `--app shop:agent`."""

from worldagent import WorldAgent
from worldagent.harness import tool
from worldagent.scheduling import Queue

STOCK = {"bowler": 3, "fez": 0, "panama": 12}


@tool(risk="read_only")
async def stock(hat: str) -> str:
    """Look up how many hats of a kind are in stock."""
    return str(STOCK.get(hat, 0))


def agent() -> WorldAgent:
    """Make the agent. Its model, database and role host come from the environment."""
    return WorldAgent("shop", identity="You work in a hat shop.", tools=[stock], queue=Queue())
