"""How soon a running turn reads what is said to it, and what that costs (T15).

Run `python benchmarks/inbox.py [--quick] [--json]`. It prints a table and one JSON line; README.md explains both.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

from dspy.lm15 import Request

from worldagent import WorldAgent
from worldagent.benchmarks._inbox_worker import WORD, agent_of
from worldagent.benchmarks._measure import Report, Row, interleaved, main
from worldagent.benchmarks._postgres import new_database, server
from worldagent.benchmarks._stubs import ANSWER, constant_lm
from worldagent.harness import tool

_CALL = '[{"tool": "wait", "arguments": {}}]'


class Beside:
    """Turns that call a function, which ends once they were steered, or at once.

    Attributes:
        agent: Runs them.
        read: When the model was last asked with the message.
    """

    def __init__(self) -> None:
        self.agent: WorldAgent
        self.waits, self.may = asyncio.Event(), asyncio.Event()
        self.read = 0.0
        self._threads = itertools.count()
        self._steerer: asyncio.subprocess.Process | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, home: Path, url: str | None = None) -> AsyncGenerator[Beside]:
        """Open an agent, and the process that steers it."""
        this = cls()
        wait = tool(this.wait, risk="read_only")
        async with agent_of(home, url, constant_lm(this.reply), wait) as this.agent:
            argv = [
                sys.executable,
                "-P",
                "-m",
                "worldagent.benchmarks._inbox_worker",
                str(home),
                *([url] if url else []),
            ]
            pipe = asyncio.subprocess.PIPE
            this._steerer = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
            try:
                assert (await this._line()) == "ready"
                yield this
            finally:
                assert this._steerer.stdin is not None
                this._steerer.stdin.close()
                await this._steerer.wait()

    def reply(self, request: Request) -> str:
        """Call the function once, and then answer."""
        if len(request.messages) == 1:
            return f"[[ ## reply ## ]]\n\n\n[[ ## calls ## ]]\n{_CALL}\n\n[[ ## completed ## ]]"
        if WORD in str(request.messages):
            self.read = time.perf_counter()
        return f"[[ ## reply ## ]]\n{ANSWER}\n\n[[ ## calls ## ]]\n[]\n\n[[ ## completed ## ]]"

    async def wait(self) -> str:
        """Wait."""
        self.waits.set()
        await self.may.wait()
        return "waited"

    async def here(self) -> tuple[float, float]:
        """Steer a turn from its own process; seconds until that returned, and until the model reads it."""
        return await self._steered(apart=False)

    async def apart(self) -> tuple[float, float]:
        """Steer a turn from the other process; see `here`."""
        return await self._steered(apart=True)

    async def _steered(self, *, apart: bool) -> tuple[float, float]:
        self.waits.clear()
        self.may.clear()
        self.read = 0.0
        name = f"t{next(self._threads)}"
        thread = self.agent.thread(name)
        turn = asyncio.ensure_future(thread.converse("Who rules Vell?"))
        await self.waits.wait()
        if apart:
            assert self._steerer is not None
            assert self._steerer.stdin is not None
            self._steerer.stdin.write(f"{name}\n".encode())
            began, put = map(float, (await self._line()).split())
        else:
            began = time.perf_counter()
            await thread.steer(WORD)
            put = time.perf_counter()
        self.may.set()
        await turn
        assert self.read, "the model did not read the message"
        return put - began, self.read - began

    async def _line(self) -> str:
        assert self._steerer is not None
        assert self._steerer.stdout is not None
        return (await self._steerer.stdout.readline()).decode().strip()

    async def plain(self) -> object:
        """A turn with the same call and without a message."""
        self.may.set()
        return await self.agent.thread(f"t{next(self._threads)}").converse("Who rules Vell?")


async def _times(beside: Beside, engine: str, calls: int) -> list[Row]:
    found: dict[str, tuple[list[float], list[float]]] = {"here": ([], []), "apart": ([], [])}
    for _ in range(calls):
        for name, steer in (("here", beside.here), ("apart", beside.apart)):
            for kept, seconds in zip(found[name], await steer(), strict=True):
                kept.append(seconds)
    rows: list[Row] = []
    for name, (put, read) in found.items():
        rows.append(_row(f"{name}_{engine}_put_ms", put[1:]))  # the first one warms up
        rows.append(_row(f"{name}_{engine}_read_ms", read[1:]))
    return rows


def _row(key: str, seconds: list[float]) -> Row:
    return Row(key=key, value=1000 * median(seconds), unit="ms", spread=(1000 * min(seconds), 1000 * max(seconds)))


async def run(report: Report) -> None:
    """Measure on SQLite, and on Postgres if its packages are there."""
    calls, rounds = (4, 2) if report.quick else (60, 9)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        async with Beside.open(folder / "sqlite") as beside:
            report.section("from steer() to the thought that reads it, SQLite", await _times(beside, "sqlite", calls))
            costs = await interleaved(
                {"steered": beside.here, "plain": beside.plain}, rounds=rounds, calls=calls // 3 or 1
            )
            cost = Row(key="word_cpu", value=costs.cpu_ratio("steered", "plain"))
            report.section("a turn with a call and a message over one without the message", [cost])
        started = stack.enter_context(server())
        if started is None:
            keys = [f"{name}_postgres_{what}_ms" for name in ("here", "apart") for what in ("put", "read")]
            rows = [Row(key=key, value=None, unit="ms", note="not installed") for key in keys]
        else:
            async with Beside.open(folder / "postgres", new_database(started, "inbox")) as beside:
                rows = await _times(beside, "postgres", calls)
        report.section("from steer() to the thought that reads it, Postgres", rows)


if __name__ == "__main__":
    main("inbox", "How soon a running turn reads what is said to it, and what that costs.", run)
