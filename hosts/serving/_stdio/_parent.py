"""The process that started this one: when it is gone, so is whom we serve, whoever else still holds our input open."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

LOOK: Final = 0.5
"""Seconds between two looks; no system tells of it by itself on every platform."""


@asynccontextmanager
async def parent_watched(gone: Callable[[], object]) -> AsyncGenerator[None, None]:
    """Call `gone` once the parent has ended. On systems that do not give children a new parent, this does nothing."""
    first = os.getppid()

    async def watch() -> None:
        while os.getppid() == first:  # noqa: ASYNC110 -- nothing sets an event when a parent ends
            await asyncio.sleep(LOOK)
        gone()

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


__all__ = ["parent_watched"]
