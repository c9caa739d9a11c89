"""The certificates that this process checks others' by, read once: reading them takes 30 ms."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssl import SSLContext


def trusted() -> SSLContext:
    """Return a TLS context with the certificates that this system trusts, or those that `SSL_CERT_FILE` names.

    Connections share it, so it must not be changed.
    """
    return _read(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@lru_cache(4)
def _read(file: str | None, folder: str | None) -> SSLContext:
    import httpx2  # few processes connect

    return httpx2.create_ssl_context()  # it reads both variables
