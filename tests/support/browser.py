"""A browser for tests of pages: Chromium, strict about what a page does, and a check of accessibility.

The fixtures `browser` and `page` are in `tests/conftest.py`. A page fails its test if it writes an error or a warning
to the console (a violation of its Content-Security-Policy is one, and so is a response with a status from 400 on),
raises an error, sends a request that fails, or sends one to another origin than the first.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import BrowserContext, ConsoleMessage, Page, Request, async_playwright, expect

from support.house import ROOT
from support.install_browser import MISSING, find_browser

WIDE: Final = 1280
NARROW: Final = 360
"""The width of a small phone."""

_WAIT: Final = 30_000  # milliseconds; the machine is shared
_AXE: Final = ROOT / "tests" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
_CHECK: Final = "axe.run({resultTypes: ['violations']}).then(found => found.violations)"
_UNREACHED: Final = """() => {
    const dialog = document.querySelector("dialog[open]") ?? document;
    const reached = (control) => {
        control.scrollIntoView({block: "center", behavior: "instant"});
        for (let each = control; each; each = each.parentElement) each.scrollLeft = 0;  // it must do without
        const {left, right, top, bottom} = control.getBoundingClientRect();
        return [left + 3, (left + right) / 2, right - 3].every((x) =>
            control.contains(document.elementFromPoint(x, (top + bottom) / 2)));
    };
    return [...dialog.querySelectorAll("button, .button, [role=button], summary, input, textarea, select")]
        .filter((control) => control.checkVisibility() && !reached(control))
        .map((control) => control.textContent || control.ariaLabel || control.id);
}"""

expect.set_options(timeout=_WAIT)


class Browser:
    """A browser of its own for one test."""

    def __init__(self, chromium: Chromium) -> None:
        self._chromium = chromium
        self._faults: list[str] = []
        self._allowed: list[str] = []

    async def page(self, *, dark: bool = False, width: int = WIDE, height: int = 800) -> Page:
        """Open an empty page with cookies and storage of its own, as another person has; `context.new_page` is a tab.

        Args:
            dark: Whether the person prefers dark pages.
            width: Of the window, in pixels; a small phone has `NARROW`.
            height: Of the window, in pixels.
        """
        context = await self._chromium.new_context(
            color_scheme="dark" if dark else "light", viewport={"width": width, "height": height}
        )
        context.set_default_timeout(_WAIT)
        self._watch(context)
        return await context.new_page()

    async def leave(self) -> None:
        """Close all pages, before the server that they call ends."""
        for context in self._chromium.contexts:
            for page in context.pages:
                await page.close()

    def allow(self, pattern: str) -> None:
        """Accept faults that this regular expression is found in, such as `status of 409`."""
        self._allowed.append(pattern)

    def faults(self) -> list[str]:
        """What the pages did that fails their test."""
        return [each for each in self._faults if not any(re.search(pattern, each) for pattern in self._allowed)]

    def _watch(self, context: BrowserContext) -> None:
        origins: list[str] = []

        def console(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                self._faults.append(f"{message.type} in the console: {message.text} ({message.location['url']})")

        def request(sent: Request) -> None:
            parts = urlsplit(sent.url)
            if parts.scheme in ("http", "https", "ws", "wss"):
                origins.append(f"{parts.scheme}://{parts.netloc}")
                if origins[-1] != origins[0]:
                    self._faults.append(f"request to another origin: {sent.url}")

        def failed(sent: Request) -> None:
            if sent.failure != "net::ERR_ABORTED":  # a stream ends so when its page is left
                self._faults.append(f"failed request: {sent.url}: {sent.failure}")

        context.on("console", console)
        context.on("weberror", lambda found: self._faults.append(f"error of the page: {found.error}"))
        context.on("request", request)
        context.on("requestfailed", failed)


@asynccontextmanager
async def started_browser() -> AsyncGenerator[Browser]:
    """Run a browser for the block, whose end checks what its pages did."""
    executable = find_browser()
    if executable is None:
        pytest.skip(MISSING)
    async with (
        async_playwright() as playwright,
        await playwright.chromium.launch(executable_path=executable) as chromium,
    ):
        browser = Browser(chromium)
        yield browser
        for context in chromium.contexts:
            await context.close()
    faults = browser.faults()
    assert not faults, "\n".join(faults)


async def serious_faults(page: Page) -> list[str]:
    """Give what axe-core finds on a page of impact serious or critical: the impact, the rule, and where."""
    assert _AXE.is_file(), "axe-core is missing: run `make setup`"
    await page.evaluate(_AXE.read_text(encoding="utf-8"))  # the policy of the page does not hold for the debugger
    found: list[dict[str, Any]] = await page.evaluate(_CHECK)
    return [
        f"{each['impact']} {each['id']}: {each['help']} ({', '.join(str(node['target']) for node in each['nodes'])})"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


async def unreached(page: Page) -> list[str]:
    """Give the texts of the buttons and fields that no scrolling downwards brings into view: cut off, or covered."""
    found: list[str] = await page.evaluate(_UNREACHED)
    return found


async def scrolls_sideways(page: Page) -> bool:
    """Tell whether the page is wider than its window, which a page on a narrow screen must not be."""
    wider: bool = await page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    return wider
