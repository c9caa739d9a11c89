"""The example of a chat in a FastAPI app, in a browser: streams, roles, approvals, reloads, and two tabs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import expect

from support.browser import NARROW, WIDE, Browser, scrolls_sideways, serious_faults
from support.fastapi_chat import QUESTION, app, decide, environment, log, log_in, reply, say
from support.openai_stub import OpenAIStub, openai_stub
from support.services import service
from support.web import served

pytestmark = pytest.mark.requirement("T4")


@asynccontextmanager
async def running(folder: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[str]:
    """Run the example, with a model at this address; gives its own."""
    for name, value in environment(model).items():
        monkeypatch.setenv(name, value)
    async with served(app(folder)) as address:
        yield address


@pytest.fixture
async def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[str]:
    """Where the example runs, with a model that sells hats."""
    with service() as stub:
        stub.reply = reply
        async with running(tmp_path, stub.url("chat"), monkeypatch) as address:
            yield address


@pytest.fixture
async def slow() -> AsyncGenerator[OpenAIStub]:
    """A model that stops in the middle of its first answer."""
    async with openai_stub() as stub:
        stub.answers.append(("Good ", "morning."))
        yield stub


async def test_text_is_shown_while_the_model_still_writes(
    browser: Browser, slow: OpenAIStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with running(tmp_path, slow.url, monkeypatch) as url:
        page = await log_in(browser, url)
        await say(page, "Hello.")
        await expect(log(page)).to_have_text("Hello.Good ", use_inner_text=False)
        slow.go_on.set()
        await expect(log(page)).to_have_text("Hello.Good morning.")


async def test_a_reload_during_an_answer_shows_it_from_its_beginning(
    browser: Browser, slow: OpenAIStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with running(tmp_path, slow.url, monkeypatch) as url:
        page = await log_in(browser, url)
        await say(page, "Hello.")
        await expect(log(page)).to_contain_text("Good")
        await page.reload()
        await expect(log(page)).to_contain_text("Good")
        slow.go_on.set()
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
    await expect(log(page)).to_have_text(f"Buy a hat.Arr, I will buy it.{QUESTION}ApproveReject")
    await decide(page, "Approve")
    await expect(log(page)).to_have_text("Buy a hat.Arr, I will buy it.Arr, the hat sails.")


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
@pytest.mark.parametrize("width", [NARROW, WIDE])
async def test_the_page_can_be_used_by_everyone_and_on_a_phone(
    browser: Browser, url: str, dark: bool, width: int
) -> None:
    page = await log_in(browser, url, dark=dark, width=width)
    await say(page, "Buy a hat.")
    await expect(log(page)).to_contain_text(QUESTION)
    assert await serious_faults(page) == []
    assert not await scrolls_sideways(page)


async def test_a_turn_that_a_restart_stopped_continues_by_a_button(
    browser: Browser, slow: OpenAIStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with running(tmp_path, slow.url, monkeypatch) as url:
        page = await log_in(browser, url)
        await say(page, "Hello.")
        await expect(log(page)).to_contain_text("Good")
        await page.context.close()
    async with running(tmp_path, slow.url, monkeypatch) as url:
        page = await log_in(browser, url)
        await decide(page, "Continue")
        await expect(log(page)).to_contain_text("Paris.")
