"""The program of the page about FastAPI, served by uvicorn and asked over HTTP as its page of HTML does."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.async_api import Page, expect

from support.browser import Browser, serious_faults
from support.pages import DOCS, files_of
from support.processes import clean_environment, ending
from support.role_hosts import free_port, reachable
from support.services import Said, Service, service

BOUND = 60  # seconds; a server that starts loads a model library
BUYING = Said("", (("buy", {"item": "hat"}),))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with the files of the page."""
    assert find_spec("fastapi"), "fastapi is missing: run `make setup`"
    for name, content in files_of(DOCS / "start" / "fastapi.md").items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    return tmp_path


@asynccontextmanager
async def served(program: Path, stub: Service) -> AsyncGenerator[str]:
    """Run the program as the page says; gives its address. At the end it is told to end, and does."""
    more = {"WORLDAGENT_LM": "openai/gpt-stub", "OPENAI_API_KEY": "k", "WORLDAGENT_API_BASE": stub.url("chat")}
    port, log = free_port(), program / "log"
    words = (sys.executable, "-P", "-m", "uvicorn", "app:app", "--port", str(port), "--timeout-graceful-shutdown", "5")
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *words, "--app-dir", program, cwd=program, env=clean_environment(**more), stdout=out, stderr=out
        )
    async with ending(process):
        await reachable(port)
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), BOUND) in (0, -signal.SIGTERM)
        assert "Traceback" not in log.read_text()


@asynccontextmanager
async def visitor(url: str, name: str) -> AsyncGenerator[httpx2.AsyncClient]:
    """A person who has logged in, and sends what the page sends."""
    async with httpx2.AsyncClient(base_url=url, timeout=BOUND) as client:
        assert (await client.get("/login", params={"name": name})).status_code == 307
        yield client


def events_in(text: str) -> list[dict[str, Any]]:
    return [json.loads(part.removeprefix("data: ")) for part in text.split("\n\n") if part]


async def posted(client: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await client.post(f"/chats/main/{path}", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    return events_in(answer.text)


@pytest.mark.timeout(300)
async def test_a_reloaded_page_finds_the_pause_and_approves_it_after_a_restart(program: Path) -> None:
    with service(BUYING, Said("A hat is on its way."), Said("No hat then.")) as stub:
        async with served(program, stub) as url, httpx2.AsyncClient(base_url=url) as stranger:
            assert (await stranger.get("/chats/main")).status_code == 401
            assert "<form" in (await stranger.get("/")).text
            async with visitor(url, "ana") as ana:
                events = await posted(ana, "messages", {"text": "Buy a hat.", "key": "k1"})
        assert [events[-1]["type"], events[-1]["status"]] == ["turn_ended", "paused"]

        async with served(program, stub) as url, visitor(url, "ana") as ana, visitor(url, "bob") as bob:
            assert (await bob.get("/chats/main")).json() == {"messages": [], "pauses": [], "running": False}
            seen = (await ana.get("/chats/main")).json()
            [pause] = seen["pauses"]
            assert [pause["function"], pause["arguments"], seen["running"]] == ["buy", {"item": "hat"}, False]
            decision = {"approved": {pause["id"]: True}}
            events = await posted(ana, "decisions", decision)
            assert "".join(event["text"] for event in events if event["type"] == "text_delta") == "A hat is on its way."
            assert [event["code"] for event in await posted(ana, "decisions", decision)] == ["already_answered"]
            seen = (await ana.get("/chats/main")).json()
            kinds = [message["kind"] for message in seen["messages"]]
            assert [kinds[0], kinds[-1], seen["pauses"]] == ["message", "answer", []]
        assert len(stub.requests) == 2


@pytest.mark.timeout(300)
async def test_a_turn_continues_when_the_browser_goes_away_and_a_repeated_message_joins_it(program: Path) -> None:
    with service(Said(" ".join(["word"] * 200))) as stub:
        async with served(program, stub) as url, visitor(url, "ana") as ana:
            message = {"text": "Talk.", "key": "k1"}
            async with ana.stream("POST", "/chats/main/messages", json=message) as answer:
                first = await anext(answer.aiter_text())
            assert events_in(first.split("\n\n")[0])[0]["type"] == "turn_started"
            events = events_in((await ana.get("/chats/main/events")).text)
            assert [events[0]["type"], events[-1]["type"], events[-1]["status"]] == [
                "turn_started",
                "turn_ended",
                "done",
            ]
            assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
            again = await posted(ana, "messages", message)
            assert again[-1]["turn_id"] == events[-1]["turn_id"]
        assert len(stub.requests) == 1


@pytest.mark.timeout(300)
async def test_a_person_chats_approves_and_reloads_in_a_browser(program: Path, browser: Browser) -> None:
    with service(Said("Good morning, and welcome."), BUYING, Said("A hat is on its way.")) as stub:
        async with served(program, stub) as url:
            page = await browser.page()
            await page.goto(f"{url}/login?name=ana")
            await say(page, "Hello.")
            await expect(page.get_by_text("Good morning, and welcome.")).to_be_visible()
            await say(page, "Buy a hat.")
            await expect(page.get_by_text('May it call buy with {"item":"hat"}?')).to_be_visible()
            await page.reload()
            await page.get_by_role("button", name="Approve").click()
            await expect(page.get_by_text("A hat is on its way.")).to_be_visible()
            shown = await page.locator("#log").inner_text()
            await page.reload()
            await expect(page.get_by_text("A hat is on its way.")).to_be_visible()
            assert await page.locator("#log").inner_text() == shown
            assert await serious_faults(page) == []


async def say(page: Page, text: str) -> None:
    await page.get_by_role("textbox").fill(text)
    await page.get_by_role("button", name="Send").click()
