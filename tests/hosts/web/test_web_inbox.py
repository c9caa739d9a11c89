"""Messages beside a turn over the web app: its paths, refusals, and the stream of changes."""

import asyncio
import json
from pathlib import Path

import pytest

from support.agents import Thinking
from support.inbox import Painting
from support.web import BOUND, by_header, client_of, say, served, web
from worldagent.hosts.web import WebApp

pytestmark = pytest.mark.requirement("T10", "T15", "T16")


async def test_a_turn_is_steered_over_the_web(tmp_path: Path) -> None:
    painting = Painting()
    async with served(WebApp(painting.agent(tmp_path), login=by_header)) as url, client_of(url) as client:
        refused = await client.post("/threads/main/steer", json={"text": "rather in blue"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "nothing_to_steer")
        running = asyncio.ensure_future(say(client, "Paint the door."))
        await asyncio.wait_for(painting.begun.wait(), BOUND)
        word = (await client.post("/threads/main/steer", json={"text": "rather in blue"})).json()["message"]
        painting.may.set()
        events = await running
        assert events[-1]["turn"]["text"] == "in blue"
        assert [each["id"] for each in events if each["type"] == "message_taken"] != [], word
        messages = (await client.get("/threads/main/messages")).json()["messages"]
        assert [each["kind"] for each in messages] == ["message", "plan", "result", "word", "answer"]


async def test_the_queue_is_changed_over_the_web(tmp_path: Path) -> None:
    model = Thinking()
    async with web(tmp_path, model.lm) as client:
        running = asyncio.ensure_future(say(client, "1"))
        await asyncio.wait_for(model.asked.wait(), BOUND)
        two, three = [
            (await client.post("/threads/main/queue", json={"text": text})).json()["message"]["id"]
            for text in ("2", "3")
        ]
        keyed = [
            await client.post("/threads/main/steer", json={"text": text, "key": "k"}) for text in ("in blue", "in red")
        ]
        assert [each.status_code for each in keyed] == [200, 409]
        assert keyed[1].json()["error"]["code"] == "key_reused"
        await client.delete(f"/threads/main/queue/{keyed[0].json()['message']['id']}")
        error = (await client.post("/threads/main/queue", json={})).json()["error"]
        assert error["problem"] == "the arguments are invalid: It needs one of `text`, `shape` and `skill`"
        moved = (await client.put("/threads/main/queue", json={"messages": [three]})).json()["messages"]
        assert [each["id"] for each in moved] == [three, two]
        assert (await client.delete(f"/threads/main/queue/{two}")).json()["withdrawn"] is True
        assert [each["text"] for each in (await client.get("/threads/main/queue")).json()["messages"]] == ["3"]
        released = await client.post(f"/threads/main/queue/{three}/release", json={})
        assert released.json()["message"]["waits_for"] == "turn"
        gone = await client.post(f"/threads/main/queue/{two}/release", json={})
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "unknown_message")
        model.may.set()
        await running


async def test_a_page_learns_that_something_waits(tmp_path: Path) -> None:
    model = Thinking()
    async with web(tmp_path, model.lm) as client:
        running = asyncio.ensure_future(say(client, "1"))
        await asyncio.wait_for(model.asked.wait(), BOUND)
        async with client.stream("GET", "/live") as live, asyncio.timeout(BOUND):
            changes = (
                json.loads(line[6:])["changed"] async for line in live.aiter_lines() if line.startswith("data: ")
            )
            assert "threads" in await anext(changes)
            await client.post("/threads/main/queue", json={"text": "2"})
            assert await anext(changes) == ["threads"]
        model.may.set()
        await running
