"""Servers that ask a person in the middle of a call: answered by `resume()`, in the same process or after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.agents import failure
from support.mcp_tools import agent_over, calls_in, stdio
from worldagent.core.errors import AnswerInvalid, NobodyToAsk, ToolFailed
from worldagent.core.pauses import Answer

MODES = ["auto", "legacy"]
TWICE = {"function": "t_ask", "arguments": {"times": 2}}


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("restart", [False, True], ids=["same process", "restart"])
@pytest.mark.parametrize("mode", MODES)
async def test_a_question_pauses_the_turn_and_its_answer_reaches_the_call(
    tmp_path: Path, mode: Any, restart: bool
) -> None:
    def open_agent() -> Any:
        return agent_over(tmp_path, stdio(tmp_path, mode=mode, elicitation=True))

    agent = await open_agent().start()
    try:
        turn = await agent.thread("a").task("use", TWICE)
        for number, answer in enumerate(({"colour": "red"}, {"colour": "blue"}), 1):
            [pause] = turn.pauses
            assert (turn.status, pause.kind) == ("paused", "question")
            assert pause.question == f"The MCP server 't' asks: Which colour, {number}?"
            assert pause.schema["properties"] == {"colour": {"enum": ["red", "blue"], "type": "string"}}
            if restart:
                await agent.aclose()
                agent = await open_agent().start()
            turn = await agent.thread("a").resume({pause.id: Answer(answer)})
        assert (turn.status, turn.result.value) == ("done", "red blue")
    finally:
        await agent.aclose()
    noted = calls_in(tmp_path)
    assert [call["arguments"] for call in noted if call["tool"] == "answered"] == [{"said": ["red", "blue"]}]
    # An older server's call stays open while the process lives; else each answer makes a call of its own.
    calls = [call for call in noted if call["tool"] == "ask"]
    assert len(calls) == (1 if mode == "legacy" and not restart else 3)


async def test_null_declines_and_an_invalid_answer_keeps_the_question_open(tmp_path: Path) -> None:
    async with agent_over(tmp_path, stdio(tmp_path, elicitation=True)) as agent:
        thread = agent.thread("a")
        turn = await thread.task("use", {"function": "t_ask"})
        [pause] = turn.pauses
        assert isinstance(await failure(thread.resume({pause.id: Answer({"colour": "green"})})), AnswerInvalid)
        turn = await thread.resume({pause.id: Answer(None)})
        assert turn.result.value == "decline"


async def test_questions_of_two_turns_at_once_get_each_its_own_answer(tmp_path: Path) -> None:
    async with agent_over(tmp_path, stdio(tmp_path, mode="legacy", elicitation=True)) as agent:
        paused = {name: await agent.thread(name).task("use", {"function": "t_ask"}) for name in ("red", "blue")}
        assert await agent.call("t_echo", {"text": "others go on"}) == "others go on"
        for name, turn in reversed(paused.items()):
            done = await agent.thread(name).resume({turn.pauses[0].id: Answer({"colour": name})})
            assert done.result.value == name


async def test_a_call_without_a_turn_cannot_ask(tmp_path: Path) -> None:
    async with agent_over(tmp_path, stdio(tmp_path, elicitation=True)) as agent:
        assert isinstance(await failure(agent.call("t_ask", {})), NobodyToAsk)
        assert await agent.call("t_echo", {"text": "here"}) == "here"


async def test_a_server_without_elicitation_is_refused(tmp_path: Path) -> None:
    async with agent_over(tmp_path, stdio(tmp_path)) as agent:
        assert isinstance(await failure(agent.call("t_ask", {})), ToolFailed)
    assert not [call for call in calls_in(tmp_path) if call["tool"] == "answered"]


async def test_a_cancelled_turn_gives_its_open_call_up(tmp_path: Path) -> None:
    async with agent_over(tmp_path, stdio(tmp_path, mode="legacy", elicitation=True)) as agent:
        await agent.thread("a").task("use", {"function": "t_ask"})
        assert await agent.thread("a").cancel()
        turn = await agent.thread("b").task("use", {"function": "t_ask"})
        done = await agent.thread("b").resume({turn.pauses[0].id: Answer({"colour": "red"})})
        assert done.result.value == "red"
