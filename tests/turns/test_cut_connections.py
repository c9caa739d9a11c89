"""Turns on a server that cuts connections or vanishes: who still owns the thread, and what is reported (T4, T5)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.agents import Said, Writing, scripted_agent, shape
from support.postgres import OwnServer, cut, new_database
from worldagent import WorldAgent
from worldagent.agent import Turn
from worldagent.core.errors import LeaseLost, StorageUnavailable
from worldagent.core.pauses import Happened, RunAgain
from worldagent.graphs import TaskContext
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = [pytest.mark.requirement("T4", "T5"), pytest.mark.timeout(300)]

BOUND = 60.0


@pytest.fixture
def url() -> str:
    return new_database()


class Shop:
    """Agents on one database, one of them open; their model and their function `slow` wait until they may go on."""

    def __init__(self, home: Path, url: str) -> None:
        self._home, self._url = home, url
        self.writing = Writing()
        self.asked, self.answer = asyncio.Event(), asyncio.Event()
        self.opened = self.agent()

    def agent(self) -> WorldAgent:
        settings = {"database_url": self._url}
        shapes, functions = [shape(self._job)], self.writing.functions
        return scripted_agent(self._home, ScriptedLM(self._reply), tools=functions, shapes=shapes, settings=settings)

    async def _job(self, ctx: TaskContext) -> str:
        slow = await ctx.call("slow", {"what": "slow"})
        return f"{slow} {await ctx.call('write', {'what': 'last'})}"

    async def _reply(self, call: ScriptedCall) -> dict[str, Any]:
        self.asked.set()
        await self.answer.wait()
        return {"reply": "Fine."}


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
async def test_old_owner_is_refused(url: str, shops: tuple[Shop, Shop], answer: object, done_there: list[str]) -> None:
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


async def test_disconnected_owner_without_a_successor_finishes(url: str, shops: tuple[Shop, Shop]) -> None:
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


@pytest.fixture
def server() -> Iterator[OwnServer]:
    started = OwnServer()
    yield started
    started.remove()


async def test_turn_whose_database_vanishes_fails_and_resumes_later(tmp_path: Path, server: OwnServer) -> None:
    shop = Shop(tmp_path, server.url)
    async with shop.opened as agent:
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
