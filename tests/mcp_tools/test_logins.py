"""Logins to MCP servers with OAuth, against an authorization server of authlib: tokens, renewal, refusals, attacks."""

import asyncio
import contextlib
import json
import stat
import traceback
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.agents import failure
from support.authorization import DOCUMENT, Client, authorization, kept_in, logged_in
from support.leaks import watch
from support.mcp_tools import agent_over
from worldagent.core import SystemClock
from worldagent.core.errors import (
    InvalidArgument,
    McpLoginRequired,
    McpServerForbidden,
    McpServerInvalid,
    McpServerUnavailable,
    WorldAgentError,
)
from worldagent.mcp_client import HttpHost, StdioHost
from worldagent.mcp_client.logins import LoginStore
from worldagent.mcp_client.oauth import log_in, loopback
from worldagent.mcp_client.tools import Login, Mcp, McpEntry, McpServer
from worldagent.mcp_client.tools.results import ServerFailures

pytestmark = pytest.mark.requirement("H2")
SECRET = "secret-of-a-client-that-nobody-sees"


async def test_a_login_gives_all_accounts_the_tools_and_is_renewed(tmp_path: Path) -> None:
    with authorization() as (state, host):
        async with agent_over(tmp_path, McpServer(host)) as agent:
            error = await failure(agent.call("t_echo", {"text": "x"}))
            assert isinstance(error, McpLoginRequired), error
            assert isinstance(error, McpServerForbidden)  # as it was before there were logins
            assert "worldagent mcp login t --workspace " in error.remedy
            await logged_in(tmp_path, state, host)
            await agent.get(Mcp)["t"].connect()  # a login of another process is found
            assert await agent.call("t_echo", {"text": "one"}) == "one"
            state.revoke()
            assert await agent.call("t_echo", {"text": "two"}) == "two"
            state.revoke()
            assert await asyncio.gather(*(agent.call("t_echo", {"text": str(n)}) for n in range(5))) == list("01234")
            state.revoke(refresh=True)
            assert isinstance(await failure(agent.call("t_echo", {"text": "x"})), McpLoginRequired)
    assert state.grants == ["authorization_code", "refresh_token", "refresh_token", "refresh_token"]
    assert set(state.users) == {"ana"}


async def test_a_token_that_expired_is_renewed_before_it_is_sent_also_by_another_process(tmp_path: Path) -> None:
    with authorization(expires_in=0) as (state, host):
        await logged_in(tmp_path, state, host)
        state.expires_in = 3600
        state.revoke()
        for _ in range(2):
            async with agent_over(tmp_path, McpServer(host)) as agent:
                assert await agent.call("t_echo", {"text": "x"}) == "x"
    assert state.grants == ["authorization_code", "refresh_token"]  # at its own address, which was kept


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("down", [False, True], ids=["over", "down"])
async def test_a_turn_that_ended_for_want_of_a_login_makes_its_call_when_it_is_resumed(
    tmp_path: Path, down: bool
) -> None:
    with authorization() as (state, host):
        await logged_in(tmp_path, state, host)
        async with agent_over(tmp_path, McpServer(host)) as agent:
            state.revoke(refresh=not down)
            state.down = down
            thread = agent.thread("a")
            call = {"function": "t_echo", "arguments": {"text": "x"}}
            error = await failure(thread.task("use", call))
            assert type(error) is (McpServerUnavailable if down else McpLoginRequired)
            state.down = False
            if not down:
                await logged_in(tmp_path, state, host)
            turn = await thread.resume()  # the server did nothing, so nobody is asked whether it did
            assert (turn.status, turn.result.value) == ("done", "x")


async def test_an_authorization_server_that_is_down_does_not_end_the_login(tmp_path: Path) -> None:
    with authorization() as (state, host):
        await logged_in(tmp_path, state, host)
        async with agent_over(tmp_path, McpServer(host)) as agent:
            state.revoke()
            state.down = True
            error = await failure(agent.call("t_echo", {"text": "x"}))
            assert isinstance(error, McpServerUnavailable), error
            assert "could not be renewed" in error.problem
            state.down = False
            assert await agent.call("t_echo", {"text": "x"}) == "x"


@pytest.mark.parametrize("case", ["refused", "wrong issuer", "registers none", "metadata of another issuer"])
async def test_a_login_that_is_refused_or_wrong_leaves_nothing(tmp_path: Path, case: str) -> None:
    wrong = {"registers none": {"registers": False}, "metadata of another issuer": {"issuer": "https://evil.example"}}
    more: Any = wrong.get(case, {})
    visits: dict[str, dict[str, Any]] = {
        "refused": {"allow": False},
        "wrong issuer": {"back": {"iss": "https://evil.example"}},
    }
    kinds = {"refused": McpLoginRequired, "registers none": McpLoginRequired}
    with authorization(**more) as (state, host):
        error = await failure(logged_in(tmp_path, state, host, **visits.get(case, {})))
        assert type(error) is kinds.get(case, McpServerInvalid), error
        assert error.remedy
        assert "evil" not in str(error)
        assert error.__context__ is None
        assert await kept_in(tmp_path, host).read() is None
        assert not state.tokens


async def test_a_stolen_code_is_of_no_use_and_cannot_be_put_into_the_login_of_another(tmp_path: Path) -> None:
    with authorization() as (state, host):
        stolen: list[str] = []

        async def stop(link: str) -> None:
            async with httpx2.AsyncClient() as browser:  # the thief sees the answer, and the victim does not
                answer = httpx2.URL((await browser.get(f"{link}&user=ana")).headers["location"])
                stolen.append(answer.params["code"])
                code = state.codes[stolen[0]]
                data = {"grant_type": "authorization_code", "code": stolen[0], "client_id": code.client_id}
                tries = [data, {**data, "code_verifier": "x" * 64}]
                for form in [{**each, "redirect_uri": code.redirect_uri} for each in tries]:
                    assert (await browser.post(f"{state.origin}/token", data=form)).status_code == 400
                # Any page can send a browser to the address: with another state, or none, it changes nothing.
                for wrong in ({"state": "x"}, {"state": "", "error": "access_denied"}):
                    page = await browser.get(answer.copy_merge_params(wrong))
                    assert (page.status_code, "address that was shown last" in page.text) == (400, True)
                    assert "width=device-width" in page.text

        failures = ServerFailures("t", login="log in")
        kept = kept_in(tmp_path, host)
        error = await failure(
            log_in(host, Login(), kept, failures, clock=SystemClock(), show=stop, back=loopback(), seconds=1)
        )
        assert isinstance(error, McpLoginRequired)
        assert "nobody logged in within 1 s" in error.problem
        error = await failure(logged_in(tmp_path, state, host, user="bob", back={"code": stolen[0]}))
        assert isinstance(error, McpLoginRequired)
        assert "did not accept" in error.problem
        assert not state.tokens
        assert await kept.read() is None


async def test_a_client_that_was_registered_beforehand_or_has_a_document_registers_no_other(tmp_path: Path) -> None:
    with authorization(registers=False, documents=True) as (state, host):
        state.clients["known"] = Client("known", SECRET)
        known = Login(client_id="known", client_secret=SECRET, issuer=state.origin, scope="own")
        [link, _] = await logged_in(tmp_path, state, host, known)
        assert httpx2.URL(link).params["scope"] == "own"
        [link, _] = await logged_in(tmp_path, state, host, Login(client_metadata=DOCUMENT))
        assert httpx2.URL(link).params["client_id"] == DOCUMENT
        assert [token.client_id for token in state.tokens] == ["known", DOCUMENT]
        for issuer in ("https://other.example", f"{state.origin}/tenant"):
            other = Login(client_id="known", client_secret=SECRET, issuer=issuer)
            assert isinstance(await failure(logged_in(tmp_path, state, host, other)), WorldAgentError)
        assert len(state.tokens) == 2  # and no other issuer got the secret


async def test_a_program_logs_itself_in(tmp_path: Path) -> None:
    with authorization() as (state, host):
        state.clients["robot"] = Client("robot", SECRET, grant_types=("client_credentials",))
        login = Login(by="client", client_id="robot", client_secret=SECRET, issuer=state.origin)
        async with agent_over(tmp_path, McpServer(host, login=login)) as agent:
            assert await agent.call("t_echo", {"text": "x"}) == "x"
            state.revoke()
            assert await agent.call("t_echo", {"text": "y"}) == "y"
            state.clients["robot"].client_secret = "another"
            state.revoke()
            error = await failure(agent.call("t_echo", {"text": "x"}))
            assert isinstance(error, McpLoginRequired)
            assert "client_secret" in error.remedy
    assert set(state.users) == {"program"}
    assert state.grants == ["client_credentials"] * 3


async def test_a_token_goes_to_the_workspace_and_the_address_of_its_login_alone(tmp_path: Path) -> None:
    with authorization() as (state, host), authorization() as (other, there):
        await logged_in(tmp_path, state, host)
        state.users.clear()
        async with agent_over(tmp_path, {"t": McpServer(there), "u": McpServer(host)}) as agent:
            for name in ("t", "u"):
                assert isinstance(await failure(agent.get(Mcp)[name].connect()), McpLoginRequired)
        assert not other.users
        assert not state.users
        kept = LoginStore(tmp_path, "another").of("t", host.url)
        assert await kept.read() is None


@pytest.mark.requirement("R7")
async def test_tokens_codes_and_secrets_are_seen_nowhere_but_in_a_file_of_the_owner(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    call = {"function": "t_echo", "arguments": {"text": "x"}}
    with authorization(registers=False) as (state, host), watch(home) as seen:
        state.clients["known"] = Client("known", SECRET)
        login = Login(client_id="known", client_secret=SECRET, issuer=state.origin)
        await seen.outcome(logged_in(home, state, host, login, back={"iss": "https://evil.example"}))
        await logged_in(home, state, host, login)
        secrets = [*state.codes, *state.secrets]
        async with agent_over(home, McpServer(host, login=login)) as agent:
            seen.kept += [agent.get(Mcp)["t"].server, await kept_in(home, host).read()]
            state.revoke()
            await seen.outcome(agent.thread("a").task("use", call))
            state.down = True
            state.revoke()
            await seen.outcome(agent.thread("b").task("use", call))
        secrets += state.secrets + state.verifiers
    assert [type(error).__name__ for error in seen.errors] == ["McpServerInvalid", "McpServerUnavailable"]
    files = [file for file in (home / "logins").iterdir() if file.suffix == ".json"]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600]
    assert stat.S_IMODE((home / "logins").stat().st_mode) == 0o700
    (home / "logins").rename(tmp_path / "logins")
    ours = [record.getMessage() for record in seen.logs.records if not record.name.startswith("authlib")]
    printed = ["".join(traceback.format_exception(error)) for error in seen.errors]
    found = repr([ours, printed, seen.kept, seen.errors, [event.model_dump_json() for event in seen.events]])
    for text in (*secrets, "secret words"):
        assert text not in found
    assert seen.leaks_on_disk(*secrets) == []
    assert len(set(secrets)) == 7  # a code, its proof, a secret, and the tokens of two grants


class Ring:
    """A keyring of the system."""

    priority = 5.0

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], str] = {}
        self.full = False

    def get_keyring(self) -> "Ring":
        return self

    def get_password(self, service: str, name: str) -> str | None:
        return self.held.get((service, name))

    def set_password(self, service: str, name: str, text: str) -> None:
        if self.full:
            raise RuntimeError("secret words")
        self.held[service, name] = text

    def delete_password(self, service: str, name: str) -> None:
        del self.held[service, name]


async def test_tokens_are_in_the_keyring_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring()
    monkeypatch.setattr("worldagent.mcp_client.logins.import_module", lambda name: ring)
    with authorization() as (state, host):
        await logged_in(tmp_path, state, host)
        kept = kept_in(tmp_path, host)
        assert len(ring.held) == 1
        assert not list(tmp_path.rglob("*.json"))
        ring.full = True  # such as one that takes 2560 bytes
        await logged_in(tmp_path, state, host, user="bob")
        assert not ring.held
        [file] = tmp_path.rglob("*.json")
        found = await kept.read()
        assert found is not None
        assert found.tokens == json.loads(file.read_text())["tokens"]
        assert await kept.remove()
        assert not await kept.remove()
        ring.priority = 0.5  # a plain file in another place
        await logged_in(tmp_path, state, host)
        assert not ring.held


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"url": "https://a.example", "login": "client"}, "needs `client_id`, `client_secret` and `issuer`"),
        ({"url": "https://a.example", "client_id": "x", "client_secret": "s3cret"}, "`client_secret` needs"),
        ({"url": "https://a.example", "issuer": "http://b.example"}, "`issuer` must be an https address"),
        ({"url": "https://a.example", "client_metadata": "https://b.example/"}, "`client_metadata` must be the https"),
        ({"url": "https://a.example", "token": "s3cret", "scope": "x"}, "needs an HttpHost without a token"),
        ({"command": "x", "login": "workspace"}, "needs an HttpHost without a token"),
        ({"url": "https://a.example", "scope": "${A}"}, "`scope` needs the variable 'A'"),
        ({"url": "https://a.example", "scope": "a\nb"}, "`scope` must be a text of printable ASCII"),
    ],
)
def test_a_login_that_cannot_work_is_refused_when_it_is_read(entry: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        McpEntry(**entry).server()
    assert problem in refused.value.problem
    assert "s3cret" not in str(refused.value)
    with pytest.raises(InvalidArgument):
        McpServer(StdioHost(["x"]), login=Login())
    with contextlib.suppress(InvalidArgument):
        assert McpServer(HttpHost("https://a.example", "token")).login is None


async def test_a_server_that_needs_no_login_says_so(tmp_path: Path) -> None:
    with authorization() as (state, host):
        await logged_in(tmp_path, state, host)
        [token] = state.tokens
        there = HttpHost(host.url, headers={"Authorization": f"Bearer {token.access_token}"})
        error = await failure(logged_in(tmp_path, state, there))
        assert isinstance(error, McpServerInvalid)
        assert "asked for no login" in error.problem
