"""What a turn costs in bytes and CPU as the 10th, 100th and 1,000th of its thread, on SQLite and on Postgres.

Run `python benchmarks/growth.py [--quick] [--json]`. It prints a table and one JSON line; README.md explains both.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worldagent import Settings, Storage, WorldAgent
from worldagent.benchmarks._measure import Report, Row, Stopwatch, bytes_written, main
from worldagent.benchmarks._postgres import server
from worldagent.benchmarks._stubs import QUESTION, answering, constant_lm

_SHORT = 20  # messages that the model sees, so that their number is the same at each point
_WAL = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"
_SIZE = """SELECT COALESCE(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
           WHERE c.relkind='r' AND c.relnamespace='public'::regnamespace"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The measured turns, and how many turns up to each are averaged: old checkpoints go every ninth turn or so."""

    points: tuple[int, int, int]
    windows: tuple[int, int, int]


FULL = Sizes((10, 100, 1000), (10, 50, 50))
QUICK = Sizes((2, 4, 6), (2, 2, 2))


@dataclass(frozen=True, slots=True)
class Taken:
    """The cost of one turn of a window: bytes kept and written, seconds of CPU here and in the server."""

    kept: float
    written: float | None
    cpu: float
    served: float | None


class Store(ABC):
    """A database whose growth is measured."""

    storage: Storage

    @abstractmethod
    def size(self) -> int:
        """Bytes of the database."""

    @abstractmethod
    def written(self) -> int | None:
        """Bytes written so far; None if the system does not report them."""

    @abstractmethod
    def served(self) -> float | None:
        """CPU seconds of a server so far; None without a server."""


class InFile(Store):
    """The SQLite file of a home."""

    def __init__(self, folder: Path) -> None:
        self.storage = Storage(home=folder)

    def size(self) -> int:
        with contextlib.closing(sqlite3.connect(self.storage.database)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return self.storage.database.stat().st_size

    def written(self) -> int | None:
        return bytes_written()

    def served(self) -> float | None:
        return None


class OnServer(Store):
    """A database of a server without other clients."""

    def __init__(self, folder: Path, server: Any, database: str) -> None:
        import psycopg
        from psutil import Process

        self._process = Process(server.get_pid())
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {database}".encode())
        self.storage = Storage(home=folder, url=server.get_uri(database))

    def size(self) -> int:
        return self._asked(_SIZE)

    def written(self) -> int | None:
        return self._asked(_WAL)

    def served(self) -> float | None:
        from psutil import NoSuchProcess

        own = self._process.cpu_times()
        total = own.user + own.system + own.children_user + own.children_system
        for process in self._process.children():
            with contextlib.suppress(NoSuchProcess):  # it has ended since, and counts with the ended ones
                times = process.cpu_times()
                total += times.user + times.system
        return float(total)

    def _asked(self, query: str) -> int:
        import psycopg

        with psycopg.connect(self.storage.url or "") as connection:
            row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return int(row[0])


async def grown(store: Store, sizes: Sizes, *, history: int | None) -> list[Taken]:
    """Run one thread up to the last point, and return the cost of a turn at each point."""
    settings = Settings() if history is None else Settings(history_limit=history)
    taken: list[Taken] = []
    async with WorldAgent("bench", lm=constant_lm(answering), storage=store.storage, settings=settings) as agent:
        await agent.thread("first").converse(QUESTION)
        thread, turns = agent.thread("long"), 0
        for point, window in zip(sizes.points, sizes.windows, strict=True):
            for _ in range(point - window - turns):
                await thread.converse(QUESTION)
            taken.append(await _window(store, window, lambda: thread.converse(QUESTION)))
            turns = point
    return taken


async def _window(store: Store, turns: int, turn: Callable[[], Any]) -> Taken:
    size, written, served, watch = store.size(), store.written(), store.served(), Stopwatch()
    for _ in range(turns):
        await turn()
    cpu = watch.read(turns).cpu
    return Taken(
        kept=(store.size() - size) / turns,
        written=_each(store.written(), written, turns),
        cpu=cpu,
        served=_each(store.served(), served, turns),
    )


def _each(after: float | None, before: float | None, turns: int) -> float | None:
    return None if after is None or before is None else (after - before) / turns


def figures(name: str, unit: str, values: Sequence[float | None], sizes: Sizes, *, aim: float | None) -> list[Row]:
    """A row for each point, and the ratio of the last two. At both, histories are full, and pruning runs."""
    points = FULL.points  # the keys are the same in a quick run
    rows = [
        Row(key=f"{name}_{point}", value=value, unit=unit, note=f"turn {turn:,}")
        for point, turn, value in zip(points, sizes.points, values, strict=True)
    ]
    ratio = _ratio(values[2], values[1])
    return [*rows, Row(key=f"{name}_{points[2]}_over_{points[1]}", value=ratio, aim=aim, note="flat is 1")]


def over_first(name: str, values: Sequence[float | None]) -> Row:
    """The ratio of the last point and the first."""
    return Row(key=f"{name}_{FULL.points[2]}_over_{FULL.points[0]}", value=_ratio(values[2], values[0]))


def _ratio(last: float | None, first: float | None) -> float | None:
    return None if first is None or last is None or first <= 0 else last / first


async def measured(prefix: str, stores: Sequence[Store] | None, sizes: Sizes) -> list[Row]:
    """The figures of one database engine, from a thread with a short history and one with the default history."""
    if stores is None:
        nothing: list[float | None] = [None] * 3
        short = full = [Taken(0.0, None, 0.0, None)] * 3
        kept = cpu = longer = nothing
    else:
        short = await grown(stores[0], sizes, history=_SHORT)
        full = await grown(stores[1], sizes, history=None)
        kept, cpu = [one.kept / 1e3 for one in short], [1e3 * one.cpu for one in short]
        longer = [1e3 * one.cpu for one in full]
    written = [None if one.written is None else one.written / 1e3 for one in short]
    rows = [
        *figures(f"{prefix}_kept_kb", "kB", kept, sizes, aim=1.2),
        *figures(f"{prefix}_written_kb", "kB", written, sizes, aim=1.2),
        *figures(f"{prefix}_cpu_ms", "ms", cpu, sizes, aim=1.2),
        over_first(f"{prefix}_cpu_ms", cpu),
        *figures(f"{prefix}_full_history_cpu_ms", "ms", longer, sizes, aim=None),
        over_first(f"{prefix}_full_history_cpu_ms", longer),
    ]
    if prefix == "postgres":
        served = [None if one.served is None else 1e3 * one.served for one in short]
        rows += figures(f"{prefix}_server_cpu_ms", "ms", served, sizes, aim=None)
    return rows


async def run(report: Report, sizes: Sizes) -> None:
    """Measure everything, in the order of README.md."""
    with ExitStack() as opened:
        folders = [Path(opened.enter_context(tempfile.TemporaryDirectory())) for _ in range(4)]
        files = [InFile(folder) for folder in folders[:2]]
        report.section("A turn on a thread that grows, on SQLite", await measured("sqlite", files, sizes))
        found = opened.enter_context(server())
        databases: list[Store] | None = None
        if found is not None:
            databases = [OnServer(folder, found, f"bench_{n}") for n, folder in enumerate(folders[2:])]
        report.section("The same on Postgres", await measured("postgres", databases, sizes))


if __name__ == "__main__":
    main(
        "growth",
        "What a turn costs as its thread grows.",
        lambda report: run(report, QUICK if report.quick else FULL),
    )
