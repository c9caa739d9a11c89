"""What a server over HTTP takes and refuses: names, tokens, bodies, headers, times, and whatever else HTTP allows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.processes import eventually
from support.served import BOUND, SECRET, Answer, Served, Wire, call, initialize, modern, request, served

TOKEN = "t0ken-of-the-novel"
NO_PATH = "correct the path of the URL; the paths of this server are"
ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])
BODY, HEADERS = modern(call("say", {"text": "hello"}))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    """One without tokens, with low limits; it must say hello after all that is sent to it."""
    folder = tmp_path_factory.mktemp("served")
    with served(folder, max_body=100_000) as found:
        yield found
        with Wire(found.address) as wire:
            assert said(wire.ask("POST", "/mcp", BODY, **HEADERS)) == "hello"
        assert " 500" not in found.told()


def said(answer: Answer) -> str:
    """What a tool said."""
    assert answer.status == 200, answer
    text = answer.json["result"]["content"][0]["text"]
    assert isinstance(text, str)
    return text


def headers_of(era: str, wire: Wire) -> dict[str, str]:
    return initialize(wire) if era == "legacy" else HEADERS


# --- what arrives -----------------------------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize("declared", [True, False])
def test_a_body_above_the_limit_gets_413_before_it_has_arrived(server: Served, era: str, declared: bool) -> None:
    with Wire(server.address) as wire:
        headers = headers_of(era, wire)
        if declared:
            wire.send(request("POST", "/mcp", b"", {**headers, "Content-Length": "10000000"}) + b"{")
        else:
            wire.send(request("POST", "/mcp", b"", {**headers, "Transfer-Encoding": "chunked"}))
            wire.send(b"".join(b"2710\r\n" + b"x" * 10_000 + b"\r\n" for _ in range(11)))
        assert wire.read().status == 413


def test_a_head_that_does_not_end_is_refused_at_the_limit(server: Served) -> None:
    with Wire(server.address) as wire:
        wire.send(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 40_000)
        assert wire.read().status == 400


BODIES: list[Any] = [
    b"\xff\xfe{",
    b'{"jsonrpc":"2.0","id":"\\ud800","method":"tools/call","params":{"name":"say","arguments":{"text":"\\ud800"}}}',
    SECRET.encode(),
    b"[" * 100_000,
    json.dumps({"jsonrpc": "2.0", "id": {"a": SECRET}, "method": "tools/call", "params": {}}).encode(),
]


@ERAS
@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_a_body_that_is_no_message_is_refused_and_not_quoted(server: Served, era: str, body: bytes) -> None:
    with Wire(server.address) as wire:
        answer = wire.ask("POST", "/mcp", body, **headers_of(era, wire))
        assert answer.status < 500
        # 202: earlier revisions take an id that is none for a notice, and nobody knows this one
        assert answer.status >= 400 or answer.status == 202 or "error" in answer.json
        assert SECRET.encode() not in answer.body
        if answer.body:
            assert "jsonrpc" in answer.json
    assert SECRET not in server.told()


@pytest.mark.requirement("R7")
@ERAS
def test_what_a_handler_fails_with_stays_inside(server: Served, era: str) -> None:
    with Wire(server.address) as wire:
        headers = headers_of(era, wire)
        body = modern(call("fail", {}))[0] if era == "modern" else json.dumps(call("fail", {})).encode()
        answer = wire.ask("POST", "/mcp", body, **{**headers, **({"Mcp-Name": "fail"} if era == "modern" else {})})
        assert answer.json["error"]["message"] == "internal error"
        assert SECRET.encode() not in answer.body
    assert SECRET not in server.told()
    assert "ValueError" in server.told()


# --- names, pages, tokens -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("foreign", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://[::1"}, 403),
    ],
)
def test_a_page_that_calls_by_another_name_is_refused(server: Served, foreign: dict[str, str], status: int) -> None:
    with Wire(server.address) as wire:
        answer = wire.ask("POST", "/mcp", BODY, **HEADERS | foreign)
        assert (answer.status, answer.json["error"]) == (status, {421: "invalid_host", 403: "invalid_origin"}[status])
        assert b"evil" not in answer.body


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost:{port}", "[::1]:{port}"])
def test_a_page_of_this_machine_may_call(server: Served, name: str) -> None:
    host = name.format(port=server.address.port)
    with Wire(server.address) as wire:
        answer = wire.ask("POST", "/mcp", BODY, **HEADERS, Host=host, Origin=f"http://{host}")
        assert said(answer) == "hello"


@pytest.mark.parametrize(("path", "ready"), [("/health", {"status": "ok"}), ("/ready", {"ready": True})])
def test_health_and_readiness_are_told_without_a_token(tmp_path: Path, path: str, ready: dict[str, Any]) -> None:
    with served(tmp_path, tokens={TOKEN: "novel"}) as found, Wire(found.address) as wire:
        told = wire.ask("GET", path)
        assert (told.status, told.json | ready) == (200, told.json)
        head = wire.ask("HEAD", path)
        assert (head.status, head.headers["content-length"], head.body) == (200, str(len(told.body)), b"")
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            answer = wire.ask(method, path)
            assert (answer.status, answer.json) == (405, {"error": "method_not_allowed", "remedy": "use GET or HEAD"})
        for other in ("/", "/healthz", f"{path}/", f"/mcp{path}", "/%2e%2e/health"):
            assert wire.ask("GET", other).status == 404


@pytest.mark.requirement("R7")
def test_a_path_that_there_is_not_is_told_with_those_that_there_are(server: Served) -> None:
    with Wire(server.address) as wire:
        answer = wire.ask("POST", f"/{SECRET.replace(' ', '%20')}?{TOKEN}", BODY, **HEADERS, **{TOKEN: TOKEN})
        assert answer.headers["content-type"] == "application/json"
        told = {"error": "not_found", "remedy": f"{NO_PATH} /mcp, /health, /ready"}
        assert (answer.status, answer.json) == (404, told)
        assert wire.ask("HEAD", "/else").status == 404
        assert said(wire.ask("POST", "/mcp", BODY, **HEADERS)) == "hello"


@ERAS
def test_a_token_says_what_its_bearer_may_use(tmp_path: Path, era: str) -> None:
    with served(tmp_path, tokens={TOKEN: "novel:", "another": "diary:"}) as found:
        for token, grant in ((TOKEN, "novel:"), ("another", "diary:")):
            bearer = {"Authorization": f"Bearer {token}"}
            with Wire(found.address) as wire:
                headers = initialize(wire, **bearer) if era == "legacy" else {**HEADERS, **bearer}
                body = BODY if era == "modern" else json.dumps(call("say", {"text": "hello"})).encode()
                assert said(wire.ask("POST", "/mcp", body, **headers)) == f"{grant}hello"
        for wrong in ("", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer \xff", "Bearer " + "x" * 5000):
            with Wire(found.address) as wire:
                refused = wire.ask("POST", "/mcp", BODY, **HEADERS, **({"Authorization": wrong} if wrong else {}))
                assert refused.status == 401
                assert refused.headers["www-authenticate"].startswith("Bearer ")
                assert refused.json["error"] == "invalid_token"
                assert "`Authorization: Bearer TOKEN`" in refused.json["remedy"]
        assert TOKEN not in found.told()


# --- how many ------------------------------------------------------------------------------------------------------


async def test_above_the_most_connections_requests_get_503(tmp_path: Path) -> None:
    with served(tmp_path, connections=5) as found:
        with ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(Wire(found.address))
            assert await eventually(lambda: status_of(found) == 503, BOUND)
        assert await eventually(lambda: status_of(found) == 200, BOUND)


def status_of(server: Served) -> int:
    with Wire(server.address) as wire:
        return wire.ask("GET", "/health").status


def test_above_the_most_sessions_a_new_one_gets_503_and_the_others_go_on(tmp_path: Path) -> None:
    with served(tmp_path, sessions=2) as found, Wire(found.address) as wire:
        sessions = [initialize(wire) for _ in range(2)]
        with pytest.raises(AssertionError, match="status=503"):
            initialize(wire)
        message = json.dumps(call("say", {"text": "hello"})).encode()
        for session in sessions:
            assert said(wire.ask("POST", "/mcp", message, **session)) == "hello"
        assert wire.ask("DELETE", "/mcp", b"", **sessions[0]).status == 200
        assert said(wire.ask("POST", "/mcp", message, **initialize(wire))) == "hello"


async def test_a_session_that_is_idle_ends(tmp_path: Path) -> None:
    with served(tmp_path, session_idle=0.5) as found, Wire(found.address) as wire:
        session = initialize(wire)
        async with asyncio.timeout(BOUND):
            message = json.dumps(call("say", {})).encode()
            while wire.ask("POST", "/mcp", message, **session).status != 404:  # noqa: ASYNC110 -- it tells nobody
                await asyncio.sleep(1)  # each look is a request of it
