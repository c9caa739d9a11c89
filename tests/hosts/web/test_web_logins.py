"""Logins to MCP servers in a browser: who can begin one and end it, and that nothing of it is kept anywhere."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.async_api import Page, expect

from support.agents import answering
from support.authorization import authorization, kept_in
from support.browser import Browser
from support.leaks import watch
from support.mcp_tools import USE
from support.web import web
from worldagent.hosts.web import Grant, Tokens, logins
from worldagent.mcp_client import HttpHost
from worldagent.mcp_client.tools import Login, McpServer

pytestmark = pytest.mark.requirement("H2")
TOKENS = Tokens([(f"secret-of-{name}", Grant.of_account("novel", name)) for name in ("ana", "ben")])

OPENED = "void (window.opened = new Promise((done) => { window.open = () => ({ set location(to) { done(to) } }) }))"
"""Lets `window.opened` be the address that a page opens in a tab."""


@asynccontextmanager
async def app(home: Path, host: HttpHost, by: Any = "account", **more: Any) -> AsyncGenerator[httpx2.AsyncClient]:
    """A web app whose agent has the server `t`, and the browser of a person who is logged in as `ana`."""
    server = McpServer(host, login=Login(by=by), risk={"*": "read_only"})
    given: dict[str, Any] = {"agent": {"mcp": {"t": server}, "shapes": [USE]}, "login": None, "tokens": TOKENS, **more}
    async with web(home, answering(), **given) as client:
        if given["login"] is None:
            await client.post("/login", json={"token": "secret-of-ana"})
        yield client


async def begun(client: httpx2.AsyncClient, **more: Any) -> str:
    answer = await client.post("/oauth/start", json={"server": "t"}, **more)
    assert answer.status_code == 200, answer.text
    link: str = answer.json()["login"]["link"]
    return link


async def used(client: httpx2.AsyncClient, function: str, *, thread: str = "a", **arguments: str) -> dict[str, Any]:
    params = {"function": function, "arguments": arguments}
    answer = await client.post(f"/threads/{thread}/tasks", json={"shape": "use", "params": params})
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.requirement("T4", "R7")
async def test_a_person_logs_in_from_a_pause_and_nothing_of_it_is_kept(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with authorization() as (state, host), watch(home) as seen:
        async with app(home, host) as client:
            turn = (await used(client, "t_log_in"))["turn"]
            [pause] = turn["pauses"]
            assert (pause["kind"], pause["login"]) == ("question", "t")
            link = await begun(client)
            # The browser comes from another site, so without the session's cookie: then a page of ours sends it again.
            back = httpx2.URL(await state.visit(link))
            async with httpx2.AsyncClient() as without:
                page = await without.get(back)
                assert (page.status_code, "http-equiv=refresh" in page.text) == (200, True)
                assert (await without.get(back.copy_add_param("again", "1"))).status_code == 401
            assert await kept_in(home, host, "ana").read() is None
            page = await client.get(back.copy_add_param("again", "1"))
            assert (page.status_code, "You are logged in" in page.text) == (200, True), page.text
            assert "width=device-width" in page.text  # a phone draws it small without it
            assert page.headers["cache-control"] == "no-store"
            answers = {pause["id"]: {"answer": "continue"}}
            turn = (await client.post("/threads/a/resume", json={"answers": answers})).json()["turn"]
            assert turn["status"] == "done"
            assert (await used(client, "t_echo", text="x"))["turn"]["result"] == {"value": "x"}
            assert (await client.get(back)).status_code == 400  # a code is used once
        query = httpx2.URL(link).params
        codes = [query["state"], query["code_challenge"], back.params["code"]]
        secrets = [*state.secrets, *state.verifiers, *codes]
    (home / "logins").rename(tmp_path / "logins")
    assert seen.leaks_on_disk(*secrets) == []
    ours = [record.getMessage() for record in seen.logs.records if record.name.startswith("worldagent")]
    found = repr([ours, page.text, seen.errors, [event.model_dump_json() for event in seen.events]])
    assert not [secret for secret in secrets if secret in found]
    assert set(state.users) == {"ana"}


async def test_no_account_ends_the_login_of_another_or_uses_its_code(tmp_path: Path) -> None:
    with authorization() as (state, host):
        async with app(tmp_path, host) as ana, httpx2.AsyncClient(base_url=ana.base_url) as ben:
            await ben.post("/login", json={"token": "secret-of-ben"})
            anas = httpx2.URL(await state.visit(await begun(ana), user="ana"))
            refused = await ben.get(anas)
            assert (refused.status_code, "by somebody else" in refused.text) == (403, True)
            # Nor does the code of one help in the login of the other: it was made for another client and verifier.
            bens = httpx2.URL(await state.visit(await begun(ben), user="ben"))
            mixed = await ben.get(bens.copy_merge_params({"code": anas.params["code"]}))
            assert (mixed.status_code, "did not accept" in mixed.text) == (400, True), mixed.text
            assert (await ana.get(anas)).status_code == 200
            assert await kept_in(tmp_path, host, "ben").read() is None
            bens = httpx2.URL(await state.visit(await begun(ben), user="ben"))
            assert (await ben.get(bens)).status_code == 200
            for client in (ana, ben):
                assert (await used(client, "t_echo", text="x"))["turn"]["result"] == {"value": "x"}
    assert {token.user for token in state.tokens} == {"ana", "ben"}


async def test_a_login_that_is_refused_forgotten_or_wrong_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with authorization() as (state, host):
        async with app(tmp_path, host) as client, app(tmp_path / "b", host) as other:
            page = await client.get(httpx2.URL(await state.visit(await begun(client), allow=False)))
            assert (page.status_code, "was refused" in page.text) == (400, True), page.text
            left = httpx2.URL(await state.visit(await begun(client)))
            for asked, query in ((other, left.query.decode()), (client, "state=x&code=y"), (client, "error=denied")):
                page = await asked.get(f"/oauth/callback?{query}")  # such as after a restart
                assert (page.status_code, "Log in again" in page.text) == (400, True)
            assert httpx2.URL(await begun(client)).params["state"] == left.params["state"]  # no second client for it
            monkeypatch.setattr(logins, "FRESH_SECONDS", -1.0)
            assert httpx2.URL(await begun(client)).params["state"] != left.params["state"]
            assert (await client.get(left)).status_code == 400  # the newest counts
            assert (await client.get("/oauth/start?server=t")).status_code == 405
            strange = await client.post("/oauth/start", json={"server": "t"}, headers={"Sec-Fetch-Site": "cross-site"})
            assert strange.status_code == 403
            assert (await client.post("/oauth/start", json={"server": "u"})).status_code == 400
            state.registers = False
            assert (await client.post("/oauth/start", json={"server": "t"})).json()["error"]["code"] == (
                "mcp_login_required"
            )
    assert not state.tokens


async def test_only_an_operator_logs_in_for_the_workspace(tmp_path: Path) -> None:
    operator = Grant(("novel",), ("*",), operator=True)

    def login(request: Any) -> Grant:
        return operator if request.headers.get("x-user") == "op" else Grant.of_account("novel", "ana")

    with authorization() as (state, host):
        async with app(tmp_path, host, "workspace", login=login, tokens=None) as client:
            assert (await client.post("/oauth/start", json={"server": "t"})).status_code == 403
            client.headers["x-user"] = "op"
            origin = f"https://{client.base_url.netloc.decode()}"  # of a proxy that ends TLS
            link = await begun(client, headers={"Origin": origin})
            assert httpx2.URL(link).params["redirect_uri"] == f"{origin}/oauth/callback"
            back = httpx2.URL(await state.visit(await begun(client)))
            assert (await client.get(back)).status_code == 200
        assert await kept_in(tmp_path, host).read() is not None


@pytest.mark.xdist_group("browser")
@pytest.mark.timeout(240)
async def test_the_console_opens_the_login_from_the_card_of_the_pause(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    with authorization() as (state, host):
        async with app(tmp_path, host, login=lambda request: "ana", tokens=None) as client:
            await used(client, "t_log_in", thread="ana:a")
            try:
                await page.goto(f"{client.base_url}/console/#/pauses")
                question = page.get_by_text("needs a login of the account 'ana'. Log in, then continue.")
                await expect(question).to_be_visible()
                await page.get_by_role("button", name="continue").click()
                await expect(page.get_by_text("still needs a login of the account 'ana'.")).to_be_visible()
                await page.evaluate(OPENED)
                await page.get_by_role("button", name="Log in", exact=True).click()
                link = await page.evaluate("window.opened")
                await state.visit(link)
                await page.get_by_role("button", name="continue").click()
                await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
            finally:
                await browser.leave()
    assert set(state.users) == {"ana"}
