"""One owner per thread: in one process, between processes, after a kill, and when a lock is lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from support.databases import word
from support.processes import next_line, start_script
from worldagent.core.errors import InvalidArgument, LeaseLost, ThreadBusy
from worldagent.storage import EPOCHS, Database, Known, Lease, Leases, PostgresAddress, Transaction
from worldagent.storage import lease as module

pytestmark = pytest.mark.requirement("T4")

BOUND = 20.0
Place = Path | PostgresAddress

in_files = pytest.mark.parametrize("engine", ["sqlite"])
"""For a test of lock files."""


@pytest.fixture
async def database(place: Place) -> AsyncIterator[Database]:
    async with contextlib.aclosing(await Database.open(place, schemas=[EPOCHS])) as opened:
        yield opened


@pytest.fixture
def leases(database: Database, tmp_path: Path) -> Leases:
    return Leases(database, tmp_path / "locks")


async def take(leases: Leases, key: str, *, wait: float = BOUND) -> Lease:
    async with leases.hold(key, wait=wait) as lease:
        return lease


@in_files
async def test_owners_in_one_process_come_first_served_one_at_a_time(leases: Leases) -> None:
    served: list[int] = []
    inside = 0

    async def owner(number: int) -> None:
        nonlocal inside
        async with leases.hold("t", wait=BOUND):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            served.append(number)
            inside -= 1

    async with leases.hold("t", wait=0):
        owners = []
        for number in range(20):
            owners.append(asyncio.create_task(owner(number)))
            await asyncio.sleep(0)
    await asyncio.gather(*owners)
    assert served == list(range(20))


@in_files
@pytest.mark.parametrize(("key", "wait", "says"), [("", 0, "`key`"), ("\ud800", 0, "`key`"), ("t", -1, "`wait`.*-1")])
async def test_invalid_key_or_wait_is_refused(leases: Leases, key: str, wait: float, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        await take(leases, key, wait=wait)


async def test_where_many_wait_in_one_process_another_one_is_let_in(
    leases: Leases, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_RUN_SECONDS", 0.2)
    served: list[str] = []
    begun = asyncio.Event()

    async def owner() -> None:
        async with leases.hold("t", wait=BOUND):
            served.append("here")
            begun.set()
            await asyncio.sleep(0.1)  # as long as a turn; whoever asks elsewhere looks once in this time or twice

    async with contextlib.aclosing(await Database.open(place, schemas=[EPOCHS])) as other:
        for _ in range(3):
            owners = [asyncio.create_task(owner()) for _ in range(15)]
            await begun.wait()
            await take(Leases(other, tmp_path / "locks"), "t")
            assert 0 < len(served) < 10, "it came to those who wait elsewhere after all who wait here"
            for task in owners:
                task.cancel()
            await asyncio.wait(owners)
            served.clear()
            begun.clear()


OWN_UNTIL_KILLED = """
import asyncio, sys
from pathlib import Path
from support.databases import named
from worldagent.storage import EPOCHS, Database, Leases
async def main():
    database = await Database.open(named(sys.argv[1]), schemas=[EPOCHS])
    async with Leases(database, Path(sys.argv[2])).hold("t", wait=20):
        print("there", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    await database.aclose()
asyncio.run(main())
"""


async def test_owned_keys_are_listed(leases: Leases, place: Place, tmp_path: Path) -> None:
    assert await leases.owned(["a", "b"]) == frozenset()
    process = await start_script(OWN_UNTIL_KILLED, word(place), tmp_path / "locks")
    assert await next_line(process) == "there"
    async with leases.hold("a", wait=0):
        assert await leases.owned(["a", "b", "t"]) == {"a", "t"}
    assert await leases.owned(["a", "b", "t"]) == {"t"}
    with pytest.raises(ThreadBusy, match=r"'t' still has another owner after 0 s; try again"):
        await take(leases, "t", wait=0)
    process.kill()
    await process.wait()
    assert await take(leases, "t", wait=5) == Lease("t", 2, leases._database)  # a server notices a moment later
    assert await leases.owned(["t"]) == frozenset()


@in_files
async def test_a_late_writer_is_fenced_and_writes_nothing(database: Database, leases: Leases, tmp_path: Path) -> None:
    await database.transact(lambda tx: tx.execute("CREATE TABLE note(text TEXT)"))

    def note(lease: Lease, transaction: Transaction) -> None:
        transaction.execute("INSERT INTO note VALUES(?)", (str(lease.epoch),))
        lease.verify(transaction)

    async with leases.hold("t", wait=0) as old:
        await database.transact(lambda tx: note(old, tx))
        # Another folder of locks stands for a file system that lost the lock while its holder lives.
        async with Leases(database, tmp_path / "elsewhere").hold("t", wait=0) as new:
            with pytest.raises(LeaseLost, match="another owner took over 't' after epoch 1"):
                await database.transact(lambda tx: note(old, tx))
            await database.transact(lambda tx: note(new, tx))
    assert await database.read(lambda tx: tx.execute("SELECT text FROM note")) == [("1",), ("2",)]


@in_files
async def test_any_key_makes_a_plain_file_name(leases: Leases, tmp_path: Path) -> None:
    for key in ("../../escape", "a/b\x00c", "x" * 5000, "Thread", "thread", "é"):
        await take(leases, key, wait=0)
    names = {file.name for file in (tmp_path / "locks").iterdir()}
    assert len(names) == 6
    assert all(name.endswith(".lock") and name[:-5].isalnum() and len(name) == 37 for name in names)


# --- what the last owner knew ---------------------------------------------------------------------------------------


def reading(*found: str) -> Callable[[Transaction], Known]:
    """Gives one of `found` each time that it is read."""
    left = iter(found)
    return lambda transaction: {str: next(left)}


@in_files
@pytest.mark.parametrize("between", ["another process", "another use", "a failure"])
async def test_next_owner_reads_again(leases: Leases, database: Database, tmp_path: Path, between: str) -> None:
    await take(leases, "t")
    async with leases.hold("t", wait=0, read=reading("old")):
        pass
    with contextlib.suppress(ZeroDivisionError):
        elsewhere = Leases(database, tmp_path / "locks") if between == "another process" else leases
        read = reading() if between == "a failure" else None
        async with elsewhere.hold("t", wait=0, read=read):
            if between == "a failure":
                raise ZeroDivisionError
    async with leases.hold("t", wait=0, read=reading("new")) as lease:
        assert lease.known == {str: "new"}


async def test_the_epoch_of_a_key_that_is_never_owned_only_rises(leases: Leases) -> None:
    assert await leases.epoch("mark") == 0
    for given, found in ((7, 7), (5, 7), (1_800_000_000_000, 1_800_000_000_000)):
        await leases.raise_epoch("mark", given)
        assert await leases.epoch("mark") == found
    assert await leases.epoch("other") == 0
