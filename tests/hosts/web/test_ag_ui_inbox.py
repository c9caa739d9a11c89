"""AG-UI on the web app, beside a turn that runs: a run can interrupt it, and learns what was said to it."""

import asyncio
from pathlib import Path

import pytest

from hosts.web.test_ag_ui import kinds, ran, run, text_of
from inbox.test_steering import Painting
from support.agents import Thinking
from support.web import BOUND, by_header, client_of, served, web
from worldagent.hosts.web import WebApp

pytestmark = pytest.mark.requirement("T10", "T15", "T16")


async def test_a_run_has_what_was_said_to_its_turn(tmp_path: Path) -> None:
    painting = Painting()
    async with served(WebApp(painting.agent(tmp_path), login=by_header)) as url, client_of(url) as client:
        running = asyncio.ensure_future(ran(client, run("r1", "Paint the door.")))
        await asyncio.wait_for(painting.begun.wait(), BOUND)
        assert (await client.post("/threads/main/steer", json={"text": "rather in blue"})).status_code == 200
        painting.may.set()
        events = await running
        [custom] = [each for each in events if each["type"] == "CUSTOM"]
        assert (custom["name"], custom["value"]["text"]) == ("message_taken", "rather in blue")
        assert text_of(events) == "in blue"


async def test_a_run_interrupts_the_one_before(tmp_path: Path) -> None:
    model = Thinking()
    async with web(tmp_path, model.lm) as client:
        running = asyncio.ensure_future(ran(client, run("r1", "1")))
        await asyncio.wait_for(model.asked.wait(), BOUND)
        model.may.set()
        second = await ran(client, run("r2", "2", forwardedProps={"interrupt": True}))
        assert text_of(second) == "Fine."
        assert kinds(await running)[-1] in ("RUN_FINISHED", "RUN_ERROR")


@pytest.mark.parametrize("name", ["steer", "queue"])
async def test_what_a_run_cannot_do_is_refused_with_the_path_that_does(tmp_path: Path, name: str) -> None:
    async with web(tmp_path, Thinking().lm) as client:
        response = await client.post("/ag-ui", json=run("r1", forwardedProps={name: True}))
        assert (response.status_code, f"/{name}" in response.json()["error"]["remedy"]) == (400, True)
