"""A server that vanishes, or is started again, in the middle of a copy: what is reported, and a copy made afresh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.copies import all_of, storage, used
from support.postgres import OwnServer
from worldagent import Storage
from worldagent.agent.copying import Progress, copy_storage
from worldagent.core.errors import StorageUnavailable

pytestmark = [pytest.mark.requirement("T4", "T5"), pytest.mark.timeout(300)]

PARTS = ("wa_epoch", "wa_turn", "checkpoints")


@pytest.fixture
def server() -> Iterator[OwnServer]:
    started = OwnServer()
    yield started
    started.remove()


def at(part: str, server: OwnServer, *, again: bool = False) -> Progress:
    """Have the server vanish once a batch of a part is there."""

    def told(copied: str, done: int, total: int) -> None:
        if copied == part:
            server.stop()
            if again:
                server.start()

    return told


async def copied_at_last(source: Storage, target: Storage, server: OwnServer) -> None:
    """Copy, while the server vanishes again and again."""
    for part in PARTS:
        with pytest.raises(StorageUnavailable, match="cannot be reached, or the connection broke; start the server"):
            await copy_storage(source, target, progress=at(part, server))
        server.start()
    assert (await copy_storage(source, target)).restarted


async def test_a_copy_is_made_afresh_once_its_server_is_back(tmp_path: Path, server: OwnServer) -> None:
    source, there = storage("sqlite", tmp_path / "one"), Storage(home=tmp_path / "two", url=server.url)
    back = storage("sqlite", tmp_path / "three")
    await used(source)
    await copied_at_last(source, there, server)
    await copied_at_last(there, back, server)
    assert await all_of(back) == await all_of(there) == await all_of(source)


async def test_a_copy_outlasts_a_server_that_is_started_again(tmp_path: Path, server: OwnServer) -> None:
    source, target = storage("sqlite", tmp_path / "one"), Storage(home=tmp_path / "two", url=server.url)
    await used(source)
    assert not (await copy_storage(source, target, progress=at("wa_turn", server, again=True))).restarted
    assert await all_of(target) == await all_of(source)
