"""How bytes get to a host and back: streamable HTTP with a bearer token, or a child's standard streams."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TextIO

import httpx2
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from ._hosts import Host, HttpHost, StdioHost

# Servers close an idle connection after five seconds as a rule; a request that is under way just then is lost.
_IDLE: Final = 4.0
# A stream of change notices is silent for as long as nothing changes.
_SILENCE: Final = 300.0
# What the end of a session may take: nobody waits for a host that is gone.
_FAREWELL: Final = 2.0


@dataclass(slots=True)
class Observed:
    """What the transport noticed and the MCP library does not hand on.

    Attributes:
        refused: Whether the host answered 401 or 403.
        forgotten: Whether the host no longer knows the session, and did nothing about the call.
        ended: Called once no message can come any more.
    """

    ended: Callable[[], None]
    refused: bool = False
    forgotten: bool = False


def open_transport(host: Host, observed: Observed) -> contextlib.AbstractAsyncContextManager[TransportStreams]:
    """The streams of `host`, open inside the block."""
    return _over_http(host, observed) if isinstance(host, HttpHost) else _over_stdio(host, observed)


@contextlib.asynccontextmanager
async def _over_http(host: HttpHost, observed: Observed) -> AsyncGenerator[TransportStreams]:
    async def asking(request: httpx2.Request) -> None:
        if request.method == "DELETE":
            request.extensions["timeout"] = httpx2.Timeout(_FAREWELL).as_dict()

    async def answered(response: httpx2.Response) -> None:
        if response.request.method == "POST":
            observed.refused = response.status_code in (401, 403)
        if response.status_code == 404 and "mcp-session-id" in response.request.headers:
            observed.forgotten = True

    async with (
        httpx2.AsyncClient(
            headers={} if host.token is None else {"Authorization": f"Bearer {host.token}"},
            timeout=httpx2.Timeout(host.timeout, read=_SILENCE),
            limits=httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=_IDLE),
            event_hooks={"request": [asking], "response": [answered]},
        ) as client,
        streamable_http_client(host.url, http_client=client) as streams,
    ):
        yield streams


@contextlib.asynccontextmanager
async def _over_stdio(host: StdioHost, observed: Observed) -> AsyncGenerator[TransportStreams]:
    command, *args = host.argv
    env = None if host.env is None else dict(host.env)
    program = StdioServerParameters(command=command, args=args, env=env, cwd=host.cwd)
    with _errors_of(host) as errors:
        async with stdio_client(program, errlog=errors) as (read, write):
            yield _Ending(read, observed.ended), write


@contextlib.contextmanager
def _errors_of(host: StdioHost) -> Generator[TextIO]:
    """Where the child writes its errors to. Ours may be replaced by something that is no file."""
    if host.stderr == "inherit":
        with contextlib.suppress(AttributeError, OSError):
            sys.stderr.fileno()
            yield sys.stderr
            return
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        yield nowhere


class _Ending:
    """A stream that says when it ends: the library notices it at the next call only."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception], ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended

    async def receive(self) -> SessionMessage | Exception:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> ReadStream[SessionMessage | Exception]:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._ended()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)
