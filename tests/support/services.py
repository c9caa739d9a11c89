"""One HTTP server that answers in the formats of four services, for tests: scripted answers, and what it was sent.

The format follows from the path: OpenAI's chat completions and responses, Anthropic's messages, Gemini's contents.
"""

import asyncio
import base64
import json
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest

from worldagent import Role, Settings, Storage, WorldAgent, tool

Format = Literal["chat", "responses", "anthropic", "gemini"]
FORMATS: dict[Format, str] = {
    "chat": "openai/gpt-stub",
    "responses": "openai:gpt-stub",
    "anthropic": "anthropic/claude-stub",
    "gemini": "gemini/gemini-stub",
}
"""A model string for each format."""

SIGNATURE = "U0lHTkVE"
"""What the services sign their thoughts with."""


@dataclass(frozen=True)
class Said:
    """One answer.

    Attributes:
        text: Its text.
        calls: Names and arguments of the calls that it ends in.
        thinking: What it thought, signed, where the format has such. It is shown where the request asks for it.
        ended: How chat completions and Anthropic say that it ended; empty is as usual.
        searched: What the service searched the web for by itself before it said the text; empty is nothing.
    """

    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    thinking: str = ""
    ended: str = ""
    searched: str = ""


PAGE = {"url": "https://maps.test/harbour", "title": "The harbour"}
"""What the services find on the web."""


def in_words(reply: str = "", calls: str = "", **others: str) -> Said:
    """An answer of a model that gets its tools in words, in the chat format of dspy.

    Args:
        reply: Its reply.
        calls: The JSON of its calls; empty is none.
        others: The fields of another Signature instead.
    """
    fields = others or {"reply": reply} | ({"calls": calls} if calls else {})
    sections = [f"[[ ## {name} ## ]]\n{value}" for name, value in fields.items()]
    return Said("\n\n".join([*sections, "[[ ## completed ## ]]"]))


@dataclass
class Service:
    """The running server.

    Attributes:
        origin: Its address without a path.
        answers: What it answers, in this order; then what `reply` gives.
        reply: What it answers to the body of a request once `answers` are used up.
        requests: The bodies of the requests, oldest first.
        headers: Their headers, with names in lower case.
        streamed: Which of them asked for a stream.
        refuses_tools: Whether a request with tools is refused.
        refuses: Which other requests are refused.
        refusal: The status, the text and the code that such a request is refused with.
        user_after_tool: Whether a user message may follow the result of a call; Mistral refuses that.
    """

    origin: str = ""
    answers: deque[Said] = field(default_factory=deque)
    reply: Callable[[Mapping[str, Any]], Said] = lambda body: Said("done")
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    streamed: list[bool] = field(default_factory=list)
    refuses_tools: bool = False
    refuses: Callable[[Mapping[str, Any]], object] = lambda body: False
    refusal: tuple[int, str, str | None] = (400, "this model does not support tools", None)
    user_after_tool: bool = True

    # Tells the scan for roles that this is the fake's own record.
    _holds_prompts = True

    def url(self, wanted: Format) -> str:
        """What to pass as `api_base`."""
        return f"{self.origin}/v1beta" if wanted == "gemini" else f"{self.origin}/v1"

    def stand_in(self, patch: pytest.MonkeyPatch) -> None:
        """Be every service at its own address, without encryption."""
        port, connect = int(self.origin.rpartition(":")[2]), asyncio.open_connection

        async def redirected(**more: Any) -> Any:
            return await connect("127.0.0.1", port)

        patch.setattr(asyncio, "open_connection", redirected)

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, str, bytes]:
        """The status, the type and the body of an answer."""
        self.requests.append(body)
        self.streamed.append(bool(body.get("stream")) or ":stream" in path)
        status, problem, code = self._problem(body)
        if problem:
            kind = "invalid_request_error" if status < 500 else "api_error"
            error = {"type": "error", "error": {"type": kind, "message": problem, "code": code}}
            return status, "application/json", json.dumps(error).encode()
        said, number = self.answers.popleft() if self.answers else self.reply(body), len(self.requests)
        wanted = _format_of(path)
        if not _asks_for_thoughts(wanted, body):
            said = replace(said, thinking="")
        if self.streamed[-1]:
            return 200, "text/event-stream", "".join(_STREAMS[wanted](body, said, number)).encode()
        return 200, "application/json", json.dumps(_WHOLE[wanted](body, said, number)).encode()

    def _problem(self, body: dict[str, Any]) -> tuple[int, str, str | None]:
        if (self.refuses_tools and body.get("tools")) or self.refuses(body):
            return self.refusal
        speakers = [message.get("role") for message in body.get("messages", ())]
        if not self.user_after_tool and ("tool", "user") in pairwise(speakers):
            return 400, "Unexpected role 'user' after role 'tool'", None
        return 200, "", None


def _format_of(path: str) -> Format:
    for ending, found in (("/chat/completions", "chat"), ("/responses", "responses"), ("/messages", "anthropic")):
        if path.split("?")[0].endswith(ending):
            return found  # type: ignore[return-value]
    return "gemini"


def _asks_for_thoughts(wanted: Format, body: Mapping[str, Any]) -> bool:
    match wanted:
        case "responses":
            return (body.get("reasoning") or {}).get("summary") is not None
        case "anthropic":
            return (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
        case "gemini":
            thinking = body.get("generationConfig", {}).get("thinkingConfig", {})
            return thinking.get("includeThoughts") is True
        case "chat":  # servers of one's own show them unasked
            return True


# --- OpenAI, chat completions ---------------------------------------------------------------------------------------

_CHAT_USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 10,
    "total_tokens": 110,
    "prompt_tokens_details": {"cached_tokens": 64},
    "completion_tokens_details": {"reasoning_tokens": 3},
}


def _chat_calls(said: Said, number: int) -> list[dict[str, Any]]:
    return [
        {
            "index": place,
            "id": f"c{number}_{place}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(given)},
        }
        for place, (name, given) in enumerate(said.calls)
    ]


def _chat(body: Mapping[str, Any], said: Said, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
    if said.calls:
        message["tool_calls"] = _chat_calls(said, number)
    ended = said.ended or ("tool_calls" if said.calls else "stop")
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": ended}],
        "usage": _CHAT_USAGE,
    }


def _chat_stream(body: Mapping[str, Any], said: Said, number: int) -> Generator[str]:
    base = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}

    def chunk(delta: Mapping[str, Any], ended: str | None = None) -> str:
        return _event({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": ended}]})

    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(said.thinking):  # as servers of one's own do that speak this format
        yield chunk({"reasoning_content": piece})
    for piece in _pieces(said.text):
        yield chunk({"content": piece})
    for call in _chat_calls(said, number):
        arguments = call["function"]["arguments"]
        yield chunk({"tool_calls": [{**call, "function": {**call["function"], "arguments": ""}}]})
        for part in (arguments[:5], arguments[5:]):
            yield chunk({"tool_calls": [{"index": call["index"], "function": {"arguments": part}}]})
    yield chunk({}, "tool_calls" if said.calls else "stop")
    yield _event({**base, "choices": [], "usage": _CHAT_USAGE})
    yield "data: [DONE]\n\n"


# --- OpenAI, responses ----------------------------------------------------------------------------------------------


def _responses(body: Mapping[str, Any], said: Said, number: int) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if said.thinking:
        summary = [{"type": "summary_text", "text": said.thinking}]
        output.append({"type": "reasoning", "id": f"rs{number}", "summary": summary, "encrypted_content": SIGNATURE})
    if said.searched:
        action = {"type": "search", "query": said.searched, "sources": [{"type": "url", "url": PAGE["url"]}]}
        output.append({"type": "web_search_call", "id": f"ws{number}", "status": "completed", "action": action})
    if said.text:
        cited = [{"type": "url_citation", **PAGE, "start_index": 0, "end_index": 3}] if said.searched else []
        text = {"type": "output_text", "text": said.text, "annotations": cited}
        output.append(
            {"type": "message", "id": f"m{number}", "role": "assistant", "status": "completed", "content": [text]}
        )
    output += [
        {
            "type": "function_call",
            "id": f"fc{number}_{place}",
            "call_id": f"c{number}_{place}",
            "name": name,
            "arguments": json.dumps(given),
            "status": "completed",
        }
        for place, (name, given) in enumerate(said.calls)
    ]
    usage = {
        "input_tokens": 100,
        "output_tokens": 10,
        "total_tokens": 110,
        "input_tokens_details": {"cached_tokens": 64},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    return {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": body["model"],
        "output": output,
        "usage": usage,
    }


def _responses_stream(body: Mapping[str, Any], said: Said, number: int) -> Generator[str]:
    whole = _responses(body, said, number)
    yield _named({"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}})
    for place, item in enumerate(whole["output"]):
        where = {"output_index": place, "item_id": item["id"]}
        if item["type"] == "message":
            begun = {**item, "content": [], "status": "in_progress"}
            yield _named({"type": "response.output_item.added", "output_index": place, "item": begun})
            for piece in _pieces(said.text):
                yield _named({"type": "response.output_text.delta", **where, "content_index": 0, "delta": piece})
        elif item["type"] == "reasoning":
            yield _named({"type": "response.output_item.added", "output_index": place, "item": {**item, "summary": []}})
            for piece in _pieces(said.thinking):
                delta = {"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": piece}
                yield _named({**delta, **where})
        elif item["type"] == "web_search_call":
            begun = {"type": item["type"], "id": item["id"], "status": "in_progress"}
            yield _named({"type": "response.output_item.added", "output_index": place, "item": begun})
            yield _named({"type": "response.web_search_call.searching", **where})
        else:
            begun = {**item, "arguments": "", "status": "in_progress"}
            yield _named({"type": "response.output_item.added", "output_index": place, "item": begun})
            for part in (item["arguments"][:5], item["arguments"][5:]):
                yield _named({"type": "response.function_call_arguments.delta", **where, "delta": part})
        yield _named({"type": "response.output_item.done", "output_index": place, "item": item})
    yield _named({"type": "response.completed", "response": whole})


# --- Anthropic ------------------------------------------------------------------------------------------------------

_ANTHROPIC_INPUT = {"input_tokens": 30, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 6}


def _anthropic_blocks(said: Said, number: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if said.thinking:
        found.append({"type": "thinking", "thinking": said.thinking, "signature": SIGNATURE})
    if said.searched:
        use_id, query = f"srvtoolu_{number}", {"query": said.searched}
        page = {"type": "web_search_result", **PAGE, "encrypted_content": SIGNATURE}
        found.append({"type": "server_tool_use", "id": use_id, "name": "web_search", "input": query})
        found.append({"type": "web_search_tool_result", "tool_use_id": use_id, "content": [page]})
    if said.text:
        found.append({"type": "text", "text": said.text})
    for place, (name, given) in enumerate(said.calls):
        found.append({"type": "tool_use", "id": f"t{number}_{place}", "name": name, "input": dict(given)})
    return found


def _anthropic(body: Mapping[str, Any], said: Said, number: int) -> dict[str, Any]:
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": _anthropic_blocks(said, number),
        "stop_reason": said.ended or ("tool_use" if said.calls else "end_turn"),
        "stop_sequence": None,
        "usage": {**_ANTHROPIC_INPUT, "output_tokens": 10},
    }


def _anthropic_stream(body: Mapping[str, Any], said: Said, number: int) -> Generator[str]:
    whole = _anthropic(body, said, number)
    message = {**whole, "content": [], "stop_reason": None, "usage": {**_ANTHROPIC_INPUT, "output_tokens": 1}}
    yield _named({"type": "message_start", "message": message})
    for place, block in enumerate(whole["content"]):
        begun, deltas = _anthropic_deltas(block)
        yield _named({"type": "content_block_start", "index": place, "content_block": begun})
        for delta in deltas:
            yield _named({"type": "content_block_delta", "index": place, "delta": delta})
        yield _named({"type": "content_block_stop", "index": place})
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield _named({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 10}})
    yield _named({"type": "message_stop"})


def _anthropic_deltas(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if block["type"] == "thinking":
        thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
        signed = {"type": "signature_delta", "signature": SIGNATURE}
        return {**block, "thinking": "", "signature": ""}, [*thoughts, signed]
    if block["type"] == "web_search_tool_result":
        return dict(block), []
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
    given = json.dumps(block["input"])
    return {**block, "input": {}}, [
        {"type": "input_json_delta", "partial_json": part} for part in (given[:5], given[5:])
    ]


# --- Gemini ---------------------------------------------------------------------------------------------------------


def _gemini(body: Mapping[str, Any], said: Said, number: int) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": said.thinking, "thought": True}] if said.thinking else []
    if said.text:
        parts.append({"text": said.text})
    for place, (name, given) in enumerate(said.calls):
        call = {"name": name, "args": dict(given), "id": f"g{number}_{place}"}
        parts.append({"functionCall": call, **({} if place else {"thoughtSignature": SIGNATURE})})
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    if said.searched:
        chunks = [{"web": {"uri": PAGE["url"], "title": PAGE["title"]}}]
        candidate["groundingMetadata"] = {"webSearchQueries": [said.searched], "groundingChunks": chunks}
    usage = {
        "promptTokenCount": 100,
        "candidatesTokenCount": 10,
        "totalTokenCount": 113,
        "cachedContentTokenCount": 64,
        "thoughtsTokenCount": 3,
    }
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": "gemini-stub",
        "responseId": "x",
    }


def _gemini_stream(body: Mapping[str, Any], said: Said, number: int) -> Generator[str]:
    whole = _gemini(body, said, number)
    parts = whole["candidates"][0]["content"]["parts"]
    for place, part in enumerate(parts):
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": [part]}, "index": 0}
        if place < len(parts) - 1:
            yield _event({**whole, "candidates": [candidate]})
        else:
            yield _event({**whole, "candidates": [{**whole["candidates"][0], **candidate}]})


# --- serving --------------------------------------------------------------------------------------------------------

_WHOLE: dict[Format, Any] = {"chat": _chat, "responses": _responses, "anthropic": _anthropic, "gemini": _gemini}
_STREAMS: dict[Format, Any] = {
    "chat": _chat_stream,
    "responses": _responses_stream,
    "anthropic": _anthropic_stream,
    "gemini": _gemini_stream,
}


def _pieces(text: str) -> Iterable[str]:
    words = text.split(" ")
    return [*(f"{word} " for word in words[:-1]), *filter(None, words[-1:])]


def _event(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def _named(data: Mapping[str, Any]) -> str:
    return f"event: {data['type']}\n{_event(data)}"


@contextmanager
def service(*answers: Said) -> Generator[Service]:
    """Run the server for the block, on a thread of its own."""
    stub = Service(answers=deque(answers))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            stub.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, kind, data = stub.answer(self.path, body)
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        stub.origin = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()


# --- turns with tools -------------------------------------------------------------------------------------------------

HOW = "Answer as a harbour pilot of forty years would, in short and salty sentences."
ROLE = Role("pilot", HOW)
TWO = Said("Let me look.", (("price", {"item": "rope"}), ("stock", {"item": "rope"})), "I need both of them.")
END = Said("12.50, and three are left.")
BUYING = Said("", (("buy", {"item": "rope"}),), "They want one.")
THINKS = {"model_options": {"reasoning_effort": "low", "reasoning_summary": "auto"}}
CALL_IN_WORDS = in_words("", '[{"tool": "price", "arguments": {"item": "rope"}}]')
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@tool(risk="read_only")
def price(item: str) -> float:
    """Price of an item, in euros."""
    return 12.5


@tool(risk="read_only")
def stock(item: str) -> int:
    """How many of an item are left."""
    return 3


@tool(risk="write")
def buy(item: str) -> str:
    """Buy an item."""
    return f"one {item}"


def agent_at(home: Path, stub: Service, wanted: Format, **more: Any) -> AbstractAsyncContextManager[WorldAgent]:
    """An agent of a shop whose model is the stub; `more` replaces arguments of it, and adds settings."""
    chosen = {"model_attempts": 1, "model_takes": "images", **more.pop("settings", {})}
    settings = Settings(api_base=stub.url(wanted), **chosen)
    given: dict[str, Any] = {"lm": FORMATS[wanted], "tools": [price, stock, buy], **more}
    return WorldAgent("shop", storage=Storage(home=home), settings=settings, **given)


def told(body: Mapping[str, Any]) -> list[Any]:
    """The messages of a request, in any format."""
    return list(body.get("messages") or body.get("input") or body.get("contents") or ())


def schema_of(body: Mapping[str, Any]) -> Any:
    """The schema that a request holds the answer to, in any format; None if it has none."""
    match body:
        case (
            {"response_format": {"json_schema": {"schema": schema}}}
            | {"text": {"format": {"schema": schema}}}
            | {"output_config": {"format": {"schema": schema}}}
            | {"generationConfig": {"responseJsonSchema": schema}}
        ):
            return schema
        case _:
            return None


def named(body: Mapping[str, Any]) -> list[str]:
    """The names of the tools of a request, in any format."""
    found = body.get("tools") or []
    listed = [each.get("functionDeclarations") or [each] for each in found]
    return [_name_of(each) for several in listed for each in several]


def _name_of(tool: Mapping[str, Any]) -> str:
    function = tool.get("function", {})
    return str(tool.get("name") or function.get("name") or tool.get("type") or next(iter(tool)))
