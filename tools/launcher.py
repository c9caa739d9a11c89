"""A program that runs one command and ends it with everything that the command started.

`shell` starts it by its path, so it imports nothing of the package. It reads a request, one line of JSON, from its
standard input. To its standard output it writes the number of the command's process group, and at the end a line of
JSON and the kept part of the command's output. The caller keeps its standard input open while it waits; when that
closes, or the parent process ends, the command is killed.

On Linux it is a subreaper: a process below it whose parent ends becomes its own child, whatever session it has created,
so that nothing is left below it when it has no child. A further process between it and the command is the command's
parent, so that a command that kills its parent does not escape. Other systems kill the command's process group.

If Linux allows it, all this runs in a separate user namespace with the same user and group ids. The kernel lets no
process look into one of the namespace above it. So the command cannot read the host's environment, memory or open
files in `/proc`, whether or not it runs as root.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NoReturn

_PDEATHSIG: Final = 1
_SUBREAPER: Final = 36
_NEW_USER: Final = 0x10000000
_CHUNK: Final = 1 << 16
_COUNTED: Final = 0.1  # seconds between two counts of processes
_STUBBORN: Final = 5.0  # seconds for killed processes to end; one of another user may never do so
_DEFAULT: Final = ("SIGINT", "SIGQUIT", "SIGHUP", "SIGTERM", "SIGPIPE", "SIGCHLD", "SIGXFSZ")


def main() -> None:
    """Read a request, run its command and write the result."""
    if not _enter_namespace():
        return
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(0, _CHUNK)
        if not more:
            return
        line += more
    request = json.loads(line)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    waking, woken = os.pipe()
    os.set_blocking(waking, False)
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    prctl = _prctl()
    prctl(_SUBREAPER, 1)
    prctl(_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != request["parent"]:
        return
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _guard(request, writing, prctl)
    os.close(writing)
    watch = _Watch(request, child, reading, waking, stopping)
    watch.run()
    watch.write_result()


def _enter_namespace() -> bool:
    """Enter a user namespace if that works; returns False if it failed halfway, and this process has lost its ids."""
    if sys.platform != "linux":
        return True
    # A process cannot return from a namespace, so another process tries it first.
    trial = os.fork()
    if not trial:
        os._exit(0 if _unshared() else 1)
    return os.waitpid(trial, 0)[1] != 0 or _unshared()


def _unshared() -> bool:
    """Move this process into a new user namespace and map all ids to themselves."""
    reading, writing = os.pipe()
    mapper = os.fork()  # only a process in the parent namespace can map other ids than this process's own
    if not mapper:
        os.close(writing)
        os._exit(0 if os.read(reading, 1) and _mapped(os.getppid()) else 1)
    os.close(reading)
    with suppress(AttributeError, ImportError, OSError):
        import ctypes

        if ctypes.CDLL(None).unshare(_NEW_USER) == 0:
            os.write(writing, b"x")
    os.close(writing)
    return os.waitpid(mapper, 0)[1] == 0


def _mapped(pid: int) -> bool:
    """Map the ids in a process's new namespace: all existing ones, or only its own if that is not allowed."""
    ids = {"uid_map": os.geteuid(), "gid_map": os.getegid()}
    try:
        for what, own in ids.items():
            with open(f"/proc/self/{what}", encoding="ascii") as file:
                every = "".join("{0} {0} {2}\n".format(*line.split()) for line in file)
            try:
                _write(pid, what, every)
            except OSError:
                if what == "gid_map":  # the kernel requires this before a process without privileges maps a group
                    _write(pid, "setgroups", "deny")
                _write(pid, what, f"{own} {own} 1\n")
    except OSError:
        return False
    return True


def _write(pid: int, what: str, text: str) -> None:
    with open(f"/proc/{pid}/{what}", "w", encoding="ascii") as file:
        file.write(text)


def _prctl() -> Any:
    """Return the system call `prctl`, or a function that does nothing."""
    if sys.platform == "linux":
        with suppress(AttributeError, ImportError, OSError):
            import ctypes

            return ctypes.CDLL(None).prctl
    return lambda *_: None


def _guard(request: dict[str, Any], writing: int, prctl: Any) -> NoReturn:
    """Run the process between launcher and command: start the command, wait for it, end with its exit code."""
    try:
        signal.set_wakeup_fd(-1)
        prctl(_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        os.write(1, f"{os.getpid()}\n".encode())  # before the command starts, which can write there too
        for name in _DEFAULT[:4]:  # signals that the command sends to its group are not meant for this process
            signal.signal(getattr(signal, name), signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        shell = os.fork()
        if not shell:
            _run(request, writing, prctl)
        nothing = os.open(os.devnull, os.O_RDWR)
        for handle in (0, 1, 2, writing):
            os.dup2(nothing, handle)
        os._exit(_code(os.waitpid(shell, 0)[1]))
    finally:
        os._exit(126)


def _run(request: dict[str, Any], writing: int, prctl: Any) -> NoReturn:
    """Run the command's process."""
    try:
        prctl(_PDEATHSIG, signal.SIGKILL)
        for name in _DEFAULT:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        environment = {name.encode("latin-1"): value.encode("latin-1") for name, value in request["env"].items()}
        os.execve("/bin/sh", ["sh", "-c", request["command"].encode()], environment)
    except OSError as error:
        os.write(writing, f"the shell cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(126)


def _code(status: int) -> int:
    """Return the exit code of a process, as a shell gives it."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


class _Watch:
    """A running command: its output, and the limits that end it."""

    def __init__(self, request: dict[str, Any], child: int, reading: int, waking: int, stopping: list[int]) -> None:
        self._request = request
        self._child = child
        self._reading = reading
        self._waking = waking
        self._stopping = stopping
        self._code: int | None = None
        self._why: str | None = None
        self._head, self._tail, self._bytes = bytearray(), bytearray(), 0
        os.set_blocking(reading, False)

    def run(self) -> None:
        """Wait for the command's end or a limit; no process of it runs when this returns."""
        ends = time.monotonic() + self._request["seconds"]
        counted = time.monotonic() + _COUNTED
        watched = [0, self._waking, self._reading]
        while self._why is None and not self._reaped():
            now = time.monotonic()
            ready, _, _ = select.select(watched, [], [], max(0.0, min(ends, counted) - now))
            if self._reading in ready and not self._read():
                watched.remove(self._reading)
            if self._waking in ready:
                os.read(self._waking, _CHUNK)
            if self._stopping or (0 in ready and not os.read(0, _CHUNK)):
                self._why = "caller"
            elif self._bytes > self._request["flood"]:
                self._why = "output"
            elif time.monotonic() >= ends:
                self._why = "time"
            elif time.monotonic() >= counted:
                counted = time.monotonic() + _COUNTED
                most = self._request["processes"]
                if sum(1 for _ in islice(_below(os.getpid()), most + 1)) > most:
                    self._why = "processes"
        self._end()
        while self._bytes <= self._request["flood"] and self._read():
            pass

    def write_result(self) -> None:
        """Write the command's result to standard output."""
        code = None if self._why else self._code
        summary = {"exit_code": code, "stopped": self._why, "size": self._bytes, "head": len(self._head)}
        with suppress(BrokenPipeError), os.fdopen(1, "wb") as out:
            out.write(json.dumps(summary).encode() + b"\n" + self._head + self._tail[-self._half :])

    @property
    def _half(self) -> int:
        return max(1, int(self._request["limit"]) // 2)

    def _read(self) -> bool:
        """Read the command's output; returns whether more can come."""
        try:
            more = os.read(self._reading, _CHUNK)
        except BlockingIOError:
            return False
        self._bytes += len(more)
        room = max(0, self._half - len(self._head))
        self._head += more[:room]
        self._tail += more[room:]
        if len(self._tail) > self._half + 16 * _CHUNK:
            del self._tail[: -self._half]
        return bool(more)

    def _reaped(self) -> bool:
        """Reap the processes below that have ended; returns whether the command is among them."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return self._code is not None
            if pid == self._child:
                self._code = _code(status)

    def _end(self) -> None:
        """Kill all processes below until none is left."""
        until, pause = time.monotonic() + _STUBBORN, 0.0005
        while time.monotonic() < until:
            if self._code is None:  # otherwise its number may belong to another process by now
                _signal(self._child, signal.SIGKILL, group=True)
            frozen: set[int] = set()
            while new := [pid for pid in _below(os.getpid(), stop=True) if pid not in frozen]:
                frozen.update(new)  # a stopped process cannot start another
            for pid in frozen:
                _signal(pid, signal.SIGKILL)
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
            self._reaped()
            if not _has_children():
                return


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _signal(pid: int, number: int, *, group: bool = False) -> None:
    with suppress(PermissionError, ProcessLookupError):  # the process belongs to another user, or has ended
        (os.killpg if group else os.kill)(pid, number)


def _below(top: int, *, stop: bool = False) -> Iterator[int]:
    """Yield every process below `top`, a parent before its children; with `stop`, stop each one before its children."""
    todo = _children(top)
    seen = {top}
    while todo:
        pid = todo.pop()
        if pid in seen:
            continue
        seen.add(pid)
        if stop:
            _signal(pid, signal.SIGSTOP)
        yield pid
        todo += _children(pid)


def _children(pid: int) -> list[int]:
    """Return the children of a process; empty if the system does not list them."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except FileNotFoundError:
        return found if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else _scanned(pid)
    except (NotADirectoryError, PermissionError, ProcessLookupError):
        pass
    return found


def _scanned(parent: int) -> list[int]:
    """Return the children of a process by reading every process, since some kernels do not list them."""
    found: list[int] = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if len(fields) > 1 and int(fields[1]) == parent:
                found.append(int(name))
    return found


if __name__ == "__main__":
    main()
