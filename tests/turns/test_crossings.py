"""What happens at the very moment at which a turn begins, ends, resumes or is pruned (T4, T10)."""

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.agents import Thinking, answering, asking_shop, scripted_agent, state_of, taken
from support.postgres import new_database
from worldagent import Role
from worldagent.core.errors import AgentClosed, StorageUnavailable
from worldagent.core.events import TurnEnded, TurnEvent, TurnStarted
from worldagent.graphs import TurnEngine
from worldagent.memory import TurnRegister, turn_log
from worldagent.storage import Transaction, postgres
from worldagent.storage.sqlite import SqliteDatabase

pytestmark = pytest.mark.requirement("T10")

LIMIT = 20


async def into(events: list[TurnEvent], found: AsyncIterator[TurnEvent]) -> None:
    async for event in found:
        events.append(event)


def two_hours_older(transaction: Transaction) -> None:
    for table in ("wa_turn", "wa_recorded"):
        transaction.execute(f"UPDATE {table} SET changed=changed-7200")


class Held:
    """Something that a thread or a task stands still at until the test has done what it wants to do meanwhile."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._may = threading.Event()

    def stand(self) -> None:
        """Stand still, once."""
        self._reached.set()
        assert self._may.wait(LIMIT)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, LIMIT)

    def go_on(self) -> None:
        self._may.set()


@pytest.mark.requirement("T4")
async def test_cancel_during_the_first_write_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, held = TurnRegister.begin, Held()

    def slow(self: TurnRegister, record: Any, *, lease: Any, also: Any, **more: Any) -> None:
        def write(transaction: Any) -> None:
            also(transaction)
            held.stand()

        begin(self, record, lease=lease, also=write, **more)

    monkeypatch.setattr(TurnRegister, "begin", slow)
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent:
        thread = agent.thread("t")
        saying = asyncio.create_task(thread.converse("Hello", key="k"))
        await held.reached()
        saying.cancel()
        held.go_on()
        with pytest.raises(asyncio.CancelledError):
            await saying
        again = await thread.converse("Hello", key="k")
        events = await taken(agent.events(again.id))
        state = await state_of(thread)
    assert (again.status, state.status, lm.calls) == ("cancelled", "cancelled", [])
    assert isinstance(events[-1], TurnEnded)
    assert events[-1].status == "cancelled"


@pytest.mark.requirement("T4")
async def test_stream_left_during_the_last_write_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end, held = TurnRegister.end, Held()

    async def slow(self: TurnRegister, *args: Any, also: Any = None, **more: Any) -> Any:
        def write(transaction: Any, thread: str) -> None:
            also(transaction, thread)
            held.stand()

        return await end(self, *args, also=None if also is None else write, **more)

    monkeypatch.setattr(TurnRegister, "end", slow)
    async with scripted_agent(tmp_path, answering("Fine.")) as agent:
        thread = agent.thread("t")
        async with thread.stream("Hello", key="k") as stream:
            await held.reached()
            asyncio.get_running_loop().call_soon(held.go_on)  # once the stream has been left
        state = await state_of(thread)
        rest = await taken(stream)
    assert (stream.turn.status, stream.turn.text, state.status) == ("done", "Fine.", "done")
    assert isinstance(rest[-1], TurnEnded)
    assert (rest[-1].status, rest[-1].text) == ("done", "Fine.")


@pytest.mark.requirement("T4")
async def test_unexpected_error_ends_the_run_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = TurnEngine.run

    async def broken(self: TurnEngine, *args: Any, **more: Any) -> Any:
        await run(self, *args, **more)
        raise RuntimeError("a mistake")

    monkeypatch.setattr(TurnEngine, "run", broken)
    async with scripted_agent(tmp_path, answering()) as agent:
        thread, events = agent.thread("t"), list[TurnEvent]()
        async with thread.stream("Hello", detach=True) as stream:
            with pytest.raises(RuntimeError, match="a mistake"):
                await into(events, stream)
        state = await state_of(thread)
        assert await taken(agent.events(stream.turn_id)) == events
    assert state.status == "failed"
    assert isinstance(events[-1], TurnEnded)
    assert (events[-1].status, events[-1].code) == ("failed", "internal")


@pytest.mark.requirement("T4")
async def test_run_whose_disk_fails_resumes_by_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise OSError(5, "the disk fails")

    async with scripted_agent(tmp_path, answering()) as agent:
        thread = agent.thread("t")
        with monkeypatch.context() as patched:
            patched.setattr(TurnEngine, "run", broken)
            with pytest.raises(StorageUnavailable) as failed:
                await thread.converse("Hello", key="k")
        state = await state_of(thread)
        again = await thread.converse("Hello", key="k")
    assert (failed.value.retryable, state.status) == (True, "cut_off")
    assert (again.id, again.status, again.text) == (failed.value.turn_id, "done", "Fine.")


async def test_repeat_of_a_turn_that_never_began_begins_it(tmp_path: Path) -> None:
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        thread = agent.thread("t")
        busy = asyncio.create_task(thread.converse("Busy"))
        await asyncio.wait_for(model.asked.wait(), LIMIT)
        for rounds in range(4):
            leaving = asyncio.create_task(thread.converse("Hello", key="k"))
            for _ in range(1000):
                if await thread.repeats("k"):
                    break
            leaving.cancel()
            for _ in range(rounds):
                await asyncio.sleep(0)
        back = asyncio.create_task(thread.converse("Hello", key="k"))
        model.may.set()
        async with asyncio.timeout(LIMIT):
            assert ((await busy).status, (await back).status, (await back).text) == ("done", "done", "Fine.")


@pytest.mark.parametrize("how", ["close", "drain"])
async def test_follower_of_another_process_is_refused_when_its_agent_closes(how: str, tmp_path: Path) -> None:
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        running = asyncio.create_task(agent.thread("t").converse("Hello", key="k"))
        await asyncio.wait_for(model.asked.wait(), LIMIT)
        async with scripted_agent(tmp_path, answering()) as other:
            async with other.thread("t").stream("Hello", key="k") as left:  # leaving it raises nothing
                assert isinstance(await anext(left), TurnStarted)
            follower = other.thread("t").stream("Hello", key="k")
            async with follower:
                assert isinstance(await anext(follower), TurnStarted)
                await (other.aclose() if how == "close" else other.drain(1))
                with pytest.raises(AgentClosed, match="closed while it followed the turn"):
                    await follower.wait()
        model.may.set()
        assert (await running).status == "done"


@pytest.mark.requirement("R7")
async def test_event_writer_keeps_no_context_of_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, seen = SqliteDatabase.transact, list[list[str]]()

    async def looked(self: SqliteDatabase, work: Any, **how: Any) -> Any:
        if work.__qualname__.startswith("Lease."):
            seen.append([each.name for each in contextvars.copy_context()])
        return await written(self, work, **how)

    monkeypatch.setattr(SqliteDatabase, "transact", looked)
    async with scripted_agent(tmp_path, answering()) as agent:
        await agent.thread("t").converse("Hello", role=Role("brief", "Be brief."), key="k")
    assert seen
    assert not any(seen)


async def test_resume_during_pruning_keeps_all_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execute, held = postgres._PostgresTransaction.execute, Held()

    def slow(self: Any, sql: str, params: Any = ()) -> Any:
        rows = execute(self, sql, params)
        if sql == turn_log._OLD and rows:
            held.stand()
        return rows

    async with asking_shop(tmp_path, settings={"database_url": new_database()}) as agent:
        thread = agent.thread("t")
        paused = await thread.task("buy", {"what": "hat"}, key="k")
        before = await taken(agent.events(paused.id))
        recorder = agent._runner.parts.recorder
        await recorder.log._database.transact(two_hours_older)
        monkeypatch.setattr(postgres._PostgresTransaction, "execute", slow)
        pruning = asyncio.create_task(recorder.log.prune(3600, most=50))
        await held.reached()
        await thread.resume({paused.pauses[0].id: "red"})
        held.go_on()
        assert await asyncio.wait_for(pruning, LIMIT) == 1
        after = await taken(agent.events(paused.id))
    assert after[: len(before)] == before
    assert [event.seq for event in after] == list(range(1, len(after) + 1))
