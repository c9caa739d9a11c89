"""Starts what `peers.py` needs: an environment for each framework, the stub, and one process for each measurement.

The measured process has its own core; the stub and everything else share the others. `_peers` does the measuring.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
import urllib.request
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import worldagent
from worldagent.benchmarks._environments import Unmeasured, installed_python
from worldagent.benchmarks._peers import KEY, Job, Measured

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "agent-framework": ("agent-framework-core==1.23.0", "agent-framework-openai==1.17.0", "openai==3.57.0"),
    "agno": ("agno==3.1.10", "sqlalchemy[asyncio]==2.1.9", "openai==3.57.0"),
    "pydantic-ai": ("pydantic-ai-slim[openai]==2.68.0", "openai==3.57.0"),
    "openai-agents": ("openai-agents==0.24.0", "openai==3.57.0"),
    "deepagents": (
        "deepagents==0.7.32",
        "langchain-openai==1.7.4",
        "langgraph-checkpoint-sqlite==3.1.2",
        "openai==3.57.0",
    ),
}
"""The packages of each peer's environment. Other peers run in this one, which has dspy and the openai client."""

_LONGEST = 300.0  # seconds of a measured process
# Variables that a shell can have and a peer would read.
_LEFT_OUT = ("WORLDAGENT_", "OPENAI_", "LANGCHAIN_", "LANGSMITH_", "PYTHON", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The counts of the stub.

    Attributes:
        calls: Model calls under one name.
        most_at_once: The most concurrent ones among them.
        cpu: CPU seconds of the stub so far, for all names.
    """

    calls: int
    most_at_once: int
    cpu: float


# --- environments ---------------------------------------------------------------------------------------------------


def python_of(peer: str, say: Callable[[str], object]) -> Path:
    """Return the Python that runs a peer. Install the peer's environment if it does not exist yet.

    Args:
        peer: A key of `_peers.PEERS`.
        say: Called with a line before an installation.

    Raises:
        Unmeasured: The peer cannot be installed.
    """
    if peer not in PACKAGES:
        if find_spec("worldagent.agent" if peer == "ours" else peer) is None:
            raise Unmeasured(f"{peer} is not installed in this environment")
        return Path(sys.executable)
    return installed_python(peer, PACKAGES[peer], say)


# --- load -----------------------------------------------------------------------------------------------------------


async def quiet_load(aim: float, *, wait: float) -> float | None:
    """Wait until the machine's load average of one minute is below `aim`, for at most `wait` seconds.

    Returns:
        The load average at the end; None if the system does not report it.
    """
    if not hasattr(os, "getloadavg"):
        return None
    end = time.monotonic() + wait
    while (load := os.getloadavg()[0]) >= aim and time.monotonic() < end:  # noqa: ASYNC110 -- the system has no event for it
        await asyncio.sleep(1)
    return load


# --- processes ------------------------------------------------------------------------------------------------------


class Bench:
    """The stub and the processes that are measured against it.

    Args:
        address: The address of the stub.
        core: The core of measured processes; None means any core.
    """

    def __init__(self, address: str, core: int | None) -> None:
        self.core = core
        self._address = address
        self._jobs = 0

    def url(self, latency: int) -> tuple[str, str]:
        """Return a new name for the counts of the stub, and its base address; `latency` is in milliseconds."""
        self._jobs += 1
        return f"job{self._jobs}", f"{self._address}/{latency}/job{self._jobs}/v1"

    def counted(self, name: str) -> Counted:
        with urllib.request.urlopen(f"{self._address}/{name}", timeout=30) as answer:
            return Counted(**json.load(answer))

    async def measured(self, python: Path, job: Job) -> Measured:
        """Run a job in its own process.

        Raises:
            Unmeasured: The process failed, or took too long.
        """
        return Measured(**await self.run(python, "_peers", job))

    async def run(
        self, python: Path, module: str, job: Job, environment: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Run a module of this folder in its own process and return what it measured.

        Args:
            python: The Python that runs it.
            module: The module. It takes the JSON of a job as its argument and prints JSON.
            job: The job.
            environment: Additional variables of the process.

        Raises:
            Unmeasured: The process failed, or took too long.
        """
        argv = ("-P", "-m", f"worldagent.benchmarks.{module}", json.dumps(asdict(job)))
        found = {**_environment(job.folder), **(environment or {})}
        process = await asyncio.create_subprocess_exec(
            python, *argv, env=found, cwd=job.folder, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        if self.core is not None:
            os.sched_setaffinity(process.pid, {self.core})
        try:
            async with asyncio.timeout(_LONGEST):
                said, problems = await process.communicate()
        except TimeoutError:
            raise Unmeasured(f"{job.peer} took longer than {_LONGEST:.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            lines = problems.decode(errors="replace").strip().splitlines() or [f"exit status {process.returncode}"]
            raise Unmeasured(f"{job.peer} failed: {lines[-1][:200]}")
        measured: dict[str, Any] = json.loads(said.splitlines()[-1])
        return measured


@asynccontextmanager
async def bench(*, pinned: bool) -> AsyncGenerator[Bench]:
    """Start the stub, which ends with the block; `pinned` gives measured processes the last core alone, on Linux."""
    cores = sorted(os.sched_getaffinity(0)) if pinned and hasattr(os, "sched_getaffinity") else []
    argv = ("-P", "-m", "worldagent.benchmarks._peers_stub")
    stub = await asyncio.create_subprocess_exec(
        sys.executable, *argv, env=_environment(tempfile.gettempdir()), stdin=PIPE, stdout=PIPE
    )
    assert stub.stdin is not None
    assert stub.stdout is not None
    try:
        address = (await stub.stdout.readline()).decode().strip()
        assert address, "the stub did not start"
        if len(cores) > 1:
            os.sched_setaffinity(stub.pid, set(cores[:-1]))
        yield Bench(address, cores[-1] if len(cores) > 1 else None)
    finally:
        stub.stdin.close()
        await stub.wait()


def _environment(folder: str) -> dict[str, str]:
    """Return the variables of a process: worldagent's folder, a key, and settings that disable telemetry."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_LEFT_OUT) and not name.lower().endswith("_proxy")
    }
    return kept | {
        "PYTHONPATH": str(Path(worldagent.__file__).parent.parent),
        "OPENAI_API_KEY": KEY,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "AGNO_TELEMETRY": "false",
        "LANGSMITH_TRACING": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OTEL_SDK_DISABLED": "true",
        "DSPY_CACHEDIR": str(Path(folder) / "dspy"),
    }
