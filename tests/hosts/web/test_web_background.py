"""Work in the background over the web app: its paths, and the answer to what a task asks."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.agents import scripted_agent
from support.background import Library
from support.web import BOUND, by_header, client_of, events_in, served
from worldagent import Worker
from worldagent.harness import Policy
from worldagent.hosts.web import WebApp
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T10", "T17")

PATH = "/threads/main/background"
READ = {"worker": "reader", "text": "Read Moby Dick."}


async def until(client: httpx2.AsyncClient, status: str) -> dict[str, Any]:
    """Wait until the only task of the conversation stands so."""
    async with asyncio.timeout(BOUND):
        while True:
            [task] = (await client.get(PATH)).json()["tasks"]
            if task["status"] == status:
                return dict(task)
            await asyncio.sleep(0.02)


async def test_a_task_is_started_steered_and_cancelled_over_the_web(tmp_path: Path) -> None:
    library = Library()
    async with served(WebApp(library.agent(tmp_path), login=by_header)) as url, client_of(url) as client:
        made = (await client.post(PATH, json=READ | {"report": "event"})).json()["task"]
        await asyncio.wait_for(library.begun.wait(), BOUND)
        running = await until(client, "running")
        assert (running["id"], running["thread"]) == (made["id"], f"ana:main~bg-{made['id']}")
        steered = await client.post(f"{PATH}/{made['id']}/steer", json={"text": "Quickly."})
        assert steered.json()["task"]["id"] == made["id"]
        async with client_of(url, "ben") as ben:
            assert (await ben.get(PATH)).json()["tasks"] == []
            for thread in ("main", "ana:main"):
                refused = await ben.delete(f"/threads/{thread}/background/{made['id']}")
                assert refused.json()["error"]["code"] == "unknown_task", "it is a thread of ben's own"
        assert (await client.delete(f"{PATH}/{made['id']}")).json()["cancelled"] is True
        await until(client, "cancelled")
        gone = await client.post(f"{PATH}/{made['id']}/steer", json={"text": "Quickly."})
        assert (gone.status_code, gone.json()["error"]["code"]) == (409, "nothing_to_steer")
        assert gone.json()["error"]["remedy"] == "use its result, or dispatch more"
        unknown = await client.delete(f"{PATH}/nothing")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_task")
        empty = (await client.post(PATH, json={})).json()["error"]
        assert empty["problem"] == "the arguments are invalid: It needs one of `text`, `shape` and `skill`"


async def test_a_page_learns_that_a_task_has_changed(tmp_path: Path) -> None:
    library = Library()
    async with served(WebApp(library.agent(tmp_path), login=by_header)) as url, client_of(url) as client:
        await client.post(PATH, json=READ | {"report": "event"})
        await asyncio.wait_for(library.begun.wait(), BOUND)
        async with client.stream("GET", "/live") as live, asyncio.timeout(BOUND):
            changes = (
                json.loads(line[6:])["changed"] async for line in live.aiter_lines() if line.startswith("data: ")
            )
            assert "threads" in await anext(changes)
            library.may.set()
            assert await anext(changes) == ["threads"]
            await until(client, "done")


async def test_what_a_task_asks_is_answered_over_the_web(tmp_path: Path) -> None:
    library = Library()
    library.may.set()
    app = WebApp(library.agent(tmp_path, policy=Policy()), login=by_header)
    async with served(app) as url, client_of(url) as client:
        await client.post(PATH, json=READ | {"report": "event"})
        task = await until(client, "paused")
        own = f"/threads/{task['thread']}"
        [pause] = (await client.get(f"{own}/pauses")).json()["pauses"]
        answered = await client.post(f"{own}/resume", json={"answers": {pause["id"]: {"approve": {}}}})
        assert (answered.status_code, answered.json()["turn"]["status"]) == (200, "done")
        assert (await until(client, "done"))["pauses"] == 0


async def test_a_client_of_ag_ui_never_has_a_report_as_a_message_of_the_person(tmp_path: Path) -> None:
    tried: list[str] = []

    async def broken() -> AsyncGenerator[str]:
        yield "[[ ## reply ## ]]\nOne moment, please, it is being read"
        yield '\n\n[[ ## calls ## ]]\n[{"tool": \n\n[[ ## completed ## ]]'

    def reply(call: ScriptedCall) -> Any:
        if "request" in call.fields:
            return {"result": "It is about whales."}
        tried.append(call.text)
        return broken() if len(tried) == 1 else {"reply": "Whales!"}

    reader = Worker("reader", "You read books.")
    agent = scripted_agent(tmp_path, ScriptedLM(reply), workers=[reader], background=True)
    async with served(WebApp(agent, login=by_header)) as url, client_of(url) as client:
        await client.post(PATH, json=READ | {"report": "next"})
        await until(client, "done")
        body = {"threadId": "main", "runId": "r1", "messages": [{"id": "m", "role": "user", "content": "Well?"}]}
        done = await client.post("/ag-ui", json=body | {"tools": [], "context": []})
        assert len(tried) == 2
        assert "It is about whales." in tried[-1]
        [sent] = [each for each in events_in(done.text) if each["type"] == "MESSAGES_SNAPSHOT"]
        assert [(each["role"], each["content"]) for each in sent["messages"]] == [
            ("user", "Well?"),
            ("assistant", "Whales!"),
        ]
