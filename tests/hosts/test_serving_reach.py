"""Who can reach a server over HTTP: loopback, other machines with TLS or leave, and never without tokens."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.served import Plain, Wire, call, modern, served
from support.tools import certificate
from worldagent.core.errors import InvalidArgument
from worldagent.hosts.serving import Address, HttpOptions, Tokens, read_token_file, serve_http

TOKEN = "t0ken-of-the-novel"


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
async def test_other_machines_need_leave_or_tls_and_a_token(
    tmp_path: Path, files: tuple[Path, Path], host: str
) -> None:
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
    async with asyncio.timeout(20):  # a key with a password asks nobody for it
        for cert, key in ((missing, files[1]), (files[0], missing), (text, files[1]), (files[0], text)):
            assert "cannot be used" in await refused(service, tls_cert=cert, tls_key=key)
        assert "cannot be used" in await refused(service, tls_cert=files[0], tls_key=other[1])
        assert "cannot be used" in await refused(service, tls_cert=sealed[0], tls_key=sealed[1])
        assert "cannot be used" in await refused(service, tls_cert=tmp_path, tls_key=tmp_path)


@pytest.mark.parametrize(
    "given",
    [
        {"tls_cert": Path("cert.pem")},
        {"max_body": 0},
        {"keep_alive": float("nan")},
        {"drain": -1.0},
    ],
)
def test_options_that_are_none_are_refused(given: Mapping[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        HttpOptions(**given)


async def test_an_address_in_use_is_told(tmp_path: Path) -> None:
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


def test_a_token_that_is_none_is_told_with_what_it_is_in(tmp_path: Path) -> None:
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
    "text",
    [
        f"[[token]]\ntoken = '{TOKEN}'",
        f"[[token]]\ntoken = '{TOKEN}'\nship = 'a'\nmore = '{TOKEN}'",
        f"[[token]]\ntoken = '{TOKEN}'\nship = 'a'\n[[token]]\ntoken = '{TOKEN}'\nship = 'b'",
        f"[[token]\n{TOKEN}",
    ],
)
def test_a_token_file_that_does_not_fit_is_refused_and_not_quoted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidArgument) as caught:
        read(path)
    assert TOKEN not in str(caught.value)
