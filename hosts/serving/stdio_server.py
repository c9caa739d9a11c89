"""Serves one client over standard input and output: the process that started this one.

It ends when its input ends or when that process ends. It needs no token, because only the process that started it can
write to its input. Messages are JSON-RPC, one a line. The SDK's own transport does not bound the length of a line,
cannot end before the next line arrives, and does not answer invalid lines. This one reads and writes in daemon threads,
so a blocked read does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO, Final, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from ...core.bounds import Bounds, OutOfBounds, member_of
from ..bounds import CALL
from .address import MIB
from .handlers import guard, without_text
from .logs import log
from .service import Service, stopped_by_signals
from .service import drain as drain_service

MAX_LINE_BYTES: Final = 4 * MIB
"""The same limit as for the body of a request over HTTP."""

LONG_LINE_BYTES: Final = 1 << 17
"""A longer line is parsed in a thread."""

_MAX_ID_CHARACTERS: Final = 200  # of an id that a refusal repeats
_MAX_EXACT: Final = 1 << 53  # above this, a float can differ from the integer that the client wrote
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")  # the escape of half a surrogate pair; the other half can follow
_REQUEST: Final = TypeAdapter(types.JSONRPCRequest)

_PARSE_ERROR: Final = types.ErrorData(code=types.PARSE_ERROR, message="Parse error")
_INVALID_MESSAGE: Final = types.ErrorData(code=types.INVALID_REQUEST, message="Invalid Request")
_INVALID_ID: Final = types.ErrorData(
    code=types.INVALID_REQUEST,
    message="Invalid Request: the id must be a string or an integer; send one, or a notification without an id",
)
_TOO_LONG: Final = types.ErrorData(
    code=types.INVALID_REQUEST,
    message=f"Invalid Request: the line is longer than {MAX_LINE_BYTES} bytes ({MAX_LINE_BYTES // MIB} MiB); "
    "send less in one message",
)


class Refused(Exception):
    """A line was refused.

    Args:
        error: The error that the sender receives.
        request_id: The id of the refusal; None if the line has no valid id.

    Attributes:
        answer: The refusal as a message.
    """

    def __init__(self, error: types.ErrorData = _TOO_LONG, request_id: types.RequestId | None = None) -> None:
        super().__init__(error.message)
        short = not isinstance(request_id, str) or len(request_id) <= _MAX_ID_CHARACTERS
        self.answer = types.JSONRPCError(jsonrpc="2.0", id=request_id if short else None, error=error)


def parse(line: bytes) -> types.JSONRPCMessage:
    """Parse one line.

    A line with a method and an id counts as a request, even if it is invalid otherwise, because its sender waits for an
    answer. The SDK would treat a request with an invalid id as a notification and not answer.

    Args:
        line: The line. U+FFFD replaces bytes that are not UTF-8 and halves of surrogate pairs. So a call whose text was
            cut in the middle of a character still gets an answer under its id.

    Raises:
        Refused: The line is not a message.
    """
    value = _json(line.decode("utf-8", "replace"))
    if not _is_request(value):
        return _message(jsonrpc_message_adapter, value, None)
    request_id = _request_id(value["id"])
    if request_id is None:
        raise Refused(_INVALID_ID)
    return _message(_REQUEST, value | {"id": request_id}, request_id)


def _json(text: str) -> Any:
    with suppress(ValueError, RecursionError):
        if _HALF.search(text):  # `from_json` rejects halves; decoding UTF-16 replaces them
            text = json.dumps(json.loads(text), ensure_ascii=False)
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return from_json(text)
    raise Refused(_PARSE_ERROR)


def _unparsed_id(line: bytes) -> types.RequestId | None:
    """The id of a request that is not parsed, because it is out of bounds; its sender waits for an answer."""
    found = member_of(line, b"id") if member_of(line, b"method") is not None else None
    with suppress(ValueError):
        return None if found is None else _request_id(json.loads(found))
    return None


def _is_request(value: Any) -> bool:
    """Whether the sender waits for an answer.

    Clients that write every field send `"method": null` in answers and `"id": null` in notifications.
    """
    if not isinstance(value, dict) or "id" not in value or value.get("method") is None:
        return False
    return value["id"] is not None or not str(value["method"]).startswith("notifications/")


def _request_id(given: object) -> types.RequestId | None:
    """Return the id if an answer can have it, else None. 1.0 is 1, since JSON has one kind of number."""
    match given:
        case int() | str() if not isinstance(given, bool):
            return given
        case float() if given.is_integer() and abs(given) < _MAX_EXACT:
            return int(given)
        case _:
            return None


def _message(kind: TypeAdapter[Any], value: Any, request_id: types.RequestId | None) -> types.JSONRPCMessage:
    with suppress(ValidationError):
        message: types.JSONRPCMessage = kind.validate_python(value, by_name=False)
        return without_text(message)
    raise Refused(_INVALID_MESSAGE, request_id)


ANSWER_SECONDS: Final = 5.0
"""Seconds that running calls get to answer once the service is drained."""

FLUSH_SECONDS: Final = 1.0
"""Seconds that the client gets to read the last line."""

REFUSAL_SECONDS: Final = 5.0
"""Seconds that the client gets to read a refusal. After that, its next lines are read even if it does not read."""

MAX_REFUSALS: Final = 1000
"""The most refusals with an id that are kept for a client that does not read."""

ROUNDS: Final = 20
"""Rounds of the event loop within which the SDK starts the handler of the last request."""

PARENT_SECONDS: Final = 0.5
"""Seconds between two checks of the parent. No notification of its end works on every platform."""


Received: TypeAlias = MemoryObjectReceiveStream[SessionMessage | Exception]
Sent: TypeAlias = MemoryObjectSendStream[SessionMessage]
Run: TypeAlias = Callable[[Received, Sent], Awaitable[None]]
"""Handles the messages of a client until there are no more, and then closes its end of both streams."""


async def serve_stdio(
    service: Service, *, drain: float = 10.0, draining: Callable[[], object] | None = None
) -> int | None:
    """Serve a service until standard input ends, the parent ends or a signal arrives; see `exchange_messages`.

    Args:
        service: The service.
        drain: Seconds that running work gets to finish.
        draining: Called when draining begins.

    Returns:
        The number of the signal, or None if there was none.
    """
    server = service.server
    guard(server)

    async def run(received: Received, sent: Sent) -> None:
        await server.run(received, sent, server.create_initialization_options())

    return await exchange_messages(run, partial(drain_service, service, drain, draining), CALL)


async def exchange_messages(run: Run, finish: Callable[[], Awaitable[None]], bounds: Bounds) -> int | None:
    """Exchange messages with the client until standard input ends, the parent ends or a signal arrives.

    Then finish the work, and answer the requests that were already read. A second signal ends the process at once.

    Args:
        run: Handles the messages.
        finish: Called after the last message; it brings running work to its end.
        bounds: What one line can have.

    Returns:
        The number of the signal, or None if there was none.
    """
    with _descriptors() as (incoming, outgoing):
        connection = _Connection(os.fdopen(incoming, "rb", closefd=False), outgoing, bounds)
        with stopped_by_signals(connection.end_input) as stopped:
            await connection.run(run, finish)
    return stopped[0] if stopped else None


class _Connection:
    """The connection to the client.

    Args:
        lines: The client's lines. Do not close it: that would wait for the line that is being read.
        outgoing: The descriptor that the client reads from.
        bounds: What one line can have.
    """

    def __init__(self, lines: BinaryIO, outgoing: int, bounds: Bounds) -> None:
        self._bounds = bounds
        self._reading = _Blocking("worldagent-stdin", partial(lines.readline, MAX_LINE_BYTES + 1))
        self._writing = _Blocking("worldagent-stdout", partial(_write, outgoing))
        self._line: Future[bytes] | None = None  # the line that is being read
        self._cut = False  # whether the next piece belongs to a refused line
        self._ended = False
        self._unanswered: set[str] = set()  # ids of requests without an answer
        self._refusals: set[asyncio.Future[None]] = set()  # refusals that are still being written
        self._changed = asyncio.Event()

    def end_input(self) -> None:
        """Treat the input as ended, even if more lines arrive."""
        self._ended = True
        if self._line is not None:
            with suppress(InvalidStateError):
                self._line.set_result(b"")

    async def run(self, handle: Run, finish: Callable[[], Awaitable[None]]) -> None:
        """Serve the client; call `finish` between its last line and the end."""
        to_server, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        sent, from_server = anyio.create_memory_object_stream[SessionMessage](0)

        async def serve() -> None:
            await handle(received, sent)
            tasks.cancel_scope.deadline = anyio.current_time() + FLUSH_SECONDS

        async def read() -> None:
            async with to_server:
                while (message := await self._next()) is not None:
                    await to_server.send(SessionMessage(message))
                for _ in range(ROUNDS):
                    await asyncio.sleep(0)
                await finish()
                with anyio.move_on_after(ANSWER_SECONDS):  # the SDK cancels handlers at the end
                    await self._until(lambda: not self._unanswered and not self._refusals)

        try:
            async with anyio.create_task_group() as tasks, from_server:
                for task in (serve, read, self._watch_parent):
                    tasks.start_soon(task)
                async for item in from_server:  # `handle` closes it when it ends
                    await self._begin(item.message)
                    if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
                        self._close(item.message.id)
                tasks.cancel_scope.cancel()
        except* (BrokenPipeError, ConnectionResetError):
            log.warning("the client no longer reads")
        finally:
            self._reading.close()
            self._writing.close()

    # --- what the client sends ---

    async def _next(self) -> types.JSONRPCMessage | None:
        """Return the next message; None at the end. Invalid lines are refused here and never reach the SDK."""
        while True:
            try:
                line = await self._next_line()
                message = None if line is None else await self._parsed(line)
            except Refused as refused:
                await self._refuse(refused.answer)
                continue
            if isinstance(message, types.JSONRPCRequest):
                self._unanswered.add(str(message.id))
            elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
                self._close((message.params or {}).get("requestId"))  # the SDK does not answer it
            return message

    async def _parsed(self, line: bytes) -> types.JSONRPCMessage:
        problem = ""
        try:
            await self._bounds.check(line)
        except OutOfBounds as error:
            problem = f"Invalid Request: the line has {error}; send less in one message"
        if problem:
            log.warning("a line is refused that is out of bounds")
            wanted = await asyncio.to_thread(_unparsed_id, line)
            raise Refused(types.ErrorData(code=types.INVALID_REQUEST, message=problem), wanted)
        # The parsers let other threads run between their steps, which take up to 25 ms each.
        return await asyncio.to_thread(parse, line) if len(line) > LONG_LINE_BYTES else parse(line)

    async def _next_line(self) -> bytes | None:
        """Return the next line; None at the end. A line that is too long is refused at once and skipped to its end."""
        while not self._ended:
            self._line = self._reading.begin()
            if not (piece := await asyncio.wrap_future(self._line)):
                break
            first, self._cut = not self._cut, not piece.endswith(b"\n")
            if first and not self._cut:
                return piece
            if first and len(piece) > MAX_LINE_BYTES:  # else the input ended within a line
                log.warning("a line of more than %d bytes is refused", MAX_LINE_BYTES)
                raise Refused
        return None

    async def _watch_parent(self) -> None:
        """End the input once the parent has ended, even if another process holds the input open.

        This does nothing on systems that do not give orphans a new parent.
        """
        first = os.getppid()
        while os.getppid() == first:  # noqa: ASYNC110 -- nothing sets an event when a parent ends
            await anyio.sleep(PARENT_SECONDS)
        self.end_input()

    # --- what it receives ---

    async def _refuse(self, refusal: types.JSONRPCError) -> None:
        """Send a refusal, no faster than the client reads.

        If the client does not read, its lines are still read, so that this notices the end of the input. Then only
        refusals with an id are kept, because a caller waits for them.
        """
        idle = not self._refusals
        if idle or (refusal.id is not None and len(self._refusals) < MAX_REFUSALS):
            sending = self._begin(refusal)
            self._refusals.add(sending)
            sending.add_done_callback(self._refused)
        if idle:
            with anyio.move_on_after(REFUSAL_SECONDS):
                await self._until(lambda: not self._refusals)

    def _refused(self, sending: asyncio.Future[None]) -> None:
        self._refusals.discard(sending)
        self._changed.set()
        if not sending.cancelled() and sending.exception() is not None:  # the client no longer reads
            self.end_input()

    def _begin(self, message: types.JSONRPCMessage) -> asyncio.Future[None]:
        """Queue a message for writing. The future is done once the operating system has it."""
        text = message.model_dump_json(by_alias=True, exclude_unset=True)
        return asyncio.wrap_future(self._writing.begin(text.encode("utf-8", "replace") + b"\n"))

    def _close(self, request_id: object) -> None:
        self._unanswered.discard(str(request_id))
        self._changed.set()

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()


class _Blocking:
    """A daemon thread that makes one blocking call after another.

    A pipe can stay full or empty forever. A blocked thread of an executor would keep the process from ending; this one
    does not.

    Args:
        name: The name of the thread.
        call: The call.
    """

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self._call = call
        self._begun: SimpleQueue[tuple[Future[Any], tuple[Any, ...]] | None] = SimpleQueue()
        Thread(target=self._run, name=name, daemon=True).start()

    def begin(self, *arguments: Any) -> Future[Any]:
        """Queue a call. The future gets its result, or the `OSError` that it raised."""
        done: Future[Any] = Future()
        self._begun.put((done, arguments))
        return done

    def close(self) -> None:
        """End the thread after the queued calls."""
        self._begun.put(None)

    def _run(self) -> None:
        while (begun := self._begun.get()) is not None:
            done, arguments = begun
            with suppress(InvalidStateError):  # no longer awaited
                try:
                    done.set_result(self._call(*arguments))
                except OSError as error:
                    done.set_exception(error)


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


@contextmanager
def _descriptors() -> Generator[tuple[int, int], None, None]:
    """Yield descriptors for standard input and output that child processes do not inherit.

    Inside the block, standard input is empty and standard output goes to standard error. Otherwise a stray `print`
    would break the protocol, and a child process could read the client's lines.
    """
    incoming, outgoing = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    try:
        yield incoming, outgoing
    finally:  # they stay open: a thread can still block on one, and its number must not be reused
        os.dup2(incoming, 0)
        os.dup2(outgoing, 1)
