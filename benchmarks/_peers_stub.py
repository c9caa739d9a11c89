"""The stub of a chat service that every peer talks to: chat completions over HTTP, plain and streamed, with tool calls.

Run `python -m worldagent.benchmarks._peers_stub`. It prints its address, and ends when its standard input ends. The
path of a request has the latency and a name: `/200/job3/v1/chat/completions` is answered after 200 ms and counted for
`job3`, and `GET /job3` returns the counts. The answer depends only on the request.

This imports only the standard library, because an answer must cost the stub far less than it costs the peer.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

ANSWER = "Queen Ada rules Vell since the year 812, as the chronicle of the second tower says in its last chapter."
RESULT = "No source before the fire names her."
REQUEST = "Judge the claim that Queen Ada rules Vell since the year 812."
DELEGATE = "Ask the worker first."
"""The stub answers a message with this text, sent with tools, by a call of the delegating tool."""

_DELEGATING_TOOLS = frozenset({"worker", "task", "delegate_task_to_member"})
_NAMES_WORKER = frozenset({"subagent_type", "member_id"})
_FIELD = re.compile(r"\[\[ ## (\w+) ## \]\]")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_USAGE = {
    "prompt_tokens": 300,
    "completion_tokens": 30,
    "total_tokens": 330,
    "prompt_tokens_details": {"cached_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
_IDS = itertools.count()


def _text(content: Any) -> str:
    """Return the text of a message. Services accept it as one string or as parts."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


def _message(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the assistant's message that answers a request."""
    last, tools = body["messages"][-1], [tool["function"] for tool in body.get("tools") or ()]
    said = _text(last.get("content"))
    if tools and last["role"] == "user" and DELEGATE in said:
        return {"role": "assistant", "content": None, "tool_calls": [_delegation(tools)]}
    answer = RESULT if REQUEST in said and last["role"] == "user" else ANSWER
    fields = [name for name in _FIELD.findall(said.partition("Respond with")[2]) if name != "completed"]
    if fields:  # dspy's chat format, for a Signature with text fields
        answer = "\n\n".join([*(f"[[ ## {name} ## ]]\n{answer}" for name in fields), "[[ ## completed ## ]]"])
    return {"role": "assistant", "content": answer}


def _delegation(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a call of the delegating tool, with every argument that its schema requires."""
    tool = next(tool for tool in tools if tool["name"] in _DELEGATING_TOOLS)
    required = tool["parameters"].get("required") or list(tool["parameters"]["properties"])
    arguments = {name: "worker" if name in _NAMES_WORKER else REQUEST for name in required}
    function = {"name": tool["name"], "arguments": json.dumps(arguments)}
    return {"index": 0, "id": f"call_{next(_IDS)}", "type": "function", "function": function}


def _answer(body: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return the content type and the bytes of the answer to a request."""
    message = _message(body)
    ended = "tool_calls" if "tool_calls" in message else "stop"
    base = {"id": f"chatcmpl-{next(_IDS)}", "created": int(time.time()), "model": body["model"]}
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": ended}
        completion = {**base, "object": "chat.completion", "choices": [choice], "usage": _USAGE}
        return "application/json", json.dumps(completion).encode()
    if ended == "stop":
        words = re.findall(r"\S+\s*", message["content"])
        deltas = [{"role": "assistant", "content": ""}, *({"content": word} for word in words), {}]
    else:
        deltas = [message, {}]
    base["object"] = "chat.completion.chunk"
    ends: list[str | None] = [*[None] * (len(deltas) - 1), ended]
    chunks: list[dict[str, Any]] = [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
        for delta, end in zip(deltas, ends, strict=True)
    ]
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**base, "choices": [], "usage": _USAGE})
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "text/event-stream", "".join([*lines, "data: [DONE]\n\n"]).encode()


class _Calls:
    """The counts for each name."""

    def __init__(self) -> None:
        self._made: Counter[str] = Counter()
        self._open: Counter[str] = Counter()
        self._most: Counter[str] = Counter()

    def begin(self, name: str) -> None:
        self._made[name] += 1
        self._open[name] += 1
        self._most[name] = max(self._most[name], self._open[name])

    def end(self, name: str) -> None:
        self._open[name] -= 1

    def report(self, name: str) -> bytes:
        """Return the calls made, the most concurrent ones, and the CPU seconds of the stub for all names."""
        counted = {"calls": self._made[name], "most_at_once": self._most[name], "cpu": time.process_time()}
        return json.dumps(counted).encode()


class _Connection(asyncio.Protocol):
    """One kept-open connection of HTTP/1.1. Requests come one after the other and have a length."""

    def __init__(self, calls: _Calls) -> None:
        self._calls = calls
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._received, 0, end)
            end += 4
            completion = end + (int(length[1]) if length else 0)
            if len(self._received) < completion:
                return
            path, body = self._received.split(b" ", 2)[1].decode(), self._received[end:completion]
            self._received = self._received[completion:]
            self._handle(path, body)

    def _handle(self, path: str, body: bytes) -> None:
        latency, _, name = path[1:].partition("/")
        if not body:
            self._send("application/json", self._calls.report(latency))
            return
        name = name.partition("/")[0]
        self._calls.begin(name)
        kind, answer = _answer(json.loads(body))
        if latency == "0":
            self._finish(name, kind, answer)
        else:
            self._loop.call_later(int(latency) / 1000, self._finish, name, kind, answer)

    def _finish(self, name: str, kind: str, answer: bytes) -> None:
        self._calls.end(name)
        self._send(kind, answer)

    def _send(self, kind: str, answer: bytes) -> None:
        if self._transport is not None:  # the caller can have disconnected
            head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(answer)}\r\n\r\n"
            self._transport.write(head.encode() + answer)


async def serve() -> None:
    """Answer until the process ends."""
    calls = _Calls()
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(calls), "127.0.0.1", 0, backlog=4096)
    host, port = server.sockets[0].getsockname()
    print(f"http://{host}:{port}", flush=True)
    await server.serve_forever()


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    asyncio.run(serve())
