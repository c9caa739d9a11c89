"""What a server over HTTP takes and refuses: bodies, names, tokens, limits, and who can reach it."""

import asyncio
import json
import socket
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.processes import eventually
from support.served import BOUND, SECRET, Answer, Plain, Served, Wire, call, initialize, modern, request, served
from support.tools import certificate
from worldagent.core.errors import InvalidArgument
from worldagent.hosts.serving import Address, HttpOptions, Tokens, read_token_file, serve_http

TOKEN = "t0ken-of-the-novel"
NO_PATH = "correct the path of the URL; the paths of this server are"
ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])
BODY, HEADERS = modern(call("say", {"text": "hello"}))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    """One without tokens, with low limits; it must say hello after all that is sent to it."""
    with served(tmp_path_factory.mktemp("served"), max_body=100_000) as found:
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
def test_an_invalid_body_is_refused_and_not_quoted(server: Served, era: str, body: bytes) -> None:
    with Wire(server.address) as wire:
        answer = wire.ask("POST", "/mcp", body, **headers_of(era, wire))
        assert answer.status < 500
        # 202: earlier revisions take an id that is none for a notice, and nobody knows this one
        assert answer.status >= 400 or answer.status == 202 or "error" in answer.json
        assert SECRET.encode() not in answer.body
        if answer.body:
            assert "jsonrpc" in answer.json or (answer.status == 413 and answer.json["error"] == "too_large")
    assert SECRET not in server.told()


@pytest.mark.requirement("R7")
@ERAS
def test_an_error_of_a_handler_stays_inside(server: Served, era: str) -> None:
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
def test_a_page_of_this_machine_can_call(server: Served, name: str) -> None:
    host = name.format(port=server.address.port)
    with Wire(server.address) as wire:
        assert said(wire.ask("POST", "/mcp", BODY, **HEADERS, Host=host, Origin=f"http://{host}")) == "hello"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    """One with two tokens, which it tells nobody."""
    with served(tmp_path_factory.mktemp("guarded"), tokens={TOKEN: "novel:", "another": "diary:"}) as found:
        yield found
        assert TOKEN not in found.told()


@pytest.mark.parametrize(("path", "ready"), [("/health", {"status": "ok"}), ("/ready", {"ready": True})])
def test_health_and_readiness_need_no_token(guarded: Served, path: str, ready: dict[str, Any]) -> None:
    with Wire(guarded.address) as wire:
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
def test_an_unknown_path_is_refused_with_the_known_paths(server: Served) -> None:
    with Wire(server.address) as wire:
        answer = wire.ask("POST", f"/{SECRET.replace(' ', '%20')}?{TOKEN}", BODY, **HEADERS, **{TOKEN: TOKEN})
        assert answer.headers["content-type"] == "application/json"
        told = {"error": "not_found", "remedy": f"{NO_PATH} /mcp, /health, /ready, /metrics"}
        assert (answer.status, answer.json) == (404, told)
        assert wire.ask("HEAD", "/else").status == 404
        assert said(wire.ask("POST", "/mcp", BODY, **HEADERS)) == "hello"


@ERAS
def test_a_token_decides_what_its_bearer_can_use(guarded: Served, era: str) -> None:
    for token, grant in ((TOKEN, "novel:"), ("another", "diary:")):
        bearer = {"Authorization": f"Bearer {token}"}
        with Wire(guarded.address) as wire:
            headers = initialize(wire, **bearer) if era == "legacy" else {**HEADERS, **bearer}
            body = BODY if era == "modern" else json.dumps(call("say", {"text": "hello"})).encode()
            assert said(wire.ask("POST", "/mcp", body, **headers)) == f"{grant}hello"


def test_another_token_is_refused(guarded: Served) -> None:
    for wrong in ("", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer \xff", "Bearer " + "x" * 5000):
        with Wire(guarded.address) as wire:
            refused = wire.ask("POST", "/mcp", BODY, **HEADERS, **({"Authorization": wrong} if wrong else {}))
            assert refused.status == 401
            assert refused.headers["www-authenticate"].startswith("Bearer ")
            assert refused.json["error"] == "invalid_token"
            assert "`Authorization: Bearer TOKEN`" in refused.json["remedy"]


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


def test_above_the_most_sessions_only_a_new_one_gets_503(tmp_path: Path) -> None:
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
                await asyncio.sleep(0.6)  # each look is a request of it


# --- who can reach it -------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate of `localhost` and its key."""
    return certificate(tmp_path, "one")


async def refused(service: Plain, host: str = "127.0.0.1", **options: Any) -> str:
    with pytest.raises(InvalidArgument) as caught:
        await serve_http(service, Address(host, 0), HttpOptions(**options))
    assert caught.value.remedy
    return caught.value.problem


@pytest.mark.parametrize("host", ["0.0.0.0", "host.example"])
async def test_remote_access_needs_tls_and_a_token(tmp_path: Path, files: tuple[Path, Path], host: str) -> None:
    tls: dict[str, Any] = {"tls_cert": files[0], "tls_key": files[1]}
    with_token = Plain(tmp_path / "notes", Tokens([(TOKEN, "")]))
    without = Plain(tmp_path / "notes", None)
    assert "other machines" in await refused(with_token, host)
    for options in (tls, {"allow_remote": True}, {**tls, "allow_remote": True}):
        assert "no token is required" in await refused(without, host, **options)


def test_names_that_are_given_are_the_only_ones(tmp_path: Path) -> None:
    options: dict[str, Any] = {"names": ["ship.example"], "allow_remote": True, "tokens": {TOKEN: ""}}
    names = (("ship.example", 200), ("ship.example:99", 200), ("localhost", 200), ("else", 421))
    body, headers = modern(call("say", {"text": "hello"}), Authorization=f"Bearer {TOKEN}")
    with served(tmp_path, host="0.0.0.0", **options) as found:
        local = Address("127.0.0.1", found.address.port)
        for name, status in names:
            with Wire(local) as wire:
                assert wire.ask("POST", "/mcp", body, **headers, Host=name).status == status


def test_ipv6_is_loopback_too(tmp_path: Path) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    with served(tmp_path, host="::1") as found, Wire(found.address) as wire:
        assert found.address.url == f"http://[::1]:{found.address.port}/mcp"
        body, headers = modern(call("say", {"text": "hello"}))
        for name, status in ((f"[::1]:{found.address.port}", 200), ("[::1]", 200), ("[::2]", 421)):
            assert wire.ask("POST", "/mcp", body, **headers, Host=name).status == status


async def test_a_certificate_that_cannot_be_used_is_refused(tmp_path: Path, files: tuple[Path, Path]) -> None:
    service = Plain(tmp_path / "notes", None)
    sealed = certificate(tmp_path, "sealed", b"pass phrase")
    other = certificate(tmp_path, "other")
    text = tmp_path / "text.pem"
    text.write_text("no certificate", encoding="utf-8")
    missing = tmp_path / "missing.pem"
    pairs = [(missing, files[1]), (files[0], missing), (text, files[1]), (files[0], text), (files[0], other[1])]
    async with asyncio.timeout(20):  # no person is asked for the password of a key
        for cert, key in (*pairs, sealed, (tmp_path, tmp_path)):
            assert "cannot be used" in await refused(service, tls_cert=cert, tls_key=key)


@pytest.mark.parametrize(
    "given",
    [
        {"tls_cert": Path("cert.pem")},
        {"max_body": 0},
        {"keep_alive": float("nan")},
        {"drain": -1.0},
    ],
)
def test_invalid_http_options_are_refused(given: Mapping[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        HttpOptions(**given)


async def test_an_address_in_use_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidArgument) as caught:
            await serve_http(Plain(tmp_path / "notes", None), Address("127.0.0.1", port))
    assert str(caught.value) == (
        f"cannot listen on 127.0.0.1:{port}: another program listens there; choose another port, or 0 for a free one; "
        "`worldagent ps` lists the running sidecars"
    )


# --- token files ------------------------------------------------------------------------------------------------------


def entry(table: dict[str, Any]) -> str:
    if table.keys() != {"ship"} or not isinstance(table["ship"], str):
        raise ValueError("does not name one ship")
    return table["ship"]


def read(path: Path) -> Tokens[str]:
    return read_token_file(path, "all", entry=entry, example='[[token]], token = "...", ship = "..."')


async def granted(tokens: Tokens[str], token: str) -> str | None:
    return tokens.grant_of(await tokens.verify_token(token))


async def test_a_token_file_says_what_each_token_grants(tmp_path: Path) -> None:
    alone, tables = tmp_path / "token", tmp_path / "tokens.toml"
    alone.write_text(f"{TOKEN}\n", encoding="utf-8")
    tables.write_text(
        f'[[token]]\ntoken = "{TOKEN}"\nship = "a"\n[[token]]\ntoken = "b"\nship = "b"\n', encoding="utf-8"
    )
    assert [await granted(read(alone), token) for token in (TOKEN, "b", "")] == ["all", None, None]
    assert [await granted(read(tables), token) for token in (TOKEN, "b", "c", "ä")] == ["a", "b", None, None]


def test_an_invalid_token_is_refused_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for text in ("", f"{TOKEN} {TOKEN}"):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(InvalidArgument, match=r"the token file '.*token' has no token, or an invalid one"):
            read(file)
    for tokens in ([], ["a b"], ["ä"], [TOKEN, TOKEN]):
        with pytest.raises(InvalidArgument) as caught:
            Tokens([(token, "all") for token in tokens])
        assert TOKEN not in str(caught.value)
    assert TOKEN not in repr(Tokens([(TOKEN, "all")]))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"[[token]]\ntoken = '{TOKEN}'", "is invalid: [[token]] number 1 does not name one ship"),
        (f"[[token]]\ntoken = '{TOKEN} {TOKEN}'\nship = 'a'", "is invalid: [[token]] number 1 has no token, or an"),
        (f"[[token]]\ntoken = '{TOKEN}'\nship = 'a'\nmore = '{TOKEN}'", "is invalid: [[token]] number 1 does not name"),
        (f"[[token]]\ntoken = '{TOKEN}'\nship = 'a'\n" * 2, "two entries have the same token"),
        (f"[[token]\n{TOKEN}", "is invalid: it must be TOML with only [[token]] tables"),
    ],
)
def test_an_invalid_token_file_is_refused_and_not_quoted(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidArgument) as caught:
        read(path)
    assert told in caught.value.problem
    assert TOKEN not in str(caught.value)
