"""A server in the running loop, for tests: at its end nothing of it runs any more. It imports little."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves one connection, which is closed after it."""


@contextlib.asynccontextmanager
async def serving(
    serve: Serve, *gone: type[BaseException], host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncGenerator[int]:
    """Serve on a free port of this machine, and give it; at the end those who are served are cut off.

    Args:
        serve: Serves one connection.
        gone: What it may raise where the other side goes.
        host: The address to listen on.
        tls: For HTTPS.
    """
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(asyncio.CancelledError, *gone):  # at the end, which asyncio would report as an error
            await serve(reader, writer)
        writer.close()
        tasks.discard(task)

    server = await asyncio.start_server(connected, host, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def recorded(file: Path, argv: Sequence[str]) -> list[str]:
    """The argv of a host over stdio whose streams are written down, in a file for each direction."""
    return ["sh", "-c", 'tee -a "$0.to" | "$@" | tee -a "$0.from"', str(file), *argv]


@contextlib.asynccontextmanager
async def recorded_over_http(file: Path, url: str) -> AsyncGenerator[str]:
    """Give an address that leads to `url`; what goes through is written down as `file` in each direction."""

    where = urlsplit(url)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, into: Path) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                with into.open("ab") as out:
                    out.write(data)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host_reader, host_writer = await asyncio.open_connection(where.hostname, where.port)
        await asyncio.gather(
            pump(reader, host_writer, Path(f"{file}.to")), pump(host_reader, writer, Path(f"{file}.from"))
        )

    async with serving(connect, OSError) as port:
        yield f"http://127.0.0.1:{port}{where.path}"
