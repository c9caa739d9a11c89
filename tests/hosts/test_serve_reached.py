"""How a sidecar of `worldagent serve` is reached: TLS, the names that it is called by, other machines (T10).

What is refused before anything is served is in `test_serve_command`; the transport by itself is in
`test_serving_reach`.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from support.certificates import certificate
from support.command_line import BOUND
from support.serve_command import MAKE, Running, serving
from support.served_wire import Answer, Wire, call, modern
from support.sidecar_served import Caller
from worldagent.hosts.serving import Address

pytestmark = pytest.mark.requirement("T10")
TOKEN = "token-of-a-test-which-nobody-may-see"
EVERYWHERE = "0.0.0.0:0"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def tokens(tmp_path: Path) -> tuple[str, str]:
    """The option that names a file with one token."""
    file = tmp_path / "token.txt"
    file.write_text(f"{TOKEN}\n", encoding="utf-8")
    file.chmod(0o600)
    return "--token-file", str(file)


def address_of(sidecar: Running) -> Address:
    """Where this machine reaches it, whatever it listens on."""
    port = urlsplit(sidecar.url).port
    assert port is not None
    return Address("127.0.0.1", port)


def asked(sidecar: Running, *, token: str = TOKEN, name: str = "localhost") -> Answer:
    """Call a tool, under a name, with a token; gives what is answered."""
    message = call("converse", {"thread": "t1", "account": "ana", "text": "Hi words=2"})
    body, headers = modern(message, Authorization=f"Bearer {token}", Host=name)
    with Wire(address_of(sidecar)) as wire:
        return wire.ask("POST", "/mcp", body, **headers)


def check_said(answer: Answer) -> None:
    """That it is what the agent said."""
    assert answer.status == 200
    assert answer.json["result"]["structuredContent"]["turn"]["text"] == "word0 word1"


async def test_over_tls_whoever_trusts_its_certificate_has_a_conversation(
    home: Path, tmp_path: Path, tokens: tuple[str, str]
) -> None:
    cert, key = certificate(tmp_path, "sidecar")
    other, _ = certificate(tmp_path, "other")
    words = (*MAKE, *tokens, "--tls-cert", str(cert), "--tls-key", str(key))
    async with serving(home, *words, http=EVERYWHERE) as sidecar:
        assert sidecar.url.startswith("https://0.0.0.0:")
        at = f"localhost:{address_of(sidecar).port}"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        trusting = ssl.create_default_context(cafile=str(cert))
        async with (
            httpx2.AsyncClient(headers=headers, verify=trusting, timeout=BOUND, trust_env=False) as http,
            Client(streamable_http_client(f"https://{at}/mcp", http_client=http)) as client,
        ):
            said = await Caller(client)("converse", thread="t1", account="ana", text="Hi words=2")
            assert said["turn"]["text"] == "word0 word1"
            assert (await http.get(f"https://{at}/health")).status_code == 200
        distrusting = ssl.create_default_context(cafile=str(other))
        async with httpx2.AsyncClient(verify=distrusting, timeout=BOUND, trust_env=False) as http:
            with pytest.raises(httpx2.ConnectError, match="certificate"):
                await http.get(f"https://{at}/health")
            with pytest.raises(httpx2.TransportError):  # no answer, not one that says no
                await http.get(f"http://{at}/health")
        done = await sidecar.ended()
    assert done.code == 143
    assert "Traceback" not in done.told
    assert TOKEN not in done.told


async def test_requests_for_the_names_that_it_is_given_are_answered_and_others_are_not(
    home: Path, tokens: tuple[str, str]
) -> None:
    names = ("--server-name", "ship.example", "--server-name", "other.example")
    async with serving(home, *MAKE, *tokens, *names) as sidecar:
        for name in ("ship.example", "other.example:8443", "localhost"):
            check_said(asked(sidecar, name=name))
        for name in ("evil.example", "ship.example.evil.example", "192.0.2.1"):
            refused = asked(sidecar, name=name)
            assert refused.status == 421
            assert b"word0" not in refused.body


async def test_with_leave_and_a_token_other_machines_are_served(home: Path, tokens: tuple[str, str]) -> None:
    async with serving(home, *MAKE, *tokens, "--allow-remote", http=EVERYWHERE) as sidecar:
        assert sidecar.url == f"http://0.0.0.0:{address_of(sidecar).port}/mcp"
        for name in ("localhost", "any.example", "192.0.2.1:8200"):  # a proxy may leave the name as it was
            check_said(asked(sidecar, name=name))
        for token in ("", "another", TOKEN[:-1], f"{TOKEN}x"):
            refused = asked(sidecar, token=token)
            assert refused.status == 401
            assert b"word0" not in refused.body
        done = await sidecar.ended()
    assert TOKEN not in done.out + done.told
