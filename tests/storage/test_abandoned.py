"""An abandoned coroutine is closed by the collector, which can run while a thread pool takes a job.

Its locks are held then by the very thread that the collector runs in: whoever hands over another job stands still.
"""

import asyncio
import contextlib
import itertools
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes import eventually
from support.steps import Abandoned, abandon
from worldagent.storage import EPOCHS, Database, Leases, PostgresAddress, Schema

Place = Path | PostgresAddress
LIMIT = 20
NOTES = Schema("notes", (("CREATE TABLE note(id BIGINT NOT NULL, text TEXT NOT NULL)",),))


@pytest.fixture(autouse=True)
def _unclosed() -> Iterator[None]:
    """Nobody closes what was abandoned, which Python may say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def pools() -> int:
    return sum(thread.name.startswith("worldagent-") for thread in threading.enumerate())


@pytest.mark.requirement("T5")
async def test_abandoned_opening_hands_over_no_job(place: Place) -> None:
    before = pools()
    database: Database | None = None
    suspension = 0
    while database is None:
        suspension += 1
        try:
            database = await abandon(Database.open(place, schemas=[NOTES]), suspension)
        except Abandoned:
            assert await eventually(lambda: pools() <= before, LIMIT)
    assert suspension > 1
    await database.aclose()


@pytest.mark.requirement("T4", "T5")
async def test_abandoned_lease_hands_over_no_job(place: Place, tmp_path: Path) -> None:
    async with contextlib.aclosing(await Database.open(place, schemas=[EPOCHS])) as database:
        leases, owned = Leases(database, tmp_path / "locks"), asyncio.Event()

        async def own() -> None:
            async with leases.hold("t", wait=LIMIT):
                owned.set()
                await asyncio.get_running_loop().create_future()

        for suspension in itertools.count(1):
            if owned.is_set():
                break
            with pytest.raises(Abandoned):
                await abandon(own(), suspension)
        async with leases.hold("t", wait=LIMIT):
            pass
