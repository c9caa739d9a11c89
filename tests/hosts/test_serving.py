"""What a server over HTTP takes and refuses: names, tokens, bodies, headers, times, and whatever else HTTP allows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.served import SECRET, Served, served
from support.served_wire import JSON, LEGACY, MODERN, Answer, Wire, call, initialize, modern, request

TOKEN = "t0ken-of-the-novel"
NO_PATH = "correct the path of the address: this server has"
ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])
BODY, HEADERS = modern(call("say", {"text": "hello"}))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    """One without tokens, with low limits; it must say hello after all that is sent to it."""
    folder = tmp_path_factory.mktemp("served")
    with served(folder, max_body=100_000, arrival=2.0, max_headers=40, max_header_bytes=8000) as found:
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
def test_a_connection_serves_one_request_after_the_other(server: Served, era: str) -> None:
    with Wire(server.address) as wire:
        headers = headers_of(era, wire)
        for number in range(5):
            message = call("say", {"text": str(number)}, number=number)
            body = modern(message)[0] if era == "modern" else json.dumps(message).encode()
            assert said(wire.ask("POST", "/mcp", body, **headers)) == str(number)


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


def test_ten_megabytes_do_not_end_a_connection_before_their_answer_is_read(server: Served) -> None:
    with Wire(server.address) as wire:
        assert wire.ask("POST", "/mcp", b"x" * 10_000_000, **HEADERS).status == 413
        assert said(wire.ask("POST", "/mcp", BODY, **HEADERS)) == "hello"


@pytest.mark.parametrize("length", ["-1", "1e3", "x", "5, 6", "99999999999999999999999"])
def test_a_length_that_is_none_is_refused(server: Served, length: str) -> None:
    with Wire(server.address) as wire:
        wire.send(request("POST", "/mcp", b"", {**HEADERS, "Content-Length": length}))
        assert wire.read().status in (400, 413)


@ERAS
def test_a_body_that_is_longer_than_it_says_is_answered_for_what_it_said(server: Served, era: str) -> None:
    with Wire(server.address) as wire:
        headers = headers_of(era, wire)
        body = BODY if era == "modern" else json.dumps(call("say", {"text": "hello"})).encode()
        wire.send(request("POST", "/mcp", body, headers) + b"more of it")
        assert said(wire.read()) == "hello"
        assert wire.ended()


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HT", request("POST", "/mcp", b"", {"Content-Length": "9"}) + b"{"])
async def test_a_request_that_does_not_arrive_ends_its_connection_in_time(server: Served, sent: bytes) -> None:
    with Wire(server.address) as wire:
        wire.send(sent)
        async with asyncio.timeout(20):
            assert await asyncio.to_thread(wire.ended)


@pytest.mark.parametrize(
    "headers",
    [
        {f"X-{number}": "1" for number in range(50)},
        {"X-Long": "x" * 9000},
        {"X-Longer": "x" * 300_000},
        {"Cookie": "a=" + "b" * 7990},
    ],
)
def test_headers_above_the_limit_are_refused(server: Served, headers: dict[str, str]) -> None:
    with Wire(server.address) as wire:
        assert wire.ask("POST", "/mcp", BODY, **HEADERS, **headers).status == 431


def test_a_head_that_never_ends_is_refused_at_the_limit(server: Served) -> None:
    with Wire(server.address) as wire:
        wire.send(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 9000)
        assert wire.read().status == 431


NOT_HTTP = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 40 + b"\r\n\r\n",
    b"\xff\xfe\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /health HTTP/1.1\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /health HTTP/1.1\r\nHost : a\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\0b\r\n\r\n",
]


@pytest.mark.parametrize("sent", NOT_HTTP)
def test_what_is_no_http_gets_400_or_an_end(server: Served, sent: bytes) -> None:
    with Wire(server.address) as wire:
        wire.send(sent)
        assert wire.read().status in (400, 501)


BODIES: list[Any] = [
    b"",
    b"\xff\xfe{",
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"x":"\xff"}}',
    b'{"jsonrpc":"2.0","id":"\\ud800","method":"tools/call","params":{"name":"say","arguments":{"text":"\\ud800"}}}',
    SECRET.encode(),
    json.dumps(SECRET).encode(),
    b"[" * 100_000,
    b"1" * 5000,
    b"null",
    b"[]",
    json.dumps([call("say", {"text": SECRET})]).encode(),
    json.dumps({"jsonrpc": "1.0", "id": SECRET, "method": SECRET}).encode(),
    json.dumps({"jsonrpc": "2.0", "id": None, "method": "tools/call", "params": {"name": SECRET}}).encode(),
    json.dumps({"jsonrpc": "2.0", "id": 5, "method": 7, "params": {"role": SECRET}}).encode(),
    json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": [SECRET]}).encode(),
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


@pytest.mark.parametrize("revision", ["2031-01-01", "1999-01-01", "\xff", "", "x" * 200])
def test_an_unknown_revision_is_refused_with_those_that_there_are(server: Served, revision: str) -> None:
    with Wire(server.address) as wire:
        answer = wire.ask("POST", "/mcp", BODY, **{**HEADERS, "MCP-Protocol-Version": revision})
        assert answer.status == 400
        assert "error" in answer.json


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
@pytest.mark.parametrize("name", ["X-A", "Accept-Language", "Mcp-Session-Id", "Cookie", "Last-Event-Id"])
def test_broken_utf_8_in_a_header_is_no_fault_of_the_servers(server: Served, revision: str, name: str) -> None:
    with Wire(server.address) as wire:
        answer = wire.ask("POST", "/mcp", BODY, **{**JSON, "MCP-Protocol-Version": revision, name: "\xff\xfe\x80"})
        assert answer.status < 500


def test_a_session_that_there_is_not_gets_404(server: Served) -> None:
    with Wire(server.address) as wire:
        headers = {**initialize(wire), "Mcp-Session-Id": "0" * 32}
        assert wire.ask("POST", "/mcp", json.dumps(call("say", {})).encode(), **headers).status == 404


# --- names, pages, tokens -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/mcp", "/health", "/ready", "/else"])
@pytest.mark.parametrize(
    ("foreign", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example:80"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1.evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[::1"}, 403),
    ],
)
def test_a_page_that_calls_by_another_name_is_refused(
    server: Served, path: str, foreign: dict[str, str], status: int
) -> None:
    with Wire(server.address) as wire:
        assert wire.ask("GET", path, b"", **foreign).status == status


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost:{port}", "LOCALHOST", "[::1]:{port}"])
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
        wire.send(request("HEAD", path))
        status, headers = wire.head()
        assert (status, headers["content-length"]) == (200, str(len(told.body)))
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            answer = wire.ask(method, path)
            assert (answer.status, answer.json) == (405, {"error": "method_not_allowed", "remedy": "use GET or HEAD"})
        for other in ("/", "/healthz", f"{path}/", f"/mcp{path}", "/%2e%2e/health"):
            assert wire.ask("GET", other).status == 404


def test_a_service_that_is_not_watched_has_no_such_pages(tmp_path: Path) -> None:
    with served(tmp_path, plain=True) as found, Wire(found.address) as wire:
        for path in ("/health", "/ready"):
            answer = wire.ask("GET", path)
            assert (answer.status, answer.json["remedy"]) == (404, f"{NO_PATH} /mcp and no other")


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_path_that_there_is_not_is_told_with_those_that_there_are(server: Served, method: str) -> None:
    with Wire(server.address) as wire:
        answer = wire.ask(method, f"/{SECRET.replace(' ', '%20')}?{TOKEN}", BODY, **HEADERS, **{TOKEN: TOKEN})
        assert answer.headers["content-type"] == "application/json"
        told = {"error": "not_found", "remedy": f"{NO_PATH} /mcp, /health, /ready and no other"}
        assert (answer.status, answer.json) == (404, told)
        wire.send(request("HEAD", "/else"))
        assert wire.head()[0] == 404
        assert said(wire.ask("POST", "/mcp", BODY, **HEADERS)) == "hello"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_method_that_takes_no_calls_is_told_with_the_one_that_does(server: Served, method: str) -> None:
    with Wire(server.address) as wire:
        answer = wire.ask(method, "/mcp", b"", **HEADERS)
        assert (answer.status, answer.json) == (405, {"error": "method_not_allowed", "remedy": "use POST"})
        assert answer.headers["allow"] == "POST"
        assert said(wire.ask("POST", "/mcp", BODY, **HEADERS)) == "hello"


@ERAS
@pytest.mark.parametrize("accept", ["text/html", "application/json", "text/event-stream", ""])
def test_a_client_that_takes_no_answer_of_ours_is_told_what_to_take(server: Served, era: str, accept: str) -> None:
    with Wire(server.address) as wire:
        answer = wire.ask("POST", "/mcp", BODY, **headers_of(era, wire) | {"Accept": accept})
        assert answer.status == 406
        assert {"error"} <= answer.json.keys()
        assert all(word in answer.body for word in (b"application/json", b"text/event-stream"))
        assert b"html" not in answer.body
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


async def test_above_the_most_connections_those_that_ask_nothing_are_closed(tmp_path: Path) -> None:
    with served(tmp_path, connections=20) as found, ExitStack() as stack:
        body, headers = modern(call("count", {"to": 1}, progress=True))
        idle = [stack.enter_context(Wire(found.address)) for _ in range(60)]
        for _ in range(10):
            with Wire(found.address) as wire:
                assert wire.ask("POST", "/mcp", body, **headers).status == 200
        async with asyncio.timeout(20):
            ended = [await asyncio.to_thread(wire.ended) for wire in idle[:40]]
        assert all(ended)
