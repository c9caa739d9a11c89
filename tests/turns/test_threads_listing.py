"""Where the threads of a workspace stand, for a host that lists them: `agent.threads()` (T4)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.agents import Muse, Nothing, Said, answering, scripted_agent
from worldagent import Settings, Storage, WorldAgent
from worldagent.agent import ThreadState
from worldagent.core.errors import AgentClosed, InvalidArgument, TaskFailed
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import tool
from worldagent.storage import sqlite as lane


async def pay(what: str) -> str:
    """Pay for something."""
    return f"paid for {what}"


class Gate:
    """A shape whose handlers wait for the test."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.open = asyncio.Event()

    async def run(self, params: Nothing, ctx: TaskContext) -> Said:
        self.begun.set()
        await self.open.wait()
        return Said(text="through")


async def _ask_two(params: Nothing, ctx: TaskContext) -> Said:
    colour, paid = await asyncio.gather(ctx.calls.ask_person("Which?", ["red", "blue"]), ctx.call("pay", {"what": "x"}))
    return Said(text=f"{colour}, {paid}")


async def _fail(params: Nothing, ctx: TaskContext) -> Said:
    raise ValueError("no")


@asynccontextmanager
async def shop(home: Path, gate: Gate | None = None, **more: Any) -> AsyncGenerator[WorldAgent]:
    shapes: list[Shape[Any, Any]] = [
        Shape("ask", Nothing, Said, _ask_two, entry=Muse),
        Shape("fail", Nothing, Said, _fail),
        Shape("wait", Nothing, Said, (gate or Gate()).run),
    ]
    async with scripted_agent(home, answering(), tools=[tool(approval=True)(pay)], shapes=shapes, **more) as agent:
        yield agent


@contextmanager
def reads(monkeypatch: pytest.MonkeyPatch) -> Generator[list[str]]:
    """Collect the statements that read."""
    found: list[str] = []
    execute = lane._SqliteTransaction.execute

    def counted(self: Any, statement: str, *given: Any) -> Any:
        if "cancel=1" not in statement:  # looked for by the clock
            found.append(statement)
        return execute(self, statement, *given)

    with monkeypatch.context() as patched:
        patched.setattr(lane._SqliteTransaction, "execute", counted)
        yield found


def shown(states: tuple[ThreadState, ...]) -> list[tuple[str, str, int]]:
    return [(state.thread, state.status, state.pauses) for state in states]


@pytest.mark.on_every_database
@pytest.mark.usefixtures("database_engine")
@pytest.mark.requirement("T4")
async def test_each_thread_is_listed_with_its_newest_turn_and_what_it_waits_for(tmp_path: Path) -> None:
    gate = Gate()
    async with shop(tmp_path, gate) as agent:
        await agent.thread("talk", account="ana", channel="c1").converse("Hello")
        await agent.thread("order", account="bob").converse("Hello")
        paused = await agent.thread("order", account="ana").task("ask", {})
        with pytest.raises(TaskFailed):
            await agent.thread("broken").task("fail", {})
        await agent.thread("dropped").task("ask", {})
        assert await agent.thread("dropped").cancel()
        running = asyncio.create_task(agent.thread("busy").task("wait", {}))
        await gate.begun.wait()
        found = await agent.threads()
        gate.open.set()
        await running
        assert shown(found) == [
            ("busy", "running", 0),
            ("dropped", "cancelled", 0),
            ("broken", "failed", 0),
            ("order", "paused", 2),
            ("talk", "done", 0),
        ]
        order, talk = found[3:]
        assert order == ThreadState(
            thread="order",
            title="Hello",
            account="ana",
            turn_id=paused.id,
            kind="task",
            status="paused",
            since=order.since,
            pauses=2,
            page_key=order.page_key,
        )
        assert (talk.account, talk.channel, talk.kind) == ("ana", "c1", "message")
        assert [state.thread for state in found if state.resumable] == ["broken", "order"]
        assert shown(await agent.threads(limit=2)) == [("busy", "done", 0), ("dropped", "cancelled", 0)]
        assert shown(await agent.threads(status="paused")) == [("order", "paused", 2)]
        assert await agent.threads(status="running") == ()


@pytest.mark.requirement("T10")
async def test_a_state_says_whether_the_turns_events_are_kept(tmp_path: Path) -> None:
    async with shop(tmp_path) as agent:
        await agent.thread("plain").converse("Hello")
        await agent.thread("keyed").converse("Hello", key="k")
        async with agent.thread("detached").stream("Hello", detach=True) as stream:
            await stream.wait()
        waiting = await agent.thread("later").task("ask", {})
        assert {state.thread: state.recorded for state in await agent.threads()} == {
            "plain": False,
            "keyed": True,
            "detached": True,
            "later": False,
        }
        async with agent.thread("later").stream_resume(detach=True) as stream:
            assert (await stream.wait()).id == waiting.id
        [later, keyed] = [await agent.thread(name).state() for name in ("later", "keyed")]
        assert later is not None
        assert keyed is not None
        assert later.recorded
        assert keyed.recorded
        found = await agent.turn(keyed.turn_id)
        assert found == keyed


@pytest.mark.requirement("T5")
async def test_a_turn_that_is_stopped_and_one_whose_process_is_gone_are_told_apart(tmp_path: Path) -> None:
    gate = Gate()
    async with shop(tmp_path, gate) as agent:
        stopping = asyncio.create_task(agent.thread("stopped").task("wait", {}))
        await gate.begun.wait()
        await agent.drain(seconds=0)
        assert (await stopping).status == "stopped"
    async with shop(tmp_path) as agent:
        await agent.thread("gone").task("ask", {})
        # What a killed process leaves: a turn that runs, and nobody who owns its thread.
        with closing(sqlite3.connect(agent.storage.database)) as connection, connection:
            connection.execute("UPDATE wa_turn SET status='running' WHERE name='gone'")
        both = [("gone", "cut_off", 2), ("stopped", "stopped", 0)]
        assert shown(await agent.threads()) == both
        assert shown(await agent.threads(status="cut_off")) == both[:1]
        assert await agent.threads(status="running") == ()
        assert all(state.resumable for state in await agent.threads())


@pytest.mark.on_every_database
@pytest.mark.usefixtures("database_engine")
@pytest.mark.requirement("T1")
async def test_a_workspace_does_not_see_anothers_threads_however_it_is_called(tmp_path: Path) -> None:
    async with shop(tmp_path) as agent:
        await agent.thread("t1").converse("Hello")
        for workspace in ("novel/x", "nove", "novel0", "Novel", "%"):
            other = WorldAgent(
                workspace, lm=answering("Other."), storage=Storage(home=tmp_path), settings=Settings(model_attempts=1)
            )
            async with other:
                assert await other.threads() == ()
                await other.thread("t/2").converse("Hello")
                assert shown(await other.threads()) == [("t/2", "done", 0)]
        assert shown(await agent.threads()) == [("t1", "done", 0)]


@pytest.mark.requirement("T4")
async def test_a_page_takes_the_same_number_of_reads_however_many_threads_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    async with shop(tmp_path) as agent:
        for number in range(1, 13):
            await agent.thread(f"t{number}").task("ask", {})
            if number in (1, 12):
                with reads(monkeypatch) as found:
                    assert len(await agent.threads()) == number
                counts.append(len(found))
    assert counts == [7, 7]


async def test_what_is_no_limit_or_status_is_refused_and_so_is_a_closed_agent(tmp_path: Path) -> None:
    async with shop(tmp_path) as agent:
        for limit in (1001, True):
            with pytest.raises(InvalidArgument, match="limit"):
                await agent.threads(limit=limit)
        with pytest.raises(InvalidArgument, match="'waiting' is unknown") as refused:
            await agent.threads(status="waiting")  # type: ignore[arg-type]  # there is none
        assert "cut_off" in refused.value.remedy
        assert await agent.threads(limit=1000) == ()
    with pytest.raises(AgentClosed):
        await agent.threads()
