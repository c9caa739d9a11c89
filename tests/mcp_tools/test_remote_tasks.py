"""Calls that a server answers with a task: it is followed to its end, also after a kill of either side."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.agents import approving, failure, refused, streamed
from support.databases import Engine, on_every_database, rows_of
from support.inbox import ended
from support.kill_remote import STEPS
from support.mcp_tools import BOUND, agent_over, until
from support.processes import ending, run_program, start_script
from support.role_host_stub import in_thread
from support.task_server import EXTENSION, app, command, requests_in
from worldagent import Policy, Worker, WorldAgent
from worldagent.core.errors import (
    AnswerInvalid,
    CallRefused,
    CallTimeout,
    EffectLost,
    McpServerInvalid,
    McpServerUnavailable,
    NobodyToAsk,
    ToolFailed,
    TurnTimeout,
)
from worldagent.core.events import CallProgress
from worldagent.core.pauses import Answer, Happened, NotHappened, RunAgain
from worldagent.mcp_client import HttpHost, StdioHost
from worldagent.mcp_client.tools import Mcp, McpServer
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

READS = {"risk": {"*": "read_only"}}


def over(home: Path, *, mode: str = "", settings: Any = None, clock: Any = None, **more: Any) -> WorldAgent:
    """An agent over a server with tasks, whose folder is `server` in the home."""
    argv = command(home / "server", mode)
    return agent_over(home, McpServer(StdioHost(argv), **more), settings=settings, clock=clock)


def asked_of(home: Path, method: str) -> list[dict[str, Any]]:
    """The params of the requests of a method that the server got."""
    return [each["params"] for each in requests_in(home / "server", method)]


def effects(home: Path) -> list[str]:
    return (home / "server" / "effects").read_text().split()


def meet(home: Path, when: str, method: str, how: str) -> None:
    (home / "server").mkdir(exist_ok=True)
    (home / "server" / "fate").write_text(json.dumps([when, method, how]))


def to(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"function": f"t_{tool}", "arguments": arguments}


# --- to the end -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("T5")
@pytest.mark.parametrize(
    ("tool", "looks", "result"), [("at_once", 0, "at once"), ("done", 1, "worked 0"), ("work", 3, "worked 2")]
)
async def test_call_returns_the_result_of_its_task(tmp_path: Path, tool: str, looks: int, result: str) -> None:
    async with over(tmp_path) as agent:
        assert await agent.call(f"t_{tool}", {}) == result
        turn = await agent.thread("a").task("use", to(tool))
        assert (turn.status, turn.result.value) == ("done", result)
    assert effects(tmp_path) == [tool, tool]
    assert len(asked_of(tmp_path, "tasks/get")) == 2 * looks
    assert asked_of(tmp_path, "tasks/cancel") == []
    assert all(each["offers"] == {EXTENSION: {}} for each in requests_in(tmp_path / "server"))


async def test_status_messages_are_progress_of_the_call(tmp_path: Path) -> None:
    async with over(tmp_path) as agent:
        _, events = await streamed(agent.thread("a").stream_task("use", to("work", polls=3)))
    told = [(each.progress, each.message) for each in events if each.type == "call_progress"]
    assert told == [(1, "0 of 3"), (2, "1 of 3"), (3, "2 of 3"), (4, "3 of 3")]


@pytest.mark.requirement("T17")
async def test_progress_of_a_task_is_in_the_events_of_work_in_the_background(tmp_path: Path) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "request" in call.fields:
            made = {"tool": "t_work", "arguments": {"polls": 2}}
            return {"result": "It is done."} if "worked 2" in call.text else {"calls": [made]}
        dispatched = {"tool": "background_start", "arguments": {"name": "printer", "request": "Print it."}}
        return {"reply": "I have it printed."} if call.steps else {"reply": "", "calls": [dispatched]}

    printer = Worker("printer", "You print.", "prints", tools=("t_work",), background=True)
    more: dict[str, Any] = {"workers": [printer], "background": True, "policy": Policy(rules=(approving("t_work"),))}
    server = McpServer(StdioHost(command(tmp_path / "server")))
    async with agent_over(tmp_path, server, ScriptedLM(reply), **more) as agent:
        thread = agent.thread("a")
        await thread.converse("Print it.")
        [work] = await agent.background_tasks(thread)
        turn = await work.wait()
        told = [each async for each in agent.events(turn.id) if isinstance(each, CallProgress)]
        await ended(thread)
    assert [(each.progress, each.message) for each in told] == [(1, "0 of 2"), (2, "1 of 2"), (3, "2 of 2")]
    assert effects(tmp_path) == ["work"]


async def test_failed_task_fails_the_call(tmp_path: Path) -> None:
    async with over(tmp_path) as agent:
        said = await failure(agent.call("t_fail", {}))
        assert isinstance(said, ToolFailed)
        assert "the paper is out" in said.problem
        broken = await failure(agent.call("t_break", {}))
        assert isinstance(broken, ToolFailed)
        assert broken.problem == "MCP server 't' rejected the call of its tool 'break' (MCP error -32603)"
    assert asked_of(tmp_path, "tasks/cancel") == []


async def test_requests_about_a_task_name_it_in_a_header(tmp_path: Path) -> None:
    with in_thread(app(tmp_path)) as origin:
        async with agent_over(tmp_path, McpServer(HttpHost(f"{origin}/mcp"), elicitation=True)) as agent:
            turn = await agent.thread("a").task("use", to("ask", polls=1))
            await agent.thread("a").resume({turn.pauses[0].id: Answer({"colour": "red"})})
    found = [each for each in requests_in(tmp_path) if each["method"].startswith("tasks/")]
    assert {each["method"] for each in found} == {"tasks/get", "tasks/update"}
    assert all(each["name"] == each["params"]["taskId"] for each in found)


async def test_a_server_without_tasks_pays_nothing(tmp_path: Path) -> None:
    async with over(tmp_path, mode="plain") as agent:
        assert {each.kind for each in agent.get(Mcp)["t"].functions.values()} == {"leaf"}
        await agent.thread("a").task("use", to("work"))
    assert [each["method"] for each in requests_in(tmp_path / "server")] == [
        "server/discover",
        "tools/list",
        "tools/call",
    ]
    assert [kind for (kind,) in rows_of(tmp_path, "SELECT kind FROM wa_call ORDER BY id")] == ["task", "leaf"]


async def test_a_server_of_an_older_revision_is_not_told_of_tasks(tmp_path: Path) -> None:
    async with over(tmp_path, mode="old") as agent:
        assert await agent.call("t_work", {}) == "at once"
    assert all(each["offers"] == {} for each in requests_in(tmp_path / "server") if each["method"] != "server/discover")


async def test_task_of_a_server_that_does_not_declare_tasks_is_refused(tmp_path: Path) -> None:
    async with over(tmp_path, mode="undeclared") as agent:
        assert isinstance(await failure(agent.call("t_work", {})), McpServerInvalid)
        assert await agent.call("t_at_once", {}) == "at once"


@pytest.mark.parametrize(
    ("says", "kind"),
    [
        ({"status": "odd"}, McpServerInvalid),
        ({"taskId": ""}, McpServerInvalid),
        ({"taskId": "x" * 1025}, McpServerInvalid),
        ({"status": "completed"}, McpServerInvalid),
        ({"status": "failed"}, McpServerInvalid),
        ({"status": "completed", "result": {"content": "text"}}, McpServerInvalid),
        ({"status": "input_required", "inputRequests": {"x": {"method": "odd"}}}, McpServerInvalid),
        ({"status": "working", "pollIntervalMs": -(10**400)}, CallTimeout),
        ({"status": "working", "pollIntervalMs": 10**400}, CallTimeout),
        ({"status": "input_required"}, CallTimeout),
    ],
)
async def test_task_of_which_the_server_says_odd_things_is_cancelled(
    tmp_path: Path, says: dict[str, Any], kind: type[Exception]
) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "says").write_text(json.dumps(says))
    async with over(tmp_path, elicitation=True, task_timeout=0.3) as agent:
        assert isinstance(await failure(agent.call("t_forever", {})), kind)
    assert len(asked_of(tmp_path, "tasks/get")) <= 8  # one every 50 ms
    assert len(asked_of(tmp_path, "tasks/cancel")) == 1
    assert effects(tmp_path) == ["forever"]


async def test_task_that_the_server_cancels_fails_the_call(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "says").write_text(json.dumps({"status": "cancelled"}))
    async with over(tmp_path) as agent:
        error = await failure(agent.call("t_work", {}))
    assert isinstance(error, ToolFailed)
    assert error.problem == "the tool 'work' of MCP server 't' failed, because the server cancelled its task"
    assert asked_of(tmp_path, "tasks/cancel") == []


@pytest.mark.parametrize("seconds", [0, -1, True, float("inf")])
def test_task_timeout_must_be_a_number_of_seconds(seconds: Any) -> None:
    error = refused(lambda: McpServer(StdioHost(["x"]), task_timeout=seconds))
    assert "`task_timeout` must be a positive number of seconds" in error.problem


# --- questions --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("restart", [False, True], ids=["same process", "restart"])
async def test_task_that_needs_input_asks_a_person(tmp_path: Path, restart: bool) -> None:
    agent = await over(tmp_path, elicitation=True).start()
    try:
        turn = await agent.thread("a").task("use", to("ask"))
        for number, colour in enumerate(("red", None), 1):
            [pause] = turn.pauses
            assert (turn.status, pause.kind) == ("paused", "question")
            assert pause.question == f"The MCP server 't' asks: Which colour, colour{number}?"
            if restart:
                await agent.aclose()
                agent = await over(tmp_path, elicitation=True).start()
            turn = await agent.thread("a").resume({pause.id: Answer(colour and {"colour": colour})})
        assert (turn.status, turn.result.value) == ("done", "red decline")
    finally:
        await agent.aclose()
    assert effects(tmp_path) == ["ask"]
    [first, second] = [each["inputResponses"] for each in asked_of(tmp_path, "tasks/update")]
    assert first == {"colour1": {"action": "accept", "content": {"colour": "red"}}}
    assert second == {"colour2": {"action": "decline"}}
    assert asked_of(tmp_path, "tasks/cancel") == []


@pytest.mark.parametrize(
    ("tool", "elicitation", "kind"),
    [("ask", False, ToolFailed), ("sample", True, ToolFailed), ("ask", True, NobodyToAsk)],
    ids=["elicitation is off", "asks for a model", "outside of a turn"],
)
async def test_task_whose_question_nobody_answers_is_cancelled(
    tmp_path: Path, tool: str, elicitation: bool, kind: type[Exception]
) -> None:
    async with over(tmp_path, elicitation=elicitation) as agent:
        assert isinstance(await failure(agent.call(f"t_{tool}", {})), kind)
    [task] = {each["taskId"] for each in asked_of(tmp_path, "tasks/get")}
    assert [each["taskId"] for each in asked_of(tmp_path, "tasks/cancel")] == [task]


async def test_unattended_turn_refuses_the_question_of_a_task_and_cancels_it(tmp_path: Path) -> None:
    async with over(tmp_path, elicitation=True) as agent:
        error = await failure(agent.thread("a").task("use", to("ask"), unattended="refuse"))
        assert isinstance(error, CallRefused)
    assert len(asked_of(tmp_path, "tasks/cancel")) == 1


# --- cancellation -----------------------------------------------------------------------------------------------------


async def passes(clock: VirtualClock, true: Callable[[], object]) -> None:
    """Let time pass until something holds."""
    async with asyncio.timeout(BOUND):
        while not true():
            await clock.advance(1)
            await asyncio.sleep(0.01)


async def waits(home: Path) -> None:
    """Wait until a task is followed."""
    await until(lambda: asked_of(home, "tasks/get"))


async def test_cancelled_turn_cancels_its_task(tmp_path: Path) -> None:
    async with over(tmp_path) as agent:
        async with agent.thread("a").stream_task("use", to("forever")) as stream:
            await waits(tmp_path)
            assert await stream.cancel()
        await until(lambda: asked_of(tmp_path, "tasks/cancel"))
        assert await agent.call("t_at_once", {}) == "at once"


async def test_closed_agent_cancels_tasks_of_its_turns(tmp_path: Path) -> None:
    async with over(tmp_path) as agent, agent.thread("a").stream_task("use", to("forever"), detach=True):
        await waits(tmp_path)
    assert len(asked_of(tmp_path, "tasks/cancel")) == 1


async def test_task_that_takes_too_long_is_cancelled(tmp_path: Path) -> None:
    async with over(tmp_path, task_timeout=0.2) as agent:
        error = await failure(agent.call("t_forever", {}))
    assert isinstance(error, CallTimeout)
    assert error.problem == "the task of the tool 'forever' of MCP server 't' took longer than 0.2 s, and is cancelled"
    assert len(asked_of(tmp_path, "tasks/cancel")) == 1


async def followed_later(home: Path) -> None:
    """Resume the turn in another agent, where its task ends."""
    (home / "server" / "end").touch()
    async with over(home) as agent:
        turn = await agent.thread("a").resume()
    assert (turn.status, turn.result.value) == ("done", "worked 2")
    assert effects(home) == ["forever"]
    assert asked_of(home, "tasks/cancel") == []


@pytest.mark.requirement("T5")
async def test_turn_that_is_stopped_leaves_its_task_and_follows_it_again(tmp_path: Path) -> None:
    async with over(tmp_path) as agent, agent.thread("a").stream_task("use", to("forever"), detach=True) as stream:
        await waits(tmp_path)
        await agent.drain(30)
        assert (await stream.wait()).status == "stopped"
    await followed_later(tmp_path)


@pytest.mark.requirement("T5")
async def test_turn_that_reaches_its_time_limit_leaves_its_task_and_follows_it_again(tmp_path: Path) -> None:
    clock, limit = VirtualClock(), 1e6
    agent = over(tmp_path, task_timeout=1e9, settings={"turn_timeout": limit}, clock=clock)
    async with agent, agent.thread("a").stream_task("use", to("forever"), detach=True) as stream:
        await passes(clock, lambda: asked_of(tmp_path, "tasks/get"))
        await clock.advance(limit)
        assert isinstance(await failure(stream.wait()), TurnTimeout)
    await followed_later(tmp_path)


@pytest.mark.parametrize("method", ["tools/call", "tasks/get"])
async def test_turn_that_a_message_interrupts_ends_after_its_task(tmp_path: Path, method: str) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        made = [] if call.steps or "Stop." in call.text else [{"tool": "t_forever", "arguments": {}}]
        return {"reply": "" if made else "Fine.", "calls": made}

    meet(tmp_path, "after", method, "hang")
    server = McpServer(StdioHost(command(tmp_path / "server")))
    policy = Policy(rules=(approving("t_forever"),))
    async with agent_over(tmp_path, server, ScriptedLM(reply), policy=policy) as agent:
        thread = agent.thread("a")
        async with thread.stream("Work.") as stream:
            await until((tmp_path / "server" / "met").exists)
            await thread.queue("Stop.", interrupt=True)
            for name in ("end", "go on"):
                (tmp_path / "server" / name).touch()
            assert (await stream.wait()).status == "cancelled"
        await ended(thread)
        assert (await thread.history())[-1].body["text"] == "Fine."
        [result] = [each.body for each in await thread.history() if each.kind == "result"]
    assert result["result"] == {"value": "worked 2"}
    assert effects(tmp_path) == ["forever"]
    assert asked_of(tmp_path, "tasks/cancel") == []


# --- kills ------------------------------------------------------------------------------------------------------------

CHILD = """
import asyncio, json, sys
from pathlib import Path
from mcp_tools.test_remote_tasks import over
from worldagent.core.pauses import Answer

async def main(home, call, answer):
    async with over(home, elicitation=True) as agent:
        turn = await agent.thread("a").task("use", call)
        await agent.thread("a").resume({turn.pauses[0].id: Answer(answer)})

asyncio.run(main(Path(sys.argv[1]), *map(json.loads, sys.argv[2:])))
"""
RED = {"colour": "red"}


async def settled(home: Path, answer: Any) -> Any:
    """Resume the turn to its end, and answer its questions."""
    async with over(home, elicitation=True) as agent:
        turn = await agent.thread("a").resume()
        while turn.status == "paused":
            [pause] = turn.pauses
            turn = await agent.thread("a").resume({pause.id: Answer(RED) if pause.kind == "question" else answer})
        return turn.result.value


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("method", ["tools/call", "tasks/get", "tasks/update"])
async def test_killed_process_goes_on_with_its_task(tmp_path: Path, method: str, when: str) -> None:
    meet(tmp_path, when, method, "hang")
    arguments = (tmp_path, json.dumps(to("ask", polls=1)), json.dumps(RED))
    async with ending(await start_script(CHILD, *arguments)):
        await until((tmp_path / "server" / "met").exists)
    called = method == "tools/call"
    assert await settled(tmp_path, Happened("it did")) == ("it did" if called else "red")
    assert len(asked_of(tmp_path, "tools/call")) == 1
    assert asked_of(tmp_path, "tasks/cancel") == []


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("method", ["tools/call", "tasks/get", "tasks/update"])
async def test_killed_server_is_asked_for_its_task_again(tmp_path: Path, method: str, when: str) -> None:
    meet(tmp_path, when, method, "die")
    async with over(tmp_path, elicitation=True) as agent:
        thread = agent.thread("a")
        begun = thread.task("use", to("ask", polls=1))
        if method == "tools/call":
            assert isinstance(await failure(begun), McpServerUnavailable)
            [pause] = (await thread.resume()).pauses
            assert pause.kind == "uncertain"
            turn = await thread.resume({pause.id: Happened("it did")})
        else:
            turn = await thread.resume({(await begun).pauses[0].id: Answer(RED)})
        assert turn.result.value == ("it did" if method == "tools/call" else "red")
    assert len(asked_of(tmp_path, "tools/call")) == 1
    assert len({each["pid"] for each in requests_in(tmp_path / "server")}) == (1 if method == "tools/call" else 2)


@pytest.mark.requirement("T5")
async def test_server_that_stays_away_fails_the_turn_which_can_be_resumed(tmp_path: Path) -> None:
    clock = VirtualClock()
    with in_thread(app(tmp_path)) as origin:
        server = McpServer(HttpHost(f"{origin}/mcp"), task_timeout=1e9)
        agent = await agent_over(tmp_path, server, clock=clock).start()
        running = asyncio.ensure_future(agent.thread("a").task("use", to("forever")))
        await passes(clock, lambda: requests_in(tmp_path, "tasks/get"))
    await passes(clock, running.done)
    assert isinstance(await failure(running), McpServerUnavailable)
    await agent.aclose()
    (tmp_path / "end").touch()
    with in_thread(app(tmp_path), port=int(origin.rpartition(":")[2])):
        async with agent_over(tmp_path, server) as agent:
            turn = await agent.thread("a").resume()
    assert turn.result.value == "worked 2"
    assert len(requests_in(tmp_path, "tools/call")) == 1
    assert requests_in(tmp_path, "tasks/cancel") == []


def check(kill: dict[str, Any]) -> None:
    """What must hold wherever the process of the turn was killed."""
    assert kill["effects"] == ["ask"], kill
    assert kill["value"] == ("red" if kill["tasks"] else "it did"), kill
    assert (kill["cancelled"], kill["gaps"], kill["leaks"]) == ([], [], []), kill


@pytest.mark.requirement("T5")
def test_turn_killed_between_writes_goes_on_with_its_task() -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    kills = run_program("kill_remote", 600, sample=3, seed=seed)
    assert len(kills) == 6, seed
    for kill in kills:
        check(kill)


@pytest.mark.soak
@pytest.mark.requirement("T5")
@pytest.mark.timeout(1500)
@on_every_database
def test_turn_killed_at_any_point_goes_on_with_its_task(engine: Engine) -> None:
    for kill in run_program("kill_remote", 1500, engine=engine):
        check(kill)


@pytest.mark.soak
@pytest.mark.requirement("T5")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("phase", STEPS)
def test_turn_killed_a_hundred_times_at_each_step_while_its_server_dies_at_random(phase: str) -> None:
    seed, steps = int.from_bytes(os.urandom(4), "big"), STEPS[phase]
    kills = run_program("kill_remote", 7200, times=100, phase=phase, seed=seed)
    assert [each["what"] for each in kills] == [*steps] * 100, seed
    for kill in kills:
        check(kill)
    assert any(kill["processes"] > 2 for kill in kills), seed  # the server died, too


# --- turns that end without their task --------------------------------------------------------------------------------

ENDS: dict[str, Callable[[WorldAgent], Any]] = {
    "cancelled": lambda agent: agent.thread("a").cancel(),
    "interrupted": lambda agent: agent.thread("a").queue("Stop.", interrupt=True),
    "removed": lambda agent: agent.upkeep.remove("a", cancel=True),
    "removed with its account": lambda agent: agent.upkeep.remove_account("ana", cancel=True),
}


def kept(home: Path) -> list[Any]:
    """The tasks that the database has."""
    return rows_of(home, "SELECT server, account, task FROM mcp_task")


async def ask_a_person(home: Path, **more: Any) -> None:
    """Run a turn until its task waits for a person."""
    async with over(home, elicitation=True) as agent:
        assert (await agent.thread("a", account="ana").task("use", to("ask"))).status == "paused"
    assert len(kept(home)) == 1


def cancelled(home: Path) -> bool:
    """Whether the server was asked to cancel the one task that it has, once, and the database has none any more."""
    [task] = [each.name for each in (home / "server" / "tasks").iterdir()]
    return [each["taskId"] for each in asked_of(home, "tasks/cancel")] == [task] and kept(home) == []


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_task_that_waits_for_a_person_is_cancelled_with_its_turn(tmp_path: Path, end: Any) -> None:
    async with over(tmp_path, elicitation=True) as agent:
        assert (await agent.thread("a", account="ana").task("use", to("ask"))).status == "paused"
        assert asked_of(tmp_path, "tasks/cancel") == []
        await end(agent)
    assert cancelled(tmp_path)


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_task_is_cancelled_at_the_next_opening_if_its_server_was_not_there(tmp_path: Path, end: Any) -> None:
    await ask_a_person(tmp_path)
    async with agent_over(tmp_path, {}) as agent:
        await end(agent)
    assert asked_of(tmp_path, "tasks/cancel") == []
    async with over(tmp_path, elicitation=True):
        pass
    assert cancelled(tmp_path)


@pytest.mark.requirement("T5")
async def test_task_of_a_killed_process_is_cancelled_with_its_turn(tmp_path: Path) -> None:
    meet(tmp_path, "after", "tasks/get", "hang")
    async with ending(await start_script(CHILD, tmp_path, json.dumps(to("ask", polls=1)), json.dumps(RED))):
        await until((tmp_path / "server" / "met").exists)
    async with over(tmp_path, elicitation=True) as agent:
        assert await agent.thread("a").cancel()
    assert cancelled(tmp_path)


async def test_tasks_that_have_ended_are_not_kept(tmp_path: Path) -> None:
    async with over(tmp_path, elicitation=True) as agent:
        for tool, arguments in (("work", {}), ("fail", {}), ("break", {}), ("ask", {"polls": 0})):
            await asyncio.gather(agent.thread(tool).task("use", to(tool, **arguments)), return_exceptions=True)
    assert len(list((tmp_path / "server" / "tasks").iterdir())) == 4
    assert kept(tmp_path) == []
    assert asked_of(tmp_path, "tasks/cancel") == []


async def test_task_that_can_be_followed_again_is_not_cancelled_at_the_next_opening(tmp_path: Path) -> None:
    await ask_a_person(tmp_path)
    async with over(tmp_path, elicitation=True):
        pass
    assert asked_of(tmp_path, "tasks/cancel") == []
    assert len(kept(tmp_path)) == 1


# --- unknown tasks ----------------------------------------------------------------------------------------------------


async def forgotten(home: Path, **more: Any) -> WorldAgent:
    """An agent whose turn follows a task that the server has forgotten."""
    agent = await over(home, **more).start()
    async with agent.thread("a").stream_task("use", to("forever"), detach=True):
        await waits(home)
        await agent.drain(30)
    await agent.aclose()
    shutil.rmtree(home / "server" / "tasks")
    return await over(home, **more).start()


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("answer", [Happened("it did"), NotHappened(), RunAgain()], ids=["did", "did not", "again"])
async def test_person_settles_a_call_whose_task_is_unknown(tmp_path: Path, answer: Any) -> None:
    agent = await forgotten(tmp_path)
    try:
        thread = agent.thread("a")
        turn = await thread.resume()
        [pause] = turn.pauses
        assert (turn.status, pause.kind, pause.function) == ("paused", "uncertain", "t_forever")
        assert effects(tmp_path) == ["forever"]
        assert isinstance(await failure(thread.resume({pause.id: Happened(7)})), AnswerInvalid)
        (tmp_path / "server" / "end").touch()
        if isinstance(answer, NotHappened):
            assert isinstance(await failure(thread.resume({pause.id: answer})), EffectLost)
        else:
            turn = await thread.resume({pause.id: answer})
            assert turn.result.value == ("it did" if isinstance(answer, Happened) else "worked 2")
    finally:
        await agent.aclose()
    assert effects(tmp_path) == ["forever"] * (2 if isinstance(answer, RunAgain) else 1)


@pytest.mark.requirement("T5")
async def test_a_process_that_dies_when_the_task_is_unknown_asks_again(tmp_path: Path) -> None:
    agent = await forgotten(tmp_path)
    [pause] = (await agent.thread("a").resume()).pauses
    await agent.aclose()
    async with over(tmp_path) as agent:
        [again] = (await agent.thread("a").resume()).pauses
        assert (again.id, again.kind) == (pause.id, "uncertain")
    assert effects(tmp_path) == ["forever"]


async def test_call_outside_of_a_turn_is_not_made_again_if_its_task_is_unknown(tmp_path: Path) -> None:
    async with over(tmp_path) as agent:
        call = asyncio.create_task(agent.call("t_forever", {}))
        await waits(tmp_path)
        shutil.rmtree(tmp_path / "server" / "tasks")
        assert isinstance(await failure(call), NobodyToAsk)
    assert effects(tmp_path) == ["forever"]


async def test_call_that_only_reads_is_made_again_once_if_its_task_is_unknown(tmp_path: Path) -> None:
    agent = await forgotten(tmp_path, **READS)
    try:
        async with agent.thread("a").stream_resume({}) as stream:
            await until(lambda: effects(tmp_path) == ["forever"] * 2)
            shutil.rmtree(tmp_path / "server" / "tasks")
            error = await failure(stream.wait())
    finally:
        await agent.aclose()
    assert isinstance(error, McpServerInvalid)
    assert "must know its tasks until they have ended" in error.problem
    assert effects(tmp_path) == ["forever"] * 2
