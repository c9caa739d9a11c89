"""MCP servers that are down, die, hang, lie or describe their tools wrongly: typed errors, and a usable agent."""

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from support.agents import failure
from support.leaks import canary
from support.longest_step import longest_step
from support.mcp_tools import agent_over, calls_in, listing, stdio, until
from support.raw_hosts import command, raw_host
from support.serving import recorded
from worldagent import Role
from worldagent.core.errors import (
    GraphChanged,
    McpServerForbidden,
    McpServerInvalid,
    McpServerUnavailable,
    PolicyInvalid,
    ToolFailed,
    UnknownFunction,
    WorldAgentError,
)
from worldagent.core.pauses import Approve
from worldagent.harness import Policy
from worldagent.harness.gate import Rule
from worldagent.mcp_client import HttpHost, StdioHost
from worldagent.mcp_client.tools import Mcp, McpServer

ASK = Policy(rules=(Rule(function=("t_fail", "t_echo"), decision="ask"),))


async def test_agent_starts_while_a_server_is_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    servers = {"t": stdio(tmp_path, allow=["echo"]), "down": McpServer(StdioHost(["no-such-program"]))}
    with caplog.at_level(logging.WARNING, "worldagent.mcp"):
        # What a rule is about may be there later.
        policy = Policy(rules=(Rule(function="down_*", decision="refuse"),))
        async with agent_over(tmp_path, servers, policy=policy) as agent:
            assert "there is no such program" in caplog.text
            assert not agent.get(Mcp)["down"].connected
            error = await failure(agent.call("down_read", {}))
            assert isinstance(error, McpServerUnavailable)
            assert error.retryable
            assert "the tools of MCP server 'down', such as 'down_read', are not known yet" in str(error)
            assert "there is no such program or folder" in str(error)
            assert isinstance(await failure(agent.call("t_nothing", {})), UnknownFunction)
            assert await agent.call("t_echo", {"text": "here"}) == "here"


async def test_a_server_that_comes_up_later_is_there_for_the_calls_after(tmp_path: Path) -> None:
    marker = tmp_path / "up"
    start = f"import os, sys; os.path.exists({str(marker)!r}) or sys.exit(3); os.execv(sys.argv[1], sys.argv[1:])"
    sound = stdio(tmp_path, allow=["echo"]).host
    assert isinstance(sound, StdioHost)
    late = McpServer(StdioHost([sys.executable, "-c", start, *sound.argv]), allow=["echo"])
    async with agent_over(tmp_path, late) as agent:
        assert isinstance(await failure(agent.call("t_echo", {"text": "x"})), McpServerUnavailable)
        marker.touch()
        # Each call that misses it has it looked for, in the background.
        async with asyncio.timeout(30):
            while isinstance(  # noqa: ASYNC110 -- the end of a try that had begun before is told nowhere
                given := await outcome(agent.call("t_echo", {"text": "x"})), McpServerUnavailable
            ):
                await asyncio.sleep(0.02)
        assert given == "x"
        assert agent.get(Mcp)["t"].connected


async def outcome(running: object) -> object:
    try:
        return await running  # type: ignore[misc]  # a call of the agent's
    except McpServerUnavailable as error:
        return error


async def test_a_server_that_dies_in_mid_call_fails_that_call_and_serves_the_next(tmp_path: Path) -> None:
    async with agent_over(tmp_path, stdio(tmp_path)) as agent:
        error = await failure(agent.thread("a").task("use", {"function": "t_die"}))
        assert isinstance(error, McpServerUnavailable)
        assert error.retryable
        assert "ended in the middle of a call" in str(error)
        assert await agent.call("t_echo", {"text": "again"}) == "again"
    assert [call["tool"] for call in calls_in(tmp_path)] == ["die", "echo"]
    assert len({call["pid"] for call in calls_in(tmp_path)}) == 2


@pytest.mark.parametrize("more", [{}, {"mode": "legacy", "elicitation": True}])
async def test_a_call_that_takes_too_long_fails_with_its_bound(tmp_path: Path, more: dict[str, Any]) -> None:
    async with agent_over(tmp_path, stdio(tmp_path, timeout=0.5, **more)) as agent:
        error = await failure(agent.call("t_hang", {}))
        assert isinstance(error, McpServerUnavailable)
        assert "'t' did not answer within 0.5 s" in str(error)
        assert "role" not in str(error)
        assert await agent.call("t_echo", {"text": "here"}) == "here"


async def test_only_tools_with_bad_descriptions_are_omitted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    objects = {"inputSchema": {"type": "object"}}
    tools: list[Any] = [
        {"name": "echo", **objects},
        {"name": "text", "inputSchema": {"type": "string"}},
        objects,
        {"name": "", **objects},
        {"name": "type", "inputSchema": {"type": "object", "properties": {"a": {"type": "strin"}}}},
        {"name": "far", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "https://example.com/x"}}}},
        {"name": "list", **objects, "outputSchema": {"type": "array"}},
        {"name": "required", "inputSchema": {"type": "object", "required": "a"}},
        {"name": "$schema", "inputSchema": {"type": "object", "$schema": 5}},
    ]
    with caplog.at_level(logging.WARNING, "worldagent.mcp"):
        left_out = await _left_out(tmp_path, listing(tmp_path, tools, allow=["*"]))
    assert "the tool 'far' is left out" in caplog.text
    assert "is not a JSON Schema (at properties.a.type: anyOf)" in left_out.pop("type")
    assert "refers to something that is not in it" in left_out.pop("far")
    assert left_out == {
        "": "it has no name",
        "text": "the schema of its arguments must describe an object",
        "None": "its description violates MCP",
        "list": "the schema of its result must describe an object",
        "required": "its description violates MCP (at inputSchema.required)",
        "$schema": "its description violates MCP (at inputSchema.$schema)",
    }


async def test_a_tool_that_is_a_long_list_does_not_take_the_server_down(tmp_path: Path) -> None:
    tools: list[Any] = [{"name": "echo", "inputSchema": {"type": "object"}}, [0] * 20_000]
    assert set(await _left_out(tmp_path, listing(tmp_path, tools, allow=["*"]))) == {"None"}


async def _left_out(home: Path, server: McpServer) -> dict[str, str]:
    """The tools of `t` that are left out; a good one of the same server can be called."""
    async with agent_over(home, server) as agent:
        assert agent.get(Mcp)["t"].connected
        assert await agent.call("t_echo", {"text": "fine"}) == "fine"
        return dict(agent.get(Mcp)["t"].left_out)


@pytest.mark.parametrize("depth", [90, 100_000])
async def test_depth_of_a_schema_never_takes_the_server_down(tmp_path: Path, depth: int) -> None:
    schema = '{"properties":{"}[":' * depth + "{}" + "}}" * depth
    params = f'{{"type": "object", "properties": {{"a": {schema}}}}}'
    bad = f'{{"name": "bad", "description": "\\"{{[", "inputSchema": {params}}}'
    good = '{"name": "echo", "inputSchema": {"type": "object"}}'
    left_out = await _left_out(tmp_path, listing(tmp_path, f"[{bad}, {good}]"))
    assert left_out == ({"bad": "its description is nested deeper than 190 levels"} if depth > 90 else {})


async def test_a_list_of_very_many_tools_does_not_hold_the_event_loop(tmp_path: Path) -> None:
    """What is left out is named. A tool with a wide schema is left out by itself."""
    wide = {f"a{number}": {"type": "string"} for number in range(5000)}
    deep = '{"name": "deep", "inputSchema": {"a": ' + "[" * 500 + "]" * 500 + "}}"
    tools: list[Any] = [
        {"name": "wide", "inputSchema": {"type": "object", "properties": wide}},
        *({"name": f"tool{number}", "inputSchema": {"type": "object"}} for number in range(20_000)),
    ]
    given = json.dumps(tools)[1:-1]
    host = listing(tmp_path, f"[{given}, {deep}]", offered=False, connect_timeout=60)
    async with agent_over(tmp_path / "other", listing(tmp_path / "other", tools[1:2])):
        pass  # so that all is imported
    async with asyncio.timeout(60):
        most, agent = await longest_step(agent_over(tmp_path, host).start())
    async with agent:
        assert most < 100_000  # calls of functions; reading all at once takes a million
        source = agent.get(Mcp)["t"]
        left_out = dict(source.left_out)
        assert len(source.functions) == 999
        assert left_out.pop("wide") == "its description has more than 4,096 values"
        assert left_out.pop("and 18,903 more") == "they are not read either"
        assert set(left_out.values()) == {"the server lists more than 1,000 tools"}
        assert len(left_out) == 99
        assert await agent.call("t_tool7", {}) == "fine"


async def test_a_result_of_very_many_values_fails_the_call(tmp_path: Path) -> None:
    """Nothing parses it, and the server stays connected."""
    server = listing(tmp_path, [{"name": "echo", "inputSchema": {"type": "object"}}], values=200_000)
    async with agent_over(tmp_path, server) as agent:
        error = await failure(agent.call("t_echo", {}))
        assert isinstance(error, McpServerInvalid), error
        assert "answered with too many values in one message; request less from it" in str(error)
        assert agent.get(Mcp)["t"].connected


@pytest.mark.requirement("H9")
async def test_a_rule_over_the_tools_of_a_server_that_lists_none_is_no_error(tmp_path: Path) -> None:
    """It is misspelt if other tools are there. A page that comes twice is read once."""
    policy = Policy(rules=(Rule(function="t_*", decision="refuse"),))
    async with agent_over(tmp_path, listing(tmp_path, []), policy=policy) as agent:
        assert agent.get(Mcp)["t"].connected
    echo = [{"name": "echo", "inputSchema": {"type": "object"}}]
    again = listing(tmp_path, echo, cursor="again")
    async with agent_over(tmp_path / "b", again, policy=policy) as agent:
        assert (set(agent.get(Mcp)["t"].functions), dict(agent.get(Mcp)["t"].left_out)) == ({"echo"}, {})
    misspelt = Policy(rules=(Rule(function="t_ecco", decision="refuse"),))
    with pytest.raises(PolicyInvalid, match="'t_ecco', which does not exist"):
        await agent_over(tmp_path / "c", listing(tmp_path, echo), policy=misspelt).start()


@pytest.mark.requirement("H10")
@pytest.mark.parametrize("same", [("a b", "a_b"), ("x" * 80, "x" * 90)], ids=["sanitised", "shortened"])
async def test_tools_of_one_server_with_the_same_name_are_all_left_out(tmp_path: Path, same: tuple[str, str]) -> None:
    """The order of the list does not decide which of them has the name."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in (*same, "echo")]
    left_out = await _left_out(tmp_path, listing(tmp_path, tools))
    assert set(left_out) == set(same)
    assert all(why.startswith("2 tools of this server have the name 't_") for why in left_out.values())
    if "a_b" in same:
        assert await _left_out(tmp_path / "b", listing(tmp_path, tools, allow=["a_b", "echo"])) == {}


@pytest.mark.parametrize("how", ["an error of its own", "the library's code for a lost connection"])
async def test_an_error_that_a_server_answers_fails_its_tool_whatever_its_code(tmp_path: Path, how: str) -> None:
    async with agent_over(tmp_path, McpServer(StdioHost(command(how)))) as agent:
        for _ in range(2):
            error = await failure(agent.call("t_role_list", {"scope_ids": {}}))
            assert isinstance(error, ToolFailed), error
            assert "rejected the call of its tool 'role_list' (MCP error " in error.problem
            assert not error.retryable
            assert "secret words" not in str(error)
        assert agent.get(Mcp)["t"].connected


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("401 Unauthorized", McpServerForbidden),
        ("404 Not Found", ToolFailed),  # without a session it says that there is no such method
        ("503 Busy", McpServerUnavailable),
    ],
)
async def test_http_status_of_a_call_decides_its_error(tmp_path: Path, how: str, kind: type[WorldAgentError]) -> None:
    async with (
        raw_host(how, kind="text/event-stream") as raw,
        agent_over(tmp_path, McpServer(HttpHost(raw.url))) as agent,
    ):
        error = await failure(agent.call("t_role_list", {"scope_ids": {}}))
        assert isinstance(error, kind), error


async def test_a_request_for_a_models_answer_is_refused(tmp_path: Path) -> None:
    for mode in ("auto", "legacy"):
        async with agent_over(tmp_path / mode, stdio(tmp_path, mode=mode)) as agent:
            assert isinstance(await failure(agent.call("t_sample", {})), ToolFailed)


async def test_a_paused_turn_whose_tool_changed_is_not_resumed(tmp_path: Path) -> None:
    async with agent_over(tmp_path, stdio(tmp_path), policy=ASK) as agent:
        paused = await agent.thread("a").task("use", {"function": "t_fail", "arguments": {"text": "x"}})
        await agent.call("t_change", {})
        await until(lambda: "fail" not in agent.get(Mcp)["t"].functions)
        with pytest.raises(GraphChanged, match="'t_fail'"):
            await agent.thread("a").resume({paused.pauses[0].id: Approve()})


async def test_a_paused_turn_whose_server_is_down_waits_for_it(tmp_path: Path) -> None:
    async with agent_over(tmp_path, stdio(tmp_path), policy=ASK) as agent:
        paused = await agent.thread("a").task("use", {"function": "t_echo", "arguments": {"text": "x"}})
    answer = {paused.pauses[0].id: Approve()}
    async with agent_over(tmp_path, McpServer(StdioHost(["no-such-program"])), policy=ASK) as agent:
        assert isinstance(await failure(agent.thread("a").resume(answer)), McpServerUnavailable)
    async with agent_over(tmp_path, stdio(tmp_path), policy=ASK) as agent:
        assert (await agent.thread("a").resume(answer)).result.value == "x"


@pytest.mark.requirement("R7", "T8")
async def test_no_role_travels_to_a_server(tmp_path: Path) -> None:
    """With a role at the tiers of a turn, nothing but the arguments of its calls reaches the server."""
    texts = [canary(40, "stored"), canary(40, "thread"), canary(40, "call")]
    sound, wire = stdio(tmp_path).host, tmp_path / "wire"
    assert isinstance(sound, StdioHost)
    async with agent_over(tmp_path, McpServer(StdioHost(recorded(wire, sound.argv)))) as agent:
        await agent.roles.put("workspace", Role("stored", texts[0]))
        thread = agent.thread("a")
        thread.role.set(Role("said", texts[1]))
        for function in ("t_echo", "t_fail", "t_count"):
            running = thread.task(
                "use", {"function": function, "arguments": {"text": "hello"}}, role=Role("called", texts[2])
            )
            if function == "t_fail":
                await failure(running)
            else:
                assert (await running).status == "done"
    sent = wire.with_suffix(".to").read_text()
    assert sent.count("hello") == 3
    assert not [text for text in texts if text in sent]
