"""The tool `shell`: its parameters and its result. `launcher` runs the command and ends it."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..core.errors import ToolFailed
from ..harness import Function, tool
from .files import Roots
from .program import Program

_LAUNCHER: Final = Path(__file__).with_name("launcher.py")
_FLOOD: Final = 256 << 20
_PROCESSES: Final = 1000
_GRACE: Final = 10.0  # seconds for the launcher, in addition to the command's own
_PROBED: Final = 10.0  # seconds for the command that tries to read this process
_LATE: Final = 1.0  # seconds for a launcher that has used these up
_HEADER: Final = 1024  # bytes of the launcher's own lines
_CHUNK: Final = 1 << 16
# Variables that say where things are, and how to write. Proxies are excluded: their addresses can hold a password.
_KEPT: Final = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TMPDIR", "USER", "VIRTUAL_ENV"),
    *("LANG", "LANGUAGE", "TERM", "TZ"),
    *("LD_LIBRARY_PATH", "SSL_CERT_DIR", "SSL_CERT_FILE"),
)


class ShellResult(BaseModel):
    """How a command ended.

    Attributes:
        exit_code: What it ended with, 128 and the signal's number where a signal ended it; None where it was stopped.
        output: What it wrote to standard output and standard error, in the order in which it did.
        stopped: The limit that stopped it: its time, what it wrote, or how many processes it started.
        cut: How many bytes are missing in the middle of the output.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    exit_code: int | None
    output: str
    stopped: Literal["time", "output", "processes"] | None = None
    cut: int = 0


class _Header(BaseModel):
    """The launcher's line about a command, before the output. The command can have written to the same stream."""

    model_config = ConfigDict(extra="forbid", strict=True)

    exit_code: Annotated[int, Field(ge=0, le=255)] | None
    stopped: Literal["time", "output", "processes"] | None
    size: Annotated[int, Field(ge=0, lt=1 << 50)]
    head: Annotated[int, Field(ge=0)]


def environment(host: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the host's environment that a command gets: where things are, and how to write.

    Args:
        host: The host's environment.
    """
    kept = {name: value for name, value in host.items() if name in _KEPT or name.startswith("LC_")}
    return {"PATH": os.defpath, **kept}


async def run_command(command: str, folder: Path, *, seconds: float, limit: int) -> ShellResult:
    """Run a command; no process that it started is left when this returns, raises or is cancelled.

    Args:
        command: The argument of `/bin/sh -c`.
        folder: The folder that it runs in.
        seconds: How long it can take.
        limit: How many bytes of its output are kept.

    Raises:
        ToolFailed: It cannot be started, or it ended or disturbed the launcher.
    """
    env = environment(os.environ)
    raw = {os.fsencode(name).decode("latin-1"): os.fsencode(value).decode("latin-1") for name, value in env.items()}
    request = {"command": command, "seconds": seconds, "limit": limit, "flood": _FLOOD, "processes": _PROCESSES}
    line = json.dumps({**request, "env": raw, "parent": os.getpid()}).encode() + b"\n"
    launcher, group, said = await _started(folder, env), b"", b""
    patience = _GRACE
    try:
        try:
            async with asyncio.timeout(seconds + _GRACE) as time:
                launcher.stdin.write(line)  # nothing runs before this: an interrupted start leaves nothing behind
                group = await launcher.stdout.readline()
                said = await _read_output(launcher, max(2, limit) + _HEADER, time)
        except (ConnectionError, TimeoutError):  # something has killed or stopped the launcher
            patience = _LATE
    finally:
        try:
            await launcher.end(patience)  # it kills the command once its input is closed
        finally:
            if launcher.exit_code and group.strip().isdigit():  # it was killed or stopped before it could do that
                _kill(int(group))
    return _read(said)


async def hides_host() -> bool:
    """Run a command that tries to read this process's environment, and report whether the system kept it from that.

    Raises:
        ToolFailed: The command cannot be started.
    """
    ran = await run_command(f"cat /proc/{os.getpid()}/environ >/dev/null", Path(os.sep), seconds=_PROBED, limit=1)
    return sys.platform == "linux" and ran.exit_code not in (0, None)


async def _read_output(launcher: Program, most: int, time: asyncio.Timeout) -> bytes:
    """Return what the launcher writes until its end; empty if that is more than it writes by itself."""
    said = bytearray()
    while len(said) <= most:
        if not (more := await launcher.stdout.read(_CHUNK)):
            return bytes(said)
        said += more
    launcher.stdin.transport.abort()  # makes it kill the command
    time.reschedule(asyncio.get_running_loop().time() + _GRACE)
    while await launcher.stdout.read(_CHUNK):  # it cannot end before its output is read
        pass
    return b""


async def _started(folder: Path, env: Mapping[str, str]) -> Program:
    problem = "this system has no POSIX shell"
    if os.name == "posix":
        try:
            return await Program.start(_LAUNCHER, env=env, folder=folder)
        except OSError as error:
            problem = (error.strerror or type(error).__name__).lower()
    raise ToolFailed(f"no command can be started in {str(folder)!r}: {problem}", remedy="tell the user")


def _kill(group: int) -> None:
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _read(said: bytes) -> ShellResult:
    header, _, rest = said.partition(b"\n")
    try:
        summary = _Header.model_validate_json(header)
    except ValidationError:
        summary = None
    if summary is None or summary.head > len(rest) or summary.size < len(rest):
        raise ToolFailed(
            "the command was lost: its launcher was killed or disturbed, or could not begin",
            remedy="try again, and kill only processes that the command has started",
        )
    cut = summary.size - len(rest)
    output = _shown(rest[: summary.head], rest[summary.head :], cut)
    return ShellResult(exit_code=summary.exit_code, output=output, stopped=summary.stopped, cut=cut)


# --- the tool ---------------------------------------------------------------------------------------------------------

_LONGEST: Final = 100_000  # bytes; Linux takes no argument of more than 128 KiB
_TOO_LONG: Final = "write it into a file and run that"


def shell_function(roots: Roots, *, timeout: float = 60, limit: int = 30_000) -> Function:
    """Make the tool `shell`. It runs as the user of this process, and is not a sandbox.

    Args:
        roots: The folders that a command can start in. Nothing keeps it there.
        timeout: Seconds that a command can take. Processes that outlive the command are killed too.
        limit: Bytes of its output that are kept, half from the beginning and half from the end.
    """
    most = timeout

    @tool(
        name="shell",
        description=(
            "Run a command with `/bin/sh -c`, without a terminal and without input. It is killed after "
            f"{most:g} seconds, and so is what it leaves running in the background when it ends."
        ),
        risk=("write", "network", "destructive"),
        untrusted=True,
    )
    async def shell(
        command: Annotated[str, Field(min_length=1, description="the command line")],
        cwd: Annotated[str, Field(description="the folder to run it in")] = ".",
        timeout: Annotated[  # noqa: ASYNC109 -- it is the model's to give, and the launcher's to hold
            float | None, Field(gt=0, description="seconds that it may take, if fewer")
        ] = None,
    ) -> ShellResult:
        _check(command)
        folder = await asyncio.to_thread(roots.folder, cwd)
        return await run_command(command, folder, seconds=min(most, timeout or most), limit=int(limit))

    return shell


def _check(command: str) -> None:
    if "\0" in command:
        raise ToolFailed("the command must not contain a null character", remedy="remove it")
    if len(command.encode()) > _LONGEST:
        raise ToolFailed(f"the command is longer than {_LONGEST:,} bytes", remedy=_TOO_LONG)


def _shown(head: bytes, tail: bytes, cut: int) -> str:
    """Return the output as text. Invalid bytes are replaced; a character that is cut through is dropped."""
    if not cut:
        return (head + tail).decode("utf-8", "replace")
    begin = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
    whole = next((at for at, byte in enumerate(tail[:4]) if byte & 0xC0 != 0x80), 0)
    end = tail[whole:].decode("utf-8", "replace")
    return f"{begin}\n[... {cut:,} bytes are omitted here ...]\n{end}"
