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
from worldagent import Memory, Role, Storage, Worker, WorldAgent, tool
from worldagent.hosts.web import WebApp
from worldagent.members import AuthorityConfig, Objective, RoleSpec, WorkspaceConfig
from worldagent.scheduling import Cron, Schedule, Schedules, StartMessage
from worldagent.skills import EXAMPLES
from worldagent.testing import ScriptedCall, ScriptedLM

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


async def console(browser: Browser, dark: bool) -> None:
    """The pages of the console, for a workspace in which some things have happened."""
    with TemporaryDirectory() as folder:
        society = WorkspaceConfig(id="shop", owner="ana")
        schedule = Schedule(
            id="morning",
            workspace="shop",
            account="ana",
            thread="ana:morning",
            when=Cron("30 7 * * MON-FRI"),
            starts=StartMessage(QUESTIONS[0]),
        )
        agent = WorldAgent(
            "shop",
            lm=ScriptedLM(said),
            tools=[buy],
            workers=[Worker("fitter", "You find the size of a hat.", "Says which size fits a head.")],
            skills=[EXAMPLES],
            memory=Memory(),
            society=society,
            storage=Storage(home=Path(folder)),
        )
        async with served(WebApp(agent, login=lambda _: "ana")) as url:
            pirate = Role("pirate", "Answer as a pirate of the lower river.")
            thread = agent.thread("ana:hats", account="ana", name="Ana")
            turn = await thread.converse(QUESTIONS[0])
            thread.role.set(pirate)
            await thread.converse(QUESTIONS[1])
            await agent.thread("ana:tides", account="ana", name="Ana").converse("When is the tide in?")
            for text in ("Ana's head is 57 cm round.", "Ana does not like feathers."):
                await agent.memory.add(text, account="ana", tags=["hats"])
            await Schedules(agent).add(schedule)
            for role_id, parent, goals in MEMBERS:
                await agent.society.join(member(role_id, parent, goals))
            page = await browser.page(dark=dark, width=1120, height=660)
            for name, path in PAGES.items():
                await page.goto(f"{url}/console/#/{path.format(turn=turn.id)}")
                await page.reload()
                await expect(page.locator("main :is(h1, h2)").first).to_be_visible()
                if name == "society":
                    await page.get_by_role("button", name="cro").click()
                    await expect(page.locator(".about meter").first).to_be_visible()
                if name == "skills":
                    await page.get_by_role("button", name="Details").click()
                    await expect(page.get_by_text("may call")).to_be_visible()
                if name == "chat":
                    await expect(page.locator(".tiers .badge").first).to_be_visible()
                if name in ("waiting", "schedules"):
                    await expect(page.locator(".card").first).to_be_visible()
                await taken(page, f"console-{name}", dark)
            await browser.leave()


QUESTIONS = ("Which hat is good for rain?", "Buy me that one, please.")
PAGES = {
    "chat": "threads/ana%3Ahats",
    "waiting": "pauses",
    "trace": "traces/{turn}",
    "society": "society",
    "memory": "memory",
    "schedules": "schedules",
    "skills": "skills",
    "workers": "workers",
}
MEMBERS = (
    ("cro", "", (Objective(id="grow", description="Win ten shops in spring."),)),
    ("bdr-emea", "cro", (Objective(id="lisbon", description="Three shops in Lisbon.", status="at_risk"),)),
    ("bdr-apac", "cro", ()),
    ("finance", "", ()),
)


@tool(risk="write")
def buy(item: str, size: int) -> str:
    """Buy an item."""
    return f"one {item} of size {size} is on its way"


def said(call: ScriptedCall) -> dict[str, object]:
    """The words of the model."""
    message = call.fields.get("message", "")
    if QUESTIONS[1] in message and not call.steps:
        return {"reply": "", "calls": [{"tool": "buy", "arguments": {"item": "waxed bucket hat", "size": 57}}]}
    if QUESTIONS[0] in message:
        hats = "* a **waxed bucket hat** keeps the neck dry\n* a *felt fedora* looks better, and dries slowly"
        return {"reply": f"Two are good:\n\n{hats}\n\nI would take the first one."}
    return {"reply": "At nine, and again at half past nine in the evening."}


def member(role_id: str, parent: str, goals: tuple[Objective, ...]) -> RoleSpec:
    """A member of the society."""
    return RoleSpec(
        role_id=role_id,
        workspace="shop",
        soul=f"You are {role_id}.",
        domains=("revenue",) if role_id == "cro" else (),
        reports_to=parent,
        operator_ids=(),
        authority=AuthorityConfig(),
        parent_role_id=parent,
        goals=goals,
    )


async def taken(page: Page, name: str, dark: bool) -> None:
    """Take the picture of a page, without the pointer over it."""
    await page.mouse.move(0, 0)
    await page.screenshot(
        path=FOLDER / f"{name}-{'dark' if dark else 'light'}.png", animations="disabled", caret="hide"
    )


async def main() -> None:
    """Take all pictures."""
    for make in (fastapi_chat, console):
        for dark in (False, True):
            async with started_browser() as browser:
                await make(browser, dark)


if __name__ == "__main__":
    asyncio.run(main())
