"""Turns on a server that cuts their connections: who still owns the thread, who is told that they do not (T4, T5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.agents import Said
from support.postgres import cut, new_database
from support.shops import SlowShop
from worldagent import Storage
from worldagent.agent import Turn
from worldagent.core.errors import LeaseLost
from worldagent.core.pauses import Happened, RunAgain

pytestmark = pytest.mark.requirement("T4", "T5")

BOUND = 60.0


@pytest.fixture
def url() -> str:
    return new_database()


class Shop(SlowShop):
    """A shop with one agent on the shared database, in a home of its own, as on another machine."""

    def __init__(self, home: Path, url: str) -> None:
        super().__init__(home, url)
        self.opened = self.agent()
        assert self.opened.storage.place == Storage(url=url).place


def text_of(turn: Turn) -> str:
    assert isinstance(turn.result, Said)
    return turn.result.text


@pytest.fixture
async def shops(tmp_path: Path, url: str) -> AsyncIterator[tuple[Shop, Shop]]:
    here, there = Shop(tmp_path / "here", url), Shop(tmp_path / "there", url)
    async with here.opened, there.opened:
        yield here, there


@pytest.mark.parametrize(
    ("answer", "done_there"),
    [(Happened("slow"), ["last"]), (RunAgain(), ["slow", "last"])],
    ids=["it happened", "it runs again"],
)
async def test_an_owner_that_is_cut_off_in_mid_effect_is_taken_over_and_writes_nothing_more(
    url: str, shops: tuple[Shop, Shop], answer: object, done_there: list[str]
) -> None:
    here, there = shops
    running = asyncio.create_task(here.opened.thread("t").task("job", {}))
    await asyncio.wait_for(here.writing.waits.wait(), BOUND)
    assert cut(url) >= 2, "locks and turns have connections of their own"
    assert [state.status for state in await there.opened.threads()] == ["cut_off"]
    turn = await there.opened.thread("t").resume()
    [pause] = turn.pauses
    assert (pause.kind, pause.function, dict(pause.arguments)) == ("uncertain", "slow", {"what": "slow"})
    there.writing.go.set()
    turn = await there.opened.thread("t").resume({pause.id: answer})
    assert (turn.status, text_of(turn)) == ("done", "slow last")
    said = await there.opened.thread("t").history()
    here.writing.go.set()
    with pytest.raises(LeaseLost, match="another owner took over 'novel/t' after epoch 1"):
        await asyncio.wait_for(running, BOUND)
    assert (here.writing.done, there.writing.done) == (["slow"], done_there)
    assert await there.opened.thread("t").history() == await here.opened.thread("t").history() == said
    assert [state.status for state in await here.opened.threads()] == ["done"]


async def test_an_owner_that_is_cut_off_and_that_nobody_takes_over_goes_on_to_the_end(
    url: str, shops: tuple[Shop, Shop]
) -> None:
    here, there = shops
    running = asyncio.create_task(here.opened.thread("t").task("job", {}))
    await asyncio.wait_for(here.writing.waits.wait(), BOUND)
    assert cut(url) >= 3
    here.writing.go.set()
    turn = await asyncio.wait_for(running, BOUND)
    assert (turn.status, text_of(turn)) == ("done", "slow last")
    assert here.writing.done == ["slow", "last"]
    there.answer.set()
    assert (await there.opened.thread("t").converse("Hi")).text == "Fine."
