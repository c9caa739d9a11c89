"""A database that vanishes in mid-turn: what the turn is told, and that it goes on once the server is back (T4, T5)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agents import Said
from support.postgres import OwnServer
from support.shops import SlowShop
from worldagent.core.errors import StorageUnavailable
from worldagent.core.pauses import Happened

BOUND = 60.0

pytestmark = [pytest.mark.requirement("T4", "T5"), pytest.mark.timeout(300)]


@pytest.fixture
def server() -> Iterator[OwnServer]:
    started = OwnServer()
    yield started
    started.remove()


async def test_a_turn_whose_database_vanishes_in_mid_call_of_the_model_says_so_and_goes_on_later(
    tmp_path: Path, server: OwnServer
) -> None:
    shop = SlowShop(tmp_path, server.url)
    async with shop.agent() as agent:
        thread = agent.thread("t")
        running = asyncio.create_task(thread.converse("Hi"))
        await asyncio.wait_for(shop.asked.wait(), BOUND)
        await asyncio.to_thread(server.stop)
        shop.answer.set()
        with pytest.raises(StorageUnavailable) as caught:
            await asyncio.wait_for(running, BOUND)
        assert caught.value.remedy == "start the server, or correct host and port in the database's url"
        for work in (thread.converse("Still there?"), thread.resume(), thread.history(), agent.threads()):
            with pytest.raises(
                StorageUnavailable, match="cannot be reached, or the connection broke; start the server"
            ):
                await asyncio.wait_for(work, BOUND)
        await asyncio.to_thread(server.start)
        assert [(state.status, state.turn_id) for state in await agent.threads()] == [("cut_off", caught.value.turn_id)]
        assert (await asyncio.wait_for(thread.resume(), BOUND)).text == "Fine."
        assert [message.kind for message in await thread.history()] == ["message", "answer"]
        assert (await thread.converse("And now?")).text == "Fine."


async def test_an_effect_whose_database_vanishes_meanwhile_is_asked_of_a_person_and_not_done_again(
    tmp_path: Path, server: OwnServer
) -> None:
    shop = SlowShop(tmp_path, server.url)
    async with shop.agent() as agent:
        running = asyncio.create_task(agent.thread("t").task("job", {}))
        await asyncio.wait_for(shop.writing.waits.wait(), BOUND)
        await asyncio.to_thread(server.stop)
        shop.writing.go.set()
        with pytest.raises(StorageUnavailable):
            await asyncio.wait_for(running, BOUND)
    assert shop.writing.done == ["slow"]
    with pytest.raises(StorageUnavailable):
        await shop.agent().start()
    await asyncio.to_thread(server.start)
    async with shop.agent() as agent:  # as another process would
        turn = await agent.thread("t").resume()
        [pause] = turn.pauses
        assert (pause.kind, pause.function) == ("uncertain", "slow")
        turn = await agent.thread("t").resume({pause.id: Happened("slow")})
        assert turn.result == Said(text="slow last")
    assert shop.writing.done == ["slow", "last"]
