"""A thread that is removed: gone from every byte of every file, but for what another thread shares (T4, D10)."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support.agents import CRITIC, Gate, Nothing, Said, answering, scripted_agent, shape, which
from support.homes import WORDS, checkpoints_of, database_of, found, look, pay, rows, selected, word
from support.overlaps import Between
from support.postgres import new_database
from worldagent import Role, WorldAgent
from worldagent.agent import Thread
from worldagent.agent.upkeep import Removed
from worldagent.core.errors import StorageUnavailable, ThreadBusy, ThreadPaused, UnknownMessage
from worldagent.core.pauses import Approve
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import tool
from worldagent.storage import sqlite as sqlite_module
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T4")

NAME = "a-thread-whose-name-is-long-enough-to-be-looked-for"
OTHER = "the-other-thread-that-has-nothing-to-do-with-it-at-all"


async def _work(params: Nothing, ctx: TaskContext) -> Said:
    await ctx.call("look", {"what": WORDS["argument"]})
    await ctx.calls.ask_person(WORDS["question"])
    return Said(text=await ctx.call("pay", {"what": WORDS["argument"]}))


def _model(answer: str) -> ScriptedLM:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "request" in call.fields:
            return {"result": WORDS["verdict"]}
        if "judge" in call.user and WORDS["verdict"] not in call.text:
            return {"reply": "", "calls": [{"tool": "critic", "arguments": {"request": WORDS["request"]}}]}
        if "ask" in call.user and "Red." not in call.text:
            return {"reply": "", "calls": [{"tool": "ask", "arguments": {}}]}
        return {"reply": word("other") if "other one" in call.user else answer, "calls": []}

    return ScriptedLM(reply)


@asynccontextmanager
async def opened(
    home: Path, gate: Gate | None = None, *, answer: str = WORDS["answer"], **more: Any
) -> AsyncGenerator[WorldAgent]:
    shapes: list[Shape[Any, Any]] = [
        Shape("work", Nothing, Said, _work),
        shape(which, "ask", description="Ask."),
        Shape("wait", Nothing, Said, (gate or Gate()).run),
    ]
    tools = [look, tool(approval=True)(pay)]
    async with scripted_agent(home, _model(answer), workers=[CRITIC], tools=tools, shapes=shapes, **more) as agent:
        yield agent


async def worked(thread: Thread) -> None:
    """Have a worker judge, and a task call, ask and need approval."""
    await thread.converse("judge")
    turn = await thread.task("work", {})
    turn = await thread.resume({turn.pauses[0].id: WORDS["answer"]})
    assert (await thread.resume({turn.pauses[0].id: Approve()})).status == "done"


async def lived(agent: WorldAgent, name: str) -> None:
    """Let a thread do all that leaves something behind."""
    thread = agent.thread(name, account="ana")
    for number in range(12):
        await thread.converse(f"{WORDS['message']} {number} " + "So that it is on pages of its own. " * 40)
    await worked(thread)


async def taken_away(agent: WorldAgent, name: str, **how: bool) -> Removed:
    """Remove a thread that is there; gives what went with it."""
    removed = await agent.upkeep.remove(name, **how)
    assert removed is not None
    return removed


async def edited_later(agent: WorldAgent) -> str:
    """Let a thread do all of that after its second message, whose id it gives."""
    thread = agent.thread("t1")
    await thread.converse("one")
    await thread.converse(WORDS["message"])
    second = (await thread.history())[2].id
    await worked(thread)
    return second


async def _as_most_are_built(agent: WorldAgent) -> None:
    """Have SQLite leave the bytes of deleted rows where they are, as only some builds do not."""
    database = database_of(agent)
    if isinstance(database, sqlite_module.SqliteDatabase):
        await database._writer.alone(lambda connection: connection.execute("PRAGMA secure_delete=OFF"))


@pytest.mark.on_every_database
async def test_no_byte_of_a_removed_thread_is_left(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as agent:
        await _as_most_are_built(agent)
        await agent.thread(OTHER).converse("the other one")
        said = await agent.thread(OTHER).history()
        before = {table: await rows(agent, table) for table in ("wa_message", "wa_turn", "wa_call", "checkpoints")}
        await lived(agent, NAME)
        texts = [text for place, text in WORDS.items() if place != "other"]
        for text in (*texts, NAME):
            assert found(tmp_path / "home", [text]), text
        removed = await taken_away(agent, NAME)
        assert (removed.messages, removed.turns, removed.attachments) == (12 * 2 + 2 + 2 + 2, 14, 0)
        assert removed.calls >= 3
        assert removed.checkpoints > 14
        assert found(tmp_path / "home", [*texts, NAME]) == []
        assert {table: await rows(agent, table) for table in before} == before
        assert await agent.thread(OTHER).history() == said
        assert [state.thread for state in await agent.threads()] == [OTHER]
        assert await agent.upkeep.remove(NAME) is None
    assert found(tmp_path / "home", [*texts, NAME]) == []
    assert found(tmp_path / "home", [word("other")])


@pytest.mark.on_every_database
async def test_what_a_fork_shares_outlasts_its_origin_and_goes_with_the_last_who_shares_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as agent:
        first, kept = agent.thread("first"), WORDS["message"]
        await first.converse(kept)
        at = (await first.history())[-1].id
        await first.converse(WORDS["request"])
        fork = await first.fork(at=at, to="fork")
        shared = await fork.history()
        removed = await taken_away(agent, "first")
        assert removed.messages == 2
        assert await fork.history() == shared
        assert found(tmp_path / "home", [WORDS["request"]]) == []
        await fork.converse(WORDS["argument"])
        assert len(await fork.history()) == 4
        removed = await taken_away(agent, "fork")
        assert removed.messages == 4
        assert await rows(agent, "wa_message") == 0
        assert await rows(agent, "wa_branch") == 0
        assert found(tmp_path / "home", [kept, WORDS["argument"]]) == []


async def test_thread_with_a_resumable_turn_is_removed_with_it_only(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as agent:
        thread = agent.thread("t1")
        [pause] = (await thread.task("work", {})).pauses
        with pytest.raises(ThreadPaused, match="is paused and can be resumed; resume it, or cancel it as well"):
            await agent.upkeep.remove("t1")
        assert await thread.pauses() == (pause,)
        assert (await taken_away(agent, "t1", cancel=True)).turns == 1
        assert found(tmp_path / "home", [WORDS["argument"]]) == []
        assert (await thread.pauses(), await thread.state()) == ((), None)


@pytest.mark.on_every_database
async def test_thread_whose_turn_runs_is_removed_after_its_cancellation(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path / "home", gate) as agent, opened(tmp_path / "home") as other:
        turn = asyncio.create_task(agent.thread("t1").task("wait", {}))
        await gate.begun.wait()
        with pytest.raises(ThreadBusy):
            await other.upkeep.remove("t1")
        assert (await taken_away(other, "t1", cancel=True)).turns == 1
        assert (await turn).status == "cancelled"
        assert await rows(other, "wa_message") == 0


@pytest.mark.requirement("R10", "R13")
async def test_a_new_thread_of_a_removed_ones_name_knows_nothing_of_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as agent:
        thread = agent.thread("t1")
        await thread.converse("one")
        thread.role.set(Role("keeper", "Speak as the keeper of the seventh lighthouse."))
        epoch = await _epoch(agent, "novel/t1")
        assert await agent.upkeep.remove("t1") is not None
        assert await thread.history() == ()
        assert (await thread.converse("two")).role_tiers == ()
        assert [message.kind for message in await thread.history()] == ["message", "answer"]
        assert await _epoch(agent, "novel/t1") > epoch, "a late writer of before would be taken for the owner"


async def _epoch(agent: WorldAgent, key: str) -> int:
    [(epoch,)] = await selected(agent, "SELECT epoch FROM wa_epoch WHERE key=?", key)
    return int(epoch)


@pytest.mark.on_every_database
async def test_no_table_keeps_a_row_of_the_last_thread(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as agent:
        await lived(agent, NAME)
        thread = agent.thread(NAME)
        [message] = await thread.history(limit=1)
        await thread.keep(message.id)
        stored = await agent.attachments.add(b"stored before it is said")
        await thread.converse("Look", attachments=[stored, b"stored with what is said"])
        await thread.fork(to="fork")
        for name in (NAME, "fork"):
            assert await agent.upkeep.remove(name) is not None
        # The one row of epochs is that of all removed threads, and names none. What a day has used stays used.
        expected = {"wa_schema": True, "wa_epoch": True, "wa_usage": True, "checkpoint_migrations": True}
        left = {table: await rows(agent, table) for table in await _tables(agent)}
        assert {table: bool(count) for table, count in left.items() if count} == {
            table: here for table, here in expected.items() if table in left
        }
        assert left["wa_epoch"] == 1
        assert not [path for path in (tmp_path / "home" / "attachments").rglob("*") if path.is_file()]


async def _tables(agent: WorldAgent) -> list[str]:
    query = (
        "SELECT tablename FROM pg_tables WHERE schemaname='public'"
        if checkpoints_of(agent).postgres
        else "SELECT name FROM sqlite_master WHERE type='table'"
    )
    return [name for (name,) in await selected(agent, query)]


async def test_what_the_turns_of_a_kept_branch_did_goes_with_the_branch(tmp_path: Path) -> None:
    async with opened(tmp_path / "home", answer="Fine.") as agent:
        thread = agent.thread("t1")
        await thread.edit("two", at=await edited_later(agent), keep_as="before")
        said = await thread.history()
        for text in WORDS.values():
            assert found(tmp_path / "home", [text]), text
        removed = await taken_away(agent, "before")
        assert (removed.messages, removed.turns) == (2 + 4 + 2, 3)
        assert removed.calls >= 4
        assert removed.checkpoints > 3 * 3
        assert found(tmp_path / "home", [*WORDS.values()]) == []
        assert await rows(agent, "wa_call") == 0
        assert await rows(agent, "wa_turn") == 2
        assert await thread.history() == said
        assert [message.body["text"] for message in said] == ["one", "Fine.", "two", "Fine."]
        assert (await thread.converse("three")).status == "done"
        removed = await taken_away(agent, "t1")
        assert (removed.messages, removed.turns) == (6, 3)
        for table in ("wa_message", "wa_turn", "checkpoints"):
            assert await rows(agent, table) == 0


@pytest.mark.requirement("T5")
async def test_paused_turn_of_an_edited_thread_resumes(tmp_path: Path) -> None:
    async with opened(tmp_path / "home", answer="Fine.", settings={"checkpoint_keep": 0}) as agent:
        thread = agent.thread("t1")
        turn = await thread.edit("ask", at=await edited_later(agent), keep_as="before")
        assert turn.status == "paused"
        before = await rows(agent, "checkpoints", "thread_id LIKE 'novel/t1%'")
        removed = await taken_away(agent, "before")
        assert found(tmp_path / "home", [*WORDS.values()]) == []
        assert await rows(agent, "checkpoints", "thread_id LIKE 'novel/t1%'") == before - removed.checkpoints
    async with opened(tmp_path / "home", answer="Fine.") as agent:
        thread = agent.thread("t1")
        assert (await thread.resume({turn.pauses[0].id: "Red."})).text == "Fine."
        assert [message.body.get("text") for message in await thread.history()][:3] == ["one", "Fine.", "ask"]


async def test_rows_held_by_a_reader_are_pruned_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_module, "_BUSY_TIMEOUT", 0.2)
    async with scripted_agent(tmp_path / "home", answering()) as agent:
        await agent.thread(NAME).converse(WORDS["message"])
        with closing(sqlite3.connect(tmp_path / "home" / "agent.db")) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT COUNT(*) FROM wa_message").fetchall()
            with pytest.raises(StorageUnavailable, match=r"all rows of the thread .* are removed, but"):
                await agent.upkeep.remove(NAME)
            assert found(tmp_path / "home", [WORDS["message"]]), "else the error says what is not so"
        assert await agent.thread(NAME).history() == ()
        await agent.upkeep.prune()
        assert found(tmp_path / "home", [WORDS["message"], NAME]) == []


Talked = tuple[str, WorldAgent, WorldAgent]
"""The address of a database, and two agents on it."""


@pytest_asyncio.fixture
async def talked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Talked]:
    """Two agents, and a thread `t1` with two turns."""
    url = new_database()
    monkeypatch.setenv("WORLDAGENT_DATABASE_URL", url)
    async with (
        scripted_agent(tmp_path / "1", answering()) as agent,
        scripted_agent(tmp_path / "2", answering()) as other,
    ):
        for text in ("one", "two"):
            await agent.thread("t1").converse(text)
        yield url, agent, other


async def test_replay_before_a_removal_keeps_its_past(talked: Talked, monkeypatch: pytest.MonkeyPatch) -> None:
    url, agent, other = talked
    said = await agent.thread("t1").history()
    between = Between(monkeypatch, url, "SELECT depth, CASE", other.upkeep.remove("t1"))
    turn = await agent.thread("t1").replay(to="again")
    assert between.future is not None
    removed = await asyncio.wrap_future(between.future)
    assert turn.status == "done"
    assert removed.messages == 2, "those that the replay stands on stay"
    assert (await agent.thread("again").history())[:2] == said[:2]


async def test_what_is_removed_first_is_an_unknown_message(talked: Talked, monkeypatch: pytest.MonkeyPatch) -> None:
    url, agent, other = talked
    replay = agent.thread("t1").replay(to="again")
    between = Between(monkeypatch, url, "SELECT id, parent FROM wa_message WHERE thread", replay)
    removed = await other.upkeep.remove("t1")
    assert between.future is not None
    with pytest.raises(UnknownMessage):
        await asyncio.wrap_future(between.future)
    assert removed is not None
    assert removed.messages == 4
    assert await agent.threads() == ()
