"""What the sidecar adds to a turn: delay of the first token, events a second, CPU; compared with a call in the process.

Run `python benchmarks/sidecar.py [--quick] [--json]`. It prints a table and, last, one JSON line; README.md explains
both.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from worldagent import Storage, WorldAgent
from worldagent.benchmarks import _sidecars as sidecars
from worldagent.benchmarks._hosts import cpu_of
from worldagent.benchmarks._measure import Cost, Costs, Report, Row, Stopwatch, main
from worldagent.benchmarks._stubs import QUESTION, answering, constant_lm
from worldagent.core.events import TextDelta

_REACHED = ("stdio_2026", "stdio_2025", "http_2026", "http_2025")
_FIRST = b"text_delta"
_CLIENTS = 100
_LATENCY = 0.2
_LATE = "worldagent.benchmarks.sidecar:late"
_CROWD = ("of_100_http_2026", "of_100_http_2025")

First = Callable[[], Awaitable[float]]
"""Runs a turn to its end and returns the seconds until its first piece of text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The amounts of a run."""

    rounds: int
    calls: int
    clients: int


FULL = Sizes(rounds=9, calls=30, clients=_CLIENTS)
QUICK = Sizes(rounds=2, calls=2, clients=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The measured agents and sidecars of one run.

    Attributes:
        agent: The agent in this process.
        callers: Clients by transport and revision.
        pids: The process id of each client's sidecar.
        url: The URL of the sidecar over HTTP.
        late: An agent in this process whose model takes `_LATENCY` until its first piece.
        late_url: The URL of a sidecar over HTTP that serves such an agent.
    """

    agent: WorldAgent
    callers: Mapping[str, sidecars.Caller]
    pids: Mapping[str, int]
    url: str
    late: WorldAgent
    late_url: str


def late(workspace: str) -> WorldAgent:
    """Make the agents that the sidecar of `Place.late_url` serves."""
    return _late_in(Path(os.environ["WORLDAGENT_HOME"]), workspace)


def _late_in(home: Path, workspace: str = sidecars.WORKSPACE) -> WorldAgent:
    return WorldAgent(workspace, lm=constant_lm(answering, delay=_LATENCY), storage=Storage(home=home))


async def first_tokens(sizes: Sizes, place: Place) -> list[Row]:
    """Figure 1: from the start of the call to the first piece of its answer."""
    names = itertools.count()
    cases: dict[str, First] = {"in_process": lambda: _in_process(place.agent, f"t{next(names)}", key=None)}
    cases |= {way: _reached(caller, names) for way, caller in place.callers.items()}
    cases["recorded_in_process"] = lambda: _in_process(place.agent, f"r{next(names)}", key="k")
    cases["recorded_http_2026"] = _reached(place.callers["http_2026"], names, key="k")
    costs = await _interleaved(cases, sizes)
    rows = [_delay(costs, "in_process")]
    for way in _REACHED:
        rows += _over(costs, way, "in_process")
    return [*rows, _delay(costs, "recorded_in_process"), *_over(costs, "recorded_http_2026", "recorded_in_process")]


def _delay(costs: Costs, case: str) -> Row:
    return Row(key=f"first_{case}_ms", value=1e3 * costs.wall(case), unit="ms")


def _over(costs: Costs, case: str, base: str) -> list[Row]:
    pairs = zip(costs.rounds[case], costs.rounds[base], strict=True)
    return [
        _delay(costs, case),
        Row(key=f"first_{case}", value=costs.wall_ratio(case, base), note=f"over {base}"),
        Row(key=f"first_{case}_added_ms", value=1e3 * median(one.wall - other.wall for one, other in pairs), unit="ms"),
    ]


async def _interleaved(cases: Mapping[str, First], sizes: Sizes) -> Costs:
    """Like `_measure.interleaved`, but each call returns its own figure."""
    taken: dict[str, list[Cost]] = {name: [] for name in cases}
    for number in range(sizes.rounds + 1):
        for name, work in cases.items():
            watch = Stopwatch()
            walls = [await work() for _ in range(sizes.calls)]
            if number:  # the first round has the setup of a first call
                taken[name].append(Cost(watch.read(sizes.calls).cpu, median(walls)))
    return Costs(taken)


async def _in_process(agent: WorldAgent, thread: str, key: str | None) -> float:
    begin, first = time.perf_counter(), 0.0
    async with agent.thread(thread).stream(QUESTION, key=key) as stream:
        async for event in stream:
            if not first and isinstance(event, TextDelta):
                first = time.perf_counter()
    return first - begin


def _reached(caller: sidecars.Caller, names: itertools.count[int], *, key: str | None = None) -> First:
    more = {} if key is None else {"key": key}

    async def first() -> float:
        begin, came = time.perf_counter(), [0.0]

        def seen(event: bytes) -> None:
            if not came[0] and _FIRST in event:
                came[0] = time.perf_counter()

        await caller.call("converse", {"thread": f"s{next(names)}", "text": QUESTION, **more}, seen)
        return came[0] - begin

    return first


async def first_tokens_of_many(sizes: Sizes, place: Place) -> list[Row]:
    """Figure 2: the same for many turns that start at once, each on its own thread, with a slow model."""
    names = itertools.count()

    def here() -> Awaitable[float]:
        return _in_process(place.late, f"t{next(names)}", key=None)

    async with AsyncExitStack() as opened:
        crowds: dict[str, Sequence[First]] = {}
        for way, revision in zip(_CROWD, (sidecars.MODERN, sidecars.LEGACY), strict=True):
            many = [await opened.enter_async_context(_client(revision, place.late_url)) for _ in range(sizes.clients)]
            crowds[way] = [_reached(caller, names) for caller in many]
        crowds["of_100_in_process"] = [
            here
        ] * sizes.clients  # last, since a server disconnects clients that send nothing
        costs = await _together(crowds, sizes)
    rows: list[Row] = []
    for end in ("", "_p95"):
        rows.append(_delay(costs, f"of_100_in_process{end}"))
        for way in _CROWD:
            rows += _over(costs, f"{way}{end}", f"of_100_in_process{end}")
    for way in _CROWD:
        rows.append(Row(key=f"clients_{way}_cpu_ms", value=1e3 * costs.cpu(way), unit="ms", note="for each turn"))
    return rows


async def _together(crowds: Mapping[str, Sequence[First]], sizes: Sizes) -> Costs:
    """Median and 95th percentile (`_p95`) of each crowd. All turns are timed from the start of the first one."""
    taken: dict[str, list[Cost]] = {f"{name}{end}": [] for name in crowds for end in ("", "_p95")}
    for number in range(sizes.rounds + 1):
        for name, crowd in crowds.items():
            watch = Stopwatch()
            walls = await asyncio.gather(*(_since(watch, first) for first in crowd))
            cpu = watch.read(len(crowd)).cpu
            assert min(walls) > _LATENCY / 2, "an answer came without its pieces"
            if number:
                taken[name].append(Cost(cpu, median(walls)))
                taken[f"{name}_p95"].append(Cost(cpu, quantiles(walls, n=20, method="inclusive")[-1]))
    return Costs(taken)


async def _since(watch: Stopwatch, first: First) -> float:
    waited = watch.read().wall  # while the other turns of the crowd were started
    return waited + await first()


@asynccontextmanager
async def _client(revision: str, url: str) -> AsyncGenerator[sidecars.HttpCaller]:
    caller = await sidecars.HttpCaller(revision, url).open()
    try:
        yield caller
    finally:
        caller.close()


async def processor(sizes: Sizes, place: Place) -> list[Row]:
    """Figure 3: CPU of a turn with its events, in the process that runs it."""
    names = itertools.count()
    cases: dict[str, tuple[First, Callable[[], float | None]]] = {
        "in_process": (lambda: _in_process(place.agent, f"c{next(names)}", key=None), time.process_time)
    }
    for way, caller in place.callers.items():
        cases[way] = (_reached(caller, names), lambda pid=place.pids[way]: cpu_of(pid))  # type: ignore[misc]  # bound
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(sizes.rounds + 1):
        for name, (work, used) in cases.items():
            before = used()
            for _ in range(sizes.calls):
                await work()
            after = used()
            if number and before is not None and after is not None:
                taken[name].append((after - before) / sizes.calls)
    rows: list[Row] = []
    for name, found in taken.items():
        note = "" if found else "the system does not report it"
        rows.append(Row(key=f"turn_{name}_cpu_ms", value=1e3 * median(found) if found else None, unit="ms", note=note))
        if name != "in_process":
            pairs = zip(found, taken["in_process"], strict=True) if found else ()
            ratios = [one / other for one, other in pairs]
            rows.append(Row(key=f"turn_{name}_cpu", value=median(ratios) if ratios else None, note="over in_process"))
    return rows


async def events(sizes: Sizes, place: Place) -> list[Row]:
    """Figure 4: events a second, of a long answer while it is made, and of a recorded turn that is read again."""
    live = await _rates(sizes, lambda number: _live(place.agent, f"l{number}"))
    made = await _rates(sizes, lambda number: _streamed(place.callers["http_2026"], f"l{number}"))
    content = await place.callers["http_2026"].call(
        "converse", {"thread": "read", "text": sidecars.LONG, "key": "k", "detach": True}
    )
    turn_id: str = content["turn"]["id"]
    one = await _rates(sizes, lambda number: _again(place.callers["http_2026"], turn_id))
    async with AsyncExitStack() as opened:
        many: list[sidecars.HttpCaller] = []
        for number in range(sizes.clients):
            revision = (sidecars.MODERN, sidecars.LEGACY)[number % 2]
            many.append(await opened.enter_async_context(_client(revision, place.url)))

        async def all_at_once(number: int) -> int:
            return sum(await asyncio.gather(*(_again(caller, turn_id) for caller in many)))

        all_of_them = await _rates(Sizes(rounds=max(1, sizes.rounds // 3), calls=1, clients=sizes.clients), all_at_once)
    return [
        Row(key="live_in_process_per_s", value=live, unit="/s"),
        Row(key="live_http_2026_per_s", value=made, unit="/s"),
        Row(key="read_one_client_per_s", value=one, unit="/s", note="a recorded turn, from its first event"),
        Row(key="read_many_clients_per_s", value=all_of_them, unit="/s", note=f"{sizes.clients} concurrent clients"),
    ]


async def _rates(sizes: Sizes, work: Callable[[int], Awaitable[int]]) -> float:
    """Return the median over rounds of the count of `work` a second."""
    found: list[float] = []
    for number in range(sizes.rounds + 1):
        begin = time.perf_counter()
        count = await work(number)
        if number:
            found.append(count / (time.perf_counter() - begin))
    return median(found)


async def _live(agent: WorldAgent, thread: str) -> int:
    async with agent.thread(thread).stream(sidecars.LONG) as stream:
        return len([event async for event in stream])


async def _streamed(caller: sidecars.Caller, thread: str) -> int:
    came: list[bytes] = []
    await caller.call("converse", {"thread": thread, "text": sidecars.LONG}, came.append)
    return len(came)


async def _again(caller: sidecars.Caller, turn_id: str) -> int:
    came: list[bytes] = []
    await caller.call("events", {"turn_id": turn_id, "after": 0}, came.append)
    return len(came)


async def run(report: Report, sizes: Sizes) -> None:
    """Measure everything, in the order of README.md."""
    async with AsyncExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        agent = await opened.enter_async_context(sidecars.agent_in(folder / "here"))
        url, pid = await opened.enter_async_context(sidecars.over_http(folder / "http"))
        slow = await opened.enter_async_context(_late_in(folder / "late_here"))
        late_url, _ = await opened.enter_async_context(sidecars.over_http(folder / "late_http", app=_LATE))
        callers: dict[str, sidecars.Caller] = {}
        pids: dict[str, int] = {}
        for name, revision in (("2026", sidecars.MODERN), ("2025", sidecars.LEGACY)):
            caller: Any
            caller, pids[f"stdio_{name}"] = await opened.enter_async_context(
                sidecars.over_stdio(folder / f"stdio_{name}", revision)
            )
            callers[f"stdio_{name}"] = caller
        for name, revision in (("2026", sidecars.MODERN), ("2025", sidecars.LEGACY)):  # last, as above
            callers[f"http_{name}"] = await opened.enter_async_context(_client(revision, url))
            pids[f"http_{name}"] = pid
        place = Place(agent=agent, callers=callers, pids=pids, url=url, late=slow, late_url=late_url)
        report.section("From the call to the first token", await first_tokens(sizes, place))
        report.section(
            "The same of 100 concurrent turns, 200 ms a model call", await first_tokens_of_many(sizes, place)
        )
        report.section("CPU of a turn with its events", await processor(sizes, place))
        report.section("Events a second", await events(sizes, place))


if __name__ == "__main__":
    main("sidecar", "What the sidecar adds to a turn.", lambda report: run(report, QUICK if report.quick else FULL))
