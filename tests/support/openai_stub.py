"""A small OpenAI-compatible chat server on a loopback port, for tests: real HTTP, scripted behaviour.

What it does is chosen by the request's model name, so one server shows every behaviour: `answer` (default), `slow`
(never answers until the caller goes away), and a name that ends with a status, such as `down-500`. Of these
`limited-429` and `quoting-400`, whose code is the prompt, have headers of their own.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Any

from anyio.from_thread import start_blocking_portal

from support.serving import serving

PROMPT_TOKENS, ANSWER_TOKENS = 11, 7
_PIECE = 8192  # characters of a longer line that are streamed at once


@dataclass
class OpenAIStub:
    """The running server and what it saw.

    Attributes:
        url: What to pass as `api_base`.
        text: The text of every answer.
        first: Texts of the answers before that, each given once.
        answers: Replies that are streamed before those, as pieces; between two of them it waits for `go_on`.
        arguments: The arguments, as JSON, of a call of the first tool that each request offers; None calls nothing.
        streamed: How many characters of answers it has handed to the connection in streams.
        shortest: Lines that are shorter than so many characters are streamed together.
        limits: How many of the next requests are refused with 429, and `retry_after` what those are told to wait.
        cost: What every answer reports as its cost, in US dollars; None reports none.
        requests: The JSON bodies, oldest first.
        keys: The authorization headers, oldest first; `paths` the paths that were asked for, `headers` all headers.
        open: Connections that are open now.
        idle: Set while no connection is open.
        go_on: Lets it stream the next piece.
        gone: Set when the caller has gone away that it kept waiting.
    """

    url: str = ""
    text: str = "[[ ## reply ## ]]\nParis.\n\n[[ ## completed ## ]]"
    first: list[str] = field(default_factory=list)
    answers: list[tuple[str, ...]] = field(default_factory=list)
    arguments: str | None = None
    streamed: int = 0
    shortest: int = 0
    limits: int = 0
    retry_after: str = "1"
    cost: Any = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    open: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    # Tells the scan for roles that this is the fake's own record.
    _holds_prompts = True

    def asked(self, at: int = -1) -> str:
        """All that a request told the model."""
        return "\n".join(message["content"] for message in self.requests[at]["messages"])

    def said(self, at: int = -1) -> str:
        """What the person said in a request, with what follows it: the messages since the last answer."""
        messages = self.requests[at]["messages"]
        last = max((place for place, each in enumerate(messages) if each["role"] != "user"), default=-1)
        return "\n\n".join(str(each["content"]) for each in messages[last + 1 :])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.idle.clear()
        try:
            while await self._one(reader, writer):
                pass
        finally:
            self.open -= 1
            if not self.open:
                self.idle.set()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body: dict[str, Any] = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))) or b"{}")
        self.requests.append(body)
        self.headers.append(headers)
        self.keys.append(headers.get("authorization", ""))
        self.paths.append(head[0].split(" ")[1].removeprefix("/v1"))
        self.arrived.set()
        model = str(body.get("model"))
        if model == "slow":
            await reader.read(1)  # returns when the caller hangs up
            self.gone.set()
            return False
        if self.limits:
            self.limits -= 1
            _send(writer, 429, {"error": _error(model, body)}, f"Retry-After: {self.retry_after}\r\n")
        elif failure := _FAILURE.search(model):
            _send(writer, int(failure[1]), {"error": _error(model, body)}, _HEADERS.get(model, ""))
        elif self.paths[-1] == "/embeddings" and model != "chat":
            _send(writer, 200, _embeddings(body))
        elif body.get("stream"):
            await self._stream(reader, writer, body)
        else:
            _send(writer, 200, self._completion(body))
        await writer.drain()
        return True

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self._next()}
        if self.arguments is not None and body.get("tools"):
            function = {"name": body["tools"][0]["function"]["name"], "arguments": self.arguments}
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": function}],
            }
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        return {
            "id": "c",
            "object": "chat.completion",
            "model": body["model"],
            "choices": choices,
            "usage": self._usage,
        }

    def _next(self) -> str:
        return self.first.pop(0) if self.first else self.text

    @property
    def _usage(self) -> dict[str, Any]:
        tokens = {
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": ANSWER_TOKENS,
            "total_tokens": PROMPT_TOKENS + ANSWER_TOKENS,
        }
        return tokens if self.cost is None else {**tokens, "cost": self.cost}

    def _pieces(self) -> Iterator[str]:
        """The next answer, as it is given in pieces, or cut at the ends of lines and within long ones."""
        if self.answers:
            first, *rest = self.answers.pop(0)
            *pieces, last = [f"[[ ## reply ## ]]\n{first}", *rest]
            yield from [*pieces, f"{last}\n\n[[ ## completed ## ]]"]
            return
        piece = ""
        for line in [*self._next().splitlines(keepends=True), ""]:
            piece += line
            if len(piece) >= self.shortest or not line:
                yield from (piece[at : at + _PIECE] for at in range(0, len(piece), _PIECE))
                piece = ""

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        base = {"id": "c", "object": "chat.completion.chunk", "model": body["model"]}
        waits = bool(self.answers)
        for number, piece in enumerate(self._pieces()):
            if waits and number:
                await self._wait(reader)
            self.streamed += len(piece)
            delta = {"index": 0, "delta": {"role": "assistant", "content": piece}, "finish_reason": None}
            _chunk(writer, {**base, "choices": [delta]})
            await writer.drain()
        _chunk(writer, {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if (body.get("stream_options") or {}).get("include_usage"):
            _chunk(writer, {**base, "choices": [], "usage": self._usage})
        _raw_chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")

    async def _wait(self, reader: asyncio.StreamReader) -> None:
        """Wait for the word, or for the caller to hang up."""
        going, closed = asyncio.ensure_future(self.go_on.wait()), asyncio.ensure_future(reader.read(1))
        await asyncio.wait({going, closed}, return_when=asyncio.FIRST_COMPLETED)
        self.go_on.clear()
        going.cancel()
        if closed.done():
            self.gone.set()
            raise ConnectionError
        closed.cancel()
        await asyncio.wait({closed})


_FAILURE = re.compile(r"-([45]\d\d)$")
_HEADERS = {"limited-429": "Retry-After: 7\r\n", "quoting-400": "X-Request-Id: req_42\r\n"}


def _error(model: str, body: dict[str, Any]) -> dict[str, Any]:
    code = {"context-400": "context_length_exceeded", "missing-404": "model_not_found"}.get(model)
    prompt = json.dumps(body.get("messages") or body["input"])
    if model == "quoting-400":
        return {"message": f"cannot do: {prompt}", "type": prompt, "code": prompt}
    return {"message": f"cannot do: {prompt}", "type": "invalid_request_error", "code": code}


def _embeddings(body: dict[str, Any]) -> dict[str, Any]:
    """One vector for each text, of how often it has each of a few letters; the last one comes first."""
    vectors = [[float(text.lower().count(letter)) for letter in "aeinorst"] for text in body["input"]]
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    usage = {"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS}
    return {"object": "list", "data": data[::-1], "model": body["model"], "usage": usage}


def _send(writer: asyncio.StreamWriter, status: int, body: dict[str, Any], extra: str = "") -> None:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n{extra}\r\n"
    writer.write(head.encode() + data)


def _chunk(writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
    _raw_chunk(writer, f"data: {json.dumps(event)}\n\n".encode())


def _raw_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


@contextlib.asynccontextmanager
async def openai_stub(cost: Any = None) -> AsyncGenerator[OpenAIStub, None]:
    """Run the server for the block; its answers report `cost`."""
    stub = OpenAIStub(cost=cost)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await stub.serve(reader, writer)  # which a test may replace meanwhile

    async with serving(serve, ConnectionError, asyncio.IncompleteReadError) as port:
        stub.url = f"http://127.0.0.1:{port}/v1"
        yield stub


@contextlib.asynccontextmanager
async def openai_stub_elsewhere() -> AsyncGenerator[OpenAIStub]:
    """Run the server in a thread and a loop of its own, so that its work is none of the loop of the test."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(openai_stub()) as stub:
        yield stub
