"""Headers for the service of one call, which go around dspy: it would write them into its own records."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

HEADERS: Final[ContextVar[Mapping[str, str] | None]] = ContextVar("worldagent_headers", default=None)
"""What the running call sends beside what the engine does, by names in lower case."""


@contextmanager
def sending(headers: Mapping[str, str]) -> Generator[None]:
    """Have the calls of the block send these headers."""
    before = HEADERS.set(headers)
    try:
        yield
    finally:
        HEADERS.reset(before)


__all__ = ["HEADERS", "sending"]
