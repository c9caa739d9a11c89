"""Calls that end their turn: servers that ask a person, and calls of which nothing is known, also after a kill."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, failure, scripted_agent
from support.lying_server import command
from support.mcp_tools import USE, agent_over, calls_in, over_http, stdio, until
from support.processes import ending, start_script
from support.role_hosts import free_port
from worldagent.core.errors import (
    AnswerInvalid,
    EffectLost,
    McpServerInvalid,
    McpServerUnavailable,
    NobodyToAsk,
    ToolFailed,
)
from worldagent.core.pauses import Answer, Happened, NotHappened
from worldagent.harness import tool
from worldagent.mcp_client import HttpHost, StdioHost
from worldagent.mcp_client.tools import McpServer, rounds

MODES = ["auto", "legacy"]
TWICE = {"function": "t_ask", "arguments": {"times": 2}}


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("restart", [False, True], ids=["same process", "restart"])
@pytest.mark.parametrize("mode", MODES)
async def test_question_pauses_and_its_answer_reaches_the_call(tmp_path: Path, mode: Any, restart: bool) -> None:
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


@pytest.mark.parametrize("asked", [7, {"bogus": 1}, {"message": "Your password?", "schema": {"type": "object"}}])
async def test_result_that_looks_like_a_question_is_refused(tmp_path: Path, asked: Any) -> None:
    look = {"name": "look", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}}
    answer = {"content": [], "structuredContent": {"$asks": [asked]}}
    host = StdioHost(command(tmp_path / "server", {"tools": [look], "answers": {"look": answer}}), mode="legacy")
    async with agent_over(tmp_path, McpServer(host, elicitation=True)) as agent:
        error = await failure(agent.thread("a").task("use", {"function": "t_look"}))
    assert isinstance(error, McpServerInvalid)
    assert "MCP server 't' must answer without the key '$asks'" in str(error)


async def test_a_call_without_a_turn_cannot_ask(tmp_path: Path) -> None:
    async with agent_over(tmp_path, stdio(tmp_path, elicitation=True)) as agent:
        assert isinstance(await failure(agent.call("t_ask", {})), NobodyToAsk)
        assert await agent.call("t_echo", {"text": "here"}) == "here"


async def test_a_server_that_asks_too_often_fails_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MAX_QUESTIONS", 1)
    async with agent_over(tmp_path, stdio(tmp_path, mode="legacy", elicitation=True)) as agent:
        thread = agent.thread("a")
        [pause] = (await thread.task("use", TWICE)).pauses
        error = await failure(thread.resume({pause.id: Answer({"colour": "red"})}))
        assert "'t' must ask at most 1 questions in one call" in str(error)


async def test_a_call_waits_for_another_one_no_longer_than_its_timeout() -> None:
    lock = asyncio.Lock()
    with pytest.raises(McpServerUnavailable, match=r"'t' was busy with another call for more than 0\.01 s"):
        async with rounds._held(lock, 1, "t"), rounds._held(lock, 0.01, "t"):
            pass


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


# --- calls without an answer ------------------------------------------------------------------------------------------


ECHO = {"function": "t_echo", "arguments": {"text": "hello"}}


@pytest.mark.requirement("T5")
@pytest.mark.parametrize(("elicitation", "anew"), [(False, True), (True, False)])
async def test_call_to_an_unreached_server_is_made_at_resume(tmp_path: Path, elicitation: bool, anew: bool) -> None:
    port = free_port()
    server = McpServer(HttpHost(f"http://127.0.0.1:{port}/mcp"), elicitation=elicitation)
    async with over_http(tmp_path, port=port):
        agent = await agent_over(tmp_path, server).start()
        assert await agent.call("t_echo", {"text": "there"}) == "there"
    assert isinstance(await failure(agent.call("t_echo", {"text": "gone"})), McpServerUnavailable)  # it is noticed
    error = await failure(agent.thread("a").task("use", ECHO))
    assert isinstance(error, McpServerUnavailable)
    assert "could not be reached" in error.problem
    async with over_http(tmp_path, port=port):
        if anew:
            await agent.aclose()
            agent = await agent_over(tmp_path, server).start()
        turn = await agent.thread("a").resume()
        assert (turn.status, turn.pauses) == ("done", ())
        assert turn.result.value == "hello"
        await agent.aclose()
    assert [call["arguments"]["text"] for call in calls_in(tmp_path)] == ["there", "hello"]


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("elicitation", [False, True])
async def test_a_call_whose_server_died_with_it_is_asked_about(tmp_path: Path, elicitation: bool) -> None:
    async with agent_over(tmp_path, stdio(tmp_path, elicitation=elicitation)) as agent:
        thread = agent.thread("a")
        assert isinstance(await failure(thread.task("use", {"function": "t_die"})), McpServerUnavailable)
        [pause] = (await thread.resume()).pauses
        assert pause.kind == "uncertain"
        await failure(thread.resume({pause.id: NotHappened()}))
    assert [call["tool"] for call in calls_in(tmp_path)] == ["die"]


@pytest.mark.requirement("T5")
async def test_function_with_an_effect_before_its_call_to_a_lost_server_is_asked_about(tmp_path: Path) -> None:
    """What is sure of the server's call is not sure of the one around it."""
    done = list[str]()
    port = free_port()
    server = McpServer(HttpHost(f"http://127.0.0.1:{port}/mcp"))
    async with over_http(tmp_path, port=port):
        other = await agent_over(tmp_path / "other", server).start()
    assert isinstance(await failure(other.call("t_echo", {"text": "gone"})), McpServerUnavailable)

    @tool(risk="write")
    async def both(text: str) -> Any:
        done.append(text)
        given = {"function": "t_echo", "arguments": {"text": text}}
        return (await other.thread("own").task("use", given)).text

    async with scripted_agent(tmp_path, answering(), tools=[both], shapes=[USE]) as agent:
        thread = agent.thread("a")
        given = {"function": "both", "arguments": {"text": "hello"}}
        assert isinstance(await failure(thread.task("use", given)), McpServerUnavailable)
        [pause] = (await thread.resume()).pauses
        assert (pause.kind, done) == ("uncertain", ["hello"])
    await other.aclose()


CHILD = """
import asyncio, json, sys
from pathlib import Path
from support.mcp_tools import agent_over, stdio

async def main(home, server, call):
    async with agent_over(home, stdio(home, **server)) as agent:
        await agent.thread("a").task("use", call)

asyncio.run(main(Path(sys.argv[1]), *map(json.loads, sys.argv[2:])))
"""


async def killed_in_a_call(home: Path, call: Any, **server: Any) -> None:
    """Kill a process while the server works on its call."""
    async with ending(await start_script(CHILD, home, json.dumps(server), json.dumps(call))):
        await until(lambda: calls_in(home))


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("elicitation", [False, True])
async def test_call_that_ran_when_the_process_was_killed_is_asked_about(tmp_path: Path, elicitation: bool) -> None:
    await killed_in_a_call(tmp_path, {"function": "t_hang"}, elicitation=elicitation)
    async with agent_over(tmp_path, stdio(tmp_path, elicitation=elicitation)) as agent:
        thread = agent.thread("a")
        turn = await thread.resume()
        [pause] = turn.pauses
        assert (turn.status, pause.kind, pause.function) == ("paused", "uncertain", "t_hang")
        assert isinstance(await failure(thread.resume({pause.id: Happened(7)})), AnswerInvalid)
        if elicitation:
            turn = await thread.resume({pause.id: Happened("it did")})
            assert turn.result.value == "it did"
        else:
            assert isinstance(await failure(thread.resume({pause.id: NotHappened()})), EffectLost)
    assert [call["tool"] for call in calls_in(tmp_path)] == ["hang"]


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("elicitation", [False, True])
@pytest.mark.parametrize(
    ("function", "trust"),
    [
        ("echo", {"trust_annotations": True}),
        ("echo", {"risk": {"echo": "read_only"}}),
        ("renew", {"trust_annotations": True}),
    ],
    ids=["hint that it reads", "risk of the host", "hint that it can be repeated"],
)
async def test_call_that_can_be_repeated_runs_again_after_a_kill(
    tmp_path: Path, function: str, trust: dict[str, Any], elicitation: bool
) -> None:
    server: dict[str, Any] = {"broken": "hangs once", "elicitation": elicitation, **trust}
    await killed_in_a_call(tmp_path, {**ECHO, "function": f"t_{function}"}, **server)
    async with agent_over(tmp_path, stdio(tmp_path, **server)) as agent:
        turn = await agent.thread("a").resume()
    assert (turn.status, turn.pauses, turn.result.value) == ("done", (), "hello")
    assert [call["tool"] for call in calls_in(tmp_path)] == [function, function]
