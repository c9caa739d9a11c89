"""Checks of the address of a model's service. Nothing is contacted, and dspy is not imported."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final
from urllib.parse import urlsplit

ADDRESS_REMEDY: Final = "write it as http://localhost:8000/v1, with the /v1 where the server has one"


def address_problem(address: str) -> str | None:
    """Return the problem of an `api_base`, with its address but without any name, password or key; None if it is valid.

    Args:
        address: The address to check.
    """
    shown = address.rpartition("@")[2].partition("?")[0].partition("#")[0]
    try:
        parts = urlsplit(address)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port, or half an IPv6 address
        fits = False
    if fits and address.isprintable() and " " not in address:
        return None
    return f"the address must begin with http:// or https:// and have a host, got {shown!r}"


HEADERS: Final[ContextVar[Mapping[str, str] | None]] = ContextVar("worldagent_headers", default=None)
"""The additional headers of the running call, by names in lower case."""


@contextmanager
def sending(headers: Mapping[str, str]) -> Generator[None]:
    """Send these headers with the calls in the block."""
    before = HEADERS.set(headers)
    try:
        yield
    finally:
        HEADERS.reset(before)
