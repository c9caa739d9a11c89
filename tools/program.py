"""A Python program of this package in a separate process: starting it, waiting for it and ending it.

The programs are `launcher` and `web.html_program`. They are started by their path and import nothing of the
package, so that they begin within a few hundredths of a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections.abc import Mapping
from multiprocessing import spawn
from pathlib import Path
from subprocess import DEVNULL
from typing import Final

_BUFFER: Final = 1 << 16


class Program:
    """A running program; see `start`.

    Attributes:
        stdin: Its standard input.
        stdout: Its standard output; its standard error is discarded.
    """

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: SubprocessStreamProtocol) -> None:
        assert protocol.stdin is not None
        assert protocol.stdout is not None
        self.stdin = protocol.stdin
        self.stdout = protocol.stdout
        self._transport = transport
        self._process = asyncio.subprocess.Process(transport, protocol, asyncio.get_running_loop())

    @classmethod
    async def start(cls, path: Path, *argv: str, env: Mapping[str, str], folder: Path | None = None) -> Program:
        """Start a program in its own session, without open files of this process.

        Args:
            path: The program's file.
            argv: Its arguments.
            env: Its environment.
            folder: The folder that it runs in.

        Raises:
            OSError: It cannot be started.
        """
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(_BUFFER, loop),
            os.fsdecode(spawn.get_executable() or ""),  # an embedder's `sys.executable` need not be Python
            "-I",
            "-S",
            path,
            *argv,
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            cwd=folder,
            env=env,
            start_new_session=True,
        )
        return cls(transport, protocol)

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative if a signal ended it; None while it runs."""
        return self._transport.get_returncode()

    async def end(self, patience: float) -> None:
        """Close its input and wait for its end, even if the caller is cancelled; kill it after `patience` seconds.

        Args:
            patience: Seconds for it to end by itself.
        """
        if not self.stdin.is_closing():
            self.stdin.transport.abort()  # the rest of the input is not needed
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        ended = asyncio.ensure_future(self._process.wait())
        cancelled: asyncio.CancelledError | None = None
        killed = False
        while not ended.done():
            left = until - loop.time()
            if left <= 0 and not killed:
                killed = True
                self._kill()
            try:
                await asyncio.wait((ended,), timeout=None if killed else left)
            except asyncio.CancelledError as error:  # it can come again; the program is ended in any case
                cancelled = error
        self._transport.close()
        if cancelled is not None:
            raise cancelled
        await asyncio.sleep(0)  # the pipes close in the loop's next iteration

    def _kill(self) -> None:
        with contextlib.suppress(PermissionError, ProcessLookupError):
            if os.name == "posix":
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
