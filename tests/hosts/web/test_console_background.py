"""Work in the background in the console: the tray of its conversation, its questions, and the bell for its reports."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from support.background import Library
from support.browser import NARROW, Browser, scrolls_sideways, serious_faults, unreached
from support.sidecars import until
from support.web import served
from worldagent import WorldAgent
from worldagent.agent import Task
from worldagent.harness import Policy
from worldagent.hosts.web import WebApp
from worldagent.testing import VirtualClock

pytestmark = [pytest.mark.requirement("T17"), pytest.mark.xdist_group("browser"), pytest.mark.timeout(240)]

BOUND = 60
THREAD = "#/threads/ana%3At"
READ = Task("subagent", {"worker": "reader", "request": "Read Moby Dick."})
NOTICES_STAY = "const later = setTimeout; setTimeout = (run, ms) => (ms < 5000 ? later(run, ms) : 0)"


@pytest.fixture
async def page(page: Page) -> Page:
    await page.context.add_init_script(NOTICES_STAY)
    return page


@asynccontextmanager
async def console(agent: WorldAgent, browser: Browser) -> AsyncGenerator[str]:
    async with served(WebApp(agent, login=lambda _: "ana")) as url:
        try:
            yield f"{url}/console/"
        finally:
            await browser.leave()


async def ask(page: Page, url: str) -> None:
    """Ask what the conversation sends a worker off for, and wait for the answer."""
    await page.goto(f"{url}{THREAD}")
    field = page.get_by_label("Message", exact=True)
    await field.fill("What is Moby Dick about?")
    await field.press("Enter")
    await expect(page.locator(".answer .body").first).to_have_text("I let it be read.")


async def away(page: Page, *, hidden: bool) -> None:
    """Put the tab behind another one, or before it."""
    await page.evaluate("hidden => Object.defineProperty(document, 'hidden', {value: hidden, writable: true})", hidden)
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def tray(page: Page) -> Locator:
    return page.get_by_role("region", name="Background tasks")


def finished(page: Page) -> Locator:
    return tray(page).get_by_role("group")


def bell(page: Page) -> Locator:
    """How much was reported that the person has not seen."""
    return page.locator('[data-page="threads"] .count')


def notices(page: Page) -> Locator:
    return page.get_by_role("status")


async def test_a_task_is_watched_steered_and_read_when_it_reports(tmp_path: Path, page: Page, browser: Browser) -> None:
    library = Library()
    async with console(library.agent(tmp_path), browser) as url:
        await page.goto(f"{url}{THREAD}")
        await expect(page.get_by_text("Nothing was said here yet.")).to_be_visible()
        await expect(tray(page)).to_be_hidden()
        await ask(page, url)
        task = tray(page).get_by_role("listitem")
        for shown in ("running", "reader", "look", "tokens"):
            await expect(task).to_contain_text(shown)
        clock = re.search(r"\d+:\d\d", await task.inner_text())
        assert clock
        await expect(task).not_to_contain_text(clock[0])  # it goes on
        await task.get_by_role("button", name="Say: reader").press("Enter")
        await expect(task.get_by_label("Say to reader")).to_be_focused()
        await page.keyboard.type("Only the first chapter.")
        await page.keyboard.press("Enter")
        await expect(task.get_by_role("button", name="Say: reader")).to_be_focused()
        await expect(notices(page)).to_contain_text("reader reads it at its next step.")
        await page.get_by_label("Message", exact=True).fill("a draft")
        library.may.set()
        await expect(page.locator(".log > .message .body").last).to_have_text("Whales!")  # a turn that nobody asked for
        await expect(page.locator(".report .body")).to_contain_text("It is about whales.")
        await expect(page.locator(".side .list a")).to_have_count(1)  # the task is not a conversation of its own
        await expect(finished(page)).to_contain_text("Finished: 1")
        await expect(tray(page).get_by_role("listitem")).to_have_count(0)
        await expect(notices(page)).to_contain_text("reader is done.")
        await expect(bell(page)).to_be_hidden()  # it is on the page
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        await expect(page.get_by_label("Message", exact=True)).to_have_value("a draft")
        await finished(page).get_by_text("Finished: 1").click()
        await task.get_by_role("link", name="Open: reader").click()
        await expect(page.get_by_role("heading", name="reader")).to_be_visible()
        said = page.locator(".log > .message .body")
        await expect(said).to_have_text(["Read Moby Dick.", "Only the first chapter.", "It is about whales."])
        await expect(page.get_by_label("Message", exact=True)).to_be_hidden()
        await page.get_by_role("link", name="Back to its conversation").click()
        await expect(page.get_by_label("Message", exact=True)).to_be_visible()
        await expect(page.locator(".report .body")).to_contain_text("It is about whales.")
    assert "Only the first chapter." in library.read[-1]


async def test_a_task_is_cancelled_and_the_focus_stays_in_its_tray(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    library = Library()
    async with console(library.agent(tmp_path), browser) as url:
        await ask(page, url)
        await tray(page).get_by_role("button", name="Cancel: reader").press("Enter")
        await expect(finished(page)).to_contain_text("Finished: 1")
        await expect(finished(page).get_by_text("Finished: 1")).to_be_focused()
        await page.keyboard.press("Enter")
        task = tray(page).get_by_role("listitem")
        await expect(task).to_contain_text("cancelled")
        await expect(task.get_by_role("button")).to_have_count(0)
        await expect(page.locator(".answer")).to_have_count(1)


async def test_an_answer_an_hour_later_brings_the_report_and_its_turn(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    clock = VirtualClock(datetime.now(UTC))
    library = Library()
    library.may.set()
    agent = library.agent(tmp_path, policy=Policy(), clock=clock)
    async with console(agent, browser) as url:
        other = await page.context.new_page()
        await other.goto(f"{url}#/workers")
        await ask(page, url)
        for each in (page, other):
            await expect(notices(each)).to_contain_text("reader waits for a person.")
        card = tray(page).get_by_role("article", name="approval: look")
        await expect(tray(page)).to_contain_text("waits since")
        # The report of that began a turn, which has ended as well before the hour has passed.
        await expect(page.locator(".answer")).to_have_count(2)
        await clock.advance(3600)
        assert library.looked == 0
        await card.get_by_role("button", name="Approve").press("Enter")
        await expect(page.locator(".log > .message .body").last).to_have_text("Whales!")
        await expect(card).to_have_count(0)
        await expect(finished(page)).to_contain_text("Finished: 1")
        await expect(notices(other)).to_contain_text("reader is done.")
        await finished(page).get_by_text("Finished: 1").click()
        await expect(tray(page).get_by_role("listitem")).to_contain_text(re.compile(r"1:0\d:\d\d"))
        await other.goto(f"{url}{THREAD}")
        await expect(other.locator(".log > .message .body").last).to_have_text("Whales!")
        assert await other.locator(".report").count() == 2
    assert library.looked == 1


async def test_the_bell_counts_on_every_page_and_in_every_tab_until_the_conversation_is_seen(
    tmp_path: Path, browser: Browser
) -> None:
    library = Library()
    library.may.set()
    page = await browser.page(width=NARROW)
    await page.context.add_init_script(NOTICES_STAY)
    agent = library.agent(tmp_path)
    async with console(agent, browser) as url:
        await agent.background(READ, thread=agent.thread("ana:old", account="ana"), report="event")
        await agent.thread("ana:t", account="ana").converse("Is it dispatched?")
        await page.goto(f"{url}#/workers")
        other = await page.context.new_page()
        await other.goto(f"{url}#/threads")
        for each in (page, other):
            # It was told what had been reported before. The policy of the page forbids to wait for that in it.
            await until(partial(each.evaluate, "localStorage.length > 0"))
        for thread in ("ana:t", "ana:t", "ben:t"):
            task = await agent.background(READ, thread=agent.thread(thread, account=thread[:3]), report="event")
            assert (await task.wait()).status == "done"
        for each in (page, other):
            await expect(notices(each).get_by_role("link", name="Open its conversation")).to_have_count(2)
            await expect(bell(each)).to_have_text("2")
        await expect(page).to_have_title("(2) Workers · worldagent")
        assert not await unreached(page)
        assert not await scrolls_sideways(page)
        assert await serious_faults(page) == []
        marked = other.get_by_role("link", name="Is it dispatched?")
        await expect(marked).to_contain_text("report")
        await page.reload()
        await expect(bell(page)).to_have_text("2")
        await expect(notices(page)).to_be_empty()  # they have rung
        await notices(other).get_by_role("link", name="Open its conversation").first.click()
        await expect(tray(other)).to_contain_text("Finished: 2")
        for each in (page, other):
            await expect(bell(each)).to_be_hidden()
        await expect(page).to_have_title("Workers · worldagent")
        await away(other, hidden=True)
        await agent.background(READ, thread=agent.thread("ana:t", account="ana"), report="event")
        for each in (page, other):
            await expect(bell(each)).to_have_text("1")
        await away(other, hidden=False)
        for each in (page, other):
            await expect(bell(each)).to_be_hidden()
        await other.get_by_role("link", name="Back to the list").click()
        await expect(marked).to_be_visible()
        await expect(marked).not_to_contain_text("report")


async def test_two_tabs_show_the_same_tasks_and_one_of_them_answers(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    library = Library()
    agent = library.agent(tmp_path, policy=Policy())
    async with console(agent, browser) as url:
        narrow = await browser.page(width=NARROW, height=640)
        for each in (page, narrow):
            await ask(each, url) if each is page else await each.goto(f"{url}{THREAD}")
            await expect(tray(each).get_by_role("article", name="approval: look")).to_be_visible()
        await agent.background(READ, thread=agent.thread("ana:t", account="ana"), report="event")
        for each in (page, narrow):
            await expect(tray(each).get_by_role("article", name="approval: look")).to_have_count(2)
        assert not await unreached(narrow)
        assert not await scrolls_sideways(narrow)
        assert await serious_faults(narrow) == []
        await narrow.get_by_role("button", name="Approve").first.click()
        for each in (page, narrow):
            await expect(tray(each).get_by_role("article")).to_have_count(1)
        await page.get_by_role("button", name="Approve").click()
        for each in (page, narrow):
            await expect(tray(each).get_by_role("article")).to_have_count(0)
        library.may.set()
        for each in (page, narrow):
            await expect(finished(each)).to_contain_text("Finished: 2")
