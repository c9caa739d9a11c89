"""What the web app adds to a turn, and what a thousand readers of one turn cost.

Run `python benchmarks/web.py [--quick] [--json]`. It prints a table and, last, one JSON line; README.md explains both.
"""

from __future__ import annotations

import asyncio
import itertools
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median, quantiles

from worldagent import WorldAgent
from worldagent.benchmarks import _web as web
from worldagent.benchmarks._hosts import cpu_of
from worldagent.benchmarks._measure import Report, Row, main
from worldagent.core.events import TextDelta

_LATENCY = 0.2
_BOUND = 300  # seconds

First = Callable[[], Awaitable[float]]
"""Runs a turn to its end and returns the seconds until its first piece of text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The amounts of a run."""

    rounds: int
    calls: int
    readers: int
    few: int
    turns: int
    pace: float


FULL = Sizes(rounds=5, calls=20, readers=1000, few=100, turns=200, pace=0.4)
QUICK = Sizes(rounds=2, calls=2, readers=10, few=5, turns=5, pace=0.01)


@dataclass(slots=True)
class Names:
    """Names of threads that no turn has used, and how many streams were not whole."""

    numbers: itertools.count[int]
    failed: int = 0

    def next(self) -> str:
        return f"t{next(self.numbers)}"


async def first_tokens(sizes: Sizes, names: Names, folder: Path) -> list[Row]:
    """Figure 1: from the call to the first piece, of recorded turns, as all turns over HTTP are."""
    async with web.agent_in(folder / "here") as agent, web.served(folder / "served") as (url, _):
        stream = await web.Stream.connected(url)
        taken: dict[str, list[float]] = {"in_process": [], "web": []}
        cases: Mapping[str, First] = {
            "in_process": lambda: _in_process(agent, names.next()),
            "web": lambda: _over_web(stream, names),
        }
        for number in range(sizes.rounds + 1):
            for name, work in cases.items():
                walls = [await work() for _ in range(sizes.calls)]
                if number:  # the first round has the setup of a first call
                    taken[name].append(median(walls))
        return _compared("first_word", taken["in_process"], taken["web"], aim=1.3)


async def first_tokens_of_many(sizes: Sizes, names: Names, folder: Path) -> list[Row]:
    """Figure 2: the same of many turns that start at once, each on its own thread, with a model that takes 200 ms."""
    here, there = folder / "late_here", folder / "late_served"
    async with web.agent_in(here, delay=_LATENCY) as agent, web.served(there, delay=_LATENCY) as (url, _):
        taken: dict[str, list[float]] = {"in_process": [], "web": []}
        streams = [await web.Stream.connected(url) for _ in range(sizes.turns)]
        cases: Mapping[str, Sequence[First]] = {
            "in_process": [lambda: _in_process(agent, names.next())] * sizes.turns,
            "web": [partial(_over_web, stream, names) for stream in streams],
        }
        for number in range(sizes.rounds // 2 + 2):
            for name, works in cases.items():
                began = time.perf_counter()
                walls = await asyncio.gather(*(_since(began, work) for work in works))
                if number:
                    taken[name].append(median(walls))
        return _compared("turns", taken["in_process"], taken["web"])


def _compared(name: str, base: Sequence[float], other: Sequence[float], aim: float | None = None) -> list[Row]:
    ratios = [one / two for one, two in zip(other, base, strict=True)]
    return [
        Row(key=f"{name}_in_process_ms", value=1e3 * median(base), unit="ms"),
        Row(key=f"{name}_web_ms", value=1e3 * median(other), unit="ms"),
        Row(key=f"{name}_web", value=median(ratios), aim=aim, spread=(min(ratios), max(ratios))),
    ]


async def _in_process(agent: WorldAgent, thread: str) -> float:
    began, first = time.perf_counter(), 0.0
    async with agent.thread(thread).stream(web.QUESTION, detach=True) as stream:
        async for event in stream:
            if not first and isinstance(event, TextDelta):
                first = time.perf_counter()
    return first - began


async def _over_web(stream: web.Stream, names: Names) -> float:
    stream.post(names.next(), web.QUESTION)
    await asyncio.wait_for(stream.over.wait(), _BOUND)
    names.failed += stream.failed
    assert stream.first is not None, "an answer came without its pieces"
    return stream.first


async def _since(began: float, first: First) -> float:
    waited = time.perf_counter() - began  # while the other turns were started
    return waited + await first()


async def readers(sizes: Sizes, names: Names, folder: Path) -> list[Row]:
    """Figure 3: many readers of one turn: delay of each event, memory and CPU; and all of them reading it again."""
    async with web.served(folder / "paced", pace=sizes.pace) as (url, pid):
        one, _ = await _followed(url, names, web.LONG, 1)
        before, used = web.memory_of(pid), cpu_of(pid)
        many, whole = await _followed(url, names, web.LONG, sizes.readers, pid=pid)
        spent = cpu_of(pid)
        turn_id = many[0].events()[0][1]["turn_id"]
        began = time.perf_counter()
        again = await _opened(url, turn_id, sizes.readers)
        await _ended(again)
        took = time.perf_counter() - began
    names.failed += sum(each.failed for each in again)
    rate = sum(len(each.events()) for each in again) / took
    count = sum(len(each.events()) for each in many)
    kept = None if before is None or whole is None else (whole - before) / sizes.readers / 1e3
    cpu = None if used is None or spent is None else 1e6 * (spent - used) / count
    alone, together = _p95(one), _p95(many)
    return [
        Row(key="delay_one_reader_p95_ms", value=1e3 * alone, unit="ms", note="from making an event to reading it"),
        Row(key="delay_all_readers_p95_ms", value=1e3 * together, unit="ms", note=f"{sizes.readers} readers"),
        Row(key="reader_kb", value=kept, unit="kB", note="memory of the server for each reader"),
        Row(key="reader_event_cpu_us", value=cpu, unit="us", note="CPU of the server for each event of a reader"),
        Row(key="again_all_readers_per_s", value=rate, unit="/s", note="events of a recorded turn, all readers"),
    ]


async def slow_reader(sizes: Sizes, names: Names, folder: Path) -> list[Row]:
    """Figure 4: the delay of large events for other readers, without and with one that reads nothing."""
    taken: dict[bool, list[float]] = {False: [], True: []}
    async with web.served(folder / "slow", pace=sizes.pace / 8) as (url, _):
        for number in range(sizes.rounds // 2 + 2):
            for slow in taken:
                streams, _ = await _followed(url, names, web.AT_LENGTH, sizes.few, slow=slow)
                assert streams[0].size > web.LEAST, "the buffers could hold it all"
                if number:
                    taken[slow].append(_p95(streams))
    ratios = [one / other for one, other in zip(taken[True], taken[False], strict=True)]
    ends = (min(ratios), max(ratios))
    return [
        Row(key="others_p95_ms", value=1e3 * median(taken[False]), unit="ms"),
        Row(key="others_beside_slow_p95_ms", value=1e3 * median(taken[True]), unit="ms"),
        Row(key="others_beside_slow", value=median(ratios), aim=1.3, spread=ends, note="over those without it"),
    ]


async def _followed(
    url: str, names: Names, text: str, count: int, *, slow: bool = False, pid: int = 0
) -> tuple[list[web.Stream], int | None]:
    """Begin a turn, let many follow it to its end, and return them, and the memory of the process in between."""
    turn = await web.Stream.connected(url)
    turn.post(names.next(), text)
    await asyncio.wait_for(turn.head.wait(), _BOUND)
    turn_id = turn.events()[0][1]["turn_id"]
    still = [await web.Stream.connected(url, reads=False)] if slow else []
    for each in still:
        each.get(turn_id)
    streams = await _opened(url, turn_id, count)
    for each in streams:
        await asyncio.wait_for(each.head.wait(), _BOUND)
    joined, memory = time.time(), web.memory_of(pid) if pid else None
    await _ended(streams)
    names.failed += sum(each.failed for each in streams)
    for each in (turn, *still):
        each.close()
    for each in streams:
        each.joined = joined
    return streams, memory


async def _opened(url: str, turn_id: str, count: int) -> list[web.Stream]:
    streams = [await web.Stream.connected(url) for _ in range(count)]
    for each in streams:
        each.get(turn_id)
    return streams


async def _ended(streams: Sequence[web.Stream]) -> None:
    async with asyncio.timeout(_BOUND):
        for each in streams:
            await each.over.wait()
            each.close()


def _p95(streams: Sequence[web.Stream]) -> float:
    found = [delay for each in streams for delay in each.delays()]
    return quantiles(found, n=20, method="inclusive")[-1]


async def run(report: Report, sizes: Sizes) -> None:
    """Measure everything, in the order of README.md."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each reader is a file, here and in the server
    names = Names(itertools.count())
    async with AsyncExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        report.section("From the call to the first token", await first_tokens(sizes, names, folder))
        title = f"The same of {sizes.turns} concurrent turns, 200 ms a model call"
        report.section(title, await first_tokens_of_many(sizes, names, folder))
        report.section("Readers of one turn", await readers(sizes, names, folder))
        report.section("Beside a reader that reads nothing", await slow_reader(sizes, names, folder))
        note = "an event missing, twice or out of order, or a turn not done"
        report.section("Streams", [Row(key="streams_failed", value=names.failed, unit="", aim=0, note=note)])


if __name__ == "__main__":
    main(
        "web",
        "What the web app adds to a turn, and readers.",
        lambda report: run(report, QUICK if report.quick else FULL),
    )
