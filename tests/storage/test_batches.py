"""What the owner of a thread writes: parts that wait, in order, in one transaction with the part that takes them."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from worldagent.core.errors import LeaseLost, StorageUnavailable
from worldagent.storage import EPOCHS, Database, Lease, Leases, PostgresAddress, Schema, Transaction
from worldagent.storage.sqlite import SqliteDatabase

pytestmark = [pytest.mark.requirement("T4"), pytest.mark.parametrize("engine", ["sqlite"])]

WORDS = Schema("words", (("CREATE TABLE wa_word(place BIGINT PRIMARY KEY, word TEXT NOT NULL)",),))
LIMIT = 10.0


class Watched:
    """A database that counts its write transactions, runs each twice, and fails as often as it is told to."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.transactions, self.failures = 0, 0
        self.begun, self.may = asyncio.Event(), asyncio.Event()
        self.may.set()

    async def transact(self, work: Callable[[Transaction], Any]) -> Any:
        self.transactions += 1
        self.begun.set()
        await self.may.wait()

        def rolled_back(transaction: Transaction) -> None:
            work(transaction)
            raise StorageUnavailable("the disk is full", remedy="make room")

        with contextlib.suppress(StorageUnavailable):
            await self._database.transact(rolled_back)
        if self.failures:
            self.failures -= 1
            await self._database.transact(rolled_back)
        return await self._database.transact(work)


@pytest.fixture
async def database(place: Path | PostgresAddress) -> AsyncIterator[Database]:
    async with contextlib.aclosing(await Database.open(place, schemas=[EPOCHS, WORDS])) as opened:
        yield opened


@pytest.fixture
def leases(database: Database, tmp_path: Path) -> Leases:
    return Leases(database, tmp_path / "locks")


def say(word: str) -> Callable[[Transaction], str]:
    """A part that writes a word behind those that are there."""

    def part(transaction: Transaction) -> str:
        [(place,)] = transaction.execute("SELECT COUNT(*) FROM wa_word")
        transaction.execute("INSERT INTO wa_word(place, word) VALUES(?, ?)", (place, word))
        return word.upper()

    return part


async def said(database: Database) -> list[str]:
    rows = await database.read(lambda tx: tx.execute("SELECT word FROM wa_word ORDER BY place"))
    return [word for (word,) in rows]


def watched(lease: Lease) -> Watched:
    lease.database = found = Watched(lease.database)  # type: ignore[assignment]  # it has what a lease needs
    return found


async def test_enqueued_parts_are_written_with_the_next_commit(database: Database, leases: Leases) -> None:
    async with leases.hold("t", wait=0) as lease:
        seen = watched(lease)
        lease.enqueue(say("one"))
        lease.enqueue(say("two"))
        assert await said(database) == []
        assert await lease.commit(say("three")) == "THREE"
        assert await said(database) == ["one", "two", "three"]
        assert seen.transactions == 1


async def test_commits_that_come_while_one_is_under_way_go_together(database: Database, leases: Leases) -> None:
    async with leases.hold("t", wait=0) as lease:
        seen = watched(lease)
        seen.may.clear()
        first = asyncio.create_task(lease.commit(say("0")))
        await seen.begun.wait()
        others = [asyncio.create_task(lease.commit(say(str(at)))) for at in range(1, 6)]
        await asyncio.sleep(0)
        seen.may.set()
        assert await asyncio.gather(first, *others) == list("012345")
        assert await said(database) == list("012345")
        assert seen.transactions == 2


async def test_failed_transaction_fails_its_parts_and_what_follows(database: Database, leases: Leases) -> None:
    async with leases.hold("t", wait=0) as lease:
        await lease.commit(say("before"))
        watched(lease).failures = 1
        lease.enqueue(say("one"))
        with pytest.raises(StorageUnavailable, match="full"):
            await lease.commit(say("two"))
        for after in (lambda: lease.commit(say("three")), lease.flush):
            with pytest.raises(StorageUnavailable, match="full"):
                await after()
        with pytest.raises(StorageUnavailable, match="full"):
            lease.enqueue(say("four"))
        assert await said(database) == ["before"]
        lease.recover()
        await lease.commit(say("how it ended"))
    assert await said(database) == ["before", "how it ended"]


async def test_cancelled_writer_fails_its_commits(database: Database, leases: Leases) -> None:
    others = asyncio.all_tasks()
    with contextlib.suppress(asyncio.CancelledError):  # for what the block has written
        async with leases.hold("t", wait=0) as lease:
            seen = watched(lease)
            seen.may.clear()
            commit = asyncio.ensure_future(lease.commit(say("one")))
            await asyncio.wait_for(seen.begun.wait(), LIMIT)
            [writer] = asyncio.all_tasks() - others - {commit}
            writer.cancel()
            await asyncio.wait({writer, commit}, timeout=LIMIT)
            assert writer.cancelled()
            assert commit.cancelled()
    assert await said(database) == []


async def test_what_waits_for_a_file_is_committed_together_and_one_that_fails_fails_alone(database: Database) -> None:
    assert isinstance(database, SqliteDatabase)
    busy, may = threading.Event(), threading.Event()
    statements: list[str] = []
    await database._writer.alone(lambda connection: connection.set_trace_callback(statements.append))

    def slow(transaction: Transaction) -> None:
        busy.set()
        assert may.wait(LIMIT)

    def refused(transaction: Transaction) -> None:
        transaction.execute("DELETE FROM wa_word")
        raise ZeroDivisionError

    for works, commits in (([say("one"), say("two"), say("three")], 2), ([say("four"), refused, say("five")], 3)):
        busy.clear()
        may.clear()
        statements.clear()
        first = asyncio.create_task(database.transact(slow))
        assert await asyncio.to_thread(busy.wait, LIMIT)
        others = [asyncio.create_task(database.transact(work)) for work in works]
        await asyncio.sleep(0)
        may.set()
        await first
        results = await asyncio.gather(*others, return_exceptions=True)
        assert [type(each) for each in results] == [ZeroDivisionError if work is refused else str for work in works]
        assert statements.count("COMMIT") == commits
    assert await said(database) == ["one", "two", "three", "four", "five"]


async def test_what_need_not_outlive_the_machine_is_not_synced_and_what_follows_is(database: Database) -> None:
    assert isinstance(database, SqliteDatabase)
    statements: list[str] = []
    await database._writer.alone(lambda connection: connection.set_trace_callback(statements.append))
    await database.transact(say("one"), synced=False)
    await database.transact(say("two"))
    assert [word for word in statements if word.startswith(("PRAGMA", "COMMIT"))] == [
        "PRAGMA synchronous=NORMAL",
        "COMMIT",
        "PRAGMA synchronous=FULL",
        "COMMIT",
    ]
    assert await said(database) == ["one", "two"]


async def test_commit_without_its_block_is_reported(database: Database, leases: Leases) -> None:
    waiting: list[asyncio.Task[str]] = []
    with contextlib.suppress(ZeroDivisionError):
        async with leases.hold("t", wait=0) as lease:
            seen = watched(lease)
            seen.may.clear()
            waiting += [asyncio.create_task(lease.commit(say("first")))]
            await seen.begun.wait()
            waiting += [asyncio.create_task(lease.commit(say("second")))]
            await asyncio.sleep(0)
            seen.may.set()
            raise ZeroDivisionError
    async with asyncio.timeout(LIMIT):
        assert await waiting[0] == "FIRST"
        with pytest.raises(LeaseLost, match="has ended"):
            await waiting[1]
    assert await said(database) == ["first"]
