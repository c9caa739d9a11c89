"""Headers for the service of one call. They bypass dspy, which would write them into its own records."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

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


__all__ = ["HEADERS", "sending"]
