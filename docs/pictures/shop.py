"""The agent of the chat in `chat.svg`, with the tools of the quickstart: `worldagent chat --app shop:agent`."""

from worldagent import WorldAgent, tool


@tool(risk="read_only")
def price(item: str) -> float:
    """Look up the price of an item, in euros."""
    return {"hat": 20.0, "rope": 12.5}[item]


@tool(risk="write")
def buy(item: str) -> str:
    """Buy an item."""
    return f"one {item} is on its way"


def agent() -> WorldAgent:
    """Make the agent; its model and its home are those of the settings."""
    return WorldAgent("shop", tools=[price, buy])
