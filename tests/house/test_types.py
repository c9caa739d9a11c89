"""What type checkers make of the public API: `assert_type` is checked by mypy and pyright, and the code also runs."""

from pathlib import Path
from typing import assert_type

from worldagent import Role, Storage, WorldAgent, tool
from worldagent.agent import Thread, ThreadState, Turn, TurnStream
from worldagent.core.events import TurnEvent
from worldagent.core.pauses import Pause
from worldagent.harness import Function
from worldagent.memory import Message
from worldagent.testing import ScriptedLM


@tool(risk="read_only")
async def look_up(name: str) -> str:
    """Look something up."""
    return name


async def test_a_host_gets_the_types_that_it_is_promised(tmp_path: Path) -> None:
    assert_type(look_up, Function)
    lm = ScriptedLM([{"reply": "Hello."}, {"reply": "Again."}])
    async with WorldAgent("typed", lm=lm, tools=[look_up], storage=Storage(home=tmp_path)) as agent:
        assert_type(agent, WorldAgent)
        thread = agent.thread("t", account="ana")
        assert_type(thread, Thread)
        turn = await thread.converse("Hi", role=Role("critic", "Be brief."))
        assert_type(turn, Turn)
        assert_type(turn.text, str)
        assert_type(turn.pauses, tuple[Pause, ...])
        stream = thread.stream("And?")
        assert_type(stream, TurnStream)
        async with stream as events:
            async for event in events:
                assert_type(event, TurnEvent)
        assert_type(await stream.wait(), Turn)
        assert_type(await thread.history(), tuple[Message, ...])
        assert_type(await agent.threads(), tuple[ThreadState, ...])
