"""The Markdown of the console: what it costs, how often it is drawn, and that a link shows where it leads."""

import itertools
import json
import subprocess
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from support.agents import scripted_agent
from support.browser import Browser
from support.example_hosts import NODE
from support.house import ROOT
from support.web import served
from worldagent.hosts.web import WebApp
from worldagent.testing import ScriptedLM

pytestmark = [pytest.mark.requirement("T10"), pytest.mark.timeout(240)]

PIECES = ("[", "]", "(", ")", "](", "*", "`", "https://", "- ", "1", " ", "\n", "\u2028", "a")


def test_the_cost_of_an_answer_grows_with_its_length_and_not_its_square() -> None:
    ends = itertools.product(("- ", "# ", "> ", "[", "https://"), PIECES, ("", "a\u2028"))
    pairs = itertools.product(("",), map("".join, itertools.product(PIECES, repeat=2)), ("",))
    texts = [*ends, *pairs]
    words = [NODE, str(Path(__file__).with_name("markdown_cost.mjs")), str(ROOT / "hosts/web/static/markdown.js")]
    given = "\n".join(map(json.dumps, texts))
    done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{len(texts)} read\n"


LINKS = {
    "[site](https://example.com/a)": "site (example.com)",
    "[example.com](https://example.com/a)": "example.com",
    "https://example.com/a?b=c#d": "https://example.com/a?b=c#d",
    "https://example.com": "https://example.com",
    "[https://example.com/a](https://example.com/a)": "https://example.com/a",
    "[https://bank.example/?evil.example](https://evil.example/login)": (
        "https://bank.example/?evil.example (evil.example)"
    ),
    "[bank.example, not evil.example](https://evil.example)": "bank.example, not evil.example (evil.example)",
    "https://bank.example@evil.example/": "https://bank.example@evil.example/ (evil.example)",
    "https://evil.example:bank@evil.example.com/": "https://evil.example:bank@evil.example.com/ (evil.example.com)",
    "https://b\N{CYRILLIC SMALL LETTER A}nk.example/": (
        "https://b\N{CYRILLIC SMALL LETTER A}nk.example/ (xn--bnk-6cd.example)"
    ),
    "[ask](mailto:ana@example.com?subject=a)": "ask (ana@example.com)",
    "[press](javascript:alert(1))": "[press](javascript:alert(1))",
}
_DRAWN = """async (texts) => {
    const { markdown } = await import("./markdown.js");
    return texts.map((text) => {
        const into = document.createElement("div");
        into.replaceChildren(...markdown(text));
        return into.textContent;
    });
}"""


async def test_a_link_shows_its_host_and_the_longest_answer_is_whole(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    most = 131_072  # characters of an answer
    long = {"*a*" * (most // 3): "a" * (most // 3), "a\n\n" * (most // 3): "a" * (most // 3)}
    async with served(WebApp(scripted_agent(tmp_path, ScriptedLM([])), login=lambda _: "ana")) as url:
        await page.goto(f"{url}/console/")
        shown = await page.evaluate(_DRAWN, [*LINKS, *long])
        await browser.leave()
    assert dict(zip([*LINKS, *long], shown, strict=True)) == LINKS | long


_COUNTED = """
window.counted = { frames: 0, draws: 0 };
const { replaceChildren } = Element.prototype;
Element.prototype.replaceChildren = function (...children) {
    if (this.matches(".body")) counted.draws += 1;
    return replaceChildren.apply(this, children);
};
const frame = () => { counted.frames += 1; requestAnimationFrame(frame); };
frame();
"""


async def test_an_answer_is_drawn_once_a_frame_while_it_is_written(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    words = " ".join(f"*word* {number}" for number in range(1000))
    agent = scripted_agent(tmp_path, ScriptedLM(lambda call: {"reply": words}, chunk=10))
    await page.add_init_script(_COUNTED)
    async with served(WebApp(agent, login=lambda _: "ana")) as url:
        await page.goto(f"{url}/console/#/threads/new")
        await page.get_by_label("Message", exact=True).fill("Hello.")
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator(".rating")).to_be_visible()
        assert await page.locator(".answer .body").inner_text() == words.replace("*", "")
        counted: dict[str, int] = await page.evaluate("counted")
        await browser.leave()
    assert 0 < counted["draws"] <= counted["frames"]
