"""What the certificates of this machine cost an agent that connects to many hosts."""

import ssl

import httpx2
import pytest

from worldagent.mcp_client.tls import trusted

pytestmark = pytest.mark.requirement("R9")


def test_certificates_are_read_once_and_again_for_another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[ssl.SSLContext] = []
    make = httpx2.create_ssl_context

    def counted() -> ssl.SSLContext:
        read.append(make())
        return read[-1]

    monkeypatch.setattr(httpx2, "create_ssl_context", counted)
    system = ssl.get_default_verify_paths()
    monkeypatch.setenv("SSL_CERT_FILE", str(system.cafile or system.openssl_cafile))
    monkeypatch.setenv("SSL_CERT_DIR", "/for/this/test")
    first = trusted()
    assert trusted() is first
    monkeypatch.setenv("SSL_CERT_DIR", "/for/this/test/too")
    assert trusted() is not first
    assert len(read) == 2
