"""What a turn costs: CPU over a bare `dspy.Predict`, delegations, roles, bytes, import times (design: speed).

Run `python benchmarks/turn.py [--quick] [--json]`. It prints a table and, last, one JSON line; README.md explains both.
"""

from __future__ import annotations

import importlib.util
import itertools
import sqlite3
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from worldagent import Role, Roles, Settings, Storage, Tier, WorldAgent
from worldagent.benchmarks._measure import (
    Report,
    Row,
    Stopwatch,
    Work,
    at_once,
    bytes_written,
    interleaved,
    main,
    processes,
)
from worldagent.benchmarks._rival import deepagents_delegation
from worldagent.benchmarks._stubs import (
    CRITIC,
    QUESTION,
    ROLE_TEXT,
    BareTurns,
    answering,
    constant_lm,
    delegating,
)
from worldagent.core import Scope
from worldagent.harness import Worker
from worldagent.role_resolution import ResolverOptions, RoleResolver, SqliteRoleStore
from worldagent.role_resolution.role import compose

_LATENCY = 0.2
_IDEAL = 3 * _LATENCY
_ASK = """
import sys, tempfile
from worldagent.hosts.cli import main
with tempfile.TemporaryDirectory() as home:
    sys.argv = ["worldagent", "ask", "--lm", "local", "--home", home, "What is the capital of France?"]
    main()
"""
_ROLE = Role("critic", ROLE_TEXT)
_CALL_ROLE = compose({Tier.CALL: _ROLE}, entry="Converse", signatures=(), policy="stack")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The amounts of a run."""

    rounds: int
    calls: int
    at_once: int
    turns: int
    starts: int


_NOTHING_SAID = dspy.History(messages=[])
FULL = Sizes(rounds=9, calls=60, at_once=1000, turns=200, starts=7)
QUICK = Sizes(rounds=2, calls=3, at_once=50, turns=8, starts=1)


async def conversation_turn(sizes: Sizes) -> list[Row]:
    """Figures 1 and 2: a turn, compared with the bare predictor of the same role-free Signature and stub."""
    lm = constant_lm(answering)
    turns = await BareTurns.open(lm)
    program = turns.engine.program("Converse").predict

    async def bare() -> object:
        with dspy.context(lm=lm, disable_history=True, trace=None):
            return await program.acall(message=QUESTION, history=_NOTHING_SAID)

    async def bare_streamed() -> object:
        listener = dspy.streaming.StreamListener(signature_field_name="reply", allow_reuse=True)
        with dspy.context(lm=lm, disable_history=True, trace=None):
            streamed: Any = dspy.streamify(program, stream_listeners=[listener], is_async_program=True)
            return [piece async for piece in streamed(message=QUESTION, history=_NOTHING_SAID)]

    async with _product([], lm) as agent:
        names = itertools.count()
        cases: dict[str, Work] = {
            "bare": bare,
            "turn": turns.run,
            "roled": lambda: turns.run(_CALL_ROLE),
            "streamed": lambda: turns.run(stream=True),
            "roled streamed": lambda: turns.run(_CALL_ROLE, stream=True),
            "bare streamed": bare_streamed,
            "product": lambda: agent.thread(f"t{next(names)}").converse(QUESTION),
            "product roled": lambda: agent.thread(f"t{next(names)}").converse(QUESTION, role=_ROLE),
        }
        costs = await interleaved(cases, rounds=sizes.rounds, calls=sizes.calls)
    return [
        Row(key="bare_predict_cpu_ms", value=1e3 * costs.cpu("bare"), unit="ms"),
        Row(key="bare_streamed_cpu_ms", value=1e3 * costs.cpu("bare streamed"), unit="ms", note="dspy.streamify"),
        Row(key="turn_cpu", value=costs.cpu_ratio("turn", "bare"), aim=1.5),
        Row(key="turn_roled_cpu", value=costs.cpu_ratio("roled", "bare"), aim=1.5),
        Row(key="turn_streamed_cpu", value=costs.cpu_ratio("streamed", "bare"), note="20 deltas"),
        Row(key="turn_roled_streamed_cpu", value=costs.cpu_ratio("roled streamed", "bare"), note="20 deltas"),
        Row(key="turn_streamed_over_streamed_cpu", value=costs.cpu_ratio("streamed", "bare streamed")),
        Row(key="product_turn_cpu_ms", value=1e3 * costs.cpu("product"), unit="ms"),
        Row(key="product_turn_cpu", value=costs.cpu_ratio("product", "bare")),
        Row(key="product_turn_wall", value=costs.wall_ratio("product", "bare")),
        Row(key="product_turn_roled_cpu", value=costs.cpu_ratio("product roled", "bare")),
        Row(key="product_turn_roled_wall", value=costs.wall_ratio("product roled", "bare")),
    ]


async def delegation(sizes: Sizes) -> list[Row]:
    """Figure 3: plan, sub-agent, answer."""
    lm = constant_lm(delegating)
    turns = await BareTurns.open(lm, workers=[CRITIC])
    rival = deepagents_delegation()
    async with _product([CRITIC], lm) as agent:
        names = itertools.count()
        cases: dict[str, Work] = {
            "ours": turns.run,
            "product": lambda: agent.thread(f"t{next(names)}").converse(QUESTION),
        }
        if rival is not None:
            cases["rival"] = rival
        costs = await interleaved(cases, rounds=sizes.rounds, calls=max(1, sizes.calls // 3))
    note = "" if rival is not None else "deepagents is not installed"
    return [
        Row(key="delegation_cpu_ms", value=1e3 * costs.cpu("ours"), unit="ms"),
        Row(key="delegation_product_cpu_ms", value=1e3 * costs.cpu("product"), unit="ms"),
        Row(key="deepagents_cpu_ms", value=1e3 * costs.cpu("rival") if rival else None, unit="ms", note=note),
        Row(
            key="delegation_over_deepagents_cpu",
            value=costs.cpu_ratio("ours", "rival") if rival else None,
            aim=0.3,
            note=note,
        ),
        Row(
            key="delegation_product_over_deepagents_cpu",
            value=costs.cpu_ratio("product", "rival") if rival else None,
            note=note or "ours stores, theirs does not",
        ),
    ]


async def concurrency(sizes: Sizes) -> list[Row]:
    """Figure 4: many concurrent delegations, three model calls of 200 ms each."""
    lm = constant_lm(delegating, delay=_LATENCY)
    turns = await BareTurns.open(lm, workers=[CRITIC])
    await turns.run()
    free = await at_once(lambda number: turns.run(), sizes.at_once)
    async with _product([CRITIC], lm) as agent:
        await agent.thread("first").converse(QUESTION)
        stored = await at_once(lambda number: agent.thread(f"t{number}").converse(QUESTION), sizes.at_once)
    note = f"{sizes.at_once:,} at once"
    return [
        Row(key="concurrent_wall", value=free.wall / _IDEAL, aim=6, note=note),
        Row(key="concurrent_cpu_ms", value=1e3 * free.cpu / sizes.at_once, unit="ms", note="for each"),
        Row(key="concurrent_product_wall", value=stored.wall / _IDEAL, note=f"{note}, each its own thread"),
        Row(key="concurrent_product_cpu_ms", value=1e3 * stored.cpu / sizes.at_once, unit="ms", note="for each"),
    ]


async def roles(sizes: Sizes) -> list[Row]:
    """Figure 5: resolution from memory and from the embedded store, and composition."""
    tiers = {tier: Role(tier.value, ROLE_TEXT) for tier in Tier}
    asked = Scope(workspace="novel", account="ana", channel="c7", thread="t1")

    async def thread_role(scope: Scope) -> Role:
        return tiers[Tier.THREAD]

    async def composed() -> object:
        return compose(tiers, entry="Converse", signatures=(), policy="stack")

    with tempfile.TemporaryDirectory() as folder:
        store = await SqliteRoleStore.open(Path(folder) / "roles.db")
        for tier in store.tiers:
            await store.put(tier, asked.id_of(tier) or "", tiers[tier])
        kept = RoleResolver(store, {}, options=ResolverOptions(cache_ttl=3600))
        sourced = RoleResolver(store, {Tier.THREAD: thread_role}, options=ResolverOptions(cache_ttl=3600))
        asking = RoleResolver(store, {}, options=ResolverOptions(cache_ttl=0))
        cases: dict[str, Work] = {
            "kept": lambda: kept.resolve(asked, call=_ROLE, entry="Converse"),
            "sourced": lambda: sourced.resolve(asked, call=_ROLE, entry="Converse"),
            "asking": lambda: asking.resolve(asked, call=_ROLE, entry="Converse"),
            "composed": composed,
        }
        costs = await interleaved(cases, rounds=sizes.rounds, calls=10 * sizes.calls)
        await store.aclose()
    return [
        Row(key="role_cached_us", value=1e6 * costs.cpu("kept"), unit="us", aim=50, note="4 tiers"),
        Row(key="role_cached_and_source_us", value=1e6 * costs.cpu("sourced"), unit="us", note="and a thread source"),
        Row(key="role_uncached_us", value=1e6 * costs.cpu("asking"), unit="us", note="embedded store"),
        Row(key="role_uncached_wall_us", value=1e6 * costs.wall("asking"), unit="us"),
        Row(key="role_compose_us", value=1e6 * costs.cpu("composed"), unit="us", note="5 tiers"),
    ]


async def long_thread(sizes: Sizes, prefix: str, *, role: Role | None = None, limit: int | None = None) -> list[Row]:
    """Figure 6: one thread, turn after turn, in four windows."""
    settings = Settings() if limit is None else Settings(history_limit=limit)
    window = sizes.turns // 4
    kept: list[float] = []
    written: list[float | None] = []
    cpu: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(home=Path(folder))
        lm = constant_lm(answering)
        async with WorldAgent("bench", lm=lm, storage=storage, settings=settings) as agent:
            thread = agent.thread("long")
            await agent.thread("first").converse(QUESTION)
            for _ in range(4):
                size, before, watch = _folded_size(storage.database), bytes_written(), Stopwatch()
                for _ in range(window):
                    await thread.converse(QUESTION, role=role)
                cpu.append(watch.read(window).cpu)
                after = bytes_written()
                written.append(None if after is None or before is None else (after - before) / window)
                kept.append((_folded_size(storage.database) - size) / window)
    rows = [
        *_windows(f"{prefix}_kept_kb", [value / 1e3 for value in kept], "kB"),
        *_windows(f"{prefix}_written_kb", [None if value is None else value / 1e3 for value in written], "kB"),
        *_windows(f"{prefix}_cpu_ms", [1e3 * value for value in cpu], "ms"),
    ]
    return rows if limit is None else rows[-5:]


def imports(sizes: Sizes) -> list[Row]:
    """Figure 7: fresh processes, compared with one that does nothing."""
    start = [sys.executable, "-P", "-c"]
    commands = {
        "python": [*start, "pass"],
        "package": [*start, "import worldagent"],
        "agent": [*start, "from worldagent import WorldAgent"],
    }
    has_cli = importlib.util.find_spec("worldagent.hosts") is not None
    if has_cli:
        commands["help"] = [*start, "from worldagent.hosts.cli import main; main()", "--help"]
    has_model = has_cli and importlib.util.find_spec("xllamacpp") is not None
    if has_model:
        commands["ask"] = [*start, _ASK]
    costs = processes(commands, rounds=sizes.starts)

    def over(case: str) -> float:
        return 1e3 * (costs.cpu(case) - costs.cpu("python"))

    return [
        Row(key="python_start_cpu_ms", value=1e3 * costs.cpu("python"), unit="ms", note="bare, for comparison"),
        Row(key="import_package_cpu_ms", value=over("package"), unit="ms", aim=50, note="over bare Python"),
        Row(key="import_agent_cpu_ms", value=over("agent"), unit="ms", note="over bare Python"),
        Row(
            key="cli_help_cpu_ms",
            value=1e3 * costs.cpu("help") if has_cli else None,
            unit="ms",
            aim=300,
            note="" if has_cli else "the command line is not installed",
        ),
        Row(key="cli_help_wall_ms", value=1e3 * costs.wall("help") if has_cli else None, unit="ms"),
        Row(
            key="ask_local_wall_ms",
            value=1e3 * costs.wall("ask") if has_model else None,
            unit="ms",
            aim=3000,
            note="embedded model, fresh home" if has_model else "the embedded model is not installed",
        ),
    ]


def _windows(key: str, values: Sequence[float | None], unit: str) -> list[Row]:
    rows = [Row(key=f"{key}_{number}", value=value, unit=unit) for number, value in enumerate(values, start=1)]
    first, last = values[0], values[-1]
    grown = None if not first or last is None else last / first
    return [*rows, Row(key=f"{key}_last_over_first", value=grown, note="flat is 1")]


def _folded_size(path: Path) -> int:
    """The database's size after a checkpoint of its write-ahead log."""
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    wal = path.with_name(f"{path.name}-wal")
    return path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)


@asynccontextmanager
async def _product(workers: Sequence[Worker], lm: dspy.LM) -> AsyncGenerator[WorldAgent]:
    """The full product with its SQLite files in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(home=Path(folder))
        async with WorldAgent("bench", lm=lm, workers=workers, storage=storage, roles=Roles()) as agent:
            yield agent


async def run(report: Report, sizes: Sizes) -> None:
    """Measure everything, in the order of README.md."""
    report.section("One turn, over a bare dspy.Predict with cache=False", await conversation_turn(sizes))
    report.section("One delegation: plan, sub-agent, answer", await delegation(sizes))
    report.section("Delegations at once, 200 ms a model call, over the ideal 0.6 s", await concurrency(sizes))
    report.section("Roles", await roles(sizes))
    quarter = sizes.turns // 4
    title = f"{sizes.turns} turns on one thread, in windows of {quarter}, a turn"
    report.section(title, await long_thread(sizes, "thread"))
    report.section(f"{title}, with a role", await long_thread(sizes, "thread_roled", role=_ROLE))
    report.section(f"{title}, history_limit=20", await long_thread(sizes, "thread_short", limit=20))
    report.section("Fresh processes", imports(sizes))


if __name__ == "__main__":
    main("turn", "What a turn costs.", lambda report: run(report, QUICK if report.quick else FULL))
