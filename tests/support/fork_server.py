"""The server that support/forks.py starts processes from: it imports the package once, has no thread, and forks.

`fork_server.py ADDRESS PID` prints the pid of another process and ends once that one listens on the abstract Unix
socket ADDRESS; it serves until the process PID ends. A connection brings the standard streams and what to run, and
gets the pid of the fork and its exit code. Where the connection ends first, the fork is killed, and so is each of them
when the server ends.
"""

import atexit
import contextlib
import ctypes
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
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

# What processes of tests import.
IMPORTS = (
    "dspy",
    "langgraph.graph",
    "worldagent.agent.agent",
    "worldagent.graphs.checkpoints",
    "worldagent.graphs.engine",
    "worldagent.graphs.loop.conversation",
    "worldagent.harness",
    "worldagent.memory",
    "worldagent.signatures.adapter",
    "worldagent.signatures.predictor",
    "worldagent.testing",
)
# And what those import that serve. A process whose modules a test counts is a fresh one.
HOSTS = (
    "acp",
    "dbos",
    "mcp.server.stdio",
    "prompt_toolkit",
    "uvicorn",
    "worldagent.hosts.acp.server",
    "worldagent.hosts.cli.app",
    "worldagent.hosts.chat",
    "worldagent.hosts.role_host.server",
    "worldagent.hosts.sidecar.server",
    "worldagent.hosts.web.app",
    "worldagent.mcp_client.tools",
    "worldagent.scheduling",
)
# Python, or a module that the server has imported, may have read these where a fork begins.
_EARLY = (
    "PYTHON",
    "LC_",
    "LANG",  # and those of LangChain and LangSmith
    "DSPY_",
    "LITELLM_",
    "OTEL_",
    "PYDANTIC_",
    "HOME",
    "TZ",
    "DEBUG",
    "OPENBLAS_",
    "OMP_",
)
_TOLD = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")  # a fork is told of these
WORD = struct.Struct("!i")
PR_SET_PDEATHSIG = 1
STRICT = ("error", None, Warning, None, 0)  # what `-W error` adds to the filters


def early(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that a fork cannot be told of."""
    return {name: value for name, value in environment.items() if name.startswith(_EARLY) and name not in _TOLD}


def import_all() -> None:
    """Import what a turn loads when it first runs, so that forks do not."""
    for name in IMPORTS:
        importlib.import_module(name)


Forks = dict[int, tuple[int, socket.socket]]
"""Each fork by a handle of it: its pid, and the connection that asked for it."""


def _serve() -> tuple[dict[str, Any], list[int]]:
    """Let go of the process that started this, and fork until the tests end; gives, in each fork, what it is to be."""
    import_all()
    for name in HOSTS:
        importlib.import_module(name)
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise SystemExit(f"the server of forks has {threads} threads")
    listening, tests = socket.socket(socket.AF_UNIX), os.pidfd_open(int(sys.argv[2]))
    listening.bind(f"\0{sys.argv[1]}")
    listening.listen(64)
    if server := os.fork():
        os.write(1, b"%d\n" % server)
        os._exit(0)
    os.setsid()
    gc.collect()
    gc.freeze()
    forks: Forks = {}
    watched: list[Any] = [listening, tests]
    while tests not in (ready := select.select([*watched, *forks, *_asking(forks)], [], [])[0]):
        _note_ends(forks, ready)
        if listening in ready and (asked := _fork(listening, forks)):
            return asked
    os._exit(0)


def _asking(forks: Forks) -> list[socket.socket]:
    return [told for _, told in forks.values()]


def _note_ends(forks: Forks, ready: list[Any]) -> None:
    """Kill the forks whose connection has ended, and tell the others how theirs has."""
    for pid, told in forks.values():
        if told in ready:
            os.kill(pid, signal.SIGKILL)
    for ended in forks.keys() & set(ready):
        pid, told = forks.pop(ended)
        os.close(ended)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(OSError), told:  # it may have gone
            told.sendall(WORD.pack(code))


def _fork(listening: socket.socket, forks: Forks) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for a connection; gives, in the fork, what it is to be."""
    told, _ = listening.accept()
    word, streams, _, _ = socket.recv_fds(told, WORD.size, 3)
    asked = json.loads(told.recv(WORD.unpack(word)[0], socket.MSG_WAITALL))
    known = early(asked["env"]).items() <= early(os.environ).items()
    pid = os.fork() if known else -1
    if not pid:
        _die_with_parent()
        told.sendall(WORD.pack(os.getpid()))  # only now: a signal that comes while Python forks is lost
        for opened in (listening, told, *_asking(forks)):
            opened.close()
        return asked, streams
    for handle in streams:
        os.close(handle)
    if known:
        forks[os.pidfd_open(pid)] = pid, told
    else:
        with told:
            told.sendall(WORD.pack(0))  # it has to be a fresh process
    return None


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _become(asked: dict[str, Any], streams: list[int], base: list[str]) -> None:
    """Make this fork what a fresh process is."""
    for number, handle in enumerate(streams):
        os.dup2(handle, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if asked["terminal"]:
        os.setsid()
        own_terminal()
    environment: dict[str, str] = asked["env"]
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(asked["cwd"])
    sys.path[:] = dict.fromkeys([*paths_of(environment), *base])
    importlib.invalidate_caches()
    sys.path_importer_cache.clear()
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    tempfile.tempdir = None
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    _open_streams(bool(environment.get("PYTHONUNBUFFERED")))


def paths_of(environment: Mapping[str, str]) -> list[str]:
    """Where the environment has modules from."""
    return [os.path.abspath(each) for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]


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


def _run(argv: list[str]) -> None:
    """Run what follows the option as Python does."""
    strict = argv[1] == "-W"
    how, *words = argv[3:] if strict else argv[2:]
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


def _leave(code: int) -> None:
    """End as Python does, but for taking apart all modules: that copies the memory of the server, for 0.2 s of CPU.

    What this process has made is let go of, so that what it left open is reported. Returns where Python has to end it.
    """
    with contextlib.suppress(Exception):
        threading._shutdown()  # type: ignore[attr-defined]  # it waits for threads
        atexit._run_exitfuncs()
        vars(sys.modules["__main__"]).clear()
        gc.collect()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


if __name__ == "__main__":
    base = sys.path[len(os.environ["PYTHONPATH"].split(os.pathsep)) :]
    asked, streams = _serve()
    _become(asked, streams, base)
    try:
        _run(asked["argv"])
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            _leave((ended.code or 0) & 0xFF)
        raise
    _leave(0)
