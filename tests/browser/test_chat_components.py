"""Chat components that others wrote, in a browser: assistant-ui over AG-UI, and deep-chat over the API of OpenAI."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from support.agents import scripted_agent
from support.browser import Browser
from support.house import ROOT
from support.web import served
from worldagent import tool
from worldagent.hosts.web import WebApp
from worldagent.testing import ScriptedCall, ScriptedLM

HERE = ROOT / "tests" / "browser"
MODULES = HERE / "node_modules"

pytestmark = pytest.mark.requirement("T4", "R7")


@tool(risk="write", capture=True)
def buy(item: str) -> str:
    """Buy an item."""
    return f"one {item} is on its way"


def reply(call: ScriptedCall) -> dict[str, object]:
    """Buy a hat for a person who wants one, and answer in the words of the role."""
    pirate = call.role is not None and "pirate" in call.role
    if call.steps:
        bought = "on its way" in str(call.steps)
        return {"reply": "A hat is on its way." if bought else "No hat then."}
    if "hat" in call.fields["message"]:
        return {"reply": "", "calls": [{"tool": "buy", "arguments": {"item": "hat"}}]}
    return {"reply": "Ahoy, matey." if pirate else "Good morning."}


@asynccontextmanager
async def page_of(browser: Browser, folder: Path, html: str) -> AsyncGenerator[Page]:
    """Serve the page with the files of `folder/site`, and an agent at `/agent`, and open it."""
    lm = ScriptedLM(reply)
    agent = scripted_agent(folder / "home", lm, tools=[buy])
    web = WebApp(agent, login=lambda _: "ana")
    site = folder / "site"
    (site / "index.html").write_text(f"<!doctype html><title>Chat</title>{html}", encoding="utf-8")
    app = Starlette(
        routes=[Mount("/agent", web), Mount("/", StaticFiles(directory=site, html=True))], lifespan=web.lifespan
    )
    async with served(app) as url:
        page = await browser.page()
        await page.goto(url)
        yield page
        await browser.leave()


def bundled(site: Path) -> None:
    """Write `assistant_ui.jsx` with its packages into one file, as `app.js`."""
    [esbuild] = MODULES.glob("@esbuild/*/bin/esbuild")
    options = ["--bundle", "--jsx=automatic", '--define:process.env.NODE_ENV="production"', f"--outfile={site}/app.js"]
    subprocess.run([esbuild, HERE / "assistant_ui.jsx", *options], check=True, capture_output=True, timeout=60)


@pytest.fixture
async def assistant_ui(browser: Browser, tmp_path: Path) -> AsyncGenerator[Page]:
    """The page of `assistant_ui.jsx`."""
    site = tmp_path / "site"
    site.mkdir()
    await asyncio.to_thread(bundled, site)
    async with page_of(browser, tmp_path, "<div id=app></div><script src=app.js></script>") as page:
        yield page


async def say(page: Page, text: str) -> None:
    """Send a message."""
    await page.get_by_label("Message").fill(text)
    await page.get_by_role("button", name="Send").click()


def log(page: Page) -> Locator:
    """What was said."""
    return page.get_by_role("log")


async def test_assistant_ui_talks_with_a_role_for_one_message(assistant_ui: Page) -> None:
    page = assistant_ui
    await say(page, "Hello.")
    await expect(log(page)).to_have_text("Hello.Good morning.")
    await page.get_by_label("Role").select_option("pirate")
    await say(page, "Hello again.")
    await expect(log(page)).to_have_text("Hello.Good morning.Hello again.Ahoy, matey.")


@pytest.mark.parametrize(
    ("button", "call", "end"), [("Approve", "done", "A hat is on its way."), ("Reject", "rejected", "No hat then.")]
)
async def test_assistant_ui_asks_before_a_call(assistant_ui: Page, button: str, call: str, end: str) -> None:
    page = assistant_ui
    await say(page, "Buy a hat.")
    await page.get_by_role("button", name=button).click()
    await expect(log(page)).to_have_text(f'Buy a hat.buy({{"item":"hat"}}) {call}{end}')
    await say(page, "Hello.")
    await expect(log(page)).to_contain_text("Good morning.")


@pytest.fixture
async def deep_chat(browser: Browser, tmp_path: Path) -> AsyncGenerator[Page]:
    """The page that docs/guides/openai.md shows."""
    guide = (ROOT / "docs" / "guides" / "openai.md").read_text(encoding="utf-8")
    html = guide.partition("```html\n")[2].partition("```")[0].replace('"shop"', '"novel"')
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(MODULES / "deep-chat" / "dist" / "deepChat.bundle.js", site)
    async with page_of(browser, tmp_path, html) as page:
        yield page


async def tell(page: Page, text: str) -> None:
    """Send a message with deep-chat."""
    await page.locator("#text-input").fill(text)
    await page.keyboard.press("Enter")


async def test_deep_chat_talks_on_a_thread_and_shows_where_to_approve(browser: Browser, deep_chat: Page) -> None:
    answers = deep_chat.locator(".ai-message")
    for number, text in enumerate(("Hello.", "Hello again.")):
        await tell(deep_chat, text)
        await expect(answers.nth(number)).to_have_text("Good morning.")
    browser.allow("the turn waits for a person")  # deep-chat writes each error to the console
    await tell(deep_chat, "Buy a hat.")
    await expect(deep_chat.locator(".error-message-text")).to_contain_text("/agent/console#/threads/ana%3Amain")
    messages = await deep_chat.evaluate("fetch('/agent/threads/main/messages').then((response) => response.json())")
    said = [each["body"]["text"] for each in messages["messages"] if each["body"].get("text")]
    assert said == ["Hello.", "Good morning.", "Hello again.", "Good morning.", "Buy a hat."]
