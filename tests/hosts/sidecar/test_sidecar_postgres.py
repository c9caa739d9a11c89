"""Sidecars on Postgres, one and two at a time: streams, pauses, kills, and a server that goes away (T4, T5, T10)."""

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from mcp import Client

from support.agents import standing
from support.command_line import command
from support.postgres import OwnServer, drop_database, new_database
from support.sidecar_calls import Refused
from support.sidecar_clients import BOUND, Broken
from support.sidecars import (
    THREAD,
    Pair,
    connections,
    events_of,
    let,
    numbers,
    over_http,
    pair,
    ready,
    shared,
    status,
    stuck,
    until,
)
from support.sidecars import Sidecar as Running
from worldagent import Storage, WorldAgent
from worldagent.core.events import parse_event
from worldagent.hosts.sidecar import Sidecar
from worldagent.testing import ScriptedLM

pytestmark = [pytest.mark.requirement("T4", "T5", "T10"), pytest.mark.timeout(240)]

WORDS = 20
ANSWER = " ".join(f"word{number}" for number in range(WORDS))
TELL = f"Tell me. words={WORDS} pace=0.02"


@pytest.fixture
def url() -> str:
    return new_database()


@pytest_asyncio.fixture
async def two(tmp_path: Path, url: str) -> AsyncGenerator[Pair]:
    async with pair(tmp_path, url) as running:
        yield running


async def test_a_turn_that_runs_at_one_sidecar_is_followed_live_at_the_other(two: Pair) -> None:
    starting = {"thread": THREAD, "text": f"{TELL} hold=later", "detach": True}
    async with two.here.call("converse", starting) as call:
        first = await events_of(call, 1)
    turn = first[0]["turn_id"]
    async with two.there.call("events", {"turn_id": turn}) as call:
        assert await events_of(call, 1) == first  # while the model is held
        two.let("later")
        await events_of(call, 4)
        assert await status(two.here) == "running"
        answer = await asyncio.wait_for(call.answer(), BOUND)
        assert numbers(call.events) == [*range(1, answer["seq"] + 1)]
    assert (answer["turn"]["status"], answer["turn"]["text"], answer["next"]) == ("done", ANSWER, [])
    for client in (two.here, two.there):
        assert (await client.ask("events", turn_id=turn))["events"] == call.events


async def test_a_turn_whose_sidecar_is_killed_is_resumed_at_the_other(two: Pair) -> None:
    async with two.here.call("converse", {"thread": THREAD, "text": f"{TELL} hold=later", "key": "k1"}) as call:
        first = await events_of(call, 1)
        turn = first[0]["turn_id"]
        following = two.there.call("events", {"turn_id": turn})
        async with following:
            await events_of(following, 1)
            assert await status(two.there) == "running"
            await two.sidecars[0].killed()
            answer = await asyncio.wait_for(following.answer(), BOUND)
        with pytest.raises(Broken):
            await asyncio.wait_for(call.answer(), BOUND)
    assert (answer["turn"]["status"], answer["seq"]) == ("cut_off", 1)
    [step] = answer["next"]
    assert step["tool"] == "resume"
    assert await status(two.there) == "cut_off"
    two.let("later")
    async with two.there.call("resume", step["arguments"] | {"after": answer["seq"]}) as resumed:
        done = await asyncio.wait_for(resumed.answer(), BOUND)
    assert (done["turn"]["id"], done["turn"]["text"]) == (turn, ANSWER)
    assert numbers([*following.events, *resumed.events]) == [*range(1, done["seq"] + 1)]


async def test_turns_fail_only_while_the_database_is_down(tmp_path: Path, server: OwnServer) -> None:
    home = tmp_path / "home"
    started = {"thread": THREAD, "text": f"{TELL} hold=later", "key": "k1", "detach": True}
    async with over_http(home, **shared(server.url)) as sidecar, sidecar.client() as client:
        async with client.call("converse", started) as call:
            first = await events_of(call, 1)
            await asyncio.to_thread(server.stop)
            told = await ready(sidecar, False)
            assert (told["databases"], told["unreached"]) == (1, 1)
            let([home], "later")
            await refused(call.answer())
        turn = first[0]["turn_id"]
        await refused(client.ask("events", turn_id=turn))
        await refused(client.ask("resume", thread=THREAD))
        await refused(client.ask("converse", **started | {"thread": "t2"}))
        assert (await sidecar.get("/health"))[0] == 200
        await asyncio.to_thread(server.start)
        told = await ready(sidecar, True)
        assert (told["databases"], told["unreached"]) == (1, 0)
        assert await status(client) == "cut_off"
        async with client.call("converse", started | {"after": call.events[-1]["seq"]}) as again:
            done = await asyncio.wait_for(again.answer(), BOUND)
        assert (done["turn"]["id"], done["turn"]["text"]) == (turn, ANSWER)
        assert numbers([*call.events, *again.events]) == [*range(1, done["seq"] + 1)]
        assert (await client.ask("converse", thread="t2", text="Hi"))["turn"]["status"] == "done"


async def refused(asking: Coroutine[Any, Any, Any]) -> None:
    """See that a call is told that the database is away."""
    with pytest.raises(Refused) as caught:
        await asyncio.wait_for(asking, BOUND)
    error = caught.value.told["structuredContent"]["error"]
    assert (error["code"], error["retryable"]) == ("storage_unavailable", True)


async def test_an_answer_is_kept_where_a_kill_precedes_the_end_of_its_turn(tmp_path: Path, url: str) -> None:
    home = tmp_path / "home"
    started = {"thread": THREAD, "text": f"{TELL} hold=later", "key": "k1", "detach": True}
    async with (
        over_http(home, **shared(url)) as sidecar,
        sidecar.client() as client,
        client.call("converse", started) as call,
    ):
        await events_of(call, 1)
        with psycopg.connect(url) as held:
            held.execute("LOCK TABLE wa_turn IN EXCLUSIVE MODE")  # others may read
            let([home], "later")
            await stuck(url, "UPDATE wa_turn SET status%")
            await sidecar.killed()
        with pytest.raises(Broken):
            await asyncio.wait_for(call.answer(), BOUND)
    again = started | {"after": call.events[-1]["seq"]}
    async with (
        over_http(home, **shared(url)) as sidecar,
        sidecar.client() as client,
        client.call("converse", again) as rest,
    ):
        done = await asyncio.wait_for(rest.answer(), BOUND)
    told = [*call.events, *rest.events]
    assert numbers(told) == [*range(1, done["seq"] + 1)]
    assert standing([parse_event(json.dumps(event)) for event in told]) == done["turn"]["text"] == ANSWER


async def test_sidecar_becomes_ready_with_its_database(tmp_path: Path, server: OwnServer) -> None:
    await asyncio.to_thread(server.stop)
    async with over_http(tmp_path / "home", **shared(server.url)) as sidecar, sidecar.client() as client:
        told = await ready(sidecar, False)
        assert (told["workspaces"], told["databases"], told["unreached"]) == (0, 1, 1)
        await refused(client.ask("converse", thread=THREAD, text="Hi"))
        await asyncio.to_thread(server.start)
        await ready(sidecar, True)
        assert (await client.ask("converse", thread=THREAD, text="Hi"))["turn"]["status"] == "done"


async def test_one_of_several_databases_that_is_gone_is_counted_and_spares_the_others(tmp_path: Path) -> None:
    urls = {"novel": new_database(), "shop": new_database()}

    def make(workspace: str) -> WorldAgent:
        storage = Storage(home=tmp_path / workspace, url=urls[workspace])
        return WorldAgent(workspace, lm=ScriptedLM(lambda call: {"reply": "Yes."}), storage=storage)

    async with Sidecar(make) as sidecar, Client(sidecar.server) as client:

        async def unreached() -> int:
            told = await sidecar.ready()
            assert told["ready"] is (told["unreached"] < 2)
            return int(told["unreached"])

        for workspace in urls:
            await client.call_tool("converse", {"workspace": workspace, "thread": THREAD, "text": "Well?"})
        told = await sidecar.ready()
        assert (told["ready"], told["databases"], told["unreached"]) == (True, 2, 0)
        drop_database(urls["novel"])
        await until(unreached)
        answer = await client.call_tool("converse", {"workspace": "shop", "thread": THREAD, "text": "Well?"})
        assert not answer.is_error
        drop_database(urls["shop"])

        async def all_of_them() -> bool:
            return await unreached() == 2

        await until(all_of_them)


CLIENTS = 100
MOST = 9
"""Connections of an agent: four for turns and messages, four for checkpoints, one for locks."""


async def test_a_hundred_clients_at_once_take_no_more_connections_than_a_few(tmp_path: Path, url: str) -> None:
    seen: list[int] = []

    async def hold(sidecar: Running, number: int) -> None:
        async with sidecar.client() as client:
            answer = await client.ask("converse", thread=f"t{number}", text="words=3 delay=0.2 pace=0.02", detach=True)
            assert answer["turn"]["status"] == "done"

    async def count() -> None:
        while True:
            seen.append(await asyncio.to_thread(connections, url))

    async with over_http(tmp_path / "home", **shared(url)) as sidecar:
        counting = asyncio.create_task(count())
        await asyncio.gather(*(hold(sidecar, number) for number in range(CLIENTS)))
        counting.cancel()
        await asyncio.wait([counting])
        assert counting.cancelled()
        assert (await sidecar.get("/ready"))[0] == 200
        assert 4 < max(seen) <= MOST


async def test_ps_lists_both_sidecars_of_a_home_and_what_runs_at_either(tmp_path: Path, url: str) -> None:
    home, given = tmp_path / "home", shared(url)
    asked = {"text": "hold=never", "detach": True}

    async def listed() -> dict[str, Any]:
        done = await command(home, "ps", "--json", **given)
        assert done.code == 0, done.told
        return dict(json.loads(done.out))

    async with AsyncExitStack() as opened:
        one, two = [await opened.enter_async_context(over_http(home, **given)) for _ in range(2)]
        for number, sidecar in enumerate((one, two)):
            client = await opened.enter_async_context(sidecar.client())
            call = await opened.enter_async_context(client.call("converse", asked | {"thread": f"t{number}"}))
            await events_of(call, 1)
        told = await listed()
        assert {(each["pid"], each["address"], each["state"]) for each in told["sidecars"]} == {
            (each.process.pid, each.url, "ready") for each in (one, two)
        }
        assert {(each["thread"], each["status"]) for each in told["turns"]} == {("t0", "running"), ("t1", "running")}
        assert len(list((home / "sidecars").iterdir())) == 4
        await one.killed()
        told = await listed()
        assert len(list((home / "sidecars").iterdir())) == 2, "what the killed one left is removed"
        assert [each["pid"] for each in told["sidecars"]] == [two.process.pid]
        assert {(each["thread"], each["status"]) for each in told["turns"]} == {("t0", "cut_off"), ("t1", "running")}
