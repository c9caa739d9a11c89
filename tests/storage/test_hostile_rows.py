"""Rows and checkpoints that another program wrote: a typed error that names them, and nothing of them is run (T5)."""

import asyncio
import json
import logging
import pickle
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from pydantic import BaseModel

from support.agents import Nothing, Said, answering, scripted_agent
from support.databases import rows_of
from worldagent import WorldAgent
from worldagent.core.errors import Diverged, RoleChanged, StorageInvalid, UnknownMessage
from worldagent.core.pauses import Approve
from worldagent.graphs import Shape, TaskContext
from worldagent.graphs.checkpoints import tables as checkpoints
from worldagent.graphs.loop.loop import LoopState
from worldagent.harness import Worker, tool
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

THREAD = "novel/t"


class Name(BaseModel):
    name: str


def agent_of(home: Path, done: list[str]) -> WorldAgent:
    """An agent whose turn calls, asks for leave and for a name, and whose planner answers then."""

    async def write(what: str) -> str:
        done.append(what)
        return what

    async def job(params: Nothing, ctx: TaskContext) -> Said:
        await ctx.task("subagent", {"worker": "critic", "request": "Judge it."})
        await ctx.call("write", {"what": "before"})
        await ctx.call("pay", {"what": "a hat"})
        return Said(text=(await ctx.calls.ask_person("Whose?", form=Name)).name)

    def plan(call: ScriptedCall) -> dict[str, Any]:
        if "request" in call.fields:
            return {"result": "It is fine."}
        told = " ".join(str(message) for message in call.messages)
        if "Buy" not in told or call.steps:
            return {"reply": "All done."}
        return {"reply": "", "calls": [{"tool": "job", "arguments": {}}]}

    return scripted_agent(
        home,
        ScriptedLM(plan),
        tools=[tool(name="write", risk="read_only")(write), tool(name="pay", approval=True)(write)],
        workers=[Worker("critic", "You judge.", "judges")],
        shapes=[Shape("job", Nothing, Said, job, description="buys")],
    )


async def paused(home: Path) -> str:
    """Leave a turn that waits for leave; gives the pause's id."""
    done: list[str] = []
    async with agent_of(home, done) as agent:
        await agent.thread("before").converse("Hello")
        turn = await agent.thread("t").converse("Buy a hat")
        assert (turn.status, done) == ("paused", ["before"])
        return turn.pauses[0].id


@pytest.fixture(scope="module")
def model_home(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A home with a turn that waits, for all tests to copy; with the pause's id."""
    home = tmp_path_factory.mktemp("home")
    return home, asyncio.run(paused(home))


@pytest.fixture
def pause(model_home: tuple[Path, str], tmp_path: Path) -> str:
    """The id of the pause of the turn that waits in `tmp_path`."""
    shutil.copytree(model_home[0], tmp_path, dirs_exist_ok=True)
    return model_home[1]


def run(home: Path, sql: str, *values: Any) -> int:
    with closing(sqlite3.connect(home / "agent.db")) as connection, connection:
        return connection.execute(sql, values).rowcount


def contents(home: Path, *, but: tuple[str, ...] = ()) -> dict[str, Any]:
    with closing(sqlite3.connect(home / "agent.db")) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()
        return {
            table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
            for (table,) in tables
            if table not in ("wa_epoch", "wa_schema", *but)
        }


# --- checkpoints ------------------------------------------------------------------------------------------------------


class Evil:
    """What a pickle can do."""

    def __reduce__(self) -> Any:
        return (subprocess.check_call, (["touch", "marker"],))


def extension(code: int, *parts: object) -> ormsgpack.Ext:
    return ormsgpack.Ext(code, ormsgpack.packb(list(parts)))


def changed(home: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the newest checkpoint of the thread."""
    with closing(sqlite3.connect(home / "agent.db")) as connection:
        newest = "FROM checkpoints WHERE thread_id=? ORDER BY checkpoint_id DESC LIMIT 1"
        [(key, blob)] = connection.execute(f"SELECT checkpoint_id, checkpoint {newest}", (THREAD,)).fetchall()
    value = ormsgpack.unpackb(blob, ext_hook=ormsgpack.Ext)
    change(value)
    run(home, "UPDATE checkpoints SET checkpoint=? WHERE checkpoint_id=?", ormsgpack.packb(value), key)


def typed(home: Path, kind: str | None, blob: Any, table: str = "checkpoints") -> None:
    column = "checkpoint" if table == "checkpoints" else "value"
    assert run(home, f"UPDATE {table} SET type=?, {column}=? WHERE thread_id=?", kind, blob, THREAD)


def valued(home: Path, **values: Any) -> None:
    changed(home, lambda value: value["channel_values"].update(values))


def pending(home: Path, channel: str, value: object) -> None:
    sql = "UPDATE writes SET channel=?, type='msgpack', value=? WHERE channel='__interrupt__'"
    assert run(home, sql, channel, ormsgpack.packb(value)) == 1


def described(home: Path, metadata: bytes | None) -> None:
    run(home, "UPDATE checkpoints SET metadata=? WHERE thread_id=?", metadata, THREAD)


SYSTEM = ("os", "system", "touch marker")
POPEN = ("subprocess", "Popen", {"args": ["touch", "marker"]})
INTERRUPT = ("langgraph.types", "Interrupt")
DAMAGE: dict[str, Callable[[Path], None]] = {
    "a function": lambda home: valued(home, fault=extension(0, *SYSTEM)),
    "a method": lambda home: valued(home, fault=extension(3, "pathlib", "Path", "marker", "touch")),
    "a model": lambda home: valued(home, fault=extension(5, *POPEN, "model_validate")),
    "an extension of nobody": lambda home: valued(home, fault=extension(99, "x")),
    "an interrupt that holds more": lambda home: valued(
        home, fault=extension(2, *INTERRUPT, {"value": {"a": 1}, "id": "x"})
    ),
    "an interrupt around a function": lambda home: valued(
        home, fault=extension(2, *INTERRUPT, {"value": extension(0, *SYSTEM), "id": "x"})
    ),
    "a pending function": lambda home: pending(home, "__interrupt__", [extension(0, *SYSTEM)]),
    "a pending interrupt that is none": lambda home: pending(home, "__interrupt__", [7]),
    "a pending write that no graph makes": lambda home: pending(home, "work", 7),
    "an answer that nobody gave": lambda home: pending(home, "__resume__", ["yes"]),
    "a pickle": lambda home: typed(home, "pickle", pickle.dumps(Evil())),
    "a constructor of langchain's": lambda home: typed(
        home, "json", json.dumps({"lc": 2, "type": "constructor", "id": POPEN[:2], "kwargs": POPEN[2]}).encode()
    ),
    "a pending pickle": lambda home: typed(home, "pickle", pickle.dumps(Evil()), "writes"),
    "a pending piece": lambda home: typed(home, "msgpack", b"\x82\xa1", "writes"),
    "a pending write of no type": lambda home: typed(home, None, b"\xc0", "writes"),
    "no type": lambda home: typed(home, None, b"\xc0"),
    "a text": lambda home: typed(home, "msgpack", "text"),
    "a list in a list in a list": lambda home: typed(home, "msgpack", b"\x91" * 100_000 + b"\xc0"),
    "a piece": lambda home: typed(home, "msgpack", b"\x82\xa1"),
    "work is not a list": lambda home: valued(home, work=7),
    "a round is a text": lambda home: valued(home, round="first"),
    "no head": lambda home: changed(home, lambda value: value["channel_values"].pop("head")),
    "values are a list": lambda home: changed(home, lambda value: value.update(channel_values=[])),
    "an input that is not a state": lambda home: changed(
        home, lambda value: value.update(channel_values={"__start__": 7})
    ),
    "a version of nobody": lambda home: changed(home, lambda value: value["channel_versions"].update(head="newest")),
    "no id": lambda home: changed(home, lambda value: value.pop("id")),
    "metadata is not JSON": lambda home: described(home, b"{"),
    "metadata says nothing": lambda home: described(home, b"{}"),
    "no metadata": lambda home: described(home, None),
}


@pytest.mark.usefixtures("pause")
@pytest.mark.requirement("T5")
@pytest.mark.parametrize("what", DAMAGE)
async def test_a_checkpoint_that_no_graph_wrote_is_refused_and_nothing_of_it_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever reads the thread fails with a name and a remedy, makes and changes nothing; other threads go on."""
    monkeypatch.chdir(tmp_path)
    DAMAGE[what](tmp_path)
    before, done = contents(tmp_path, but=("wa_turn",)), list[str]()
    with caplog.at_level(logging.DEBUG, "langgraph"):
        async with agent_of(tmp_path, done) as agent:
            thread = agent.thread("t")
            for use in (thread.resume, thread.history):
                with pytest.raises(
                    StorageInvalid, match=rf"thread '{THREAD}'.*; restore the database from a copy"
                ) as caught:
                    await use()
                assert "touch" not in str(caught.value)
                assert caught.value.__cause__ is None
                assert caught.value.__context__ is None
            assert contents(tmp_path, but=("wa_turn",)) == before
            assert (await agent.thread("before").converse("Hello")).status == "done"
            assert await thread.cancel()
    assert done == []
    assert not (tmp_path / "marker").exists()
    assert "langgraph" not in {record.name.split(".")[0] for record in caplog.records}


def test_each_channel_of_the_graphs_is_checked() -> None:
    turn, worker = checkpoints.TurnChannels.model_fields, checkpoints.WorkerChannels.model_fields
    older = {"request", "text", "role"}
    assert (set(turn) | set(worker)) - older == set(LoopState.__annotations__)


# --- rows -------------------------------------------------------------------------------------------------------------

LEAVE, WRITTEN = "wa_call WHERE name='pay'", "wa_call WHERE name='write'"
TURN = f"wa_turn WHERE thread='{THREAD}'"
SAID = f"wa_message WHERE kind='message' AND thread='{THREAD}'"
SPENT = "wa_spent WHERE path=''"
USED = [("calls", "many"), ("calls", 1.5), ("tokens", b"5"), ("tokens", -1), ("cost", float("inf"))]
ROWS: list[tuple[str, str, Any]] = [
    (LEAVE, "kind", "banana"),
    (LEAVE, "state", "ready"),
    (LEAVE, "epoch", "old"),
    (LEAVE, "at", "soon"),
    (LEAVE, "at", -1),
    (LEAVE, "input", "{"),
    (LEAVE, "input", "[1]"),
    (LEAVE, "ask", "{"),
    (LEAVE, "ask", '{"kind":"question","question":"x","schema":{}}'),
    (LEAVE, "ask", '{"kind":"bribe"}'),
    (LEAVE, "decision", '{"kind":"bribe"}'),
    (LEAVE, "decision", '{"kind":"reject"}'),
    (LEAVE, "decision", '{"kind":"answer","value":1}'),
    (WRITTEN, "result", "{"),
    (WRITTEN, "state", "failed"),
    (TURN, "role", "{"),
    (TURN, "role", '{"tiers":["boss"],"digest":null,"key":"x"}'),
    (TURN, "kind", "banana"),
    (TURN, "began", "x"),
    (TURN, "workspace", ""),
    (TURN, "account", "a\nb"),
    (TURN, "graph", b"\xff\x00"),
    (TURN, "model", "{"),
    (TURN, "origin", '{"caller":"w","modelled":true,"depth":1}'),
    (SAID, "body", "{"),
    (SAID, "body", "{}"),
    (SAID, "body", '{"text":7}'),
    (SAID, "kind", "whisper"),
    (SAID, "depth", "deep"),
    (SAID, "at", "soon"),
    *((SPENT, column, value) for column, value in (*USED, ("path", b"turn"))),
]
NAMED = {
    "wa_call": r"the call 'turn_.*cannot be read.*; restore the database",
    "wa_turn": rf"the turn 'turn_\w+' of thread '{THREAD}'.*; restore the data",
    "wa_message": r"the message '\w+'.*(cannot be read|has changed since it was written).*; restore the",
    "wa_spent": r"the usage of 'turn_\w+'.* cannot be read.*; restore the",
}


@pytest.mark.requirement("H4", "T5")
@pytest.mark.parametrize(("where", "column", "value"), ROWS)
async def test_invalid_row_is_refused(tmp_path: Path, pause: str, where: str, column: str, value: Any) -> None:
    table, _, which = where.partition(" WHERE ")
    done: list[str] = []
    assert run(tmp_path, f"UPDATE {table} SET {column}=? WHERE {which}", value) == 1
    but = {"wa_call": ("wa_turn",), "wa_turn": ()}.get(table, ("wa_turn", "wa_call"))
    before = contents(tmp_path, but=but)
    async with agent_of(tmp_path, done) as agent:
        thread = agent.thread("t")
        uses: list[Callable[[], Any]] = [lambda: thread.resume({pause: Approve()}), thread.resume]
        if table == "wa_turn":
            uses = [*uses[:1], lambda: thread.converse("Hello"), thread.cancel]
        elif table == "wa_call":
            uses.append(thread.pauses)
        for use in uses:
            with pytest.raises(StorageInvalid, match=NAMED[table]):
                await use()
        assert contents(tmp_path, but=but) == before
        assert done == []
        assert (await agent.thread("before").converse("Hello")).status == "done"
        assert table == "wa_turn" or await thread.cancel()


OTHER_MESSAGE: list[tuple[Callable[[Path], object], str]] = [
    (lambda home: run(home, "UPDATE wa_turn SET asked='0'"), "began with the message '0', which does not exist"),
    (lambda home: valued(home, asked="0"), "the turn's message '0' must come after the messages"),
]


@pytest.mark.parametrize(("damage", "says"), OTHER_MESSAGE)
async def test_turn_of_another_message_is_refused(
    tmp_path: Path, pause: str, damage: Callable[[Path], object], says: str
) -> None:
    async def resume() -> None:
        turn = await agent.thread("t").resume({pause: Approve()})
        await agent.thread("t").resume({turn.pauses[0].id: {"name": "Ada"}})

    damage(tmp_path)
    async with agent_of(tmp_path, []) as agent:
        with pytest.raises(StorageInvalid, match=says):
            await resume()


@pytest.mark.usefixtures("pause")
async def test_answered_call_that_is_not_made_again_is_named(tmp_path: Path) -> None:
    assert run(tmp_path, f"UPDATE {LEAVE.replace('WHERE', 'SET id=?, parent=? WHERE')}", "gone/pay", "gone") == 1
    async with agent_of(tmp_path, []) as agent:
        [pause] = await agent.thread("t").pauses()
        with pytest.raises(Diverged, match="did not repeat calls that were answered: 'gone/pay'; make bodies depend"):
            await agent.thread("t").resume({pause.id: Approve()})


@pytest.mark.requirement("R13")
async def test_a_row_of_another_role_is_refused(tmp_path: Path, pause: str) -> None:
    [(stored,)] = rows_of(tmp_path, "SELECT role FROM wa_turn WHERE name='t'")
    changed = {**json.loads(stored), "digest": f"{json.loads(stored)['key']}:digest"}
    assert run(tmp_path, f"UPDATE {TURN.replace(' WHERE', ' SET role=? WHERE')}", json.dumps(changed)) == 1
    async with agent_of(tmp_path, []) as agent:
        with pytest.raises(RoleChanged):
            await agent.thread("t").resume({pause: Approve()})


BRANCH_VALUES = [("head", b"\xff\x00"), ("at", "soon"), ("at", -1)]


@pytest.mark.requirement("T5")
@pytest.mark.parametrize(("column", "value"), BRANCH_VALUES)
async def test_invalid_branch_is_refused(tmp_path: Path, column: str, value: Any) -> None:
    async with agent_of(tmp_path, []) as agent:
        await agent.thread("before").converse("Hello")
        await agent.thread("before").fork(to="t")
    assert run(tmp_path, f"UPDATE wa_branch SET {column}=? WHERE thread=?", value, THREAD) == 1
    before = contents(tmp_path)
    async with agent_of(tmp_path, []) as agent:
        thread = agent.thread("t")
        for use in (thread.history, lambda: thread.converse("Hello"), thread.fork, thread.replay, thread.state):
            with pytest.raises(StorageInvalid, match=rf"the branch '{THREAD}' in .* cannot be read.*; restore the"):
                await use()
        assert contents(tmp_path) == before
        assert (await agent.thread("before").converse("Hello")).status == "done"


@pytest.mark.requirement("H4", "T5")
@pytest.mark.parametrize("limited", [False, True], ids=["no limits", "limits"])
@pytest.mark.parametrize(("column", "value"), USED)
async def test_invalid_usage_is_refused_and_kept(tmp_path: Path, column: str, value: Any, limited: bool) -> None:
    def open_agent() -> WorldAgent:
        limits = {"tokens": 1_000_000} if limited else {}
        return scripted_agent(tmp_path, lm, settings={"account_limits": limits}, clock=VirtualClock())

    lm = answering("Here I am.")
    async with open_agent() as agent:
        await agent.thread("t", account="ada").converse("Hello")
    assert run(tmp_path, f"UPDATE wa_usage SET {column}=? WHERE account='ada'", value) == 1
    odd = contents(tmp_path)["wa_usage"]
    async with open_agent() as agent:
        thread = agent.thread("t", account="ada")
        for use in (lambda: thread.converse("Again"), lambda: agent.usage(account="ada")):
            with pytest.raises(StorageInvalid, match=r"the usage of 'novel/ada'.* cannot be read.*; restore") as caught:
                await use()
            assert caught.value.__context__ is None
        assert contents(tmp_path)["wa_usage"] == odd
        assert (await agent.thread("b", account="bob").converse("Hello")).status == "done"
        assert run(tmp_path, f"UPDATE wa_usage SET {column}=? WHERE account='ada'", 0) == 1
        begun = [message.kind for message in await thread.history()][2:]
        assert begun == ([] if limited else ["message"])  # with limits it is read before the turn begins
        turn = await (thread.converse("Again") if limited else thread.resume())
        assert (turn.status, turn.text) == ("done", "Here I am.")


@pytest.mark.requirement("T4")
@pytest.mark.parametrize("schema", [{"type": 7}, {"$ref": "http://127.0.0.1:1/schema"}])
async def test_invalid_form_is_refused_and_nothing_is_fetched(tmp_path: Path, pause: str, schema: Any) -> None:
    async with agent_of(tmp_path, []) as agent:
        [asked] = (await agent.thread("t").resume({pause: Approve()})).pauses
        ask = json.dumps({"kind": "question", "question": "Whose?", "schema": schema})
        assert run(tmp_path, "UPDATE wa_call SET ask=? WHERE kind='question'", ask) == 1
        with pytest.raises(StorageInvalid, match=r"the schema of the pause 'turn_.*; restore the database"):
            await agent.thread("t").resume({asked.id: {"name": "Ada"}})
        assert [each.id for each in await agent.thread("t").pauses()] == [asked.id]


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("parent", ["itself", "nothing"])
async def test_broken_chain_of_messages_is_refused(tmp_path: Path, parent: str) -> None:
    async with agent_of(tmp_path, []) as agent:
        thread = agent.thread("t")
        for _ in range(3):
            await thread.converse("Hello")
        history = await thread.history()
        key = {"itself": history[2].id, "nothing": "nothing"}[parent]
        run(tmp_path, "UPDATE wa_message SET parent=? WHERE id=?", key, history[2].id)
        named = rf"the message '{history[2].id}' in .* has changed since it was written"
        with pytest.raises(StorageInvalid, match=named):
            await thread.history()
        async with agent_of(tmp_path, []) as other:  # which remembers nothing of the thread
            with pytest.raises(StorageInvalid, match=named):
                await other.thread("t").converse("Hello")
        with pytest.raises(UnknownMessage):
            await thread.history(before=history[1].id)


# --- messages that were edited by hand ------------------------------------------------------------------------------

EDITED = {"a body": ("body", '{"text":"Buy ten hats"}'), "an author": ("author", "mallory")}


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("edited", EDITED)
async def test_edited_message_is_refused_by_its_id(tmp_path: Path, pause: str, edited: str) -> None:
    column, value = EDITED[edited]
    changed = f"UPDATE wa_message SET {column}=? WHERE thread='novel/before' AND depth=0"
    assert run(tmp_path, changed, value) == 1
    done: list[str] = []
    async with agent_of(tmp_path, done) as agent:
        thread = agent.thread("before")
        for use in (thread.history, lambda: thread.converse("Again")):
            with pytest.raises(
                StorageInvalid, match=r"the message '[0-9a-f]{32}' in .* has changed since it was written"
            ) as told:
                await use()
            assert value not in str(told.value)
        assert (await agent.thread("t").history())[0].body == {"text": "Buy a hat"}
