"""Following turns: `events` and `resume`, clients that go away or time out, and how turns ended."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from support.example_hosts import node_client
from support.processes import eventually
from support.role_hosts import BOUND, Mode, http_host
from support.sidecar_calls import LEGACY, MODERN, Revision
from support.sidecar_clients import HttpClient
from support.sidecar_served import Held, Shop, agents, caller_of, codes, served
from support.sidecars import REVISIONS, TOKEN, over_http, status, until
from support.sidecars import Sidecar as Process
from worldagent.agent import TurnStream
from worldagent.hosts.sidecar import Limits, Sidecar
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("T10")

Given = dict[str, Any]


# --- resuming ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("known", "revision"), [("the first event", MODERN), ("not said", LEGACY)])
async def test_resuming_client_receives_missed_events(revision: Revision, known: str, tmp_path: Path) -> None:
    async with over_http(tmp_path / "home") as sidecar, sidecar.client(revision) as away:
        start = {"thread": "t1", "text": "do=buy what=hat", "key": "k1", "detach": True}
        async with sidecar.client(revision) as leaving, leaving.call("converse", start) as call:
            first = await anext(aiter(call))

        async def paused() -> bool:
            return await status(away) == "paused"

        await until(paused)
        [pause] = (await away.ask("pauses", thread="t1"))["pauses"]
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


# --- ends -------------------------------------------------------------------------------------------------------------


async def test_an_interrupted_turn_is_abandoned_by_a_newer_one_or_cancelled(tmp_path: Path) -> None:
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


class SlowShop(Shop):
    """A shop whose payments take as long as the test wants."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.sidecar = Sidecar(lambda workspace: self.agent(home))
        self.paying, self.paid = asyncio.Event(), asyncio.Event()

    async def pay(self, what: str) -> str:
        """Pay for something."""
        self.paying.set()
        await self.paid.wait()
        return await super().pay(what)

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


async def ended(client: HttpClient) -> str:
    """The status of the thread's turn once it runs no longer, which is saved after the connection has gone."""

    async def status() -> str:
        found = (await client.ask("pauses", **PLACE))["status"]
        return "" if found == "running" else str(found)

    return str(await until(status))


@pytest.mark.parametrize(
    ("start", "given", "status", "revision"),
    [
        ({"key": "k", "detach": True}, {}, "done", MODERN),
        ({}, {}, "done", LEGACY),
        ({"detach": False}, {}, "cancelled", LEGACY),
        ({"detach": False}, {"detach": True}, "done", MODERN),
        ({"key": "k", "detach": True}, {"detach": False}, "cancelled", MODERN),
    ],
    ids=["key and detach", "neither", "not detached", "not detached, and detached now", "not any more"],
)
async def test_turn_continues_as_it_began_when_the_connection_breaks_in_resume(
    start: Given, given: Given, status: str, revision: Revision, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="worldagent.requests")
    shop = SlowShop(tmp_path)
    async with served(shop.sidecar) as url, HttpClient(url, revision=revision) as client:
        paused = await client.ask("task", **PLACE, shape="buy", **start)
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
            again = await client.ask("task", **PLACE, shape="buy", **start)
            assert (again["turn"]["id"], again["turn"]["status"]) == (paused["turn"]["id"], status)


@revisions
async def test_resume_waits_for_a_running_turn(revision: Revision, tmp_path: Path, entered: list[TurnStream]) -> None:
    shop = SlowShop(tmp_path)
    async with served(shop.sidecar) as url, HttpClient(url, revision=revision) as one, HttpClient(url) as other:
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
        assert await eventually(lambda: shop.sidecar.health()["turns"] == 1, BOUND)
        second = asyncio.create_task(other.ask("resume", **step["arguments"]))
        assert await eventually(lambda: len(entered) == 4, BOUND)
        shop.paid.set()
        first, waited = await going, await second
    assert first["turn"]["status"] == "done"
    assert (waited["turn"]["id"], waited["turn"]["status"]) == (first["turn"]["id"], "done")


@revisions
async def test_to_resume_without_answers_asks_a_person_where_the_client_can(revision: Revision, tmp_path: Path) -> None:
    shop, asked = SlowShop(tmp_path), list[str]()
    shop.paid.set()

    def approve(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["message"])
        return {"action": "accept", "content": {"decision": "approve"}}

    async with served(shop.sidecar) as url, HttpClient(url, revision=revision) as client:
        paused = await client.ask("task", **PLACE, shape="buy", detach=True)
        async with (
            HttpClient(url, revision=revision, elicit=approve) as other,
            other.call("resume", PLACE | {"after": paused["seq"]}) as call,
        ):
            told = [event["seq"] async for event in call]
            done = await call.answer()
    assert (done["turn"]["status"], len(asked)) == ("done", 1)
    assert told == [*range(paused["seq"] + 1, done["seq"] + 1)]


# --- time-outs --------------------------------------------------------------------------------------------------------


MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])
REQUEST_TIMEOUT = -32001


async def test_turn_outlives_the_time_out_of_the_typescript_client(tmp_path: Path) -> None:
    async with over_http(tmp_path / "home") as sidecar, node_client(sidecar.url, TOKEN) as client:
        for thread, end in (("a", "done"), ("b", "cancelled")):
            told = {"thread": thread, "text": f"hold={thread} words=3"}
            assert (await client.said("converse", told, timeout=300))["thrown"]["code"] == REQUEST_TIMEOUT
            assert await eventually((sidecar.home / f"{thread}.held").exists)
            running = await client.call("pauses", thread=thread)
            assert running["status"] == "running"
            if end == "cancelled":
                assert (await client.call("cancel", thread=thread))["cancelled"] is True
            else:
                (sidecar.home / thread).touch()
            [step] = running["next"]
            followed = await client.call(step["tool"], **step["arguments"])
            while followed["turn"]["status"] == "running":
                [step] = followed["next"]
                followed = await client.call(step["tool"], **step["arguments"])
            assert followed["turn"]["status"] == end


@MODES
async def test_heartbeats_are_sent_while_a_model_thinks(tmp_path: Path, mode: Mode) -> None:
    held = Held()
    sidecar = Sidecar(agents(tmp_path, lm=ScriptedLM(held)), limits=Limits(heartbeat=0.05))
    async with served(sidecar) as url, caller_of(url, mode) as ask:
        asking = asyncio.create_task(ask("converse", workspace="novel", thread="t", text="Well?"))
        assert await eventually(lambda: len(ask.heartbeats) >= 3, BOUND)
        held.go.set()
        done = await asyncio.wait_for(asking, BOUND)
    assert [event.seq for event in ask.events] == [*range(1, done["seq"] + 1)]
    first = ask.events[0].seq
    numbers = [number for number, _ in ask.heartbeats]
    assert numbers == sorted(set(numbers))
    assert all(told["seq"] <= number < told["seq"] + 1 for number, told in ask.heartbeats)
    assert first == 1
    assert {told["turn_id"] for _, told in ask.heartbeats} <= {None, done["turn"]["id"]}
    assert "second" not in json.dumps([told for _, told in ask.heartbeats])


async def test_client_that_restarts_its_time_out_at_progress_receives_the_answer(tmp_path: Path) -> None:
    held = Held()
    sidecar = Sidecar(agents(tmp_path, lm=ScriptedLM(held)), limits=Limits(heartbeat=0.1))
    async with served(sidecar) as url, node_client(url) as client:
        arguments = {"workspace": "novel", "thread": "t", "text": "Well?"}
        asking = asyncio.create_task(client.said("converse", arguments, timeout=1000, resetTimeoutOnProgress=True))
        done, _ = await asyncio.wait({asking}, timeout=2)  # twice the client's time-out
        assert not done
        held.go.set()
        said = await asyncio.wait_for(asking, BOUND)
    assert said["result"]["structuredContent"]["turn"]["text"] == "first second"


@MODES
async def test_text_block_of_a_result_says_what_to_do(tmp_path: Path, mode: Mode) -> None:
    lm = ScriptedLM([{"reply": "Yes."}])
    async with served(Sidecar(agents(tmp_path, lm=lm))) as url, caller_of(url, mode) as ask:
        place: dict[str, Any] = {"workspace": "novel", "thread": "t"}
        said = await ask.raw("converse", **place, text="Well?")
        assert [block.text for block in said.content] == ["Yes."]
        for tool in ("pauses", "history", "threads", "fork"):
            given: dict[str, Any] = {"workspace": "novel"} if tool == "threads" else place
            result = await ask.raw(tool, **given)
            assert json.loads(result.content[0].text) == result.structured_content


@pytest.mark.requirement("R9")
async def test_errors_of_the_role_host_reach_the_client_with_their_code(tmp_path: Path) -> None:
    with http_host(tmp_path / "roles.db") as (url, _):
        async with node_client(url) as client:
            missing = await client.call("role_get", tier="account", scope_id="ana")
            assert missing == {"contract": 1, "code": "not_found"}
            assert (await client.call("role_get", tier="call", scope_id="ana"))["code"] == "invalid"
