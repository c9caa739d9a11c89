"""The tool `shell`: its parameters and its result. `process` and `launcher` run the command and end it."""

from __future__ import annotations

import asyncio
import codecs
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ...core.errors import ToolFailed
from ...harness import Function, tool
from ..files import Roots
from .process import Ran, run_command

_LONGEST: Final = 100_000  # bytes; Linux takes no argument of more than 128 KiB
_TOO_LONG: Final = "write it into a file and run that"


class ShellResult(BaseModel):
    """What became of a command.

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
        ran = await run_command(command, folder, seconds=min(most, timeout or most), limit=int(limit))
        return ShellResult.model_validate(
            {"exit_code": ran.exit_code, "output": _shown(ran), "stopped": ran.stopped, "cut": ran.cut}
        )

    return shell


def _check(command: str) -> None:
    if "\0" in command:
        raise ToolFailed("the command must not contain a null character", remedy="remove it")
    try:
        size = len(command.encode())
    except UnicodeEncodeError:
        size = -1
    if size < 0:
        raise ToolFailed("the command must not contain a character that UTF-8 cannot encode", remedy="remove it")
    if size > _LONGEST:
        raise ToolFailed(f"the command is longer than {_LONGEST:,} bytes", remedy=_TOO_LONG)


def _shown(ran: Ran) -> str:
    """Return the output as text. Invalid bytes are replaced; a character that is cut through is dropped."""
    if not ran.cut:
        return (ran.head + ran.tail).decode("utf-8", "replace")
    head = codecs.getincrementaldecoder("utf-8")("replace").decode(ran.head)
    begins = next((at for at, byte in enumerate(ran.tail[:4]) if byte & 0xC0 != 0x80), 0)
    tail = ran.tail[begins:].decode("utf-8", "replace")
    return f"{head}\n[... {ran.cut:,} bytes are omitted here ...]\n{tail}"


__all__ = ["ShellResult", "shell_function"]
