"""The stream of changes that the pages of the console follow."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.agents import answering, scripted_agent
from support.background import Library
from support.web import BOUND, by_header, client_of, served
from worldagent import Approve
from worldagent.agent import Task
from worldagent.core.errors import InvalidArgument
from worldagent.harness import Policy
from worldagent.hosts.service.threads import reached_threads
from worldagent.hosts.web import Grant, Tokens, WebApp, console

pytestmark = pytest.mark.requirement("T10")


@asynccontextmanager
async def live(client: httpx2.AsyncClient, **headers: str) -> AsyncGenerator[Any]:
    """Follow the changes; gives what is told of them, as an iterator."""

    async def changes() -> AsyncGenerator[dict[str, Any]]:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line[6:])

    async with client.stream("GET", "/live", headers=headers) as response:
        assert response.status_code == 200
        yield changes()


async def next_of(changes: Any) -> list[str]:
    found: list[str] = (await asyncio.wait_for(anext(changes), BOUND))["changed"]
    return found


async def until(changes: Any, *reported: str) -> list[dict[str, str]]:
    """Wait until the newest reports say that work stands so."""
    async with asyncio.timeout(BOUND):
        async for each in changes:
            if tuple(report["status"] for report in each["reports"]) == reported:
                found: list[dict[str, str]] = each["reports"]
                return found
    raise AssertionError("the stream has ended")


async def test_a_change_is_told_however_many_newer_threads_others_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "LIVE_THREADS", 3)
    agent = scripted_agent(tmp_path, answering())
    async with served(WebApp(agent, login=by_header)) as url, client_of(url) as ana, client_of(url, "bob") as bob:
        await ana.post("/threads/main/messages", json={"text": "Hello."})
        for number in range(4):
            await bob.post(f"/threads/t{number}/messages", json={"text": "Hello."})
        async with live(ana) as changes:
            assert await next_of(changes) == ["threads", "society"]
            await ana.put("/threads/main/title", json={"title": "Hats"})
            assert await next_of(changes) == ["threads"]


async def test_streams_of_an_account_share_their_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Grant] = []
    look = reached_threads

    async def counted(grant: Grant, *given: Any, **more: Any) -> Any:
        looks.append(grant)
        return await look(grant, *given, **more)

    monkeypatch.setattr(console, "reached_threads", counted)
    monkeypatch.setattr(console, "LIVE_SECONDS", 3600.0)
    agent = scripted_agent(tmp_path, answering())
    async with (
        served(WebApp(agent, login=by_header)) as url,
        client_of(url) as ana,
        client_of(url, "bob") as bob,
        AsyncExitStack() as stack,
    ):
        streams = [await stack.enter_async_context(live(each)) for each in (ana, bob) for _ in range(10)]
        for stream in streams:
            assert await next_of(stream) == ["threads", "society"]
    assert len(looks) == 2


@pytest.mark.requirement("T17")
async def test_reports_of_work_in_the_background_are_told_whichever_process_wrote_them(tmp_path: Path) -> None:
    library, read = Library(), Task("subagent", {"worker": "reader", "request": "Read Moby Dick."})
    library.may.set()
    async with (
        served(WebApp(library.agent(tmp_path, policy=Policy()), login=by_header)) as url,
        client_of(url) as ana,
        client_of(url, "bob") as bob,
        library.agent(tmp_path, policy=Policy()) as other,
    ):
        thread = other.thread("ana:main", account="ana")
        work = await other.background(read, thread=thread, report="event")
        async with live(ana) as changes, live(bob) as of_bob:
            [paused] = await until(changes, "paused")
            [pause] = (await work.wait()).pauses
            await work.thread.resume({pause.id: Approve()})
            [done] = await until(changes, "done")
            assert paused == done | {"id": paused["id"], "status": "paused"}
            assert (done["thread"], done["task"], done["name"]) == ("ana:main", work.id, "reader")
            assert paused["id"] != done["id"]
            assert await until(of_bob) == []
            await other.background(read, thread=thread, report="event")
            assert (await until(changes, "done", "paused"))[0] == done


async def test_the_stream_ends_when_the_person_logs_out(tmp_path: Path) -> None:
    tokens = Tokens([("secret", Grant.of_account("novel", "ana"))])
    async with served(WebApp(scripted_agent(tmp_path, answering()), tokens=tokens)) as url, client_of(url) as client:
        await client.post("/login", json={"token": "secret"})
        async with live(client) as changes:
            await next_of(changes)
            await client.post("/logout")
            with pytest.raises(StopAsyncIteration):
                await next_of(changes)


async def test_threads_are_listed_by_the_beginnings_of_their_ids(tmp_path: Path) -> None:
    ids = ("ana:main", "ana:%2F", "ana:\N{TOP HAT}", "ana;", "an", "anb:main", "bob:ana:", "a/b")
    async with scripted_agent(tmp_path, answering()) as agent:
        for one in ids:
            await agent.thread(one).converse("Hello.")
        await agent.thread("ana:main").fork(to="ana:fork")

        async def listed(*prefixes: str, **more: Any) -> list[str]:
            return [state.thread for state in await agent.threads(prefixes=prefixes, **more)]

        assert await listed("ana:") == ["ana:fork", "ana:\N{TOP HAT}", "ana:%2F", "ana:main"]
        assert await listed("ana:", "ana", limit=3) == ["ana:fork", "ana;", "ana:\N{TOP HAT}"]
        assert await listed("bob:", "a/", "ana:\N{TOP HAT}") == ["a/b", "bob:ana:", "ana:\N{TOP HAT}"]
        assert set(await listed("")) == {*ids, "ana:fork"}
        assert await listed() == []
        paged, key = list[str](), None
        while page := await agent.threads(prefixes=["a"], limit=2, before=key):
            paged += [state.thread for state in page]
            key = page[-1].page_key
        assert paged == ["ana:fork", "a/b", "anb:main", "an", "ana;", "ana:\N{TOP HAT}", "ana:%2F", "ana:main"]
        for wrong in ("ana:", ["\ud800"], [None]):
            with pytest.raises(InvalidArgument, match="prefixes"):
                await agent.threads(prefixes=wrong)  # type: ignore[arg-type]  # what users write
