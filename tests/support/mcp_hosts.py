"""Role hosts that a connection can be tried on: the stub over each transport, and as a process that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from support.role_host_stub import ALL, StubHost, command, over_http
from worldagent.mcp_client import HostRoleStore, HttpHost, StdioHost

Kind = Literal["http", "stdio"]
Mode = Literal["auto", "legacy"]


@contextlib.contextmanager
def host(
    kind: Kind, home: Path, *, broken: str = "", tiers: Sequence[str] = ALL, **more: Any
) -> Generator[HttpHost | StdioHost]:
    """A host in a thread, or one that is started as a child; what the latter keeps outlives the child."""
    if kind == "stdio":
        given: list[str | Path] = [
            "stdio",
            "--file",
            home / "host.json",
            "--log",
            home / "host.log",
            "--tiers",
            ",".join(tiers),
        ]
        yield StdioHost(command(*given, *(["--broken", broken] if broken else [])), **more)
        return
    with over_http(StubHost(broken=broken, tiers=tiers, log=home / "host.log")) as url:
        yield HttpHost(url, **more)


@contextlib.asynccontextmanager
async def opened(given: HttpHost | StdioHost, **more: Any) -> AsyncGenerator[HostRoleStore]:
    store = HostRoleStore(given, **more)
    try:
        yield store
    finally:
        await store.aclose()


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


async def reachable(port: int) -> None:
    """Wait until something takes connections at a port."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                await writer.wait_closed()
                return
            await asyncio.sleep(0.02)


class HostProcess:
    """A host over HTTP that is a process: it can be killed and started again at the same address."""

    def __init__(self, home: Path, *, broken: str = "") -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._argv = command(str(self.port), "--file", home / "host.json", "--log", home / "host.log")
        self._argv += ["--broken", broken] if broken else []
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self._process = await asyncio.create_subprocess_exec(*self._argv)
        await reachable(self.port)

    async def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            self._process = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()
