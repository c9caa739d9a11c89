"""Make the pictures of web pages, each for a person who prefers light pages and for one who prefers dark ones.

Run it when a page looks different: `make pictures`. Letters depend on the fonts of the machine.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.async_api import Page, expect

from support.browser import Browser, started_browser
from support.fastapi_chat import QUESTION, app, environment, log, log_in, reply, say
from support.services import service
from support.web import served

FOLDER = Path(__file__).parent


async def fastapi_chat(browser: Browser, dark: bool) -> None:
    """The example of a chat in a FastAPI app, with a call that waits."""
    with service() as stub, TemporaryDirectory() as folder:
        stub.reply = reply
        os.environ |= environment(stub.url("chat"))
        async with served(app(Path(folder))) as url:
            page = await log_in(browser, url, dark=dark, width=720, height=440)
            await say(page, "Hello.")
            await expect(log(page)).to_contain_text("Good morning.")
            await page.get_by_label("Role").select_option("pirate")
            await say(page, "Buy a hat.")
            await expect(log(page)).to_contain_text(QUESTION)
            await taken(page, "fastapi-chat", dark)


async def taken(page: Page, name: str, dark: bool) -> None:
    """Take the picture of a page, without the pointer over it."""
    await page.mouse.move(0, 0)
    await page.screenshot(
        path=FOLDER / f"{name}-{'dark' if dark else 'light'}.png", animations="disabled", caret="hide"
    )


async def main() -> None:
    """Take all pictures."""
    for make in (fastapi_chat,):
        for dark in (False, True):
            async with started_browser() as browser:
                await make(browser, dark)


if __name__ == "__main__":
    asyncio.run(main())
