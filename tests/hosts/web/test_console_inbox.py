"""The console while a turn runs: its message box stays open, and what is said steers, waits or interrupts."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from support.agents import Thinking, scripted_agent
from support.browser import NARROW, Browser, scrolls_sideways, serious_faults, unreached
from support.inbox import Painting
from support.web import served
from worldagent import WorldAgent
from worldagent.hosts.web import WebApp

pytestmark = [pytest.mark.requirement("T15", "T16"), pytest.mark.xdist_group("browser"), pytest.mark.timeout(240)]

BOUND = 60
LONG = "and then paint the window of the small room beside the long stair in the colour of the river in autumn"


@asynccontextmanager
async def console(agent: WorldAgent, browser: Browser) -> AsyncGenerator[str]:
    async with served(WebApp(agent, login=lambda _: "ana")) as url:
        try:
            yield f"{url}/console/#/threads/ana%3At1"
        finally:
            await browser.leave()


async def enter(page: Page, text: str) -> None:
    field = page.get_by_label("Message", exact=True)
    await field.fill(text)
    await field.press("Enter")


def waiting(page: Page) -> Any:
    return page.get_by_role("region", name="Messages that wait").get_by_role("listitem")


async def said(page: Page) -> list[str]:
    return await page.locator(".mine .body").all_text_contents()


async def test_a_message_steers_the_running_turn_and_stands_where_it_was_read(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    painting = Painting()
    async with console(painting.agent(tmp_path), browser) as url:
        await page.goto(url)
        await expect(page.get_by_role("group", name="While the agent works")).to_be_hidden()
        await enter(page, "Paint the door.")
        await asyncio.wait_for(painting.begun.wait(), BOUND)
        ways = page.get_by_role("group", name="While the agent works")
        await expect(ways.get_by_label("Steer")).to_be_checked()
        await expect(page.get_by_role("button", name="Send")).to_be_enabled()
        await expect(page.get_by_text("Role of this message")).to_be_hidden()
        await enter(page, "rather in blue")
        await expect(waiting(page)).to_contain_text(["rather in blue"])
        painting.may.set()
        await expect(page.locator(".answer .body")).to_have_text("in blue")
        await expect(page.get_by_role("group", name="Your opinion of this answer")).to_be_visible()  # it is loaded
        for _ in range(2):
            await expect(waiting(page)).to_have_count(0)
            kinds = await page.locator(".log > *").evaluate_all("all => all.map((each) => each.className)")
            assert kinds == ["message mine", "step", "step", "message mine word", "message answer"]
            assert await said(page) == ["Paint the door.", "rather in blue"]
            await page.reload()
            await expect(page.locator(".answer .body")).to_have_text("in blue")


async def test_a_person_who_is_quicker_than_the_page_loses_no_message(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    painting, asked, may = Painting(), asyncio.Event(), asyncio.Event()

    async def later(route: Route) -> None:
        before = await route.fetch()  # what the server knows when the page asks
        asked.set()
        await may.wait()
        await route.fulfill(response=before)

    async with console(painting.agent(tmp_path), browser) as url:
        await page.route("**/messages?*", later)
        await page.goto(url)
        await asyncio.wait_for(asked.wait(), BOUND)
        await enter(page, "Paint the door.")
        may.set()
        await asyncio.wait_for(painting.begun.wait(), BOUND)
        await expect(page.get_by_role("group", name="While the agent works")).to_be_visible()
        assert await said(page) == ["Paint the door."]
        painting.may.set()
        await expect(page.locator(".answer .body")).to_have_text("in red")


async def test_queued_messages_are_moved_and_withdrawn_by_keys_in_two_tabs(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    model = Thinking()
    async with console(scripted_agent(tmp_path, model.lm), browser) as url:
        other = await browser.page(width=NARROW)
        await page.goto(url)
        await enter(page, "1")
        await asyncio.wait_for(model.asked.wait(), BOUND)
        await page.get_by_label("Queue", exact=True).check()
        for text in ("2", "3", LONG):
            await enter(page, text)
            await expect(waiting(page).last).to_contain_text(text)
        await other.goto(url)
        await expect(waiting(other)).to_contain_text(["2", "3", LONG])
        await expect(other.get_by_role("group", name="While the agent works")).to_be_visible()
        assert not await unreached(other)
        assert not await scrolls_sideways(other)
        assert await serious_faults(other) == []
        await page.get_by_role("button", name=f"Move up: {LONG}").press("Enter")
        await expect(waiting(page)).to_contain_text(["2", LONG, "3"])
        await expect(page.get_by_role("button", name=f"Move up: {LONG}")).to_be_focused()
        await expect(waiting(other)).to_contain_text(["2", LONG, "3"])
        await other.get_by_role("button", name="Move down: 2").click()
        await other.get_by_role("button", name="Withdraw: 3").click()
        await expect(waiting(page)).to_contain_text([LONG, "2"])
        await expect(waiting(page)).to_have_count(2)
        await enter(other, "rather in blue")
        await expect(waiting(page)).to_contain_text(["rather in blue", LONG, "2"])
        model.may.set()
        for each in (page, other):
            await expect(each.locator(".answer")).to_have_count(4)
            assert await said(each) == ["1", "rather in blue", LONG, "2"]
            await expect(waiting(each)).to_have_count(0)


async def test_an_interrupting_message_begins_the_next_turn(tmp_path: Path, page: Page, browser: Browser) -> None:
    model = Thinking()
    async with console(scripted_agent(tmp_path, model.lm), browser) as url:
        await page.goto(url)
        await enter(page, "1")
        await asyncio.wait_for(model.asked.wait(), BOUND)
        await page.get_by_label("Interrupt").check()
        model.may.set()
        await enter(page, "2")
        await expect(page.locator(".answer .body")).to_have_text(["Fine."])
        await expect(page.locator(".mine .body")).to_have_text(["1", "2"])
        await expect(page.get_by_role("group", name="While the agent works")).to_be_hidden()


async def test_a_message_to_a_turn_that_waits_is_read_when_it_goes_on(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    painting = Painting()
    painting.may.set()
    async with console(scripted_agent(tmp_path, painting.lm, tools=[painting.tool]), browser) as url:
        await page.goto(url)
        await enter(page, "Paint the door.")
        await expect(page.locator(".pause")).to_be_visible()
        await enter(page, "rather in blue")
        await expect(waiting(page)).to_contain_text(["rather in blue"])
        await page.get_by_role("button", name="Approve").click()
        await expect(page.locator(".answer .body")).to_have_text("in blue")
        await expect(page.locator(".word .body")).to_have_text("rather in blue")


async def test_a_turn_that_reads_no_messages_says_so_and_keeps_the_text(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    model = Thinking()
    browser.allow("status of 409")
    browser.allow("status of 410")  # the turn keeps no events
    agent = scripted_agent(tmp_path, model.lm)
    async with console(agent, browser) as url:
        running = asyncio.ensure_future(agent.thread("ana:t1", account="ben").converse("1"))
        await asyncio.wait_for(model.asked.wait(), BOUND)
        await page.goto(url)
        await expect(page.get_by_role("group", name="While the agent works")).to_be_visible()
        await enter(page, "rather in blue")
        await expect(page.get_by_role("alert")).to_contain_text("begins a turn of its own")
        await expect(page.get_by_label("Message", exact=True)).to_have_value("rather in blue")
        model.may.set()
        await running
