"""The page about FastAPI shows the program of its example, and the command of the page runs it."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import indent
from typing import Any

import httpx2
import pytest
from playwright.async_api import expect

from support import forks
from support.browser import Browser
from support.fastapi_chat import EXAMPLE, QUESTION, copied, decide, environment, log, log_in, say
from support.pages import DOCS, blocks, files_of
from support.processes import clean_environment, ending
from support.role_hosts import free_port, reachable
from support.services import Said, Service, service

BOUND = 60  # seconds; a server that starts loads a model library
PAGE = DOCS / "start" / "fastapi.md"


@asynccontextmanager
async def served(folder: Path, stub: Service) -> AsyncGenerator[str]:
    """Run the program as the page says; gives its address. At the end it gets the signal to end, and does."""
    port, log = free_port(), folder / "log"
    words = (sys.executable, "-P", "-m", "uvicorn", "app:app", "--port", str(port), "--timeout-graceful-shutdown", "5")
    env = clean_environment(**environment(stub.url("chat")))
    with log.open("wb") as out:
        process = await forks.start(
            (*words, "--app-dir", folder), cwd=folder, env=env, stdout=out.fileno(), stderr=out.fileno()
        )
    async with ending(process):
        await reachable(port)
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), BOUND) in (0, -signal.SIGTERM)
        assert "Traceback" not in log.read_text()


def events_in(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def test_the_page_shows_the_files_of_the_example() -> None:
    assert files_of(PAGE) == {"app.py": (EXAMPLE / "app.py").read_text(encoding="utf-8")}
    html = (EXAMPLE / "page.html").read_text(encoding="utf-8")
    parts = [block.code for block in blocks("js") if block.page == PAGE]
    assert parts
    assert [part for part in parts if indent(part, "  ") not in html] == []


def test_the_example_is_short() -> None:
    assert len((EXAMPLE / "app.py").read_text(encoding="utf-8").splitlines()) < 40


@pytest.mark.timeout(300)
async def test_a_person_answers_a_pause_after_a_restart(tmp_path: Path, browser: Browser) -> None:
    with service(Said("", (("buy", {"item": "hat"}),)), Said("A hat is on its way.")) as stub:
        async with served(copied(tmp_path), stub) as url:
            page = await log_in(browser, url)
            await say(page, "Buy a hat.")
            await expect(log(page)).to_contain_text(QUESTION)
        async with served(tmp_path, stub) as url:
            page = await log_in(browser, url)
            await decide(page, "Approve")
            await expect(log(page)).to_have_text("Buy a hat.A hat is on its way.")
        assert len(stub.requests) == 2


@pytest.mark.timeout(300)
async def test_a_turn_continues_when_the_browser_goes_away_and_a_repeated_message_joins_it(tmp_path: Path) -> None:
    with service(Said(" ".join(["word"] * 200))) as stub:
        async with (
            served(copied(tmp_path), stub) as url,
            httpx2.AsyncClient(
                base_url=f"{url}/agent", timeout=BOUND, cookies={"user": "ana"}, headers={"Accept": "text/event-stream"}
            ) as ana,
        ):
            message = {"text": "Talk.", "key": "k1"}
            async with ana.stream("POST", "/threads/main/messages", json=message) as answer:
                lines = answer.aiter_lines()
                [started] = events_in(f"{await anext(lines)}\n{await anext(lines)}")
            assert started["type"] == "turn_started"
            *events, turn = events_in((await ana.get(f"/turns/{started['turn_id']}/events")).text)
            assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
            assert turn["turn"]["status"] == "done"
            again = events_in((await ana.post("/threads/main/messages", json=message)).text)[-1]
            assert again["turn"]["id"] == turn["turn"]["id"]
        assert len(stub.requests) == 1
