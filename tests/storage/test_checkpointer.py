"""The checkpointer: LangGraph's contract for one, its own savers on the same tables, and what it adds (T4, T5)."""

import contextlib
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from support.databases import Engine, fresh
from worldagent.core.errors import LeaseLost, StorageInvalid, StorageUnavailable
from worldagent.graphs.checkpoints import CheckpointSaver
from worldagent.graphs.nesting import LEASE
from worldagent.storage import EPOCHS, Database, Leases, PostgresAddress

Place = Path | PostgresAddress
CAPABILITIES = {"put", "put_writes", "get_tuple", "list", "delete_thread"}


@contextlib.asynccontextmanager
async def ours(place: Place, *, known_only: bool = False) -> AsyncGenerator[CheckpointSaver]:
    database = await Database.open(place, schemas=[EPOCHS])
    try:
        yield await CheckpointSaver(database, known_only=known_only).create_tables()
    finally:
        await database.aclose()


@contextlib.asynccontextmanager
async def theirs(place: Place) -> AsyncGenerator[BaseCheckpointSaver[str]]:
    if isinstance(place, PostgresAddress):
        async with AsyncPostgresSaver.from_conn_string(place.url) as on_server:
            await on_server.setup()
            yield on_server
    else:
        place.parent.mkdir(exist_ok=True)
        async with AsyncSqliteSaver.from_conn_string(str(place)) as in_file:
            yield in_file


async def test_it_passes_the_base_capabilities_of_langgraphs_conformance_suite(engine: Engine, tmp_path: Path) -> None:
    folders = iter(range(100))

    @checkpointer_test(name="worldagent")
    async def saver() -> AsyncIterator[CheckpointSaver]:
        folder = tmp_path / str(next(folders))
        folder.mkdir()
        async with ours(fresh(engine, folder)) as made:
            yield made

    report = await validate(saver, capabilities=CAPABILITIES)
    assert {name: result.failures for name, result in report.results.items() if result.failures} == {}
    passed = {name: result.tests_passed for name, result in report.results.items() if result.passed}
    assert passed.keys() == CAPABILITIES
    assert min(passed.values()) > 1


async def wrote(saver: BaseCheckpointSaver[str], thread: str) -> None:
    """Two checkpoints, the second with plain values, others, and writes of two tasks."""
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    config = await saver.aput(config, empty_checkpoint(), {"source": "input", "step": -1, "parents": {}}, {})
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"plain": "text", "none": None, "list": [1, {"two": 2}]}
    versions = {name: saver.get_next_version(None, None) for name in checkpoint["channel_values"]}
    checkpoint["channel_versions"] = dict(versions)
    config = await saver.aput(config, checkpoint, {"source": "loop", "step": 0, "parents": {}}, dict(versions))
    await saver.aput_writes(config, [("list", ["b"]), ("plain", "c")], "second", "~b")
    await saver.aput_writes(config, [("list", ["a"])], "first", "~a")


async def held(saver: BaseCheckpointSaver[str], thread: str) -> list[object]:
    found = [each async for each in saver.alist({"configurable": {"thread_id": thread}})]
    assert (await saver.aget_tuple({"configurable": {"thread_id": thread}})) == found[0]
    return [(each.checkpoint["channel_values"], each.metadata, list(each.pending_writes or ())) for each in found]


@pytest.mark.parametrize(("writer", "reader"), [(ours, theirs), (theirs, ours)])
async def test_langgraphs_own_saver_reads_what_it_wrote_and_the_reverse(
    place: Place, writer: Callable[[Place], Any], reader: Callable[[Place], Any]
) -> None:
    async with writer(place) as saver:
        await wrote(saver, "t")
        before = await held(saver, "t")
    async with reader(place) as saver:
        assert await held(saver, "t") == before
        await wrote(saver, "t")  # the tables take its rows as well
        assert len(await held(saver, "t")) == 4


@pytest.mark.requirement("T4")
async def test_a_checkpoint_of_an_owner_who_lost_the_thread_is_refused(place: Place, tmp_path: Path) -> None:
    async with ours(place) as saver:
        leases = Leases(saver.database, tmp_path / "locks")
        async with leases.hold("t", wait=1) as late:
            pass
        async with leases.hold("t", wait=1) as lease:
            config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}

            async def put(owner: object) -> Any:
                fenced = {"configurable": {**config["configurable"], LEASE: owner}}
                return await saver.aput(fenced, empty_checkpoint(), {"source": "loop"}, {})

            kept = await put(lease)
            with pytest.raises(LeaseLost, match="'t'"):
                await put(late)
            with pytest.raises(LeaseLost, match="'t'"):
                await saver.aput_writes(
                    {"configurable": {**kept["configurable"], LEASE: late}}, [("__interrupt__", [])], "task"
                )
        found = await saver.aget_tuple({"configurable": {"thread_id": "t"}})
        assert found is not None
        assert (found.config, found.metadata, found.pending_writes) == (kept, {"source": "loop"}, [])


async def test_changed_tables_are_a_typed_error(tmp_path: Path) -> None:
    async with ours(tmp_path / "agent.db"):
        pass
    with contextlib.closing(sqlite3.connect(tmp_path / "agent.db")) as connection:
        connection.execute("ALTER TABLE checkpoints RENAME COLUMN metadata TO about")
    async with ours(tmp_path / "agent.db") as saver:
        with pytest.raises(StorageInvalid, match=r"agent\.db' are not in the form of LangGraph") as caught:
            await saver.aget_tuple({"configurable": {"thread_id": "t"}})
        assert "restore the file from a copy" in caught.value.remedy


async def test_full_disk_is_not_taken_for_changed_tables(tmp_path: Path) -> None:
    async with ours(tmp_path / "agent.db") as saver:
        [(pages,)] = await saver.database.transact(lambda tx: tx.execute("PRAGMA page_count"))
        await saver.database.transact(lambda tx: tx.execute(f"PRAGMA max_page_count={pages}"))
        checkpoint, config = empty_checkpoint(), {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        checkpoint["channel_values"] = {"head": "x" * 100_000}
        with pytest.raises(StorageUnavailable, match="disk is full"):
            await saver.aput(config, checkpoint, {}, {})
