"""Following turns: `events` and `resume`, clients that go away, and how turns ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from support.processes import eventually
from support.role_hosts import BOUND
from support.sidecar_calls import Revision
from support.sidecar_clients import HttpClient
from support.sidecar_served import agents, codes, served
from support.sidecars import REVISIONS, over_http, status, until
from support.sidecars import Sidecar as Process
from worldagent.agent import TurnStream
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import tool
from worldagent.hosts.sidecar import Sidecar
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("T10")


# --- going on -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("known", ["the first event", "not said"])
async def test_who_goes_on_gets_what_was_told_while_they_were_away(
    revision: Revision, known: str, tmp_path: Path
) -> None:
    async with over_http(tmp_path / "home") as sidecar, sidecar.client(revision) as away:
        start = {"thread": "t1", "text": "do=buy what=hat", "key": "k1", "detach": True}
        async with sidecar.client(revision) as leaving, leaving.call("converse", start) as call:
            first = await anext(aiter(call))
        await until(lambda: _stands(away, "paused"), BOUND)
        waiting = await away.ask("pauses", thread="t1")
        [pause] = waiting["pauses"]
        given: dict[str, Any] = {"thread": "t1", "answers": {pause["id"]: {"approve": pause["answers"]["approve"]}}}
        after = {"the first event": {"after": 1}, "not said": {}}[known]
        async with away.call("resume", given | after) as again:
            rest = [event async for event in again]
            assert (await again.answer())["turn"]["status"] == "done"
        every = (await away.ask("events", turn_id=first["turn_id"], wait=0))["events"]
    numbers = [event["seq"] for event in every]
    assert numbers == [*range(1, len(every) + 1)]
    if known == "not said":
        assert rest == every[-len(rest) :]
        assert (rest[0]["type"], rest[0]["resumed"]) == ("turn_started", True)
    else:
        assert rest == every[after["after"] :]


async def _stands(client: HttpClient, expected: str) -> bool:
    return await status(client) == expected


# --- numbers ----------------------------------------------------------------------------------------------------------


# --- readers ----------------------------------------------------------------------------------------------------------


# --- ends -------------------------------------------------------------------------------------------------------------


async def test_what_was_let_go_of_is_abandoned_and_what_was_ended_is_cancelled_whoever_asks(tmp_path: Path) -> None:
    home = tmp_path / "home"
    start = {"text": "hold=never", "key": "k", "detach": True, "account": "ana"}
    turns: dict[str, str] = {}
    async with over_http(home) as sidecar:
        for thread in ("passed", "ended"):
            turns[thread] = await _begun(sidecar, {"thread": thread, **start})
        await sidecar.killed()
    async with over_http(home) as sidecar, sidecar.client() as client:
        for thread in turns:
            assert (await client.ask("pauses", thread=thread, account="ana"))["status"] == "cut_off"
        newer = await client.ask("converse", thread="passed", text="Never mind.", account="ana")
        assert newer["turn"]["status"] == "done"
        assert (await client.ask("cancel", thread="ended", account="ana"))["cancelled"] is True
        for thread, status in (("passed", "abandoned"), ("ended", "cancelled")):
            repeated = await client.ask("converse", thread=thread, **start)
            assert (repeated["turn"]["id"], repeated["turn"]["status"]) == (turns[thread], status)
            read = await client.ask("events", turn_id=turns[thread], account="ana")
            assert (read["turn"]["status"], read["next"], repeated["next"]) == (status, [], [])
        assert (await client.ask("pauses", thread="ended", account="ana"))["status"] == "cancelled"


async def _begun(sidecar: Process, arguments: dict[str, Any]) -> str:
    """Begin a turn and go away; gives its id."""
    async with sidecar.client() as client, client.call("converse", arguments) as call:
        return str((await anext(aiter(call)))["turn_id"])


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
        assert await eventually(lambda: "cancelled" in codes(caplog), BOUND)
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
            assert await eventually(lambda: len(entered) == 3, BOUND)
            waiting.cancel()
            await asyncio.wait({waiting})
        assert await eventually(lambda: sidecar.health()["turns"] == 1, BOUND)
        second = asyncio.create_task(other.ask("resume", **step["arguments"]))
        assert await eventually(lambda: len(entered) == 4, BOUND)
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
