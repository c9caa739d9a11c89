"""The command line as a process of its own, as people run it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from support.house import ROOT

COMMAND = (sys.executable, "-P", "-m", "worldagent.hosts.cli")
APP = ("--app", "support.hat_shop:agent")
BOUND = 90  # seconds


@dataclass(frozen=True)
class Done:
    """What a command gave."""

    code: int
    out: str
    told: str


def environment(home: Path, **more: str) -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT / ".dev"), str(ROOT / "tests")])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WORLDAGENT_")}
    return kept | {"PYTHONPATH": paths, "WORLDAGENT_HOME": str(home), "OPENAI_API_KEY": "key-of-a-test"} | more


async def command(home: Path, *words: str, stdin: bytes = b"", **more: str) -> Done:
    """Run a command to its end."""
    async with started(home, *words, **more) as process:
        out, told = await asyncio.wait_for(process.communicate(stdin), BOUND)
    assert process.returncode is not None
    return Done(process.returncode, out.decode(), told.decode())


@asynccontextmanager
async def started(home: Path, *words: str, **more: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Start a command; it is killed at the end of the block if it still runs."""
    home.mkdir(exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *words,
        env=environment(home, **more),
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
