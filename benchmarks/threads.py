"""What waiting for a person costs: a recorded call, a pause, a resume, many recorded calls, many threads.

Run `python benchmarks/threads.py [--quick] [--json]`. It prints a table and one JSON line; README.md explains both.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import sqlite3
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import BaseModel

from worldagent import Roles, Storage, WorldAgent
from worldagent.benchmarks._measure import Cost, Costs, Report, Row, Stopwatch, Work, interleaved, main
from worldagent.benchmarks._peer import Peer, peer
from worldagent.benchmarks._stubs import answering, constant_lm
from worldagent.core.pauses import Approve
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import Function, tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The amounts of a run."""

    rounds: int
    calls: int
    recorded: int
    replays: int
    threads: int
    resumes: int


FULL = Sizes(rounds=9, calls=50, recorded=1000, replays=5, threads=200, resumes=100)
QUICK = Sizes(rounds=2, calls=4, recorded=20, replays=2, threads=5, resumes=4)


class Count(BaseModel):
    """How many calls a handler makes, and of which function, before it pauses."""

    count: int
    function: str = "add"
    ask: bool = True


class Total(BaseModel):
    total: int


async def add(value: int) -> int:
    """The work of every function here."""
    return value


_FUNCTIONS: tuple[Function, ...] = (
    tool(add),  # recorded before and after
    tool(name="look", idempotent=True)(add),  # recorded after
    tool(name="ask", idempotent=True, approval=True)(add),
)


class Turns:
    """Turns of an agent. Each pause has its own thread, and resumes take the oldest first."""

    calls_cost = Cost(0.0, 0.0)

    def __init__(self, agent: WorldAgent) -> None:
        self._agent = agent
        self._paused: deque[tuple[str, str]] = deque()
        self._numbers = itertools.count()

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path) -> AsyncGenerator[Turns]:
        """Make an agent with its files in `folder`."""
        folder.mkdir(exist_ok=True)
        async with WorldAgent(
            "bench",
            lm=constant_lm(answering),
            tools=_FUNCTIONS,
            shapes=[Shape("count", Count, Total, cls._count)],
            storage=Storage(home=folder),
            roles=Roles(),
        ) as agent:
            yield cls(agent)

    @classmethod
    async def _count(cls, params: Count, ctx: TaskContext) -> Total:
        watch = Stopwatch(inside=True)
        total = 0
        for value in range(params.count):
            total += await ctx.call(params.function, {"value": value})
        cls.calls_cost = watch.read(max(1, params.count))
        return Total(total=total + (await ctx.call("ask", {"value": 1}) if params.ask else 0))

    async def calls(self, count: int, function: str) -> Cost:
        """Return the cost of each of `count` calls inside a turn without pauses."""
        gc.collect()
        params = {"count": count, "function": function, "ask": False}
        await self._agent.thread(f"t{next(self._numbers)}").task("count", params)
        return self.calls_cost

    async def pause(self, count: int = 0) -> object:
        """Run a turn until it pauses, after `count` calls."""
        thread = f"t{next(self._numbers)}"
        turn = await self._agent.thread(thread).task("count", {"count": count, "function": "look"})
        self._paused.append((thread, turn.pauses[0].id))
        return turn

    async def resume(self) -> object:
        """Answer the oldest pause."""
        thread, pause = self._paused.popleft()
        turn = await self._agent.thread(thread).resume({pause: Approve()})
        assert turn.status == "done"
        return turn


class Floor:
    """The bare writes that a kind of work needs at least: WAL, every commit synced, one thread, one hop each."""

    def __init__(self, folder: Path) -> None:
        self._executor = ThreadPoolExecutor(1)
        self._ids = itertools.count()
        self._path = folder / "floor.db"
        self._connection: sqlite3.Connection | None = None

    async def write(self, transactions: int) -> None:
        """Write one row of the size of a recorded call in each of several transactions, one after the other."""
        loop = asyncio.get_running_loop()
        for _ in range(transactions):
            await loop.run_in_executor(self._executor, self._transaction)

    async def read(self, rows: int) -> None:
        """Read `rows` rows in one statement."""
        await asyncio.get_running_loop().run_in_executor(self._executor, self._select, rows)

    def close(self) -> None:
        if self._connection is not None:
            self._executor.submit(self._connection.close).result()
        self._executor.shutdown()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(self._path, isolation_level=None)
            for statement in (
                "PRAGMA journal_mode=WAL",
                "PRAGMA synchronous=FULL",
                "CREATE TABLE row(id TEXT PRIMARY KEY, turn TEXT, body TEXT)",
                "CREATE INDEX row_turn ON row(turn)",
            ):
                self._connection.execute(statement)
        return self._connection

    def _transaction(self) -> None:
        connection, number = self._opened(), next(self._ids)
        connection.execute("BEGIN IMMEDIATE")
        values = (f"turn_{number // 1000}/task:count/add:{number:012x}", f"turn_{number // 1000}", "x" * 200)
        connection.execute("INSERT INTO row VALUES(?, ?, ?)", values)
        connection.execute("COMMIT")

    def _select(self, rows: int) -> None:
        found = self._opened().execute("SELECT * FROM row LIMIT ?", (rows,)).fetchall()
        assert len(found) == rows, "write them first"


async def recorded_calls(turns: Turns, floor: Floor, rival: Peer, sizes: Sizes) -> list[Row]:
    """The cost of a recorded call inside a turn, compared with a bare `await` and with the writes that it needs."""
    taken: dict[str, list[Cost]] = {"effect": [], "idempotent": [], "peer": [], "bare": [], "two": [], "one": []}
    cases: dict[str, Callable[[], Awaitable[Cost]]] = {
        "effect": lambda: turns.calls(sizes.calls, "add"),
        "idempotent": lambda: turns.calls(sizes.calls, "look"),
        "peer": lambda: _peer_calls(rival, sizes.calls),
        "bare": lambda: _each(100 * sizes.calls, lambda: add(1)),
        "two": lambda: _each(sizes.calls, lambda: floor.write(2)),
        "one": lambda: _each(sizes.calls, lambda: floor.write(1)),
    }
    for number in range(sizes.rounds + 1):
        for name, work in cases.items():
            cost = await work()
            if number:  # the setup in a first call is not counted
                taken[name].append(cost)
    costs = Costs(taken)
    return [
        Row(key="bare_call_cpu_us", value=1e6 * costs.cpu("bare"), unit="us", note="await of the body alone"),
        Row(key="call_floor_cpu_us", value=1e6 * costs.cpu("two"), unit="us", note="two bare transactions"),
        Row(key="call_floor_wall_us", value=1e6 * costs.wall("two"), unit="us"),
        Row(key="call_cpu_us", value=1e6 * costs.cpu("effect"), unit="us", note="recorded before and after"),
        Row(key="call_wall_us", value=1e6 * costs.wall("effect"), unit="us"),
        Row(key="call_cpu", value=costs.cpu_ratio("effect", "two")),
        Row(key="call_wall", value=costs.wall_ratio("effect", "two")),
        Row(key="idempotent_call_cpu_us", value=1e6 * costs.cpu("idempotent"), unit="us", note="recorded after"),
        Row(key="idempotent_call_cpu", value=costs.cpu_ratio("idempotent", "one")),
        Row(key="idempotent_call_wall", value=costs.wall_ratio("idempotent", "one")),
        Row(key="langgraph_task_cpu_us", value=1e6 * costs.cpu("peer"), unit="us", note="recorded after"),
        Row(key="idempotent_call_over_langgraph_cpu", value=costs.cpu_ratio("idempotent", "peer")),
        Row(key="idempotent_call_over_langgraph_wall", value=costs.wall_ratio("idempotent", "peer")),
    ]


async def pauses(turns: Turns, floor: Floor, rival: Peer, sizes: Sizes) -> list[Row]:
    """A turn until it pauses, and from the answer to its end."""
    cases: dict[str, Work] = {
        "pause": turns.pause,
        "resume": turns.resume,
        "pause floor": lambda: floor.write(4),
        "resume floor": lambda: floor.write(5),
        "peer pause": rival.pause,
        "peer resume": rival.resume,
    }
    costs = await interleaved(cases, rounds=sizes.rounds, calls=max(1, sizes.calls // 5))
    rows: list[Row] = []
    for name, writes in (("pause", 4), ("resume", 5)):
        rows += [
            Row(
                key=f"{name}_floor_wall_ms", value=1e3 * costs.wall(f"{name} floor"), unit="ms", note=f"{writes} writes"
            ),
            Row(key=f"{name}_cpu_ms", value=1e3 * costs.cpu(name), unit="ms"),
            Row(key=f"{name}_wall_ms", value=1e3 * costs.wall(name), unit="ms"),
            Row(key=f"{name}_cpu", value=costs.cpu_ratio(name, f"{name} floor")),
            Row(key=f"{name}_wall", value=costs.wall_ratio(name, f"{name} floor")),
            Row(key=f"langgraph_{name}_cpu_ms", value=1e3 * costs.cpu(f"peer {name}"), unit="ms"),
            Row(key=f"{name}_over_langgraph_cpu", value=costs.cpu_ratio(name, f"peer {name}")),
            Row(key=f"{name}_over_langgraph_wall", value=costs.wall_ratio(name, f"peer {name}")),
        ]
    return rows


async def replays(turns: Turns, floor: Floor, rival: Peer, sizes: Sizes) -> list[Row]:
    """Resume of a turn that has made many calls: it makes each call again, and the result comes from the record."""
    tenth = sizes.recorded // 10
    await floor.write(sizes.recorded)
    cases: dict[str, Work] = {
        "pause": lambda: turns.pause(sizes.recorded),
        "resume": turns.resume,
        "tenth pause": lambda: turns.pause(tenth),
        "tenth": turns.resume,
        "none pause": turns.pause,
        "none": turns.resume,
        "floor": lambda: floor.read(sizes.recorded),
        "peer pause": rival.with_calls(sizes.recorded),
        "peer": rival.resume,
    }
    costs = await interleaved(cases, rounds=sizes.replays, calls=1)

    def more(case: str, count: int) -> float:
        pairs = zip(costs.rounds[case], costs.rounds["none"], strict=True)
        return median((many.cpu - none.cpu) / count for many, none in pairs)

    each = more("resume", sizes.recorded)
    return [
        Row(key="replay_cpu_ms", value=1e3 * costs.cpu("resume"), unit="ms", note=f"{sizes.recorded} calls"),
        Row(key="replay_wall_ms", value=1e3 * costs.wall("resume"), unit="ms"),
        Row(key="replay_call_cpu_us", value=1e6 * each, unit="us", note="what one of them adds"),
        Row(key="replay_last_over_tenth", value=each / more("tenth", tenth), note="linear is 1"),
        Row(key="replay_floor_cpu_ms", value=1e3 * costs.cpu("floor"), unit="ms", note="reading as many rows"),
        Row(key="langgraph_replay_cpu_ms", value=1e3 * costs.cpu("peer"), unit="ms", note="as many tasks"),
        Row(key="replay_over_langgraph_cpu", value=costs.cpu_ratio("resume", "peer")),
        Row(key="replay_over_langgraph_wall", value=costs.wall_ratio("resume", "peer")),
    ]


async def many_threads(folder: Path, sizes: Sizes) -> list[Row]:
    """Resume of a turn while many other turns wait, compared with a resume while no other turn waits."""
    async with Turns.open(folder / "one") as one, Turns.open(folder / "many") as many:
        for _ in range(sizes.threads - 1):
            await many.pause()
        cases: dict[str, Work] = {
            "one pause": one.pause,
            "many pause": many.pause,
            "one": one.resume,
            "many": many.resume,
        }
        costs = await interleaved(cases, rounds=sizes.resumes, calls=1)
    return [
        Row(key="resume_of_one_wall_ms", value=1e3 * costs.wall("one"), unit="ms"),
        Row(key="resume_of_many_wall_ms", value=1e3 * costs.wall("many"), unit="ms", note=f"{sizes.threads} threads"),
        Row(key="resume_of_many_wall", value=costs.wall("many") / costs.wall("one"), aim=1.2),
        Row(key="resume_of_many_cpu", value=costs.cpu("many") / costs.cpu("one"), aim=1.2),
    ]


async def _each(count: int, work: Callable[[], Awaitable[object]]) -> Cost:
    watch = Stopwatch()
    for _ in range(count):
        await work()
    return watch.read(count)


async def _peer_calls(rival: Peer, count: int) -> Cost:
    gc.collect()
    await rival.with_calls(count)()
    cost = rival.calls_cost
    await rival.resume()
    return cost


async def run(report: Report, sizes: Sizes) -> None:
    """Measure everything, in the order of README.md."""
    async with AsyncExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        floor = Floor(folder)
        opened.callback(floor.close)
        turns = await opened.enter_async_context(Turns.open(folder / "home"))
        rival = await opened.enter_async_context(peer(folder))
        given: tuple[Any, ...] = (turns, floor, rival, sizes)
        report.section("A recorded call, over bare SQLite", await recorded_calls(*given))
        report.section("A pause and a resume, over bare SQLite and over LangGraph", await pauses(*given))
        report.section(f"Resume after {sizes.recorded} recorded calls", await replays(*given))
        title = f"Resume with {sizes.threads} paused threads, over one"
        report.section(title, await many_threads(folder, sizes))


if __name__ == "__main__":
    main(
        "threads",
        "What waiting for a person costs.",
        lambda report: run(report, QUICK if report.quick else FULL),
    )
