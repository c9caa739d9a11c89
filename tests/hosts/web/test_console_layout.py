"""Each page of the console at each width, light and dark: every button can be reached, and nothing is hard to read.

Names, titles and words are as long as people, models and tools can make them.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from support.agents import scripted_agent
from support.browser import NARROW, WIDE, Browser, scrolls_sideways, serious_faults, unreached
from support.role_specs import BRIEF, spec_of
from support.skill_turns import package
from support.web import served
from worldagent import Memory, Worker, tool
from worldagent.agent import Say, Task
from worldagent.harness import CallContext
from worldagent.hosts.web import Grant, Tokens, WebApp
from worldagent.members import Objective, WorkspaceConfig
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = [pytest.mark.requirement("T10"), pytest.mark.xdist_group("browser"), pytest.mark.timeout(240)]

SENTENCE = "Find a hat that is good for rain, and for the walk along the river in autumn. "
WORD = "donaudampfschifffahrtselektrizitaetenhauptbetriebswerkbauunterbeamtengesellschaft"


@tool(risk="destructive", name=f"buy_{WORD[:56]}")
async def buy(item: str) -> str:
    """Buy an item."""
    return "bought"


@tool(risk="read_only", name="choose")
async def choose(ctx: CallContext) -> str:
    """Ask which one."""
    return await ctx.ask_person(SENTENCE + WORD, [SENTENCE + WORD, WORD, "no"])


def said(call: ScriptedCall) -> dict[str, Any]:
    """A model that calls the tool that the message names, and otherwise says what it was sent."""
    if "request" in call.fields:
        return {"result": SENTENCE + WORD}
    message = call.fields.get("message", "")
    name = next((one for one in (buy.name, choose.name) if one in message), None)
    if name is None or call.steps:
        return {"reply": f"{message} {WORD}\n\n```\n{SENTENCE * 3}\n```"}
    arguments = {"item": SENTENCE + WORD} if name == buy.name else {}
    return {"reply": "", "calls": [{"tool": name, "arguments": arguments}]}


@asynccontextmanager
async def furnished(folder: Path, browser: Browser, dark: bool) -> AsyncGenerator[tuple[Page, str, str]]:
    """Serve a workspace in which much has happened; gives a page, the address of the console, and a turn."""
    package(folder, name=WORD[:60], front=f"license: {WORD}\nmetadata:\n  {WORD}: {WORD}\n")
    agent = scripted_agent(
        folder / "home",
        ScriptedLM(said),
        memory=Memory(),
        tools=[buy, choose],
        workers=[Worker(WORD[-60:], "You judge.", SENTENCE + WORD)],
        skills=[folder / "skills"],
        society=WorkspaceConfig(id="novel", owner="ana"),
        background=True,
    )
    async with served(WebApp(agent, login=lambda _: "ana")) as url:
        try:
            turn = await agent.thread("ana:talk", account="ana").converse(SENTENCE + WORD)
            for name in (buy.name, choose.name):
                await agent.thread(f"ana:{name[:6]}", account="ana").converse(f"{SENTENCE} Call {name}.")
            busy = agent.thread("ana:busy", account="ana")
            await busy.converse(SENTENCE + WORD)
            for request in (Task("subagent", {"worker": WORD[-60:], "request": SENTENCE}), Say(f"Call {choose.name}.")):
                await (await agent.background(request, thread=busy, report="event")).wait()
            await agent.memory.add(SENTENCE + WORD, account="ana", tags=[WORD[:60]])
            await agent.society.join(spec_of("cro", goals=(Objective(id="grow", description=SENTENCE + WORD),)))
            await agent.society.join(spec_of(WORD[:60], "cro"))
            brief = {**BRIEF, "objective": SENTENCE + WORD, "deadline": "1h"}
            task = {"message_type": "task_assignment", "task_brief": brief}
            await agent.society.mail.send("root", "cro", payload=task)
            page = await browser.page(dark=dark)
            given = {"schedule": WORD[:47], "when": {"every": 3600}, "starts": {"message": SENTENCE + WORD}}
            assert (await page.request.post(f"{url}/schedules", data=given)).ok
            event = {"event": "lead-7", "type": f"lead.{WORD[:50]}", "domain": "revenue"}
            assert (await page.request.post(f"{url}/events", data=event)).ok
            yield page, f"{url}/console/#/", turn.id
        finally:
            await browser.leave()


PAGES = {
    "threads": (".side .title", "Switch between light and dark"),
    "threads/new": (".composer", "Keyboard shortcuts"),
    "threads/ana%3Atalk": (".rating", "rename"),
    f"threads/ana%3A{buy.name[:6]}": (".pause textarea", "Edit"),
    f"threads/ana%3A{choose.name[:6]}": (".pause button", ""),
    "threads/ana%3Abusy": (".background .pause button", "Say"),
    "pauses": ("main > section > div > div:nth-child(2) .pause", ""),
    "society": (".graph .member", WORD[:60]),
    "briefs": (".rows .badge", "Reassign"),
    "memory": (".rows .badge", "Forget"),
    "schedules": (".rows .badge", "Runs"),
    "skills": (".rows .badge", "Details of"),
    "workers": (".rows .badge", ""),
    "traces/TURN": (".trace .bar", ""),
    "cases/lead-7": (".trace tbody tr", ""),
}
"""What each page has once it is loaded, and the name of a button; what that shows is checked as well."""


async def check(page: Page, where: str, *, accessible: Sequence[int] = (390, 768, WIDE)) -> None:
    """Check the page as it is at each width, and at some of them for accessibility, which takes longer."""
    for width in (NARROW, 390, 768, WIDE):
        await page.set_viewport_size({"width": width, "height": 700})
        assert not (found := await unreached(page)), (where, width, found)
        assert not await scrolls_sideways(page), (where, width)
        if width in accessible:
            assert not (found := await serious_faults(page)), (where, width, found)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_every_button_is_in_the_window_and_pages_are_accessible(
    tmp_path: Path, browser: Browser, dark: bool
) -> None:
    async with furnished(tmp_path, browser, dark) as (page, url, turn):
        for path, (shown, button) in PAGES.items():
            await page.goto(f"{url}{path.replace('TURN', turn)}")
            await page.reload()
            await expect(page.locator(shown).first).to_be_attached()
            await check(page, path)
            if button:
                await page.set_viewport_size({"width": WIDE, "height": 700})
                await page.get_by_role("button", name=button).first.click()
                await check(page, f"{path}, {button}", accessible=[WIDE])


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_the_page_to_log_in_fits_every_window(tmp_path: Path, browser: Browser, dark: bool) -> None:
    browser.allow("status of 401")
    tokens = Tokens([("secret", Grant.of_account("novel", "ana"))])
    async with served(WebApp(scripted_agent(tmp_path, ScriptedLM(said)), tokens=tokens)) as url:
        page = await browser.page(dark=dark)
        await page.goto(f"{url}/console/")
        await expect(page.get_by_label("Token")).to_be_visible()
        await check(page, "login")
        await browser.leave()
