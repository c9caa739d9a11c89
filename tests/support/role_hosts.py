"""The reference role host as a process, as people start it, and clients for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from support.house import ROOT

Mode = Literal["auto", "legacy"]
COMMAND = (sys.executable, "-P", "-m", "worldagent.hosts.cli", "role-host")
BOUND = 60  # seconds


def environment(**more: str) -> dict[str, str]:
    """Give the environment of a host: this checkout's package, and no token but one that is named."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WORLDAGENT_")}
    return kept | {"PYTHONPATH": str(ROOT / ".dev")} | more


@asynccontextmanager
async def stdio_client_of(store: Path, mode: Mode, *options: str) -> AsyncGenerator[Client, None]:
    """Give a client of a host that it has started."""
    words = [*COMMAND[1:], "--stdio", "--store", str(store), *options]
    target = StdioServerParameters(command=COMMAND[0], args=words, env=environment())
    async with Client(target, mode=mode, read_timeout_seconds=BOUND) as client:
        yield client


@asynccontextmanager
async def http_client_of(url: str, mode: Mode, token: str | None = None) -> AsyncGenerator[Client, None]:
    """Give a client of a host at `url`."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=BOUND) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, read_timeout_seconds=BOUND) as client,
    ):
        yield client


@contextmanager
def http_host(
    store: Path, *options: str, program: Sequence[str] = COMMAND, errors: Path | None = None, **env: str
) -> Generator[tuple[str, subprocess.Popen[bytes]], None, None]:
    """Run a host on a free port and give its address and its process."""
    words = [*program, "--http", "127.0.0.1:0", "--store", str(store), *options]
    where: Any = subprocess.DEVNULL if errors is None else errors.open("wb")
    process = subprocess.Popen(words, env=environment(**env), stdout=subprocess.PIPE, stderr=where)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        assert url.startswith("http://127.0.0.1:"), "the host did not start"
        yield url, process
    finally:
        process.kill()
        process.communicate(timeout=BOUND)
        if errors is not None:
            where.close()
