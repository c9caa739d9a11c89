"""The embedded model as a dspy engine: token streaming, cancellation, usage, JSON schemas, tools. No network, no key.

Not here: the weights and their thread (`_llama`), how a tool is picked (`_local_tools`), the plain-text adapter and the
escaping of control tokens (`signatures`). The model is tiny: it shows that real tokens flow, and says nothing about
behaviour.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import dspy
from dspy.lm15 import (
    AsyncResponseStream,
    LM15Error,
    Message,
    Request,
    Response,
    ServerError,
    StreamDeltaEvent,
    StreamEndEvent,
    StreamStartEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallPart,
    UnsupportedFeatureError,
    Usage,
)

from ._engine_errors import EngineClosed, PromptTooLong
from ._llama import Chunk, LocalModel, close_model, open_model
from ._local_tools import Choice, result_text

MAX_TOKENS = 256
"""Tokens of an answer where nobody says; three to four seconds of work on one core."""

_PARAMS = frozenset({"temperature", "max_tokens", "top_p", "stop", "seed", "response_format", "tools", "tool_choice"})
_ROLES = frozenset({"system", "developer", "user", "assistant"})


class LocalAbilities:
    """The half that dspy reads a model's abilities from; it makes no calls."""

    supports_function_calling = True
    supports_reasoning = False
    supports_response_schema = True
    supported_params = _PARAMS

    def complete(self, request: Request) -> Response:
        """Refuse: only the async half makes calls."""
        raise UnsupportedFeatureError("this model is called through acall only")


class LocalEngine:
    """The engine behind `dspy.LM.acall` for the embedded model. Calls wait for one another: there is one thread."""

    supports_function_calling = True
    supports_response_schema = True
    supported_params = _PARAMS

    def __init__(self, model: LocalModel) -> None:
        self._model = model
        self._closed = False
        self._calls: set[_Call] = set()

    async def complete(self, request: Request) -> Response:
        """Ask once and return the whole answer; streamed inside, so that a cancelled call stops the model."""
        async with AsyncResponseStream(self.stream(request), request) as stream:
            return await stream.response()

    async def stream(self, request: Request) -> AsyncGenerator[Any, None]:
        """Ask once and give the answer token by token; closing the generator stops the model at its next token.

        While it still reads the prompt it stops after at most 256 tokens more, in a second or two.

        Raises:
            EngineClosed: The connection was closed, before or meanwhile.
            PromptTooLong: The prompt does not fit the context.
            ServerError: llama.cpp failed; its text is dropped, since it may hold parts of the prompt.
        """
        ended = _Ended()
        yield StreamStartEvent(model=request.model)
        if (choice := Choice.of(request)) is not None:
            picked = await self._picked(choice, request, ended)
            if picked is not None:
                yield StreamDeltaEvent(delta=picked)
                yield ended.event(called=True)
                return
            ended = _Ended(before=ended.usage)
        async with aclosing(self._texts(_body(request), ended)) as texts:
            async for text in texts:
                yield StreamDeltaEvent(delta=TextDelta(text=text))
        yield ended.event()

    async def _picked(self, choice: Choice, request: Request, ended: _Ended) -> ToolCallDelta | None:
        """The call that the model picked. Where the choice fails, the answer is asked for, which may well do."""
        try:
            async with aclosing(self._texts(choice.body(request.config.max_tokens or MAX_TOKENS), ended)) as texts:
                return choice.read("".join([text async for text in texts]))
        except (PromptTooLong, ServerError):
            return None

    async def _texts(self, body: dict[str, Any], ended: _Ended) -> AsyncGenerator[str, None]:
        """Run the model once and give its text token by token; what else it says goes into `ended`."""
        if self._closed:
            raise EngineClosed
        call = _Call(asyncio.get_running_loop())
        job = self._model.submit(body, call.on_chunk)
        job.add_done_callback(call.on_done)
        self._calls.add(call)
        try:
            while (chunk := await call.chunks.get()) is not None:
                for text in ended.read(chunk):
                    yield text
            if self._closed:
                raise EngineClosed
        finally:
            self._calls.discard(call)
            call.stopped = True
            job.cancel()

    async def aclose(self) -> None:
        """Stop what runs and give the model back; the last connection of the process frees its memory.

        A second time does nothing.
        """
        if not self._closed:
            self._closed = True
            for call in self._calls:
                call.stopped = True
            await close_model(self._model)


@dataclass(eq=False)
class _Call:
    """What the model's thread and the event loop share during one call."""

    loop: asyncio.AbstractEventLoop
    chunks: asyncio.Queue[Chunk | None] = field(default_factory=asyncio.Queue)
    stopped: bool = False

    def on_chunk(self, chunk: Chunk) -> bool:
        return self.stopped or not self._put(chunk)

    def on_done(self, job: Future[None]) -> None:
        if not job.cancelled():
            self._put({"error": {}} if job.exception() is not None else None)

    def _put(self, chunk: Chunk | None) -> bool:
        try:
            self.loop.call_soon_threadsafe(self.chunks.put_nowait, chunk)
        except RuntimeError:  # the loop has closed; nobody listens any more
            return False
        return True


@dataclass
class _Ended:
    """What the chunks say apart from text. What was used `before`, to pick a tool, is counted too."""

    before: Usage = field(default_factory=Usage)
    finish: str = "stop"
    usage: Usage = field(default_factory=Usage)

    def read(self, chunk: Chunk) -> list[str]:
        """Take a chunk in and return the texts in it."""
        if "error" in chunk:
            raise _error(chunk["error"])
        if counted := chunk.get("usage"):
            self.usage = Usage(
                input_tokens=(self.before.input_tokens or 0) + (counted.get("prompt_tokens") or 0),
                output_tokens=(self.before.output_tokens or 0) + (counted.get("completion_tokens") or 0),
            )
        choices = chunk.get("choices") or ()
        if any(choice.get("finish_reason") == "length" for choice in choices):
            self.finish = "length"
        return [text for choice in choices if (text := (choice.get("delta") or {}).get("content"))]

    def event(self, *, called: bool = False) -> StreamEndEvent:
        reason = "tool_call" if called else "length" if self.finish == "length" else "stop"
        return StreamEndEvent(finish_reason=reason, usage=self.usage)


def _error(reported: dict[str, Any]) -> LM15Error:
    if reported.get("type") == "exceed_context_size_error":
        return PromptTooLong(prompt_tokens=reported.get("n_prompt_tokens"), limit=reported.get("n_ctx"))
    return ServerError("the embedded model failed")


def _body(request: Request) -> dict[str, Any]:
    config = request.config
    messages = [{"role": "system", "content": _system(request)}] if request.system is not None else []
    messages += [_message(message) for message in request.messages if not message.parts_of(ToolCallPart)]
    body: dict[str, Any] = {
        "messages": messages,
        "max_tokens": config.max_tokens or MAX_TOKENS,
        "temperature": 0.0 if config.temperature is None else config.temperature,
        "stream_options": {"include_usage": True},
    }
    for name in ("top_p", "seed"):
        if (value := getattr(config, name)) is not None:
            body[name] = value
    if config.stop:
        body["stop"] = list(config.stop)
    if config.response_format is not None:
        body["response_format"] = _response_format(dict(config.response_format))
    return {**body, **(config.extensions or {})}


def _system(request: Request) -> str:
    parts = request.system
    return parts if isinstance(parts, str) else _text(parts or ())


def _message(message: Message) -> dict[str, str]:
    if message.role == "tool":
        return {"role": "user", "content": result_text(message)}
    if message.role not in _ROLES:
        raise UnsupportedFeatureError(f"the embedded model takes no {message.role!r} messages")
    return {"role": "system" if message.role == "developer" else message.role, "content": _text(message.parts)}


def _text(parts: Any) -> str:
    kinds = {part.type for part in parts} - {"text"}
    if kinds:
        raise UnsupportedFeatureError(f"the embedded model takes text only, not {', '.join(sorted(kinds))}")
    return "".join(part.text for part in parts)


def _response_format(asked: dict[str, Any]) -> dict[str, Any]:
    """Turn lm15's flat form into the wire's, from which llama.cpp makes a grammar."""
    if asked.get("type") != "json_schema" or "json_schema" in asked:
        return asked
    schema = {"name": asked.get("name", "output"), "schema": asked["schema"], "strict": True}
    return {"type": "json_schema", "json_schema": schema}


async def open_local(path: str | None) -> tuple[dspy.LM, LocalEngine, LocalModel]:
    """Load the embedded model and return its LM, the engine to close after use, and the model.

    Raises:
        MissingExtra: `xllamacpp` is not installed.
        ModelNotConfigured: The weights are missing, or llama.cpp cannot load them.
    """
    model = await open_model(path)
    engine = LocalEngine(model)
    lm = dspy.LM(
        f"local/{model.path.stem}",
        engine=LocalAbilities(),
        async_engine=engine,
        cache=False,
        num_retries=0,
        temperature=0.0,
        max_tokens=MAX_TOKENS,
    )
    return lm, engine, model


__all__ = ["MAX_TOKENS", "LocalEngine", "open_local"]
