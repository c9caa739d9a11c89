"""The console in a browser: people chat, answer pauses, fork, search memory, and nothing hostile runs."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from support.agents import scripted_agent
from support.browser import NARROW, Browser, scrolls_sideways, serious_faults
from support.role_specs import spec_of
from support.skill_turns import TEXT, package
from support.web import served
from traces.test_flows import ANSWERED, TO, desk
from worldagent import Memory, Role, Roles, Worker, WorldAgent, tool
from worldagent.hosts.web import Grant, Tokens, WebApp
from worldagent.members import Objective, WorkspaceConfig
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = [pytest.mark.requirement("T10"), pytest.mark.xdist_group("browser"), pytest.mark.timeout(240)]

HOSTILE = (
    "<img src=x onerror=\"document.title='run'\"> <script>document.title='run'</script> "
    "[press](javascript:document.title='run') [data](data:text/html,run) **bold** [site](https://example.com/a)"
)


def bought(items: list[str]) -> Any:
    @tool(risk="write")
    def buy(item: str) -> str:
        """Buy an item."""
        items.append(item)
        return f"one {item} is on its way"

    return buy


def said(call: ScriptedCall) -> dict[str, Any]:
    """A model that buys a hat if it is asked to, and otherwise says what it was sent, or how it was told to."""
    message = call.fields.get("message", "")
    if "Buy" in message and not call.steps:
        return {"reply": "", "calls": [{"tool": "buy", "arguments": {"item": "hat"}}]}
    if "told" in message:
        return {"reply": call.role or "Nothing."}
    if "hostile" in message:
        return {"reply": HOSTILE}
    return {"reply": f"Arr! {message}" if call.role else f"You said: {message}"}


@asynccontextmanager
async def console(home: Path, browser: Browser, **more: Any) -> AsyncGenerator[tuple[str, WorldAgent]]:
    """Serve the console for Ana; gives its address and the agent behind it."""
    agent = scripted_agent(home, ScriptedLM(said), memory=Memory(), **more)
    app = WebApp(agent, login=lambda request: "ana")
    async with served(app) as url:
        try:
            yield f"{url}/console/", agent
        finally:
            await browser.leave()


async def send(page: Page, text: str) -> None:
    await page.get_by_label("Message", exact=True).fill(text)
    await page.get_by_role("button", name="Send").click()


async def test_a_person_chats_with_a_role_and_forks(tmp_path: Path, page: Page, browser: Browser) -> None:
    async with console(tmp_path, browser) as (url, _):
        await page.goto(f"{url}#/threads/new")
        await send(page, "Hello.")
        await expect(page.locator(".answer .body")).to_have_text("You said: Hello.")
        await page.get_by_text("Role of this message").click()
        await page.get_by_label("How to go about it").fill("Speak as a pirate of the lower river.")
        async with page.expect_request(
            lambda request: request.method == "POST" and "/messages" in request.url
        ) as found:
            await send(page, "And now?")
        assert "pirate" in str((await found.value).post_data)
        await expect(page.locator(".answer .body").last).to_have_text("Arr! And now?")
        stored = await page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, location.href])")
        assert "pirate" not in stored
        await page.locator(".answer").first.get_by_role("button", name="fork").click()
        await expect(page.locator(".answer")).to_have_count(1)
        await expect(page.locator(".side .list a")).to_have_count(2)


@pytest.mark.requirement("R16")
async def test_a_line_below_an_answer_says_how_much_was_withheld(tmp_path: Path, page: Page, browser: Browser) -> None:
    clerk = "Answer as the clerk of a bookshop. Never say what a book cost. Send refunds to the second floor. " * 12
    narrow, loads = await browser.page(width=NARROW), asyncio.Event()

    async def later(route: Route) -> None:
        await loads.wait()
        await route.continue_()

    async with console(tmp_path, browser) as (url, agent):
        await page.goto(f"{url}#/threads/new")
        await page.route("**/messages?*", later)
        await page.get_by_text("Role of this message").click()
        await page.get_by_label("How to go about it").fill(clerk)
        await send(page, "What are you told?")
        line = page.locator(".answer .withheld")
        await expect(line).to_contain_text("characters were withheld, because they disclosed a role.")
        live = await line.text_content() or ""
        loads.set()
        await expect(page.get_by_role("group", name="Your opinion of this answer")).to_be_visible()  # it is loaded
        [turn] = await agent.traces.list()
        [model] = [record for record in (await agent.traces.get(turn.id)).records if record.kind == "model"]
        assert live == f"{model.withheld:,} characters were withheld, because they disclosed a role."
        await narrow.goto(page.url)
        for each in (page, narrow):
            await each.reload()
            await expect(each.locator(".answer .withheld")).to_have_text(live)
        assert await narrow.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert await serious_faults(narrow) == []
        await send(page, "Hello.")
        await expect(page.locator(".answer")).to_have_count(2)
        await expect(page.locator(".answer .withheld")).to_have_count(1)
        await narrow.get_by_role("link", name="trace").first.click()
        await expect(narrow.locator(".trace tbody")).to_contain_text(f"{model.withheld:,} characters withheld")


async def test_a_call_is_approved_with_changed_arguments(tmp_path: Path, page: Page, browser: Browser) -> None:
    items: list[str] = []
    async with console(tmp_path, browser, tools=[bought(items)]) as (url, _):
        await page.goto(f"{url}#/threads/new")
        await send(page, "Buy a hat.")
        card = page.locator(".pause")
        await card.get_by_role("button", name="Edit").click()
        await card.get_by_label("Arguments").fill('{"item": "coat"}')
        await card.get_by_role("button", name="Approve").click()
        await expect(page.locator(".answer .body").last).to_have_text("You said: Buy a hat.")
    assert items == ["coat"]


async def test_two_tabs_answer_one_pause_and_the_second_one_learns_it(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    browser.allow("status of 409")
    items: list[str] = []
    async with console(tmp_path, browser, tools=[bought(items)]) as (url, _):
        await page.goto(f"{url}#/threads/new")
        await send(page, "Buy a hat.")
        await expect(page.locator(".pause")).to_be_visible()
        other = await page.context.new_page()
        await other.route("**/live*", lambda route: route.abort())  # it is not told, as if it had slept
        await other.goto(f"{url}#/pauses")
        await expect(other.locator(".pause")).to_be_visible()
        await page.locator(".pause").get_by_role("button", name="Reject").click()
        await expect(page.locator(".answer .body").last).to_be_visible()
        await other.locator(".pause").get_by_role("button", name="Approve").click()
        await expect(other.locator(".pause")).to_contain_text("Someone else has answered this.")
    assert items == []
    browser.allow("ERR_FAILED")


async def test_hostile_text_is_shown_as_text(tmp_path: Path, page: Page, browser: Browser) -> None:
    async with console(tmp_path, browser) as (url, agent):
        await page.goto(f"{url}#/threads/new")
        await send(page, f"hostile {HOSTILE}")
        answer = page.locator(".answer .body")
        await expect(answer).to_contain_text("<script>document.title='run'</script>")
        await expect(answer.locator("strong")).to_have_text("bold")
        links = await page.locator(".log a[href]").evaluate_all("found => found.map(each => each.getAttribute('href'))")
        assert [each for each in links if not each.startswith("#")] == ["https://example.com/a"]
        assert await page.locator(".log img, .log script").count() == 0
        await agent.memory.add(HOSTILE, account="ana")
        await page.goto(f"{url}#/memory")
        await expect(page.locator(".rows .card")).to_contain_text("onerror")
        assert "run" not in await page.title()


async def test_a_new_conversation_has_its_address_at_once_and_takes_nobody_back(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    loads = asyncio.Event()

    async def later(route: Route) -> None:
        await loads.wait()
        await route.continue_()

    async with console(tmp_path, browser) as (url, _):
        await page.goto(f"{url}#/threads/new")
        await page.route("**/messages?*", later)
        await send(page, "Hello.")
        await expect(page.locator(".answer .body")).to_have_text("You said: Hello.")
        conversation = page.url
        assert not conversation.endswith("/new")
        await page.goto(f"{url}#/memory")
        await expect(page.get_by_text("Nothing is remembered yet.")).to_be_visible()
        async with page.expect_response("**/messages?*"):
            loads.set()
        assert page.url == f"{url}#/memory"
        await page.goto(conversation)
        await expect(page.locator(".answer .body")).to_have_text("You said: Hello.")


async def test_memory_is_searched_and_forgotten(tmp_path: Path, page: Page, browser: Browser) -> None:
    async with console(tmp_path, browser) as (url, agent):
        await page.goto(f"{url}#/memory")
        await expect(page.get_by_text("Nothing is remembered yet.")).to_be_visible()
        for text in ("Ana is allergic to nuts.", "The harbour closes at nine."):
            await agent.memory.add(text, account="ana")
        await page.get_by_label("Search memory").fill("harbour")
        await expect(page.locator(".rows .card")).to_have_count(1)
        await page.get_by_role("button", name="Forget").click()
        await page.get_by_role("button", name="Forget it for good").click()
        await expect(page.locator(".rows .card")).to_have_count(0)
        [left] = await agent.memory.list(account="ana")
        assert left.text == "Ana is allergic to nuts."


async def test_a_trace_shows_the_steps_of_a_turn(tmp_path: Path, page: Page, browser: Browser) -> None:
    async with console(tmp_path, browser) as (url, _):
        await page.goto(f"{url}#/threads/new")
        await send(page, "Hello.")
        await page.get_by_role("link", name="trace").click()
        await expect(page.get_by_role("heading", name="Trace of a turn")).to_be_visible()
        await expect(page.locator(".trace tbody tr").first).to_contain_text("turn")
        assert await page.locator(".trace .bar").count() >= 2


@pytest.mark.requirement("H11")
async def test_a_trace_shows_where_values_went(tmp_path: Path, browser: Browser) -> None:
    narrow = await browser.page(width=390)
    agent = desk(tmp_path, *ANSWERED)
    async with served(WebApp(agent, login=lambda request: "ana")) as url:
        try:
            turn = await agent.thread("ana:inbox", account="ana").converse("Answer Bob.", guard=True)
            await narrow.goto(f"{url}/console/#/traces/{turn.id}")
            row = narrow.locator(".trace tbody tr").filter(has_text="send_mail").first
            await expect(row.locator(".hint").first).to_have_text(f"to: {TO}")
            flows = narrow.locator(".flows > ul > li")
            await expect(flows).to_have_count(3)
            await expect(flows.last).to_contain_text("reader → send_mail.body (words), approve by rule:reply")
            assert not await scrolls_sideways(narrow)
            assert not await serious_faults(narrow)
        finally:
            await browser.leave()


async def test_an_answer_is_rated_good_or_bad(tmp_path: Path, page: Page, browser: Browser) -> None:
    async with console(tmp_path, browser, settings={"examples": "all"}) as (url, agent):
        await page.goto(f"{url}#/threads/new")
        await send(page, "Hello.")
        opinion = page.get_by_role("group", name="Your opinion of this answer")
        for feedback in ("good", "bad"):
            await opinion.get_by_role("button", name=feedback).click()
            await expect(opinion.locator("[aria-pressed=true]")).to_have_text(feedback)
            [example] = await agent.examples("Converse")
            assert example.feedback == feedback


async def test_roles_that_do_not_count_are_shown_with_the_reason(tmp_path: Path, page: Page, browser: Browser) -> None:
    async with console(tmp_path, browser, roles=Roles(policy="block")) as (url, agent):
        await agent.roles.put("workspace", Role("house", "Speak as the seventh keeper of the lighthouse."))
        await agent.roles.put("account", Role("terse", "Be terse."), scope_id="ana")
        async with asyncio.timeout(60):
            await agent.thread("ana:main", account="ana").converse("Hello.")
        await page.goto(f"{url}#/threads/ana%3Amain")
        await expect(page.locator(".tiers")).to_contain_text("workspace: house (46)")
        await expect(page.locator(".tiers")).to_contain_text("account: terse blocked")
        assert "seventh keeper" not in await page.content()


async def test_skills_are_listed_with_what_they_may_call(tmp_path: Path, page: Page, browser: Browser) -> None:
    text = '<img src=x onerror="document.title=1"> makes tea.'
    front = f"allowed-tools: Read Bash(git log:*)\ndisable-model-invocation: true\nargument-hint: '{text}'\n"
    package(tmp_path, front=f"{front}license: '{text}'\n", references__leaves_dot_md="x")
    async with console(tmp_path / "home", browser, skills=[tmp_path / "skills"]) as (url, _):
        await page.goto(f"{url}#/threads")
        await page.keyboard.press("6")
        await expect(page.get_by_role("heading", name="Skills")).to_be_visible()
        card = page.locator(".rows .card")
        for shown in ("Makes tea.", f"Asks for: {text}", "only people start it"):
            await expect(card).to_contain_text(shown)
        await card.get_by_role("button", name="Details of tea").click()
        for shown in ("Read, Bash(git log:*)", "references/leaves.md", text):
            await expect(card).to_contain_text(shown)
        assert TEXT not in await page.content()  # the instructions, which are for operators
        assert await serious_faults(page) == []


async def test_workers_are_listed_with_what_they_do_and_who_is_asked(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    more: dict[str, Any] = {"tools": [bought([])], "workers": [Worker("critic", "You judge.", "Judges a text.")]}
    async with console(tmp_path, browser, **more) as (url, _):
        await page.goto(f"{url}#/workers")
        buy = page.locator(".rows .card").filter(has_text="Buy an item.")
        await expect(buy).to_contain_text("write")
        await expect(buy).to_contain_text("asks for approval")
        await page.keyboard.press("/")
        await page.keyboard.type("judges")
        await expect(page.locator(".rows .card")).to_have_count(1)
        await expect(page.locator(".rows .card")).to_contain_text("critic")
        await expect(page.locator(".rows .card")).to_contain_text("needs no approval")


async def test_a_schedule_is_paused_and_resumed(tmp_path: Path, page: Page, browser: Browser) -> None:
    async with console(tmp_path, browser) as (url, _):
        nightly = {"schedule": "nightly", "when": {"every": 3600}, "starts": {"message": "What is new?"}}
        response = await page.request.post(url.replace("console/", "schedules"), data=nightly)
        assert response.ok, await response.text()
        await page.goto(f"{url}#/schedules")
        card = page.locator(".rows .card")
        await card.get_by_role("button", name="Pause").click()
        await expect(card).to_contain_text("none while paused")
        await card.get_by_role("button", name="Runs").click()
        await expect(card).to_contain_text("It has not run yet.")
        await card.get_by_role("button", name="Resume").click()
        await expect(card).not_to_contain_text("none while paused")


async def test_a_society_is_watched_as_it_changes(tmp_path: Path, page: Page, browser: Browser) -> None:
    society = WorkspaceConfig(id="novel", owner="ana")
    async with console(tmp_path, browser, society=society) as (url, agent):
        await page.goto(f"{url}#/society")
        await expect(page.locator(".graph")).to_contain_text("root")
        goal = Objective(id="grow", description="Win ten customers.", status="at_risk")
        await agent.society.join(spec_of("cro", domains=("revenue",), goals=(goal,)))
        await expect(page.locator(".graph")).to_contain_text("cro")  # without a reload
        await page.get_by_role("button", name="cro").click()
        await expect(page.locator(".about")).to_contain_text("Win ten customers.")
        await expect(page.locator(".about meter")).not_to_have_count(0)
        event = {"event": "lead-7", "type": "lead.created", "domain": "revenue"}
        await page.request.post(url.replace("console/", "events"), data=event)
        await expect(page.locator(".rows")).to_contain_text("lead.created")
        assert await serious_faults(page) == []
        await page.get_by_role("link", name="case: lead.created lead-7").click()
        await expect(page.get_by_role("heading", name="Case")).to_be_visible()
        await expect(page.locator("tbody")).to_contain_text("lead.created in revenue")
        await expect(page.locator("code")).to_have_text("event.lead-7")


@pytest.mark.requirement("A21")
async def test_a_conversation_shows_which_member_answers(tmp_path: Path, page: Page, browser: Browser) -> None:
    society = WorkspaceConfig(id="novel", owner="ana", roles=(spec_of("cro"),))
    async with console(tmp_path, browser, society=society) as (url, agent):
        await agent.thread("ana:t1", account="ana").converse("Hello.")
        speaker = url.replace("console/", "threads/t1/speaker")
        put = await page.request.put(speaker, data={"member": "cro", "messages": 1})
        assert put.ok, await put.text()
        await page.goto(f"{url}#/threads/t1")
        await expect(page.locator(".answer")).to_have_count(1)
        await send(page, "Who are you?")
        await expect(page.locator(".answer").last).to_contain_text("cro")
        await expect(page.locator(".answer").last.get_by_role("button", name="good")).to_be_visible()  # loaded again
        await expect(page.locator(".answer").last).to_contain_text("cro")
        await expect(page.locator(".answer").first).not_to_contain_text("cro")
        assert (await page.request.delete(speaker)).ok
        await send(page, "And now?")
        await expect(page.locator(".answer").last).to_contain_text("agent")


async def test_keys_alone_reach_a_chat_and_its_answer(tmp_path: Path, page: Page, browser: Browser) -> None:
    async with console(tmp_path, browser) as (url, _):
        await page.goto(url)
        await expect(page.get_by_text("No conversation yet.")).to_be_visible()
        await page.keyboard.press("n")
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        await page.keyboard.type("Hello.")
        await page.keyboard.press("Enter")
        await expect(page.locator(".answer .body")).to_have_text("You said: Hello.")
        await expect(page.locator(".side .list a")).to_be_visible()
        await page.keyboard.press("Escape")
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.keyboard.press("j")
        assert await page.evaluate("document.activeElement.closest('.list') !== null")


async def test_a_new_title_stays_and_its_dialog_takes_what_is_typed(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    async with console(tmp_path, browser) as (url, agent):
        await agent.thread("ana:main", account="ana").converse("Hello there.")
        await page.goto(f"{url}#/threads/ana%3Amain")
        await expect(page.get_by_role("heading", name="Hello there.")).to_be_visible()
        await page.get_by_role("button", name="rename").click()
        await page.keyboard.press("ControlOrMeta+a")
        await page.keyboard.type("Notes of the day")
        await page.keyboard.press("Enter")
        for _ in range(2):
            await expect(page.get_by_role("heading", name="Notes of the day")).to_be_visible()
            await page.reload()


async def test_the_pages_say_what_is_off_and_who_may_come_in(tmp_path: Path, page: Page, browser: Browser) -> None:
    app = WebApp(scripted_agent(tmp_path, ScriptedLM(said)), login=lambda request: request.headers.get("x-user"))
    async with served(app) as url:
        browser.allow("status of 40[01]")
        await page.goto(url)  # leads to the console
        await expect(page.get_by_text("Log in to the app that has these pages")).to_be_visible()
        await expect(page.get_by_label("Token")).to_have_count(0)
        await page.set_extra_http_headers({"x-user": "ana"})
        await page.goto(f"{url}/console/#/memory")
        await page.reload()
        await expect(page.get_by_text("This agent has no memory")).to_be_visible()
        await expect(page.get_by_role("searchbox")).to_have_count(0)
        await browser.leave()


async def test_a_token_with_globs_begins_a_conversation(tmp_path: Path, page: Page, browser: Browser) -> None:
    grant = Grant(("novel",), ("eve",), ("eve-*",))
    async with served(WebApp(scripted_agent(tmp_path, ScriptedLM(said)), login=lambda request: grant)) as url:
        await page.goto(f"{url}/console/#/threads/new")
        await expect(page.get_by_role("button", name="novel · eve")).to_be_visible()
        await send(page, "Hello.")
        await expect(page.locator(".answer .body")).to_have_text("You said: Hello.")
        await expect(page.locator(".side [aria-current=true]")).to_have_text(re.compile("Hello"))
        await browser.leave()


async def test_a_person_logs_in_with_a_token_and_out_on_every_device(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    browser.allow("status of 401")
    tokens = Tokens([("secret-of-ana", Grant.of_account("novel", "ana"))])
    async with served(WebApp(scripted_agent(tmp_path, ScriptedLM(said)), tokens=tokens)) as url:
        phone = await browser.page(width=NARROW)
        for each in (page, phone):
            await each.goto(f"{url}/console/")
            await each.get_by_label("Token").fill("secret-of-ana")
            await each.get_by_role("button", name="Log in").click()
            await expect(each.get_by_text("No conversation yet.")).to_be_visible()
        await page.get_by_role("button", name="novel · ana").click()
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_label("Token")).to_be_visible()
        await phone.get_by_role("link", name="Memory").click()
        await expect(phone.get_by_label("Token")).to_be_visible()
        await browser.leave()
