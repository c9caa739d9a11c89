"""`worldagent serve --http` as a process of its own, as people start it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from support.command_line import BOUND, Done, started
from support.processes import next_line

LOOPBACK = "127.0.0.1:0"
MAKE = ("--app", "support.sidecar_app:make")
HTTP = ("serve", "--http", LOOPBACK)


@dataclass
class Running:
    """A sidecar over HTTP."""

    process: asyncio.subprocess.Process
    url: str
    home: Path

    async def ended(self, number: int = signal.SIGTERM) -> Done:
        """Ask it to end, and give how it did."""
        self.process.send_signal(number)
        out, told = await asyncio.wait_for(self.process.communicate(), BOUND)
        assert self.process.returncode is not None
        return Done(self.process.returncode, out.decode(), told.decode())


@asynccontextmanager
async def serving(home: Path, *words: str, http: str = LOOPBACK, **env: str) -> AsyncGenerator[Running]:
    """Run one, and wait until it tells its address; `http` is where it listens."""
    async with started(home, "serve", "--http", http, *words, **env) as process:
        url = await next_line(process, BOUND)
        if not url.startswith("http"):
            _, told = await asyncio.wait_for(process.communicate(), BOUND)
            raise AssertionError(f"it did not start: {url} {told.decode()}")
        yield Running(process, url, home)


__all__ = ["HTTP", "LOOPBACK", "MAKE", "Running", "serving"]
