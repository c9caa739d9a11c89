"""What is Postgres's own: addresses, servers that go away, locks that go with a connection, transactions at once."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import psutil
import psycopg
import pytest

from support.postgres import cut, new_database
from support.processes import eventually
from worldagent.core.errors import InvalidArgument, StorageUnavailable
from worldagent.storage import EPOCHS, Database, Lease, Leases, PostgresAddress, Schema, Storage, Transaction

pytestmark = pytest.mark.requirement("T4")

NOTES = Schema("notes", (("CREATE TABLE note(id TEXT PRIMARY KEY, text TEXT NOT NULL)",),))
NOBODY = "postgresql://ana:secret-word@127.0.0.1:1/novel"


@pytest.fixture
def url() -> str:
    return new_database()


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    async with contextlib.aclosing(await Database.open(PostgresAddress(url), schemas=[EPOCHS, NOTES])) as opened:
        yield opened


async def test_as_many_transactions_run_at_once_as_there_are_connections(url: str) -> None:
    backend = "SELECT pg_backend_pid()"
    for connections in (1, 3):
        together = threading.Barrier(connections)

        def work(transaction: Transaction, together: threading.Barrier = together) -> int:
            together.wait(10)
            return int(transaction.execute(backend)[0][0])

        async with contextlib.aclosing(
            await Database.open(PostgresAddress(url, connections), schemas=[EPOCHS])
        ) as opened:
            found = await asyncio.gather(*(opened.transact(work) for _ in range(2 * connections)))
        assert len(set(found)) == connections


async def test_transactions_that_stand_in_each_others_way_all_come_through(database: Database) -> None:
    await database.transact(lambda tx: tx.execute("INSERT INTO note VALUES('a', '0'), ('b', '0')"))
    both = threading.Barrier(2)

    def change(first: str, second: str, transaction: Transaction) -> None:
        transaction.execute("UPDATE note SET text=text || ? WHERE id=?", (first, first))
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(1)  # each has what the other wants now; it runs again alone
        transaction.execute("UPDATE note SET text=text || ? WHERE id=?", (first, second))

    await asyncio.gather(
        database.transact(lambda tx: change("a", "b", tx)), database.transact(lambda tx: change("b", "a", tx))
    )
    rows = dict(await database.read(lambda tx: tx.execute("SELECT id, text FROM note")))
    assert {name: sorted(text) for name, text in rows.items()} == {"a": ["0", "a", "b"], "b": ["0", "a", "b"]}


async def test_a_row_that_another_transaction_wrote_since_it_was_looked_for_is_found(database: Database) -> None:
    both = threading.Barrier(2)

    def add(transaction: Transaction) -> bool:
        there = transaction.hold("SELECT id FROM note WHERE id=?", ("a",))
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(1)  # neither has found it now; the second runs again alone
        if not there:
            transaction.execute("INSERT INTO note VALUES('a', '')")
        return not there

    assert sorted(await asyncio.gather(database.transact(add), database.transact(add))) == [False, True]


async def test_broken_connection_writes_nothing(url: str, database: Database) -> None:
    def work(transaction: Transaction) -> None:
        transaction.execute("INSERT INTO note VALUES('a', 'x')")
        assert cut(url) >= 1
        transaction.execute("INSERT INTO note VALUES('b', 'x')")

    with pytest.raises(StorageUnavailable, match=r"test_.* failed \(AdminShutdown|cannot be reached") as caught:
        await database.transact(work)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert await database.read(lambda tx: tx.execute("SELECT * FROM note")) == []


async def test_a_late_writer_under_way_is_waited_for_by_who_takes_over(url: str, database: Database) -> None:
    verified, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def late(lease: Lease, transaction: Transaction) -> None:
        lease.verify(transaction)
        loop.call_soon_threadsafe(verified.set)
        assert go_on.wait(10)
        transaction.execute("INSERT INTO note VALUES('late', 'x')")

    async def take() -> list[tuple[str]]:
        async with Leases(database, None).hold("t", wait=5):
            return await database.read(lambda tx: tx.execute("SELECT id FROM note"))

    async with Leases(database, None).hold("t", wait=0) as old:
        writing = asyncio.create_task(database.transact(lambda tx: late(old, tx)))
        await verified.wait()
        assert cut(url, like="%advisory_lock%") == 1
        taking = asyncio.create_task(take())
        _, pending = await asyncio.wait({taking}, timeout=0.2)
        assert pending, "the new owner began while the old one was writing"
        go_on.set()
        await writing
        assert await taking == [("late",)]


async def test_ids_sort_by_their_bytes_in_any_locale(database: Database) -> None:
    for text in ("b", "B", "a/", "a0", "a", "_"):
        await database.transact(lambda tx, t=text: tx.execute("INSERT INTO note VALUES(?, '')", (t,)))  # type: ignore[misc]  # bound
    rows = await database.read(lambda tx: tx.execute("SELECT id FROM note ORDER BY id"))
    assert [row[0] for row in rows] == ["B", "_", "a", "a/", "a0", "b"]


async def test_a_text_with_a_nul_is_refused_and_not_repeated(database: Database) -> None:
    with pytest.raises(InvalidArgument, match="contains a NUL character; remove it") as caught:
        await database.transact(lambda tx: tx.execute("INSERT INTO note VALUES('a', ?)", ("secret \0",)))
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("bad", ["mysql://a/b", "postgresql://a:b:c@[/d", 5])
def test_invalid_address_is_refused_and_not_repeated(bad: str) -> None:
    with pytest.raises(InvalidArgument, match=r"the database's url .*; write it as postgresql://USER") as caught:
        Storage(url=bad)
    assert not str(bad) or str(bad) not in str(caught.value)


async def test_unknown_option_of_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidArgument, match="a part that libpq does not know") as caught:
        await Database.open(PostgresAddress(f"{NOBODY}?zebra=1"), schemas=[])
    assert "zebra" not in f"{caught.value!r}{caught.value.__context__!r}"


async def test_error_of_a_statement_comes_out(database: Database) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        await database.read(lambda tx: tx.execute("SELECT 1/0"))


async def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    storage = Storage(url=NOBODY)
    assert isinstance(storage.place, PostgresAddress)
    with pytest.raises(StorageUnavailable, match=r"database 'novel on 127\.0\.0\.1:1' cannot be reached") as caught:
        await Database.open(storage.place, schemas=[])
    assert "secret" not in f"{caught.value!r}{storage!r}{storage.place!r}{storage.place}"


async def test_nothing_is_left_behind(url: str) -> None:
    await (await Database.open(PostgresAddress(url), schemas=[EPOCHS])).aclose()
    process = psutil.Process()
    threads, files = threading.active_count(), process.num_fds()
    for _ in range(3):
        database = await Database.open(PostgresAddress(url), schemas=[EPOCHS])
        async with Leases(database, None).hold("t", wait=0):
            await asyncio.gather(*(database.read(lambda tx: tx.execute("SELECT 1")) for _ in range(10)))
        await database.aclose()
    assert (threading.active_count(), process.num_fds()) == (threads, files)
    with psycopg.connect(url, autocommit=True) as connection:
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE application_name='worldagent' AND datname=current_database()"
        )
        # The server learns of the end of a connection a moment later.
        assert await eventually(lambda: connection.execute(query).fetchall() == [(0,)])
