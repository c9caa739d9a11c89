"""llama.cpp in this process: one set of weights, the one thread that runs it, and who shares it.

Not here: what a request means (`_local`). Imports neither dspy nor, before it is needed, xllamacpp, so a program can
call `start_loading` first and import the rest meanwhile.

xllamacpp always opens llama.cpp's own HTTP server beside its direct calls, by default on a TCP port that anybody on the
machine, and any web page, may use and ask about its state. So it gets a random key, no pages, and where the system has
them a socket in a private folder that is removed as soon as the server stands: nobody can connect to it at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ...core.errors import ModelNotConfigured, WorldAgentError
from ._weights import find_weights

CONTEXT = 4096
"""Tokens of context. The packaged model was trained on 8,192; half of it costs 94 MB of memory and is read in 25 s."""

_BATCH = 256  # tokens of a prompt read in one go, 1.5 s on one core; only in between can the model be stopped
_SOCKET_PATH_LIMIT = 100  # bytes; systems allow 104 to 108

Chunk = dict[str, Any]
OnChunk = Callable[[Chunk], bool]


class LocalModel:
    """The weights of one file, loaded, and a thread of their own: llama.cpp is slower with two on a busy machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._server: Any = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="worldagent-local")
        self.loaded: Future[None] = self._pool.submit(self._load)

    def submit(self, body: Mapping[str, Any], on_chunk: OnChunk) -> Future[None]:
        """Queue one streamed chat completion. `on_chunk` runs in the model's thread; True from it stops the model.

        The result is None; it raises what llama.cpp raised, whose text may hold parts of the request.
        """
        # With progress reports `on_chunk` runs while the prompt is read, too.
        return self._pool.submit(self._run, {**body, "stream": True, "return_progress": True}, on_chunk)

    def warm(self, messages: Sequence[Mapping[str, str]]) -> None:
        """Queue reading `messages`, so that a prompt that begins with them is answered sooner."""
        body = {"messages": [dict(message) for message in messages], "max_tokens": 1, "temperature": 0.0}
        self.submit(body, lambda chunk: False)

    def unload(self) -> None:
        """Wait for what runs, free the memory and end the thread. Blocks."""
        self._pool.submit(self._free)
        self._pool.shutdown(wait=True)

    def _load(self) -> None:
        self._server = _open_server(self.path)

    def _run(self, body: dict[str, Any], on_chunk: OnChunk) -> None:
        self._server.handle_chat_completions(body, on_chunk)

    def _free(self) -> None:
        self._server = None
        gc.collect()
        _return_memory()


def _return_memory() -> None:
    """Give freed memory back to the system. Without it glibc keeps up to half of it for the threads that had it."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _open_server(path: Path) -> Any:
    xllamacpp: Any = import_module("xllamacpp")  # an extra, and loading it takes time
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.verbosity = -1
    params.n_ctx, params.n_batch, params.n_parallel = CONTEXT, _BATCH, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = params.n_threads_http = 1
    # No copies of old prompts: by default up to 8 GiB of them are kept.
    params.cache_ram_mib, params.n_ctx_checkpoints, params.cache_idle_slots = 0, 0, False
    params.api_keys, params.cors_origins = [secrets.token_hex(32)], "null"
    params.ui, params.endpoint_slots = False, False
    with _private_address() as address:
        params.hostnames = [address]
        return xllamacpp.Server(params)


@contextlib.contextmanager
def _private_address() -> Generator[str, None, None]:
    folder = _private_folder()
    if folder is None:
        yield "127.0.0.1"
        return
    try:
        yield str(folder / "s.sock")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _private_folder() -> Path | None:
    if os.name != "posix":
        return None
    try:
        folder = Path(tempfile.mkdtemp(prefix="worldagent-"))
    except OSError:
        return None
    if len(os.fsencode(folder / "s.sock")) <= _SOCKET_PATH_LIMIT:
        return folder
    folder.rmdir()
    return None


@dataclass
class _Entry:
    model: LocalModel
    users: int = 0


class _Models:
    """What is loaded in this process, by file, with the number of users; the last one frees it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: dict[tuple[int, Path], _Entry] = {}

    def acquire(self, path: Path, *, users: int = 1) -> LocalModel:
        """Return the model of `path`, begin to load it where nobody has, and count `users` more users."""
        key = (os.getpid(), path)  # a forked child has none of its parent's threads
        with self._lock:
            entry = self._live.get(key)
            if entry is None or _failed(entry.model):
                entry = self._live[key] = _Entry(LocalModel(path))
            entry.users += users
            return entry.model

    def release(self, model: LocalModel) -> bool:
        """Count one user less and return whether it was the last one, who must call `unload`."""
        key = (os.getpid(), model.path)
        with self._lock:
            entry = self._live.get(key)
            if entry is None or entry.model is not model:
                return False
            entry.users -= 1
            if entry.users > 0:
                return False
            del self._live[key]
            return True


def _failed(model: LocalModel) -> bool:
    return model.loaded.done() and model.loaded.exception() is not None


_MODELS = _Models()  # weights are the process's, like an imported module; who uses them is counted


def start_loading(path: str | None = None, *, warm: Sequence[Mapping[str, str]] = (), keep: bool = False) -> None:
    """Begin to load the embedded model in a thread, so that a command can import the rest meanwhile.

    The next `connect_model("local")` takes it over. Without one it stays loaded until the process ends. It never raises
    for a missing package or file: `connect_model` does.

    Args:
        path: A GGUF file instead of the one that `find_weights` finds.
        warm: Messages (`role`, `content`) that every prompt begins with; they are read in advance.
        keep: Never free the memory, for a command that ends with its process: freeing it takes a third of a second.
    """
    try:
        model = _MODELS.acquire(find_weights(path), users=int(keep))
    except WorldAgentError:
        return
    if warm:
        model.warm(warm)


async def open_model(path: str | None) -> LocalModel:
    """Return the loaded model; give it back with `close_model`.

    Raises:
        MissingExtra: `xllamacpp` is not installed.
        ModelNotConfigured: The weights are missing, or llama.cpp cannot load them.
    """
    model = _MODELS.acquire(find_weights(path))
    try:
        # Shielded: the load may be shared, and cannot be stopped anyway.
        await asyncio.shield(asyncio.wrap_future(model.loaded))
        return model
    except Exception:
        problem = f"llama.cpp cannot load {str(model.path)!r}"
    except BaseException:
        _spare_thread(lambda: close_model_blocking(model))
        raise
    close_model_blocking(model)
    raise ModelNotConfigured(problem, remedy="check that it is a complete GGUF file of a chat model")


async def close_model(model: LocalModel) -> None:
    """Give a model back; the last user waits until its thread has ended and its memory is free."""
    if _MODELS.release(model):
        done: Future[None] = Future()
        thread = _spare_thread(lambda: _unload(model, done))
        await asyncio.shield(asyncio.wrap_future(done))
        thread.join()  # it has nothing left to do


def close_model_blocking(model: LocalModel) -> None:
    """As `close_model`, from a thread or for a model that never loaded."""
    if _MODELS.release(model):
        model.unload()


def _unload(model: LocalModel, done: Future[None]) -> None:
    try:
        model.unload()
    finally:
        done.set_result(None)


def _spare_thread(work: Callable[[], None]) -> threading.Thread:
    # Not asyncio's executor: dspy's calls hop through it, and its threads outlive the agent.
    thread = threading.Thread(target=work, name="worldagent-local-close")
    thread.start()
    return thread


__all__ = ["CONTEXT", "Chunk", "LocalModel", "close_model", "open_model", "start_loading"]
