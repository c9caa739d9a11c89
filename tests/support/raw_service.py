"""A model service that answers with the bytes that it is given, whatever a request asks for."""

import contextlib
import json
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from support.serving import serving
from worldagent.signatures import ModelOptions, Predictor, open_model
from worldagent.signatures.converse import converse_signature

U = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@dataclass(frozen=True)
class Raw:
    """One answer over HTTP."""

    body: bytes
    status: int = 200
    kind: str = "application/json"


Answer = Raw | Callable[[Mapping[str, Any]], Raw]
"""An answer, or what makes one of the JSON of a request."""


@dataclass
class RawService:
    """A service with answers in their order. It keeps what it was asked, with paths and headers."""

    answers: list[Answer] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    # Tells the scan for roles that this is the fake's own record.
    _holds_prompts = True

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answer the requests of one connection."""
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            self.requests.append(json.loads(await reader.readexactly(int(headers.get("content-length", "0"))) or b"{}"))
            self.paths.append(head[0].split(" ")[1])
            self.headers.append(headers)
            answer = self.answers.pop(0) if self.answers else whole({"error": {"message": "no answer is left"}}, 500)
            if not isinstance(answer, Raw):
                answer = answer(self.requests[-1])
            begin = [
                f"HTTP/1.1 {answer.status} X",
                f"Content-Type: {answer.kind}",
                f"Content-Length: {len(answer.body)}",
            ]
            writer.write("\r\n".join([*begin, "", ""]).encode() + answer.body)
            await writer.drain()


@contextlib.asynccontextmanager
async def raw_service(*answers: Answer) -> AsyncGenerator[RawService]:
    """Run a service in this loop."""
    service = RawService([*answers])
    async with serving(service.serve, IncompleteReadError, ConnectionError) as port:
        service.url = f"http://127.0.0.1:{port}"
        yield service


FORMS = {
    "chat": ("openai/stub", "/v1"),
    "responses": ("openai:stub", "/v1"),
    "anthropic": ("anthropic/claude-stub", "/v1"),
    "gemini": ("gemini/gemini-stub", "/v1beta"),
}
"""A model and the path of its service for each form."""
ASK = Predictor(converse_signature(None))


async def ask(service: RawService, model: str, given: Mapping[str, Any], *, options: Any = None, **how: Any) -> Any:
    """What a model of the service says to the inputs of a conversation, as each turn asks it.

    Args:
        service: The service.
        model: The model, or one of `FORMS`.
        given: The inputs beside the message.
        options: The options of the model; by default it is asked once.
        how: How it is asked.
    """
    name, path = FORMS.get(model, (model, "/v1beta" if model.startswith("gemini/") else "/v1"))
    opened = await open_model(name, api_base=service.url + path, options=options or ModelOptions(attempts=1))
    async with contextlib.aclosing(opened) as caller:
        return await ASK({"history": None, "message": "Go.", **given}, caller, **how)


def whole(data: object, status: int = 200) -> Raw:
    """An answer that is one JSON."""
    return Raw(json.dumps(data).encode(), status)


def events(data: Iterable[object], *, done: bool = True, named: bool = False) -> Raw:
    """Server-sent events of JSON values; `named` gives each the name that is its type."""
    lines = []
    for each in data:
        name = f"event: {each['type']}\n" if named and isinstance(each, dict) else ""
        lines.append(f"{name}data: {each if isinstance(each, str) else json.dumps(each)}\n\n")
    return Raw("".join([*lines, "data: [DONE]\n\n" if done else ""]).encode(), kind="text/event-stream")


def plain(form: str, text: str) -> Raw:
    """A usual answer with a text, not streamed, in the form of a service."""
    match form:
        case "anthropic":
            content = [{"type": "text", "text": text}]
            return whole({"type": "message", "id": "m", "model": "m", "content": content, "stop_reason": "end_turn"})
        case "gemini":
            parts = {"role": "model", "parts": [{"text": text}]}
            return whole({"candidates": [{"content": parts, "finishReason": "STOP"}]})
        case "responses":
            item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
            return whole({"id": "r", "object": "response", "status": "completed", "model": "m", "output": [item]})
        case _:
            message = {"role": "assistant", "content": text}
            choices = [{"index": 0, "finish_reason": "stop", "message": message}]
            return whole({"id": "c", "object": "chat.completion", "model": "m", "choices": choices, "usage": U})
