"""The server that support/forks.py starts processes from: it imports the package once, has no thread, and forks.

`fork_server.py ADDRESS PID` gives its prompt back once it listens, serves on the Unix socket ADDRESS, and ends with the
process PID. A connection brings the standard streams and what to run, and gets the fork's pid and how it ended.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import random
import runpy
import select
import signal
import socket
import struct
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

# What nearly every process of a test imports. No server, no command line and no provider: tests look for those.
IMPORTS = (
    "dspy",
    "langgraph.graph",
    "worldagent.agent.agent",
    "worldagent.graphs.checkpoints",
    "worldagent.graphs.engine",
    "worldagent.graphs.loop",
    "worldagent.harness",
    "worldagent.memory",
    "worldagent.signatures.adapter",
    "worldagent.signatures.predictor",
    "worldagent.testing",
)
WORD = struct.Struct("!i")
STRICT = ("error", None, Warning, None, 0)  # what `-W error` adds to the filters


def import_all() -> None:
    """Import what a turn loads when it first runs, so that forks do not."""
    for name in IMPORTS:
        importlib.import_module(name)


@dataclass(frozen=True)
class Asked:
    """What a fork runs."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    terminal: bool


class _Serving:
    """The server; `serve` gives what to run, in each fork, and ends the process in the server itself."""

    def __init__(self, listening: socket.socket, tests: int) -> None:
        self.listening, self.tests = listening, tests
        self.children: dict[int, socket.socket] = {}
        self.base = sys.path[len(os.environ["PYTHONPATH"].split(os.pathsep)) :]
        import_all()
        threads = len(os.listdir("/proc/self/task"))
        if threads != 1:
            raise SystemExit(f"the server of forks has {threads} threads")

    def serve(self) -> Asked:
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        gc.collect()
        gc.freeze()
        poll = select.poll()
        for handle in (reading, self.listening.fileno(), self.tests):
            poll.register(handle, select.POLLIN)
        while True:
            ready = {handle for handle, _ in poll.poll()}
            if reading in ready:
                os.read(reading, 4096)
                self._reap()
            if self.tests in ready:
                self._end()
            if self.listening.fileno() in ready:
                asked = self._fork()
                if asked is not None:
                    return asked

    def _reap(self) -> None:
        for pid in list(self.children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with self.children.pop(pid) as told, contextlib.suppress(OSError):  # nobody waits any more
                    told.sendall(WORD.pack(os.waitstatus_to_exitcode(status)))

    def _end(self) -> None:
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)
        address = Path(self.listening.getsockname())
        address.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # removed with what is there
            address.parent.rmdir()
        os._exit(0)

    def _fork(self) -> Asked | None:
        """Start what a connection asks for; gives it in the fork."""
        told, _ = self.listening.accept()
        size, streams = _received(told)
        if not size:
            told.close()
            return None
        asked = Asked(**json.loads(told.recv(size, socket.MSG_WAITALL)))
        pid = os.fork()
        if not pid:
            told.sendall(WORD.pack(os.getpid()))  # only now: a signal that comes while Python forks is lost
            told.detach()
            _become(asked, streams, self)
            return asked
        for handle in streams:
            os.close(handle)
        self.children[pid] = told
        return None


def _received(told: socket.socket) -> tuple[int, list[int]]:
    word, streams, _, _ = socket.recv_fds(told, WORD.size, 3)
    return (WORD.unpack(word)[0] if word else 0), streams


def _become(asked: Asked, streams: list[int], serving: _Serving) -> None:
    """Make this fork what a fresh process is."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, handle in enumerate(streams):
        os.dup2(handle, number)
    serving.listening.detach()
    for told in serving.children.values():
        told.detach()
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if asked.terminal:
        os.setsid()
        own_terminal()
    os.environ.clear()
    os.environ.update(asked.env)
    os.chdir(asked.cwd)
    sys.path[:] = dict.fromkeys([*map(os.path.abspath, asked.env["PYTHONPATH"].split(os.pathsep)), *serving.base])
    importlib.invalidate_caches()
    sys.path_importer_cache.clear()
    sys.dont_write_bytecode = bool(asked.env.get("PYTHONDONTWRITEBYTECODE"))
    tempfile.tempdir = None
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    _open_streams(bool(asked.env.get("PYTHONUNBUFFERED")))


def own_terminal() -> None:
    """Make standard input the controlling terminal of this process, which leads a session."""
    import fcntl  # there are systems without
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _open_streams(unbuffered: bool) -> None:
    """Open the standard streams as Python does at its start."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old: io.TextIOWrapper = getattr(sys, name)
        raw: Any = io.FileIO(number, "w" if number else "r", closefd=False)
        raw.name = f"<{name}>"
        if not (unbuffered and number):
            raw = io.BufferedWriter(raw) if number else io.BufferedReader(raw)
        line = not unbuffered and (number == 2 or os.isatty(number))
        new = io.TextIOWrapper(raw, old.encoding, old.errors, line_buffering=line, write_through=unbuffered)
        new.mode = "w" if number else "r"  # type: ignore[misc]  # as Python itself sets it
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _run(asked: Asked) -> None:
    """Run what follows the option as Python does."""
    strict = asked.argv[1] == "-W"
    how, *words = asked.argv[3:] if strict else asked.argv[2:]
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    if not strict:  # the server is
        warnings.filters[:] = [one for one in warnings.filters if one != STRICT]  # type: ignore[index]  # it is a list
        warnings._filters_mutated()  # type: ignore[attr-defined]  # what `filterwarnings` calls
        sys.warnoptions.clear()
    here = ""
    if how == "-c":
        source, name = words.pop(0), "<string>"
    elif how == "-m":
        source, name, here = "", words[0], os.getcwd()
    else:
        source, name, here = Path(how).read_text(encoding="utf-8"), how, os.path.dirname(os.path.abspath(how))
        main.__dict__["__file__"] = how
    sys.argv[:] = words if how == "-m" else [how, *words]
    if strict:  # without `-P`
        sys.path.insert(0, here)
    if how == "-m":
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # what `python -m` calls
    else:
        exec(compile(source, name, "exec", dont_inherit=True), main.__dict__)


def _serve() -> None:
    """Import what tests import, let go of the process that started this, and serve until the tests end."""
    address, tests = sys.argv[1], os.pidfd_open(int(sys.argv[2]))
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    serving = _Serving(listening, tests)
    if os.fork():
        os._exit(0)
    os.setsid()
    asked = serving.serve()
    _run(asked)


__all__ = ["WORD", "import_all", "own_terminal"]

if __name__ == "__main__":
    _serve()
