"""Going on with a turn as `next` names it: what becomes of it when the client goes away, and what a call is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from support.role_hosts import BOUND
from support.sidecar_calls import Refused, Revision
from support.sidecar_clients import HttpClient
from support.sidecar_served import agents, codes, served
from support.sidecars import REVISIONS
from worldagent.agent import TurnStream
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import tool
from worldagent.hosts.sidecar import Sidecar
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("T10")
revisions = pytest.mark.parametrize("revision", REVISIONS)


PLACE = {"workspace": "novel", "thread": "t1"}


class Order(BaseModel):
    what: str = "hat"


class Receipt(BaseModel):
    text: str


class Shop:
    """A shop whose payments take as long as the test wants."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.paying, self.paid = asyncio.Event(), asyncio.Event()

    def sidecar(self) -> Sidecar:
        async def pay(what: str) -> str:
            self.paying.set()
            await self.paid.wait()
            return f"paid for the {what}"

        async def buy(params: Order, ctx: TaskContext) -> Receipt:
            return Receipt(text=await ctx.call("pay", {"what": params.what}))

        shapes = [Shape("buy", Order, Receipt, buy)]
        return Sidecar(agents(self._home, lm=ScriptedLM([]), tools=[tool(approval=True)(pay)], shapes=shapes))

    async def asks(self, client: HttpClient, **given: Any) -> dict[str, Any]:
        """Begin a turn that waits for a person; gives the answers that it waits for."""
        paused = await client.ask("task", **PLACE, shape="buy", **given)
        return {pause["id"]: {"approve": {}} for pause in paused["turn"]["pauses"]}


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[TurnStream]:
    """The streams of turns that calls have come to, whether or not they run them."""
    found: list[TurnStream] = []
    enter = TurnStream.__aenter__

    async def entering(stream: TurnStream) -> TurnStream:
        await enter(stream)
        found.append(stream)
        return stream

    monkeypatch.setattr(TurnStream, "__aenter__", entering)
    return found


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what nobody is told of."""
    async with asyncio.timeout(BOUND):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def ended(client: HttpClient, thread: str = "t1") -> str:
    """How the thread's turn stands once it runs no longer."""
    async with asyncio.timeout(BOUND):
        while (found := await client.ask("pauses", workspace="novel", thread=thread))["status"] == "running":  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # it is written down after the connection has gone
    return str(found["status"])


@revisions
@pytest.mark.parametrize(
    ("start", "given", "status"),
    [
        ({"key": "k", "detach": True}, {}, "done"),
        ({}, {}, "done"),
        ({"detach": False}, {}, "cancelled"),
        ({"detach": False}, {"detach": True}, "done"),
        ({"key": "k", "detach": True}, {"detach": False}, "cancelled"),
    ],
    ids=["key and detach", "neither", "not detached", "not detached, and detached now", "not any more"],
)
async def test_a_turn_goes_on_as_it_began_when_the_connection_breaks_in_resume(
    revision: Revision,
    start: dict[str, Any],
    given: dict[str, Any],
    status: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="worldagent.requests")
    shop = Shop(tmp_path)
    async with served(shop.sidecar()) as url, HttpClient(url, revision=revision) as client:
        paused = await client.ask("task", workspace="novel", thread="t1", shape="buy", **start)
        [pause], [step] = paused["turn"]["pauses"], paused["next"]
        arguments = step["arguments"] | {"answers": {pause["id"]: {"approve": {}}}} | given
        caplog.clear()
        async with HttpClient(url, revision=revision) as gone, gone.call(step["tool"], arguments) as call:
            await anext(aiter(call))
            await asyncio.wait_for(shop.paying.wait(), BOUND)
        await until(lambda: "cancelled" in codes(caplog))
        shop.paid.set()
        assert await ended(client) == status
        if "key" in start:
            again = await client.ask("task", workspace="novel", thread="t1", shape="buy", **start)
            assert (again["turn"]["id"], again["turn"]["status"]) == (paused["turn"]["id"], status)


@revisions
async def test_who_meets_a_running_turn_that_keeps_no_events_waits_for_its_end_with_resume(
    revision: Revision, tmp_path: Path, entered: list[TurnStream]
) -> None:
    shop = Shop(tmp_path)
    sidecar = shop.sidecar()
    async with served(sidecar) as url, HttpClient(url, revision=revision) as one, HttpClient(url) as other:
        answers = await shop.asks(one, account="ana", detach=False)
        going = asyncio.create_task(one.ask("resume", **PLACE, account="ana", answers=answers))
        await asyncio.wait_for(shop.paying.wait(), BOUND)
        found = await other.ask("pauses", **PLACE, account="ana")
        [step] = found["next"]
        assert (found["status"], step["tool"], step["arguments"]) == ("running", "resume", PLACE | {"account": "ana"})
        assert step["why"] == "the turn is running and keeps no events; resume waits a while for its end"

        async with HttpClient(url, revision=revision) as leaving:  # who waits and leaves takes nothing along
            waiting = asyncio.create_task(leaving.ask("resume", **step["arguments"]))
            await until(lambda: len(entered) == 3)
            waiting.cancel()
            await asyncio.wait({waiting})
        await until(lambda: sidecar.health()["turns"] == 1)
        second = asyncio.create_task(other.ask("resume", **step["arguments"]))
        await until(lambda: len(entered) == 4)
        shop.paid.set()
        first, waited = await going, await second
    assert first["turn"]["status"] == "done"
    assert (waited["turn"]["id"], waited["turn"]["status"]) == (first["turn"]["id"], "done")


@revisions
async def test_to_resume_without_answers_asks_a_person_where_the_client_can(revision: Revision, tmp_path: Path) -> None:
    shop, asked = Shop(tmp_path), list[str]()
    shop.paid.set()

    def approve(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["message"])
        return {"action": "accept", "content": {"decision": "approve"}}

    async with served(shop.sidecar()) as url, HttpClient(url, revision=revision) as client:
        paused = await client.ask("task", **PLACE, shape="buy", detach=True)
        async with (
            HttpClient(url, revision=revision, elicit=approve) as other,
            other.call("resume", PLACE | {"after": paused["seq"]}) as call,
        ):
            told = [event["seq"] async for event in call]
            done = await call.answer()
    assert (done["turn"]["status"], len(asked)) == ("done", 1)
    assert told == [*range(paused["seq"] + 1, done["seq"] + 1)]


async def test_an_error_names_the_turn_that_it_is_about(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.paid.set()
    async with served(shop.sidecar()) as url, HttpClient(url) as client:

        async def refused(tool_name: str, **given: Any) -> tuple[str, str | None]:
            with pytest.raises(Refused) as found:
                await client.ask(tool_name, **given)
            error = found.value.told["structuredContent"]["error"]
            return error["code"], error.get("turn_id")

        where = PLACE | {"account": "ana"}
        assert await refused("resume", **where) == ("nothing_to_resume", None)
        answers = await shop.asks(client, account="ana", detach=False)
        turn_id = (await client.ask("pauses", **where))["turn_id"]
        [pause] = answers
        assert await refused("resume", **where, answers={"turn_0/none": {"approve": {}}}) == ("unknown_pause", turn_id)
        assert await refused("resume", **where, answers={pause: {"answer": 1}}) == ("answer_invalid", turn_id)
        assert (await client.ask("resume", **where, answers=answers))["turn"]["status"] == "done"
        assert await refused("resume", **where, answers=answers) == ("already_answered", turn_id)
        assert await refused("resume", **where) == ("nothing_to_resume", turn_id)
        assert await refused("events", workspace="novel", turn_id=turn_id) == ("events_gone", turn_id)
