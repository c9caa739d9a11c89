"""One command in a process below a launcher: how that is started, waited for and let go.

Nothing of a call is known here. What the launcher does is in `launcher`; it does it too where this process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...core.errors import ToolFailed
from ..program import Program

_LAUNCHER: Final = Path(__file__).with_name("launcher.py")
_FLOOD: Final = 256 << 20
_PROCESSES: Final = 1000
_GRACE: Final = 10.0  # seconds for the launcher, over the command's own
_PROBED: Final = 10.0  # seconds for the command that looks at this process
_LATE: Final = 1.0  # seconds for one that has used these up
_HEADER: Final = 1024  # bytes for what the launcher tells with the output
_CHUNK: Final = 1 << 16
# What tells where things are, and how to write. Proxies are not among it: their addresses may hold a password.
_KEPT: Final = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TMPDIR", "USER", "VIRTUAL_ENV"),
    *("LANG", "LANGUAGE", "TERM", "TZ"),
    *("LD_LIBRARY_PATH", "SSL_CERT_DIR", "SSL_CERT_FILE"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What became of a command.

    Attributes:
        exit_code: What it ended with, 128 and the signal's number where a signal ended it; None where it was stopped.
        stopped: What stopped it: `time`, `output` or `processes`.
        head: The first bytes that it wrote.
        tail: The last ones.
        cut: How many were between.
    """

    exit_code: int | None
    stopped: str | None
    head: bytes
    tail: bytes
    cut: int


class _Header(BaseModel):
    """What the launcher tells of a command, as a line before its output. The command can have written there too."""

    model_config = ConfigDict(extra="forbid", strict=True)

    exit_code: Annotated[int, Field(ge=0, le=255)] | None
    stopped: Literal["time", "output", "processes"] | None
    size: Annotated[int, Field(ge=0, lt=1 << 50)]
    head: Annotated[int, Field(ge=0)]


def environment(host: Mapping[str, str]) -> dict[str, str]:
    """What a command gets of the host's environment: what tells where things are and how to write, and no other.

    Args:
        host: The host's.
    """
    kept = {name: value for name, value in host.items() if name in _KEPT or name.startswith("LC_")}
    return {"PATH": os.defpath, **kept}


async def run_command(command: str, folder: Path, *, seconds: float, limit: int) -> Ran:
    """Run a command; nothing that it started goes on when this returns, raises or is cancelled.

    Args:
        command: What `/bin/sh -c` takes.
        folder: Where it runs.
        seconds: How long it may take.
        limit: How many bytes of its output are kept.

    Raises:
        ToolFailed: It cannot be started, or has ended or disturbed what runs it.
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
                launcher.stdin.write(line)  # nothing runs before: a start that is cut off leaves nothing behind
                group = await launcher.stdout.readline()
                said = await _heard(launcher, max(2, limit) + _HEADER, time)
        except (ConnectionError, TimeoutError):  # something has killed the launcher, or has stopped it
            patience = _LATE
    finally:
        try:
            await launcher.end(patience)  # it kills what there is once its input is closed
        finally:
            if launcher.exit_code and group.strip().isdigit():  # something has killed or stopped it before it could
                _kill(int(group))
    return _read(said)


async def hides_host() -> bool:
    """Run a command that tries to read this process's environment, and report whether the system kept it from that.

    Raises:
        ToolFailed: The command cannot be started.
    """
    ran = await run_command(f"cat /proc/{os.getpid()}/environ >/dev/null", Path(os.sep), seconds=_PROBED, limit=1)
    return sys.platform == "linux" and ran.exit_code not in (0, None)


async def _heard(launcher: Program, most: int, time: asyncio.Timeout) -> bytes:
    """What the launcher writes until its end; nothing where that is more than it writes by itself."""
    said = bytearray()
    while len(said) <= most:
        if not (more := await launcher.stdout.read(_CHUNK)):
            return bytes(said)
        said += more
    launcher.stdin.transport.abort()  # it kills the command then
    time.reschedule(asyncio.get_running_loop().time() + _GRACE)
    while await launcher.stdout.read(_CHUNK):  # it could not end before what it writes is taken
        pass
    return b""


async def _started(folder: Path, env: Mapping[str, str]) -> Program:
    problem = "this system has no such shell"
    if os.name == "posix":
        try:
            return await Program.start(_LAUNCHER, env=env, folder=folder)
        except OSError as error:
            problem = (error.strerror or type(error).__name__).lower()
    raise ToolFailed(f"no command can be started in {str(folder)!r}: {problem}", remedy="tell the user")


def _kill(group: int) -> None:
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _read(said: bytes) -> Ran:
    header, _, rest = said.partition(b"\n")
    try:
        told = _Header.model_validate_json(header)
    except ValidationError:
        told = None
    if told is None or told.head > len(rest) or told.size < len(rest):
        raise ToolFailed(
            "the command is lost: what runs it was killed or disturbed, or could not begin",
            remedy="try again, and kill nothing but what the command has started",
        )
    head, tail = rest[: told.head], rest[told.head :]
    return Ran(exit_code=told.exit_code, stopped=told.stopped, head=head, tail=tail, cut=told.size - len(rest))


__all__ = ["Ran", "environment", "hides_host", "run_command"]
