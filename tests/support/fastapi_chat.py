"""The example of a chat in a FastAPI app: its app, a model for it, and what a person does on its page."""

import runpy
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playwright.async_api import Locator, Page, expect

from support.browser import Browser
from support.house import ROOT
from support.services import Said

EXAMPLE = ROOT / "examples" / "fastapi_chat"
QUESTION = 'May it call buy with {"item":"hat"}?'


def environment(url: str) -> dict[str, str]:
    """What a person sets before they run it, for a model at this address."""
    return {"WORLDAGENT_LM": "openai/gpt-stub", "WORLDAGENT_API_BASE": url, "WORLDAGENT_API_KEY": "k"}


def copied(folder: Path) -> Path:
    """A copy of it, which keeps its home in that folder; a second copy into it keeps the home."""
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("home", "__pycache__"))
    return folder


def app(folder: Path) -> Any:
    """The app of such a copy; `environment` must be set."""
    return runpy.run_path(str(copied(folder) / "app.py"))["app"]


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
        return Said("Arr, I will buy it." if pirate else "I will buy it.", (("buy", {"item": "hat"}),))
    return Said("Ahoy, matey." if pirate else "Good morning.")


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
