# A tool, a role, an approval, a stream. Run: WORLDAGENT_LM=openai/gpt-4o OPENAI_API_KEY=... python quickstart.py
# The thread "quickstart" is kept in your data folder, so a second run continues it.
import asyncio

from worldagent import Approve, Role, WorldAgent


def buy(item: str) -> str:  # needs an approval, because it declares no risk
    """Buy an item in the shop."""
    return f"one {item} is on its way"


async def main() -> None:
    async with WorldAgent("shop", tools=[buy]) as agent:
        thread, role = agent.thread("quickstart"), Role("brief", "Answer in one short sentence.")
        streams = [thread.stream("Buy me a hat.", role=role)]
        for stream in streams:  # a turn that waits for an answer is resumed in another stream
            async with stream:
                async for event in stream:
                    print(event.text if event.type == "text_delta" else "", end="", flush=True)
            print("", *(f"[pause_opened: {pause.function} {pause.arguments}]" for pause in stream.turn.pauses))
            if answers := {pause.id: Approve() for pause in stream.turn.pauses}:
                streams.append(thread.stream_resume(answers, role=role))


asyncio.run(main())
