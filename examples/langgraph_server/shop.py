"""The agent of a shop for a LangGraph server: `langgraph dev --allow-blocking` in this folder. It needs a model.

`python shop.py` prints the drawing of its graph for Mermaid.
"""

import asyncio
from pathlib import Path

from worldagent import Settings, Storage, Worker, WorldAgent, tool


@tool(risk="read_only")
def price(item: str) -> float:
    """Look up the price of an item, in euros."""
    return {"hat": 20.0, "rope": 12.5}[item]


@tool(risk="write")
def buy(item: str) -> str:
    """Buy an item. A person approves it."""
    return f"one {item} is on its way"


def agent() -> WorldAgent:
    """Make the agent. The variable WORLDAGENT_LM names its model."""
    critic = Worker("critic", "Say what is wrong with a text.", description="Finds what is wrong with a text.")
    lm, storage = Settings().lm or "local", Storage(home=Path("home"))
    return WorldAgent("shop", identity="You sell things.", lm=lm, tools=[price, buy], workers=[critic], storage=storage)


async def main() -> None:
    """Print the drawing."""
    async with agent() as shop:
        print(shop.graph().get_graph(xray=True).draw_mermaid())


if __name__ == "__main__":
    asyncio.run(main())
