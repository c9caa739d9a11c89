"""A web app for benchmarks as a uvicorn process, the agent it serves, and clients of its streams on plain sockets.

The clients keep the bytes that arrive with their times, and look at them after the stream, so that they add little to
the figures. `web.py` does the measuring.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sys
import time
from asyncio.subprocess import PIPE
from bisect import bisect_left
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import uvicorn
from dspy.lm15 import Request

from worldagent import Storage, WorldAgent
from worldagent.benchmarks._stubs import QUESTION, answering, constant_lm
from worldagent.hosts.web import Limits, WebApp

PIECES: Final = 40
SLOW_PIECES: Final = 60
LARGE: Final = 2000  # characters of a large piece, each of four bytes; together below the most that an answer may have
_EVENT: Final = re.compile(rb"(?:id: (\d+)\n)?data: (\{.*\})\n\n")
_END: Final = b"\r\n0\r\n\r\n"
_BUFFER: Final = 4096  # bytes that the system keeps for a client that does not read
_SEGMENT: Final = 536  # bytes of its segments; with small ones, the server's side keeps little for it, too


def _pieces(count: int, text: str = "word") -> str:
    words = " ".join(f"{text}{number}" for number in range(count))
    return f"[[ ## reply ## ]]\n{words}\n\n[[ ## completed ## ]]"


_REPLIES: Final = {
    "Tell me all of it.": _pieces(PIECES),
    "Tell me it at length.": _pieces(SLOW_PIECES, "\N{TOP HAT}" * LARGE),
}
LEAST: Final = 400_000  # bytes of a stream that blocks if it is not read
LONG, AT_LENGTH = _REPLIES
"""Texts that are answered in many pieces, and in many large ones. Any other is answered in twenty."""


def reply(request: Request) -> str:
    """The completions of the served agent."""
    said = str(request.messages[-1])
    return next((text for asked, text in _REPLIES.items() if asked in said), None) or answering(request)


def agent_in(home: Path, *, delay: float = 0.0, pace: float = 0.0) -> WorldAgent:
    """Make an agent with its files in a folder; for the times see `constant_lm`."""
    home.mkdir(parents=True, exist_ok=True)
    return WorldAgent("bench", lm=constant_lm(reply, delay=delay, pace=pace), storage=Storage(home=home))


@asynccontextmanager
async def served(home: Path, *, delay: float = 0.0, pace: float = 0.0) -> AsyncGenerator[tuple[str, int]]:
    """Start a web app under uvicorn in a process of its own. Yields its address and process id."""
    words = ("-P", "-m", "worldagent.benchmarks._web", str(home), str(delay), str(pace))
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdin=PIPE, stdout=PIPE)
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        assert url, "the web app did not start"
        yield url, process.pid
    finally:
        process.terminate()
        await process.wait()


def memory_of(pid: int) -> int | None:
    """Resident bytes of another process; None if the system does not report them."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


class Stream(asyncio.Protocol):
    """A connection, and the stream of events that was last requested on it.

    Attributes:
        began: When the request was sent, on the clock of `time.time`.
        head: Set once an event has arrived.
        over: Set at the end of the stream.
        first: Seconds from the request to the first `text_delta`; None until then.
        joined: Only later events count for `delays`: the log delivered earlier ones.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._where = ""
        self._begin()

    def _begin(self) -> None:
        self.began = self.joined = 0.0
        self.head, self.over = asyncio.Event(), asyncio.Event()
        self.first: float | None = None
        self._parts: list[bytes] = []
        self._times: list[float] = []

    @classmethod
    async def connected(cls, url: str, *, reads: bool = True) -> Stream:
        """Connect; without `reads` nothing that the server sends is ever read."""
        where = urlsplit(url)
        connection = socket.socket()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not reads:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, (where.hostname, where.port))
        transport, stream = await loop.create_connection(cls, sock=connection)
        stream._transport, stream._where = transport, where.netloc
        if not reads:
            transport.pause_reading()
        return stream

    def get(self, turn_id: str) -> None:
        """Follow a turn from its first event."""
        self._ask(f"GET /turns/{turn_id}/events HTTP/1.1", b"")

    def post(self, thread: str, text: str) -> None:
        """Begin a turn and follow it."""
        self._ask(f"POST /threads/{thread}/messages HTTP/1.1", json.dumps({"text": text}).encode())

    def _ask(self, line: str, body: bytes) -> None:
        assert self._transport is not None
        self._begin()
        head = [line, f"Host: {self._where}", "Accept: text/event-stream", "Content-Type: application/json"]
        self.began = time.time()
        self._transport.write("\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body)

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        self._times.append(time.time())
        if b"data: " in data:
            self.head.set()
        if self.first is None and b"text_delta" in data:
            self.first = self._times[-1] - self.began
        if data.endswith(_END) or data == _END[2:]:
            self.over.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.head.set()
        self.over.set()

    def close(self) -> None:
        """Disconnect."""
        if self._transport is not None:
            self._transport.abort()

    def events(self) -> list[tuple[float, Mapping[str, Any]]]:
        """Return the events with the time at which each had arrived, and the answer as the last one."""
        ends = list(accumulate(len(part) for part in self._parts))
        found = _EVENT.finditer(b"".join(self._parts))
        return [(self._times[bisect_left(ends, each.end())], json.loads(each[2])) for each in found]

    @property
    def size(self) -> int:
        """Bytes that have arrived."""
        return sum(len(part) for part in self._parts)

    @property
    def failed(self) -> bool:
        """Whether an event is missing, comes twice or out of order, or the turn is not done."""
        *events, last = [event for _, event in self.events()] or [{}]
        numbers = [event["seq"] for event in events]
        return numbers != list(range(1, len(numbers) + 1)) or last.get("turn", {}).get("status") != "done"

    def delays(self) -> list[float]:
        """Return the seconds from the making of each event to its arrival."""
        made = ((at, datetime.fromisoformat(each["at"]).timestamp()) for at, each in self.events() if "at" in each)
        return [arrived - at for arrived, at in made if at > self.joined]


def _login(request: object) -> str:
    return "ana"


def _serve(home: str, delay: str, pace: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it, as with `serve --web`
    limits = Limits(account_turns=1000, account_readers=10_000)  # all of its clients are one account
    app = WebApp(agent_in(Path(home), delay=float(delay), pace=float(pace)), login=_login, limits=limits)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)).run(sockets=[listener])


if __name__ == "__main__":
    _serve(*sys.argv[1:])


__all__ = ["AT_LENGTH", "LEAST", "LONG", "QUESTION", "Stream", "agent_in", "memory_of", "reply", "served"]
