"""A host that is a child process. MCP messages are lines on its standard streams.

The MCP library has such a transport too. It keeps a line of any length in memory, fails on bytes that are not UTF-8,
and notices the end of a child only at the next call. A role host must not be able to harm the agent in these ways.
`transports` chooses between this module and HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import AsyncGenerator, Callable, Generator
from types import TracebackType
from typing import Final, Self, TextIO

from mcp.client._transport import TransportStreams
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCNotification, jsonrpc_message_adapter

from .failures import Failure, Failures
from .hosts import LONGEST_ANSWER, StdioHost
from .nesting import readable
from .quiet import without_text

Lost = Callable[[Failure | None], None]

# Seconds that a child gets to end after its input is closed, and again after a signal asks it to.
_GRACE: Final = 2.0
_LAST_GRACE: Final = 1.0
# The limit of consecutive lines that are not messages; a program that writes more is not an MCP host.
_STRAY: Final = 1000
_KILL: Final = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL


@contextlib.asynccontextmanager
async def over_stdio(host: StdioHost, failures: Failures, lost: Lost) -> AsyncGenerator[TransportStreams]:
    """Start the program and yield its streams. When the block ends, the program has ended.

    Args:
        host: The program.
        failures: Makes the failures of the host.
        lost: Called when no more messages can come, with the reason if it is known.

    Raises:
        OSError: The program cannot be started.
    """
    loop = asyncio.get_running_loop()
    with _errors_of(host) as errors:
        child, streams = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(LONGEST_ANSWER, loop),
            *host.argv,
            stderr=errors,
            env=get_default_environment() | dict(host.env or {}),
            cwd=host.cwd,
            start_new_session=True,
        )
    assert streams.stdin is not None
    assert streams.stdout is not None
    outgoing = _Outgoing(streams.stdin, host.timeout, failures, lost)
    try:
        yield _Incoming(streams.stdout, failures, lost), outgoing
    finally:
        await outgoing.aclose()
        await _end(child, streams.stdin)


@contextlib.contextmanager
def _errors_of(host: StdioHost) -> Generator[TextIO]:
    """Yield the file that receives the standard error of the child.

    Ours can be replaced by an object that is not a file.
    """
    if host.stderr == "inherit":
        with contextlib.suppress(AttributeError, OSError):
            sys.stderr.fileno()
            yield sys.stderr
            return
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        yield nowhere


async def _end(child: asyncio.SubprocessTransport, stdin: asyncio.StreamWriter) -> None:
    """Close its input, ask it to end, then kill it, with a wait before each step.

    If the task is cancelled, kill it at once.
    """
    try:
        stdin.close()
        if not await _ended(child, _GRACE):
            _signal(child, signal.SIGTERM)
            await _ended(child, _LAST_GRACE)
    finally:
        if child.get_returncode() is None:
            _signal(child, _KILL)
        if stdin.transport.get_write_buffer_size():
            stdin.transport.abort()  # otherwise it stays open until the child has read everything
        with contextlib.suppress(PermissionError):  # if the child has become another user
            child.close()  # this also closes the pipes, which a grandchild can still hold
        await _ended(child, _GRACE)


async def _ended(child: asyncio.SubprocessTransport, seconds: float) -> bool:
    # Polled, because asyncio waits for the end of the pipes too, and grandchildren can hold these open.
    for _ in range(int(seconds * 100)):
        if child.get_returncode() is not None:
            return True
        await asyncio.sleep(0.01)
    return child.get_returncode() is not None


def _signal(child: asyncio.SubprocessTransport, number: signal.Signals) -> None:
    """Send a signal to the process group of the child, which includes its own children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":  # Windows has neither process groups nor these signals
            child.terminate()
        else:
            os.killpg(child.get_pid(), number)
            os.killpg(child.get_pid(), signal.SIGCONT)  # a stopped process handles no other signal


class _Stream:
    """The common part of both directions."""

    async def aclose(self) -> None:
        """Do nothing: the streams end with the child."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


class _Incoming(_Stream):
    """The messages that the child writes. A line that is not a message becomes an error without its text."""

    def __init__(self, stdout: asyncio.StreamReader, failures: Failures, lost: Lost) -> None:
        self._stdout = stdout
        self._failures = failures
        self._lost = lost
        self._stray = 0

    async def receive(self) -> SessionMessage | Exception:
        return await self.__anext__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        line = b"\n"
        while not line.strip():
            await asyncio.sleep(0)  # a child that writes without end must not block this loop
            line = await self._line()
        try:
            message = SessionMessage(jsonrpc_message_adapter.validate_json(await readable(line), by_name=False))
        except ValueError:
            self._stray += 1
            return ValueError("not an MCP message")
        self._stray = 0
        return without_text(message)

    async def _line(self) -> bytes:
        """The next line that the child wrote. A line without an end is the last one."""
        why: Failure | None = None
        try:
            line = await self._stdout.readline()
        except ValueError:
            line, why = b"", self._failures.oversized()
        if self._stray > _STRAY:
            line, why = b"", self._failures.stray()
        if not line.endswith(b"\n"):
            self._lost(why)
            raise StopAsyncIteration
        return line


class _Outgoing(_Stream):
    """The messages to the child.

    It holds at most one that the child does not read, and for no longer than a call can take.
    """

    def __init__(self, stdin: asyncio.StreamWriter, timeout: float, failures: Failures, lost: Lost) -> None:
        self._stdin = stdin
        self._timeout = timeout
        self._failures = failures
        self._lost = lost
        self._turn = asyncio.Lock()
        self._limit: asyncio.TimerHandle | None = None

    async def send(self, item: SessionMessage, /) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        if isinstance(item.message, JSONRPCNotification):
            # Usually a cancellation notice. No caller waits for it, and a child that reads nothing does not get it.
            if not self._full:
                self._stdin.write(line)
            return
        async with self._turn:
            try:
                await self._drained()
                self._stdin.write(line)
                await self._drained()
            except ConnectionError:
                self._lost(None)

    async def _drained(self) -> None:
        """Wait until the child has read its input. The time limit also applies after the caller has stopped waiting."""
        if self._limit is None:
            loop = asyncio.get_running_loop()
            self._limit = loop.call_later(self._timeout, self._give_up)
        await self._stdin.drain()
        self._stop_limit()

    @property
    def _full(self) -> bool:
        pipe = self._stdin.transport
        return pipe.get_write_buffer_size() > pipe.get_write_buffer_limits()[1]

    def _give_up(self) -> None:
        self._limit = None
        if self._full:
            self._lost(self._failures.unavailable("does not read what is sent to it", self._failures.restart))

    def _stop_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    async def aclose(self) -> None:
        self._stop_limit()
        self._stdin.close()
