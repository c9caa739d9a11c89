"""What a call costs: the gate's decision, a traced call of a function that does nothing, and each layer of it (H9, H5).

Run `python benchmarks/harness.py [--quick] [--json]`. It prints a table and one JSON line; README.md explains both.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worldagent import Roles, Settings, Storage, WorldAgent
from worldagent.benchmarks._measure import Report, Row, Stopwatch, Work, interleaved, main
from worldagent.benchmarks._stubs import QUESTION, BareTurns, answering, constant_lm
from worldagent.core import Emitter, Scope, SystemClock
from worldagent.core.events import TurnEnded, TurnStarted
from worldagent.harness import CallContext, Function, Policy, Registry, pipeline, tool
from worldagent.harness.gate import Caller, Gate, Rule
from worldagent.harness.pipeline import Call
from worldagent.harness.trace import JsonLinesTrace, TraceSink
from worldagent.harness.trace.index import TraceIndex
from worldagent.harness.trace.tracer import Tracer

_SCOPE = Scope(workspace="bench", thread="t1")
_INPUT = {"text": "hat", "number": 3}
_MODEL = Caller("critic", model_influenced=True)
_CLOCK = SystemClock()
_A_ROOT = 50  # calls below one root, as in a turn
_LAYERS = ("_validated", "_limited", "_gated", "_journaled", "_traced")  # outermost first


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The amounts of a run."""

    rounds: int
    calls: int
    turns: int


FULL = Sizes(rounds=15, calls=1000, turns=20)
QUICK = Sizes(rounds=2, calls=60, turns=2)


@tool(risk="read_only")
async def noop(text: str, number: int) -> int:
    """Do nothing."""
    return number


def _plain(number: int) -> Function:
    """Make a function that a policy has rules for."""
    return Function(f"files.f{number}", noop.body, noop.params, noop.result, risk=("write",))


def _decide(gate: Gate, function: Function) -> Work:
    async def work() -> None:
        gate.decide(function, _INPUT, _MODEL)

    return work


async def gate(sizes: Sizes) -> list[Row]:
    """Figure 1: one decision, without rules and by the last of fifty rules, which checks an argument."""
    rules = tuple(
        Rule(decision="ask", function=f"mail.f{number}*", arguments={"text": "http*"}, name=f"r{number}")
        for number in range(49)
    )
    last = Rule(decision="approve", function="files.*", arguments={"text": "ha*"}, times=10**9, name="last")

    async def nothing() -> None:
        pass

    cases: dict[str, Work] = {
        "nothing": nothing,
        "default": _decide(Gate(Policy()), noop),
        "rules": _decide(Gate(Policy(rules=(*rules, last))), _plain(1)),
    }
    costs = await interleaved(cases, rounds=sizes.rounds, calls=sizes.calls)

    def over(case: str) -> float:
        return 1e6 * (costs.cpu(case) - costs.cpu("nothing"))

    return [
        Row(key="gate_default_us", value=over("default"), unit="us", aim=100, note="no rule; read_only is approved"),
        Row(key="gate_rules_us", value=over("rules"), unit="us", aim=100, note="the last of 50 rules matches"),
    ]


class Calls:
    """Calls of `noop`, a few for each root, through some of the layers, with or without a trace.

    Args:
        bare: Turns without storage; their engine makes roots.
        layers: How many of the layers, the outermost first; None means all layers, as in `ctx.call`.
        tracer: Receives the events.
    """

    def __init__(self, bare: BareTurns, *, layers: int | None = None, tracer: Tracer | None = None) -> None:
        self._bare, self._tracer = bare, tracer if tracer is not None else Tracer()
        self._handler: Callable[[Call], Awaitable[Any]] | None = None
        if layers is not None:
            handler: Any = pipeline._run
            for name in reversed(_LAYERS[:layers]):
                handler = getattr(pipeline, name)(handler)
            self._handler = handler
        self._made = 0
        self._emit: Emitter | None = None
        self._root: CallContext | None = None

    async def __call__(self) -> None:
        if self._made % _A_ROOT == 0:
            self._begin()
        self._made += 1
        assert self._root is not None
        if self._handler is None:
            await self._root.call("noop", _INPUT)
        else:
            await self._handler(Call(function=noop, input=_INPUT, ctx=self._root))

    def _begin(self) -> None:
        if self._emit is not None:
            self._emit(TurnEnded, status="done")
        tap = self._tracer.tap(_SCOPE)
        self._emit = Emitter(f"call_{self._made}", _CLOCK, tap, tap)
        self._root = self._bare.engine.root(f"call_{self._made}", _SCOPE, self._emit)
        self._emit(TurnStarted, thread="", kind="call")


@contextmanager
def _on_one_core() -> Generator[None]:
    """Keep the process on one core, if the system supports it. Threads on one physical core slow each other down.

    That can double their CPU time, so a figure would show how they overlapped rather than their work.
    """
    cores = os.sched_getaffinity(0) if sys.platform == "linux" else set[int]()
    if cores:
        os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        if cores:
            os.sched_setaffinity(0, cores)


async def calls(sizes: Sizes) -> list[Row]:
    """Figure 2: a call without a model, by its layers; then with its trace, until the trace is written."""
    with _on_one_core():
        return await _calls(sizes)


async def _calls(sizes: Sizes) -> list[Row]:
    async def bare() -> None:
        await noop.body(**_INPUT)

    turns = await BareTurns.open(constant_lm(answering), registry=Registry((noop,)))
    cases: dict[str, Work] = {"bare": bare}
    cases |= {name: Calls(turns, layers=number) for number, name in enumerate(_LAYERS, start=1)}
    costs = await interleaved(cases, rounds=sizes.rounds, calls=sizes.calls)
    found: list[Row] = []
    below = "bare"
    for name in _LAYERS:
        what = name.removeprefix("_")
        spent = 1e6 * (costs.cpu(name) - costs.cpu(below))
        found.append(Row(key=f"layer_{what}_us", value=spent, unit="us", note=f"over {below.removeprefix('_')}"))
        below = name
    all_layers = 1e6 * (costs.cpu("_traced") - costs.cpu("bare"))
    with tempfile.TemporaryDirectory() as folder:
        index, index_least = await _written(sizes, turns, TraceIndex(Path(folder) / "traces.db"))
        lines, lines_least = await _written(sizes, turns, JsonLinesTrace(Path(folder) / "t.jsonl"))
    return [
        Row(key="bare_us", value=1e6 * costs.cpu("bare"), unit="us", note="the function's body, awaited"),
        *found,
        Row(key="call_us", value=all_layers, unit="us", note="all layers, without a reader of the events"),
        Row(key="call_indexed_us", value=index, unit="us", aim=200, note="traced into the home's index, over the body"),
        Row(key="call_lines_us", value=lines, unit="us", aim=200, note="traced into JSON Lines, over the body"),
        Row(key="call_indexed_least_us", value=index_least, unit="us", note="the same in the round that took least"),
        Row(key="call_lines_least_us", value=lines_least, unit="us", note="the same in the round that took least"),
        Row(key="trace_index_us", value=index - all_layers, unit="us", note="what the index adds, its thread included"),
        Row(key="trace_lines_us", value=lines - all_layers, unit="us", note="what JSON Lines add"),
    ]


async def _written(sizes: Sizes, turns: BareTurns, sink: TraceSink) -> tuple[float, float]:
    """Return the microseconds of CPU of a call until its trace is written: the median of the rounds, and the least."""
    tracer = Tracer([sink], limit=10**6)
    work = Calls(turns, tracer=tracer)
    await work()
    await tracer.flush()
    spent: list[float] = []
    for _ in range(sizes.rounds):
        watch = Stopwatch()
        for _ in range(sizes.calls):
            await work()
        await tracer.flush()
        spent.append(watch.read(sizes.calls).cpu)
    await tracer.aclose()
    spent.sort()
    return 1e6 * spent[len(spent) // 2], 1e6 * spent[0]


@asynccontextmanager
async def _agent(trace: bool) -> AsyncGenerator[WorldAgent]:
    with tempfile.TemporaryDirectory() as folder:
        storage, settings = Storage(home=Path(folder)), Settings(trace=trace)
        lm = constant_lm(answering)
        async with WorldAgent("bench", lm=lm, storage=storage, settings=settings, roles=Roles()) as agent:
            yield agent


async def turns(sizes: Sizes) -> list[Row]:
    """Figure 3: a conversation turn of the full product with the home's traces and without, until they are written."""
    async with _agent(True) as traced, _agent(False) as plain:
        numbers = {"traced": 0, "plain": 0}

        def converse(name: str, agent: WorldAgent) -> Work:
            async def work() -> None:
                numbers[name] += 1
                await agent.thread(f"t{numbers[name]}").converse(QUESTION)
                if numbers[name] % sizes.turns == 0:
                    await agent.traces.list(limit=1)

            return work

        cases = {"plain": converse("plain", plain), "traced": converse("traced", traced)}
        costs = await interleaved(cases, rounds=sizes.rounds, calls=sizes.turns)
    return [
        Row(key="turn_cpu_ms", value=1e3 * costs.cpu("plain"), unit="ms", note="traces off"),
        Row(key="turn_traced_cpu", value=costs.cpu_ratio("traced", "plain"), note="traces on, over off"),
        Row(key="turn_traced_wall", value=costs.wall_ratio("traced", "plain")),
    ]


async def run(report: Report, sizes: Sizes) -> None:
    """Measure everything, in the order of README.md."""
    report.section("One decision of the gate", await gate(sizes))
    report.section("One call of a function that does nothing, no model, no storage", await calls(sizes))
    report.section("One conversation turn with SQLite, with the home's traces and without", await turns(sizes))


if __name__ == "__main__":
    main("harness", "What a call costs.", lambda report: run(report, QUICK if report.quick else FULL))
