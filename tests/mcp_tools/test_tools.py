"""Tools of MCP servers as Functions: names, schemas, results, risk, allow-lists; of servers from npm too."""

from pathlib import Path
from typing import Any

import pytest

from support.agents import Muse, failure, scripted_agent, shape
from support.mcp_tools import agent_over, calls_in, listing, npm, over_http, stdio, until
from worldagent.core import Scope
from worldagent.core.errors import (
    AttachmentMissing,
    InvalidArgument,
    NameTaken,
    ParamsInvalid,
    ResultInvalid,
    ToolFailed,
    UnknownFunction,
)
from worldagent.core.events import CallEnded, CallProgress, CallStarted
from worldagent.core.pauses import Approve
from worldagent.graphs import TaskContext
from worldagent.harness import Policy, Worker, tool
from worldagent.harness.gate import Rule
from worldagent.mcp_client.tools import Mcp, McpResource, McpServer
from worldagent.testing import ScriptedLM

MODES = ["auto", "legacy"]
HUB = {"name": "hub_create_issue", "inputSchema": {"type": "object"}}


@tool(risk="read_only")
async def t_echo(text: str) -> str:
    return text


@pytest.mark.parametrize("mode", MODES)
async def test_a_tool_is_called_as_any_function_and_its_result_is_checked(tmp_path: Path, mode: str) -> None:
    async with agent_over(tmp_path, stdio(tmp_path, mode=mode)) as agent:
        assert await agent.call("t_echo", {"text": "hello"}) == "hello"
        assert await agent.call("t_count", {"text": "hello"}) == {"n": 5}
        assert isinstance(await failure(agent.call("t_echo", {"texd": "x"})), ParamsInvalid)
    assert [(call["tool"], call["arguments"]) for call in calls_in(tmp_path)] == [
        ("echo", {"text": "hello"}),
        ("count", {"text": "hello"}),
    ]


async def test_a_server_over_http_is_used_likewise(tmp_path: Path) -> None:
    async with over_http(tmp_path) as host, agent_over(tmp_path, McpServer(host)) as agent:
        assert await agent.call("t_echo", {"text": "hello"}) == "hello"
        assert (await agent.thread("a").task("use", {"function": "t_slow"})).result.value == "done"
        with pytest.raises(ToolFailed, match="'fail' of MCP server 't' failed, and says: no fail"):
            await agent.call("t_fail", {"text": "x"})


@pytest.mark.requirement("T11", "H10")
async def test_tools_of_a_server_that_is_not_offered_are_called_by_code_and_workers_alone(tmp_path: Path) -> None:
    reader = Worker("reader", "You read.", "reads", tools=("t_echo",))
    calling = {"calls": [{"tool": "t_echo", "arguments": {"text": "hello"}}]}
    asking = {"reply": "", "calls": [{"tool": "reader", "arguments": {"request": "Read it."}}]}
    lm = ScriptedLM([asking, calling, {"result": "Read."}, {"reply": "Done."}], form="native")
    servers = {"t": stdio(tmp_path, offered=False), "open": listing(tmp_path / "open", [{**HUB, "name": "issue"}])}
    free = Policy(rules=(Rule(decision="approve", function="t_*"),))
    async with agent_over(tmp_path, servers, lm, workers=[reader], policy=free) as agent:
        assert (await agent.thread("a").converse("Go")).text == "Done."
        assert await agent.call("t_echo", {"text": "by code"}) == "by code"
    assert [call.tools for call in lm.calls] == [
        ("open_issue", "reader"),
        ("t_echo",),
        ("t_echo",),
        ("open_issue", "reader"),
    ]
    assert [call["arguments"]["text"] for call in calls_in(tmp_path)] == ["hello", "by code"]


@pytest.mark.requirement("H10")
async def test_names_are_made_of_the_prefix_and_valid_characters(tmp_path: Path) -> None:
    servers = {"t": stdio(tmp_path, prefix="git."), "u": stdio(tmp_path, prefix="git_h", allow=["echo"])}
    async with agent_over(tmp_path, servers) as agent:
        assert await agent.call("git.odd_name_", {"text": "odd"}) == "odd"
        assert await agent.call("git_hecho", {"text": "other"}) == "other"
        assert agent.get(Mcp)["t"].functions["odd name!"].name == "git.odd_name_"
        assert "t_echo" not in [made.name for made in agent.get(Mcp)["t"].functions.values()]


@pytest.mark.requirement("H10")
async def test_a_tool_and_a_function_of_one_name_are_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(NameTaken, match="'t_echo', one of them the tool 'echo' of MCP server 't'"):
        await agent_over(tmp_path, stdio(tmp_path), tools=[t_echo]).start()


PREFIXES: dict[str, dict[str, dict[str, Any]]] = {
    "names": {"git": {}, "git_hub": {}},
    "no prefix": {"a": {"prefix": ""}, "b": {}},
    "a name that is written otherwise": {"git hub": {}, "git": {}},
}


@pytest.mark.requirement("H9", "H10")
@pytest.mark.parametrize("case", PREFIXES)
async def test_servers_of_which_one_could_take_the_other_ones_tool_names_are_refused(tmp_path: Path, case: str) -> None:
    servers = {name: stdio(tmp_path, **more) for name, more in PREFIXES[case].items()}
    with pytest.raises(NameTaken, match=r"could take the name of one of MCP server .* begins the prefix") as caught:
        agent_over(tmp_path, servers)
    assert "`prefix`" in caught.value.remedy


@pytest.mark.requirement("H9")
@pytest.mark.parametrize(
    ("options", "risks"),
    [
        ({}, ("write", "network")),
        ({"trust_annotations": True}, ("read_only",)),
        ({"risk": {"e*": "network", "*": "destructive"}}, ("network",)),
    ],
    ids=["untrusted", "trusted", "set"],
)
async def test_risk_annotations_need_trust(tmp_path: Path, options: dict[str, Any], risks: tuple[str, ...]) -> None:
    async with agent_over(tmp_path, stdio(tmp_path, **options)) as agent:
        echo = agent.get(Mcp)["t"].functions["echo"]
        assert echo.risk == risks
        assert echo.untrusted
        assert echo.kind == "leaf"
        assert echo.description == "echo of the test server (Its server says: reads only, stays inside.)"


@pytest.mark.requirement("H9")
async def test_the_error_text_of_a_tool_marks_the_turn_as_its_result_does(tmp_path: Path) -> None:
    """A text of a stranger's that a model reads is one, whether it comes as a result or as an error."""
    written: list[str] = []

    @tool(risk="write")
    async def write(what: str) -> str:
        written.append(what)
        return what

    async def handler(ctx: TaskContext) -> str:
        await ctx.predict(Muse, about="it")
        await ctx.call("write", {"what": "before"})
        assert isinstance(await failure(ctx.call("t_fail", {"text": "x"})), ToolFailed)
        return str(await ctx.call("write", {"what": "after"}))

    async with scripted_agent(
        tmp_path,
        ScriptedLM([{"thought": "Hm."}]),
        mcp={"t": stdio(tmp_path)},
        tools=[write],
        shapes=[shape(handler, entry=Muse)],
        policy=Policy(rules=(Rule(function="*", decision="approve"),)),
    ) as agent:
        [pause] = (await agent.thread("a").task("job", {})).pauses
    assert (pause.function, pause.arguments, written) == ("write", {"what": "after"}, ["before"])
    assert pause.reason == "the turn has read untrusted results of: t_fail"


async def test_a_result_that_the_schema_forbids_or_that_is_too_long_is_refused(tmp_path: Path) -> None:
    async with agent_over(tmp_path, stdio(tmp_path, broken="wrong result", result_limit=100)) as agent:
        error = await failure(agent.call("t_count", {"text": "x"}))
        assert isinstance(error, ResultInvalid)
        assert "n: should be integer" in str(error)
        assert "many" not in str(error)
        assert await agent.call("t_huge", {"size": 98}) == "x" * 98
        with pytest.raises(ResultInvalid, match="must have at most 100 characters, got 101"):
            await agent.call("t_huge", {"size": 99})


async def test_images_are_kept_as_attachments(tmp_path: Path) -> None:
    async with agent_over(tmp_path, stdio(tmp_path)) as agent:
        [block] = await agent.call("t_picture", {})
        assert (block["type"], block["media_type"], block["bytes"]) == ("image", "image/png", 70)
        picture = block["attachment"]["sha256"]
        assert len((await agent.attachments.open(picture)).read()) == 70
        ana, bob = Scope(workspace="novel", account="ana"), Scope(workspace="novel", account="bob")
        await agent.thread("a", account="ana").task("use", {"function": "t_picture"})
        assert len(await agent.attachments.reached_by(ana).read(picture)) == 70
        with pytest.raises(AttachmentMissing):
            await agent.attachments.reached_by(bob).read(picture)


async def test_progress_arrives_as_events_within_those_of_the_call(tmp_path: Path) -> None:
    policy = Policy(rules=(Rule(function="t_slow", decision="ask"),))
    async with agent_over(tmp_path, stdio(tmp_path), policy=policy) as agent:
        turn = await agent.thread("a").task("use", {"function": "t_slow"})
        async with agent.thread("a").stream_resume({turn.pauses[0].id: Approve()}) as stream:
            events = [event async for event in stream if isinstance(event, CallStarted | CallProgress | CallEnded)]
    assert events[0].type == "call_started"
    assert events[-1].type == "call_ended"
    told = [event for event in events if isinstance(event, CallProgress)]
    said = [(event.progress, event.total, event.message) for event in told]
    # Those that come too fast are left out, but for the last one.
    assert said in ([(1, 3, "step 1"), (3, 3, "step 3")], [(n, 3, f"step {n}") for n in (1, 2, 3)])
    assert {event.call_id for event in events} == {events[0].call_id}


async def test_resources_are_listed_and_read_by_code_and_by_a_function(tmp_path: Path) -> None:
    async with agent_over(tmp_path, stdio(tmp_path)) as agent:
        assert await agent.get(Mcp)["t"].resources() == (
            McpResource(uri="note://one", name="one", media_type="text/plain"),
        )
        contents = [{"uri": "note://one", "text": "what is in it"}]
        assert await agent.get(Mcp)["t"].read("note://one") == contents
        assert await agent.call("t_read_resource", {"uri": "note://one"}) == contents
        function = agent.get(Mcp)["t"].functions["read_resource"]
        assert (function.risk, function.untrusted) == (("network",), True)
        with pytest.raises(InvalidArgument, match="no MCP server 'x'"):
            agent.get(Mcp)["x"]


@pytest.mark.parametrize("mode", MODES)
async def test_changes_of_the_list_are_followed_under_the_same_allow_list(tmp_path: Path, mode: str) -> None:
    async with (
        agent_over(tmp_path, stdio(tmp_path, mode=mode)) as agent,
        agent_over(tmp_path / "other", stdio(tmp_path, mode=mode, allow=["change", "fail"])) as narrow,
    ):
        await agent.call("t_change", {})
        await until(lambda: "added" in agent.get(Mcp)["t"].functions)
        assert await agent.call("t_added", {"text": "new"}) == "new"
        assert isinstance(await failure(agent.call("t_fail", {"text": "x"})), UnknownFunction)
        await narrow.call("t_change", {})
        await until(lambda: list(narrow.get(Mcp)["t"].functions) == ["change"])


async def test_files_are_read_and_written_inside_its_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("what stands there")
    server = McpServer(npm("filesystem", folder), prefix="fs_", risk={"read_*": "read_only", "list_*": "read_only"})
    async with agent_over(tmp_path, server) as agent:
        assert agent.get(Mcp)["t"].functions["read_text_file"].risk == ("read_only",)
        assert agent.get(Mcp)["t"].functions["write_file"].risk == ("write", "network")
        read = await agent.call("fs_read_text_file", {"path": str(folder / "a.txt")})
        assert read == {"content": "what stands there"}
        await agent.call("fs_write_file", {"path": str(folder / "b.txt"), "content": "new"})
        assert (folder / "b.txt").read_text() == "new"
        with pytest.raises(ToolFailed, match="denied"):
            await agent.call("fs_read_text_file", {"path": "/etc/passwd"})
        assert isinstance(await failure(agent.call("fs_read_text_file", {"paths": 1})), ParamsInvalid)


async def test_the_server_that_has_everything(tmp_path: Path) -> None:
    async with agent_over(tmp_path, McpServer(npm("everything"))) as agent:
        source = agent.get(Mcp)["t"]
        assert not source.left_out
        assert await agent.call("t_echo", {"message": "hello"}) == "Echo: hello"
        assert "structuredContent" not in str(await agent.call("t_get-structured-content", {"location": "Chicago"}))
        assert [block["type"] for block in await agent.call("t_get-tiny-image", {})].count("image") == 1
        assert await source.resources()
