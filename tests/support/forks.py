"""Python processes that start at once: forks of a server that has imported the package (support/fork_server.py).

A fork is a process of its own: it takes real signals, and its environment, arguments, streams, folder and path are
those it was asked for. Its server is not a child of this process, whose children tests count. It ends with this
process, and kills what still runs. Where a process reads something before a fork could be told of it, where
`WORLDAGENT_TESTS_FRESH` is set, and on other systems than Linux, `start` starts a fresh process. What the code under
test starts is given `forking` words: a small program (support/fork_client.py) that stands for its fork.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from asyncio.base_subprocess import BaseSubprocessTransport
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from support import fork_client, fork_server
from support.fork_server import WORD, early, own_terminal, paths_of
from support.house import ROOT

_LIMIT = 2**16  # bytes of a line, as asyncio has it
_FRESH = sys.platform != "linux" or "WORLDAGENT_TESTS_FRESH" in os.environ  # before conftest.py takes it away


# What this process has before a test changes it; conftest.py sets the first, and takes some away.
_AWAY = ("DSPY_", "LANGSMITH_", "LANGCHAIN_", "OTEL_")
_OWN = {name: value for name, value in early(os.environ).items() if not name.startswith(_AWAY)}
_EARLY_HERE = {"LITELLM_LOCAL_MODEL_COST_MAP": "true", **_OWN}
_starting = threading.Lock()
_address: list[str] = []  # of the server, once it runs
_servers: list[psutil.Process] = []


def _server() -> str:
    """The address of the server, which is started where it does not run yet."""
    with _starting:
        if not _address:
            address = f"worldagent-forks-{os.getpid()}"
            words = (sys.executable, "-P", "-W", "error", fork_server.__file__, address, str(os.getpid()))
            others = {name: value for name, value in os.environ.items() if not early({name: value})}
            paths = os.pathsep.join((str(ROOT / ".dev"), str(ROOT / "tests")))
            environment = {**others, **_EARLY_HERE, "PYTHONPATH": paths}
            pipe = subprocess.PIPE
            with subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=pipe) as starting:
                assert starting.stdout is not None
                _servers.append(psutil.Process(int(starting.stdout.readline())))
            _address.append(address)
    return _address[0]


def running() -> list[psutil.Process]:
    """The forks that run, with what they have started."""
    return [fork for server in _servers for fork in server.children(recursive=True)]


def spent() -> float:
    """Seconds of CPU of the server, and of the forks that have ended."""
    used = [server.cpu_times() for server in _servers]
    return float(sum(each.user + each.system + each.children_user + each.children_system for each in used))


class _Started:
    """A fork as asyncio wants `subprocess.Popen`."""

    def __init__(self, pid: int, streams: Sequence[Any], told: socket.socket) -> None:
        self.pid, self.told = pid, told
        self.stdin, self.stdout, self.stderr = streams
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class _Transport(BaseSubprocessTransport):
    def _start(
        self, args: Any, shell: bool, stdin: Any, stdout: Any, stderr: Any, bufsize: int, **kwargs: _Started
    ) -> None:
        self._proc: Any = kwargs["started"]
        self._loop.add_reader(self._proc.told, self._ended)

    def _ended(self) -> None:
        word = self._proc.told.recv(WORD.size)
        self._loop.remove_reader(self._proc.told)
        self._proc.told.close()
        # No word: the server has gone, and has killed it.
        self._process_exited(WORD.unpack(word)[0] if word else -signal.SIGKILL)


async def start(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: str | Path | None = None,
    stdin: int = PIPE,
    stdout: int = PIPE,
    stderr: int = PIPE,
    terminal: bool = False,
    fresh: bool = False,
) -> Process:
    """Start Python with a script, a module or a program, as a fork where that makes no difference.

    Args:
        argv: Python and its arguments; a fork has one option, `-P` or `-W error`.
        env: The environment.
        cwd: The folder; by default that of this process.
        stdin: A handle, or PIPE. So are `stdout` and `stderr`.
        terminal: The process leads a session of its own, and standard input is its terminal.
        fresh: It has to be a fresh process.
    """
    words = [os.fspath(word) for word in argv]
    streams = (stdin, stdout, stderr)
    if fresh or not _may_fork(words, env):
        more: dict[str, Any] = {"start_new_session": True, "preexec_fn": own_terminal} if terminal else {}
        return await asyncio.create_subprocess_exec(
            *words, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, **more
        )
    address = await asyncio.to_thread(_server)
    asked = {"argv": words, "env": dict(env), "cwd": os.path.abspath(cwd or "."), "terminal": terminal}
    started = _fork(address, json.dumps(asked).encode(), streams)
    loop = asyncio.get_running_loop()
    protocol = SubprocessStreamProtocol(limit=_LIMIT, loop=loop)
    connected = loop.create_future()
    transport = _Transport(loop, protocol, words, False, *streams, 0, connected, started=started)
    await connected
    return Process(transport, protocol, loop)


def _may_fork(words: Sequence[str], env: Mapping[str, str]) -> bool:
    options = list(words[1:3]) if words[1] == "-W" else [words[1]]
    known = options in (["-P"], ["-W", "error"]) and words[0] == sys.executable and str(ROOT / ".dev") in paths_of(env)
    return known and not _FRESH and early(env) == _EARLY_HERE


def forking(argv: Sequence[str | Path]) -> list[str]:
    """Give words that start the same Python as a fork: for `subprocess`, or for the code under test to start.

    Args:
        argv: Python, `-P`, and the rest; other programs stay as they are. Whoever starts it sets the environment.
    """
    words = [os.fspath(word) for word in argv]
    if _FRESH or words[:2] != [sys.executable, "-P"]:
        return words
    return [sys.executable, "-I", "-S", fork_client.__file__, _server(), *words]


def folders_of_user(home: Path) -> dict[str, str]:
    """The part of an environment that puts a user's folders below `home`; of another `HOME` no fork can be told."""
    return {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA", "STATE")}


def _fork(address: str, asked: bytes, streams: Sequence[int]) -> _Started:
    """Ask the server for a fork, and give it the other ends of its pipes."""
    ours: list[Any] = [None] * 3
    theirs: list[int] = []
    told = socket.socket(socket.AF_UNIX)
    try:
        for number, given in enumerate(streams):
            if given == PIPE:
                ends = os.pipe()
                theirs.append(ends[number > 0])
                ours[number] = os.fdopen(ends[number == 0], "rb" if number else "wb", buffering=0)
            else:
                theirs.append(os.dup(given))
        told.connect(f"\0{address}")
        socket.send_fds(told, [WORD.pack(len(asked))], theirs)
        told.sendall(asked)
        (pid,) = WORD.unpack(told.recv(WORD.size, socket.MSG_WAITALL))
    except BaseException:
        for opened in filter(None, (told, *ours)):
            opened.close()
        raise
    finally:
        for handle in theirs:
            os.close(handle)
    told.setblocking(False)
    return _Started(pid, ours, told)
