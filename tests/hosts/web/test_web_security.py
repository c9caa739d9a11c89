"""Who can call the web app, and which requests it refuses whoever calls."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering
from support.web import STREAM, client_of, say, web
from worldagent.core.errors import InvalidArgument
from worldagent.hosts.web import Grant, Tokens, WebApp

pytestmark = pytest.mark.requirement("T10")

TOKENS = Tokens([("secret-of-ana", Grant.of_account("novel", "ana")), ("secret-of-all", Grant(("*",), ("*",)))])


def code(response: Any) -> tuple[int, str]:
    """The status and the code of an error, which has a remedy."""
    error = response.json()["error"]
    assert error["remedy"]
    return response.status_code, error["code"]


def test_an_app_must_know_who_calls_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="login"):
        WebApp(pytest.fail)


async def test_a_person_who_is_not_logged_in_reaches_nothing(tmp_path: Path) -> None:
    async with web(tmp_path, answering()) as client:
        for path in ("/me", "/threads", "/memory", "/events", "/turns/turn_1/events"):
            assert code(await _stranger(client, path)) == (401, "not_logged_in")
        for path in ("/threads/main/messages", "/ag-ui"):  # before the body is read
            assert code(await _stranger(client, path, content=b"{")) == (401, "not_logged_in")


async def _stranger(client: Any, path: str, **body: Any) -> Any:
    async with client_of(str(client.base_url), "") as stranger:
        del stranger.headers["x-user"]
        return await stranger.request("POST" if body else "GET", path, **body)


async def test_a_token_is_accepted_in_the_header_and_refused_in_the_url(tmp_path: Path) -> None:
    async with web(tmp_path, answering(), login=None, tokens=TOKENS) as client:
        assert code(await client.get("/me")) == (401, "not_logged_in")
        assert code(await client.get("/me", headers={"Authorization": "Bearer wrong"})) == (401, "not_logged_in")
        me = (await client.get("/me", headers={"Authorization": "Bearer secret-of-ana"})).json()
        assert [me["workspace"], me["account"], me["thread_prefix"]] == ["novel", "ana", "ana:"]
        for name in ("token", "access_token", "API_KEY"):
            refused = await client.get("/me", params={name: "secret-of-ana"})
            assert code(refused) == (400, "secret_in_url")
            assert "secret-of-ana" not in refused.text


async def test_a_query_has_a_limit_before_it_is_parsed(tmp_path: Path) -> None:
    async with web(tmp_path, answering()) as client:
        assert (await client.get("/me?" + "&" * 16_384)).status_code == 200
        refused = await client.get("/me?" + "a=&" * 5462)
        assert (code(refused), refused.headers["referrer-policy"]) == ((414, "too_large"), "no-referrer")


async def test_a_page_logs_in_with_a_token_once_and_out_again(tmp_path: Path) -> None:
    async with web(tmp_path, answering(), login=None, tokens=TOKENS) as client:
        assert code(await client.post("/login", json={"token": "wrong"})) == (401, "invalid_token")
        response = await client.post("/login", json={"token": "secret-of-ana"})
        cookie = response.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "secret-of-ana" not in cookie
        assert "Secure" not in cookie
        assert (await client.get("/me")).json()["account"] == "ana"
        assert (await client.post("/logout")).status_code == 200
        assert code(await client.get("/me")) == (401, "not_logged_in")
        for value in ("99999999999.0000", "999999999999999999.0", f"{cookie.partition('.')[0][-13:]}.0000", "."):
            client.cookies.set("worldagent_session", value)
            assert code(await client.get("/me")) == (401, "not_logged_in")
        behind_tls = {"Origin": f"https://{client.base_url.netloc.decode()}"}  # of a proxy that ends it
        response = await client.post("/login", json={"token": "secret-of-ana"}, headers=behind_tls)
        assert "Secure" in response.headers["set-cookie"]


async def session_of(client: Any, token: str = "secret-of-ana") -> dict[str, str]:
    """Log in; gives the cookie as a header."""
    response = await client.post("/login", json={"token": token})
    client.cookies.clear()
    return {"Cookie": response.headers["set-cookie"].partition(";")[0]}


async def test_logging_out_ends_the_sessions_of_the_token_in_every_process(tmp_path: Path) -> None:
    more: dict[str, Any] = {"login": None, "tokens": TOKENS}
    async with web(tmp_path, answering(), **more) as client, web(tmp_path, answering(), **more) as elsewhere:
        ana, phone, operator = [await session_of(client, f"secret-of-{name}") for name in ("ana", "ana", "all")]
        assert (await elsewhere.get("/me", headers=ana)).status_code == 200
        assert (await client.post("/logout", headers=ana)).status_code == 200
        for path in ("/me", "/threads", "/v1/models"):
            assert code(await client.get(path, headers=ana)) == (401, "not_logged_in"), path
        for one in (client, elsewhere):
            for ended in (ana, phone):
                assert code(await one.get("/threads", headers=ended)) == (401, "not_logged_in")
            assert (await one.get("/threads?workspace=novel", headers=operator)).status_code == 200
            assert (await one.get("/threads", headers=await session_of(one))).status_code == 200
            assert (await one.get("/me", headers={"Authorization": "Bearer secret-of-ana"})).status_code == 200
        assert (await elsewhere.post("/logout", headers=operator)).status_code == 200
    async with web(tmp_path, answering(), **more) as later:
        assert code(await later.get("/threads", headers=ana)) == (401, "not_logged_in")
        assert code(await later.get("/me?workspace=novel", headers=operator)) == (401, "not_logged_in")


async def test_a_session_ends_after_its_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with web(tmp_path, answering(), login=None, tokens=TOKENS) as client:
        cookie, clock = await session_of(client), [time.time_ns()]
        monkeypatch.setattr("worldagent.hosts.web.sessions.time_ns", lambda: clock[0])
        for hours, status in ((11.9, 200), (0.2, 401)):
            clock[0] += int(hours * 3600 * 10**9)
            assert (await client.get("/me", headers=cookie)).status_code == status


async def test_wrong_tokens_of_an_address_wait_longer_and_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("worldagent.hosts.web.sessions.monotonic", lambda: clock[0])
    async with web(tmp_path, answering(), login=None, tokens=TOKENS) as client:

        async def tried(token: str = "wrong") -> int:
            refused = await client.post("/login", json={"token": token})
            if refused.status_code == 429:
                assert code(refused) == (429, "too_many_logins")
                return int(refused.headers["retry-after"])
            assert refused.status_code == (200 if token == "secret-of-ana" else 401)
            return 0

        assert await asyncio.gather(*(tried() for _ in range(20))) == [0] * 5 + [1] * 15
        waits: list[int] = []
        for _ in range(8):
            waits.append(await tried("secret-of-ana"))  # a right one does not come through either
            clock[0] += waits[-1]
            assert await tried() == 0
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
        clock[0] += 60
        assert await tried("secret-of-ana") == 0
        clock[0] += 600
        assert [await tried() for _ in range(6)] == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("headers", "accepted"),
    [
        ({}, True),  # not a browser
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site", "Origin": "https://evil.example.com"}, False),
        ({"Origin": "https://evil.example.com"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "https://["}, False),
        ({"Origin": "https://app.example.com", "Sec-Fetch-Site": "cross-site"}, True),
    ],
)
async def test_a_page_of_another_origin_changes_nothing(
    tmp_path: Path, headers: dict[str, str], accepted: bool
) -> None:
    async with web(tmp_path, answering("Fine."), origins=["https://app.example.com"]) as client:
        response = await client.post("/threads/main/messages", json={"text": "Hello."}, headers=headers)
        if accepted:
            assert response.json()["turn"]["text"] == "Fine."
        else:
            assert code(response) == (403, "invalid_origin")
            assert (await client.get("/threads")).json()["threads"] == []


async def test_an_origin_that_is_not_named_may_not_read_answers(tmp_path: Path) -> None:
    async with web(tmp_path, answering(), origins=["https://app.example.com"]) as client:
        named = await client.get("/me", headers={"Origin": "https://app.example.com"})
        other = await client.get("/me", headers={"Origin": "https://evil.example.com"})
        assert named.headers["access-control-allow-origin"] == "https://app.example.com"
        assert "access-control-allow-origin" not in other.headers


async def test_responses_tell_browsers_to_guess_keep_and_frame_nothing(tmp_path: Path) -> None:
    async with web(tmp_path, answering()) as client:
        headers = (await client.get("/me")).headers
        assert [headers[name] for name in ("x-content-type-options", "cache-control", "x-frame-options")] == [
            "nosniff",
            "no-store",
            "DENY",
        ]


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "found"),
    [
        ("GET", "/nothing", {}, 404, "not_found"),
        ("DELETE", "/threads", {}, 405, "method_not_allowed"),
        ("POST", "/threads/main/messages", {"content": b"{", "headers": {"Content-Type": "application/json"}}, 400, ""),
        ("POST", "/threads/main/messages", {"json": ["text"]}, 400, ""),
        ("POST", "/threads/main/messages", {"json": {"text": " "}}, 400, ""),
        ("POST", "/threads/main/messages", {"json": {"text": "x", "secret": 1}}, 400, ""),
        ("POST", "/threads/main/messages", {"content": b"text=x"}, 415, "unsupported_media_type"),
        ("POST", "/threads/main/resume", {"json": {"answers": {"nothing": {"approve": {}}}}}, 409, "nothing_to_resume"),
        ("GET", "/threads?limit=many", {}, 400, ""),
        ("GET", "/turns/turn_1/events", {"headers": {**STREAM, "Last-Event-ID": "x"}}, 400, ""),
        ("POST", "/attachments", {"content": b""}, 400, "attachment_invalid"),
        ("GET", "/attachments/zz", {}, 400, ""),
        ("GET", f"/attachments/{'0' * 64}", {}, 404, "attachment_missing"),
        ("GET", "/me?workspace=other", {}, 403, "forbidden"),
        ("GET", "/me?account=bob", {}, 403, "forbidden"),
    ],
)
async def test_bad_input_has_a_status_and_a_remedy(
    tmp_path: Path, method: str, path: str, more: dict[str, Any], status: int, found: str
) -> None:
    async with web(tmp_path, answering()) as client:
        assert code(await client.request(method, path, **more)) == (status, found or "invalid_argument")


async def test_an_app_without_a_login_is_reached_under_names_of_this_machine_only(tmp_path: Path) -> None:
    async with web(tmp_path, answering(), login=None, grant=Grant(("novel",), ("*",))) as client:
        assert (await client.get("/me")).status_code == 200
        assert (await client.get("/me", headers={"Host": "localhost:8000"})).status_code == 200
        assert (await client.get("/me", headers={"Host": "[::1]:8000"})).status_code == 200
        # A page can make its own name lead to this machine (DNS rebinding).
        for host in ("evil.example.com", "127.0.0.1.evil.example.com", "["):
            assert code(await client.get("/me", headers={"Host": host})) == (421, "invalid_host")


async def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with web(tmp_path, answering()) as client:
        body = {"text": "x" * (5 << 20)}
        assert code(await client.post("/threads/main/messages", json=body)) == (413, "too_large")


async def test_a_role_of_a_call_reaches_the_model_and_no_response(tmp_path: Path) -> None:
    role = {"content": "Speak as the night ferryman speaks.", "name": "ferryman"}
    lm = answering("Fine.")
    async with web(tmp_path, lm) as client:
        events = await say(client, "Hello.", role=role)
        assert lm.calls[0].role is not None
        assert "ferryman speaks" not in str(events)
        invalid = await client.post("/threads/main/messages", json={"text": "x", "role": {**role, "more": 1}})
        assert "ferryman speaks" not in invalid.text


async def test_the_log_has_a_line_for_each_request_without_what_it_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with web(tmp_path, answering("Fine.")) as client:
        await say(client, "A secret message.", thread="a-secret-thread", role={"content": "Speak as a secret does."})
        await client.get("/memory/search", params={"text": "a secret search"})
        await client.get("/threads", params={"limit": "secret"})
    lines = [record.getMessage() for record in caplog.records if record.name == "worldagent.web"]
    assert [line.rsplit(" ", 2)[0] for line in lines] == [
        "POST /threads/{thread:path}/messages ok",
        "GET /memory/search invalid_argument",
        "GET /threads invalid_argument",
    ]
    assert "secret" not in " ".join(lines)


async def test_the_openapi_document_has_every_endpoint(tmp_path: Path) -> None:
    async with web(tmp_path, answering()) as client:
        document = (await client.get("/openapi.json")).json()
        turn = document["paths"]["/threads/{thread}/messages"]["post"]
        assert "text" in turn["requestBody"]["content"]["application/json"]["schema"]["required"]
        assert "text/event-stream" in turn["responses"]["200"]["content"]
        assert len(document["paths"]) > 30
