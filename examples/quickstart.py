"""Tools, a role, an approval, a stream. Run: WORLDAGENT_LM=openai/gpt-4o OPENAI_API_KEY=... python quickstart.py"""

import asyncio

from worldagent import Approve, Role, WorldAgent, tool


@tool(risk="read_only")
def price(item: str) -> float:
    """Price of an item in the shop, in euros."""
    return {"hat": 20.0, "rope": 12.5}[item]


def buy(item: str) -> str:
    """Buy an item. A person is asked first: it does not say that it only reads."""
    return f"one {item} is on its way"


async def main() -> None:
    async with WorldAgent("shop", tools=[price, buy]) as agent:
        thread, role = agent.thread("t1"), Role("brief", "Answer in one short sentence.")
        async with thread.stream("Buy me a hat.", role=role) as turn:
            async for event in turn:
                print(event.type, getattr(event, "text", ""))
        if waiting := {pause.id: Approve() for pause in turn.turn.pauses}:
            print((await thread.resume(waiting, role=role)).text)


asyncio.run(main())
