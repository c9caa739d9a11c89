"""A host that is a program, from its start to its end. Its messages are in `_streams`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, SubprocessStreamProtocol
from pathlib import Path
from typing import Final

from mcp.client.stdio import get_default_environment

from ....mcp_client import LONGEST_ANSWER, StdioHost

_PAUSE: Final = 0.01  # seconds between two looks
_KILLED: Final = 5.0


class Program:
    """A child and its streams, in a group of processes of its own.

    A line of its output that is longer than an agent reads is an error of the stream. `start` makes one.

    Attributes:
        stdin: What it reads.
        stdout: What it writes.
    """

    def __init__(self, child: asyncio.SubprocessTransport, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader):
        self._child = child
        self.stdin = stdin
        self.stdout = stdout

    @classmethod
    async def start(cls, host: StdioHost) -> Program:
        """Start it.

        Raises:
            OSError: It cannot be started.
        """
        loop = asyncio.get_running_loop()
        child, streams = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(LONGEST_ANSWER, loop),
            *host.argv,
            stderr=None if host.stderr == "inherit" else DEVNULL,
            env=get_default_environment() | dict(host.env or {}),
            cwd=host.cwd,
            start_new_session=True,
        )
        assert streams.stdin is not None
        assert streams.stdout is not None
        return cls(child, streams.stdin, streams.stdout)

    @property
    def ended(self) -> bool:
        """Whether it has. What its own children do, which may hold its streams, is not looked at."""
        return self._child.get_returncode() is not None

    async def gone(self, limit: float) -> bool:
        """Whether it ends within `limit` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while not self.ended:  # noqa: ASYNC110 -- the end of a process sets no event of ours
                    await asyncio.sleep(_PAUSE)
        return self.ended

    async def left(self, limit: float) -> bool:
        """Whether processes that it started are still there after `limit` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while _alive(self._child.get_pid()):  # noqa: ASYNC110 -- as above
                    await asyncio.sleep(_PAUSE)
        return _alive(self._child.get_pid())

    async def end(self, grace: float) -> None:
        """Close its input; after `grace` seconds kill it and whatever it has started."""
        try:
            self.stdin.close()
            await self.gone(grace)
        finally:
            with contextlib.suppress(OSError):
                if os.name == "posix":
                    os.killpg(self._child.get_pid(), signal.SIGKILL)
                elif not self.ended:
                    self._child.kill()
            await self.gone(_KILLED)
            with contextlib.suppress(PermissionError):  # of a child that has become another user
                self._child.close()  # also the streams, which somebody that left its group may still hold


def _alive(group: int) -> bool:
    if os.name != "posix":
        return False
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return sys.platform != "linux" or _has_running(group)


def _has_running(group: int) -> bool:
    """Whether a process of the group still runs. One that nobody has waited for yet counts as one for `killpg`."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of_group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if of_group == str(group) and state not in "ZX":
                return True
    return False


__all__ = ["Program"]
