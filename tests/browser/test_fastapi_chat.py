"""The example of a chat in a FastAPI app, in a browser: streams, roles, approvals, reloads, and two tabs."""

import runpy
import shutil
from collections.abc import AsyncGenerator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from support.browser import NARROW, Browser, scrolls_sideways, serious_faults
from support.house import ROOT
from support.openai_stub import OpenAIStub, openai_stub
from support.services import Said, Service, service
from support.web import served

EXAMPLE = ROOT / "examples" / "fastapi_chat"
QUESTION = 'May it call buy with {"item":"hat"}?'


def reply(body: Mapping[str, Any]) -> Said:
    """Buy a hat for a person who wants one, and answer in the words of the role."""
    spoken = [str(each["content"]) for each in body["messages"]]
    answers = [place for place, each in enumerate(body["messages"]) if each["role"] == "assistant"]
    newest = "\n".join(spoken[max(answers, default=0) + 1 :])
    pirate = "pirate" in "\n".join(spoken)
    if "You called 'buy'" in newest:
        bought = "on its way" in newest
        return Said(("Arr, the hat sails." if pirate else "A hat is on its way.") if bought else "No hat then.")
    if "hat" in newest:
        return Said("I will buy it.", (("buy", {"item": "hat"}),))
    return Said("Ahoy, matey." if pirate else "Good morning.")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """The model of the example."""
    with service() as stub:
        stub.reply = reply
        use(monkeypatch, stub.url("chat"))
        yield stub


def use(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Set what a person sets before they run the example."""
    for name, value in (("LM", "openai/gpt-stub"), ("API_BASE", url), ("API_KEY", "k")):
        monkeypatch.setenv(f"WORLDAGENT_{name}", value)


def app(folder: Path) -> Any:
    """The app of the example, in a folder of its own."""
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("home", "__pycache__"))
    return runpy.run_path(str(folder / "app.py"))["app"]


@pytest.fixture
async def url(model: Service, tmp_path: Path) -> AsyncGenerator[str]:
    """Where the example runs, with that model."""
    async with served(app(tmp_path)) as address:
        yield address


async def log_in(browser: Browser, url: str, **how: Any) -> Page:
    """Open the page as a person who has not logged in yet, and log in."""
    browser.allow("status of 401")
    page = await browser.page(**how)
    await page.goto(url)
    await page.get_by_label("Your name").fill("ana")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_label("Message")).to_be_visible()
    return page


async def say(page: Page, text: str) -> None:
    await page.get_by_label("Message").fill(text)
    await page.get_by_role("button", name="Send").click()


async def decide(page: Page, button: str) -> None:
    await page.get_by_role("button", name=button).click()


def log(page: Page) -> Locator:
    return page.get_by_role("log")


async def test_text_is_shown_while_the_model_still_writes(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with openai_stub() as stub:
        use(monkeypatch, stub.url)
        stub.answers.append(("Good ", "morning."))
        async with served(app(tmp_path)) as url:
            page = await log_in(browser, url)
            await say(page, "Hello.")
            await expect(log(page)).to_have_text("Hello.Good ", use_inner_text=False)
            stub.go_on.set()
            await expect(log(page)).to_have_text("Hello.Good morning.")


async def test_a_reload_during_an_answer_shows_it_from_its_beginning(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with openai_stub() as stub:
        use(monkeypatch, stub.url)
        stub.answers.append(("Good ", "morning."))
        async with served(app(tmp_path)) as url:
            page = await log_in(browser, url)
            await say(page, "Hello.")
            await expect(log(page)).to_contain_text("Good")
            await page.reload()
            await expect(log(page)).to_contain_text("Good")
            stub.go_on.set()
            await expect(log(page)).to_have_text("Hello.Good morning.")


async def test_the_role_of_the_menu_holds_for_one_message(browser: Browser, url: str) -> None:
    page = await log_in(browser, url)
    for role, answer in (("none", "Good morning."), ("pirate", "Ahoy, matey."), ("none", "Good morning.")):
        await page.get_by_label("Role").select_option(role)
        await say(page, "Hello.")
        await expect(log(page).locator(".answer").last).to_have_text(answer)
    await page.reload()
    await expect(log(page)).to_have_text("Hello.Good morning.Hello.Ahoy, matey.Hello.Good morning.")


@pytest.mark.parametrize(("button", "end"), [("Approve", "A hat is on its way."), ("Reject", "No hat then.")])
async def test_a_button_decides_about_a_call(browser: Browser, url: str, button: str, end: str) -> None:
    page = await log_in(browser, url)
    await say(page, "Buy a hat.")
    await expect(log(page)).to_contain_text(QUESTION)
    await decide(page, button)
    await expect(log(page)).to_have_text(f"Buy a hat.I will buy it.{end}")
    await say(page, "Hello.")
    await expect(log(page)).to_contain_text("Good morning.")


async def test_a_reloaded_page_shows_the_open_pause_and_answers_it(browser: Browser, url: str) -> None:
    page = await log_in(browser, url)
    await page.get_by_label("Role").select_option("pirate")
    await say(page, "Buy a hat.")
    await expect(log(page)).to_contain_text(QUESTION)
    await page.reload()
    await expect(log(page)).to_have_text(f"Buy a hat.I will buy it.{QUESTION}ApproveReject")
    await decide(page, "Approve")
    await expect(log(page)).to_have_text("Buy a hat.I will buy it.Arr, the hat sails.")


async def test_the_second_of_two_tabs_learns_that_the_pause_is_answered(browser: Browser, url: str) -> None:
    first = await log_in(browser, url)
    await say(first, "Buy a hat.")
    await expect(log(first)).to_contain_text(QUESTION)
    second = await first.context.new_page()
    await second.goto(url)
    await expect(log(second)).to_contain_text(QUESTION)
    await decide(first, "Approve")
    await expect(log(first)).to_contain_text("A hat is on its way.")
    browser.allow("status of 409")
    await decide(second, "Reject")
    await expect(second.locator(".problem")).to_be_visible()
    await expect(log(second)).to_contain_text("A hat is on its way.")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [NARROW, 1280])
async def test_the_page_can_be_used_by_everyone_and_on_a_phone(
    browser: Browser, url: str, dark: bool, width: int
) -> None:
    page = await log_in(browser, url, dark=dark, width=width)
    await say(page, "Buy a hat.")
    await expect(log(page)).to_contain_text(QUESTION)
    assert await serious_faults(page) == []
    assert not await scrolls_sideways(page)
