"""What roles from a role host cost: a call over a bare MCP call, requests a turn, connecting, starting.

Run `python benchmarks/roles.py [--quick] [--json]`. It prints a table and one JSON line; README.md explains both.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from worldagent import Role, Roles, Settings, Storage, WorldAgent
from worldagent.benchmarks import _hosts as hosts
from worldagent.benchmarks._measure import (
    Cost,
    Costs,
    Report,
    Row,
    Stopwatch,
    Work,
    at_once,
    interleaved,
    main,
    processes,
)
from worldagent.benchmarks._stubs import QUESTION, ROLE_TEXT, answering, constant_lm
from worldagent.core import Scope
from worldagent.mcp_client import HostRoleStore, HttpHost, StdioHost
from worldagent.role_resolution import ResolverOptions, RoleResolver, RoleStore, SqliteRoleStore

_SCOPE = Scope(workspace="bench", account="ana", channel="c7", thread="t1")
_STORED = {"workspace": "bench", "account": "ana", "channel": "c7"}
_CALL = Role("critic", ROLE_TEXT)
_REVISIONS = {"2026": "auto", "2025": "legacy"}
CONCURRENT_TURNS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The amounts of a run."""

    rounds: int
    calls: int
    turns: int
    starts: int


FULL = Sizes(rounds=9, calls=100, turns=30, starts=7)
QUICK = Sizes(rounds=2, calls=3, turns=2, starts=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The roles of one run: the file of the store, and a host over it.

    Attributes:
        file: The file of the embedded store, which the hosts share.
        url: The URL of the host over HTTP.
        pid: The id of its process.
    """

    file: Path
    url: str
    pid: int

    def host(self, kind: str, revision: str) -> HttpHost | StdioHost:
        mode: Any = _REVISIONS[revision]
        return hosts.child(self.file, mode) if kind == "stdio" else HttpHost(self.url, hosts.TOKEN, mode=mode)


async def resolution(sizes: Sizes, place: Place) -> list[Row]:
    """Figure 1: four tiers from memory, from the embedded store and from a host, compared with a bare call."""
    pairs = list(itertools.product(("http", "stdio"), _REVISIONS))
    async with AsyncExitStack() as opened:
        embedded = await SqliteRoleStore.open(place.file)
        opened.push_async_callback(embedded.aclose)
        kept = await _store(opened, place.host("http", "2026"))
        cases: dict[str, Work] = {"cached": _resolving(kept, ttl=3600), "embedded": _resolving(embedded)}
        for kind, revision in pairs:
            host = place.host(kind, revision)
            client = await opened.enter_async_context(hosts.bare(host))
            session = client.session
            cases[f"bare_{kind}_{revision}"] = partial(session.call_tool, "role_list", {"scope_ids": _STORED})
            cases[f"{kind}_{revision}"] = _resolving(await _store(opened, host))
        costs = await interleaved(cases, rounds=sizes.rounds, calls=sizes.calls)
    rows = [Row(key="cached_cpu_us", value=1e6 * costs.cpu("cached"), unit="us", aim=50, note="of a host over HTTP")]
    rows += _absolute(costs, "embedded")
    for kind, revision in pairs:
        rows += _over_bare(costs, f"{kind}_{revision}")
    return rows


def _over_bare(costs: Costs, case: str) -> list[Row]:
    base = f"bare_{case}"
    return [
        *_absolute(costs, base),
        *_absolute(costs, case),
        Row(key=f"{case}_cpu", value=costs.cpu_ratio(case, base), note="over the bare call"),
        Row(key=f"{case}_wall", value=costs.wall_ratio(case, base), note="over the bare call"),
    ]


def _absolute(costs: Costs, case: str) -> list[Row]:
    return [
        Row(key=f"{case}_cpu_us", value=1e6 * costs.cpu(case), unit="us"),
        Row(key=f"{case}_wall_us", value=1e6 * costs.wall(case), unit="us"),
    ]


async def host_work(sizes: Sizes, place: Place) -> list[Row]:
    """Figure 2: the cost of one `role_list` in the reference host."""
    rows: list[Row] = []
    for revision in _REVISIONS:
        async with hosts.bare(place.host("http", revision)) as client:
            before = hosts.cpu_of(place.pid)
            for _ in range(sizes.rounds * sizes.calls):
                await client.session.call_tool("role_list", {"scope_ids": _STORED})
            after = hosts.cpu_of(place.pid)
        used = None if before is None or after is None else 1e6 * (after - before) / (sizes.rounds * sizes.calls)
        note = "" if used is not None else "the system does not report it"
        rows.append(Row(key=f"host_{revision}_cpu_us", value=used, unit="us", note=note))
    return rows


async def requests(sizes: Sizes, place: Place) -> list[Row]:
    """Figure 3: HTTP requests, counted at the host."""
    rows: list[Row] = []
    for revision, mode in _REVISIONS.items():
        async with hosts.Counted(place.file).serving() as counted:
            host = HttpHost(counted.url, hosts.TOKEN, mode=mode)  # type: ignore[arg-type]  # a value of the table
            same = partial(_counted, counted, sizes.turns, _asking(itertools.repeat("ana")))
            fresh = partial(_counted, counted, sizes.turns, _asking(f"a{number}" for number in itertools.count()))
            async with _agent(host, ttl=0) as agent:
                calls, requests = await same(agent)
                fresh_calls, fresh_requests = await fresh(agent)
            async with _agent(host, ttl=3600) as agent:
                kept_calls, kept_requests = await same(agent)
        rows += [
            Row(key=f"calls_{revision}", value=calls, unit="", aim=1, note="tools/call, nothing in memory"),
            Row(key=f"requests_{revision}", value=requests, unit="", aim=1, note="HTTP requests of any kind"),
            Row(key=f"calls_new_account_{revision}", value=fresh_calls, unit="", aim=1, note="each turn a new account"),
            Row(key=f"requests_new_account_{revision}", value=fresh_requests, unit=""),
            Row(key=f"calls_cached_{revision}", value=kept_calls, unit="", aim=0),
            Row(key=f"requests_cached_{revision}", value=kept_requests, unit="", aim=0),
        ]
    return rows


async def _counted(
    counted: hosts.Counted, turns: int, ask: Callable[[WorldAgent], Awaitable[object]], agent: WorldAgent
) -> tuple[float, float]:
    """Tool calls and requests a turn, once the connection and its stream of notifications are open."""
    for _ in range(2):
        await ask(agent)
        await asyncio.sleep(0.3)
    calls, requests = counted.asked["tools/call"], counted.asked.total()
    for _ in range(turns):
        await ask(agent)
    await asyncio.sleep(0.3)  # requests in the background count too
    return (counted.asked["tools/call"] - calls) / turns, (counted.asked.total() - requests) / turns


async def turns(sizes: Sizes, place: Place) -> list[Row]:
    """Figure 4: complete turns with the roles at a host over HTTP, and with the embedded store; nothing in memory."""
    host = place.host("http", "2026")
    ask = _asking(itertools.repeat("ana"))
    async with hosts.bare(host) as client, _agent(host, ttl=0) as far, _agent(None, ttl=0) as near:

        async def called() -> None:
            await client.session.call_tool("role_list", {"scope_ids": _STORED})
            await ask(near)

        cases: dict[str, Work] = {
            # One before each turn, since calls in a row run with warm CPU caches, which a call in a turn never has.
            "called": called,
            "near": partial(ask, near),
            "far": partial(ask, far),
        }
        costs = await interleaved(cases, rounds=3 * sizes.rounds, calls=sizes.turns)
        many: dict[str, Work] = {"near": partial(_many, ask, near), "far": partial(_many, ask, far)}
        concurrent = await interleaved(many, rounds=sizes.rounds, calls=1)
    added = _more(costs, "far", "near")
    return [
        Row(key="turn_embedded_wall_ms", value=1e3 * costs.wall("near"), unit="ms"),
        Row(key="turn_http_wall_ms", value=1e3 * costs.wall("far"), unit="ms"),
        Row(key="turn_http_added_ms", value=1e3 * added, unit="ms"),
        Row(
            key="turn_http_added_round_trips",
            value=added / _more(costs, "called", "near"),
            aim=1.5,
            note="over what a bare call before an embedded turn adds",
        ),
        Row(
            key="together_embedded_wall_ms",
            value=1e3 * concurrent.wall("near"),
            unit="ms",
            note=f"{CONCURRENT_TURNS} turns",
        ),
        Row(key="together_http_wall_ms", value=1e3 * concurrent.wall("far"), unit="ms", note="over one connection"),
        Row(key="together_http_wall", value=concurrent.wall_ratio("far", "near"), note="over the embedded store"),
    ]


def _more(costs: Costs, case: str, base: str) -> float:
    """Return the median over rounds of the wall seconds by which a call of `case` takes longer."""
    return median(a.wall - b.wall for a, b in zip(costs.rounds[case], costs.rounds[base], strict=True))


async def connecting(sizes: Sizes, place: Place) -> list[Row]:
    """Figure 5: from no connection to one that accepts calls. Over stdio this starts the host."""
    cases = {f"{kind}_{revision}": place.host(kind, revision) for kind in ("http", "stdio") for revision in _REVISIONS}
    taken: dict[str, list[Cost]] = {name: [] for name in cases}
    for number in range(sizes.starts + 1):
        for name, host in cases.items():
            store, watch = HostRoleStore(host), Stopwatch()
            await store.connect()
            if number:  # the first one loads the library
                taken[name].append(watch.read())
            await store.aclose()
    costs = Costs(taken)
    return [Row(key=f"connect_{name}_wall_ms", value=1e3 * costs.wall(name), unit="ms") for name in cases]


def starting(sizes: Sizes, home: str) -> list[Row]:
    """Figure 6: commands without a model, as processes, compared with an idle Python and with `import mcp`."""
    commands = {
        "python": [sys.executable, "-P", "-c", "pass"],
        "mcp": [
            sys.executable,
            "-P",
            "-c",
            "import gc, mcp; gc.freeze()",
        ],  # it freezes the collector like the command line, so that it exits as fast
        "roles_list": [*hosts.COMMAND, "roles", "list", "--workspace", _SCOPE.workspace, "--home", home],
        "role_host": [*hosts.COMMAND, "role-host", "--stdio", "--home", home],
    }
    costs = processes(commands, rounds=sizes.starts)

    def over(case: str, base: str) -> float:
        return 1e3 * (costs.cpu(case) - costs.cpu(base))

    return [
        Row(key="roles_list_cpu_ms", value=over("roles_list", "python"), unit="ms", aim=500, note="over bare Python"),
        Row(key="roles_list_wall_ms", value=1e3 * costs.wall("roles_list"), unit="ms"),
        Row(key="import_mcp_cpu_ms", value=over("mcp", "python"), unit="ms", note="over bare Python"),
        Row(key="role_host_cpu_ms", value=over("role_host", "mcp"), unit="ms", aim=500, note="over `import mcp`"),
        Row(key="role_host_wall_ms", value=1e3 * costs.wall("role_host"), unit="ms", note="from start to end of input"),
    ]


async def _store(opened: AsyncExitStack, host: HttpHost | StdioHost) -> RoleStore:
    store = HostRoleStore(host)
    opened.push_async_callback(store.aclose)
    await store.connect()
    return store


def _resolving(store: RoleStore, *, ttl: float = 0) -> Work:
    resolver = RoleResolver(store, {}, options=ResolverOptions(cache_ttl=ttl))
    return lambda: resolver.resolve(_SCOPE, call=_CALL, entry="Converse")


def _asking(accounts: Iterator[str]) -> Callable[[WorldAgent], Awaitable[object]]:
    """Run a turn on a new thread by the next account."""
    names = itertools.count()

    def ask(agent: WorldAgent) -> Awaitable[object]:
        return agent.thread(f"t{next(names)}", account=next(accounts), channel=_SCOPE.channel).converse(QUESTION)

    return ask


async def _many(ask: Callable[[WorldAgent], Awaitable[object]], agent: WorldAgent) -> None:
    await at_once(lambda number: ask(agent), CONCURRENT_TURNS)


@asynccontextmanager
async def _agent(host: HttpHost | StdioHost | None, *, ttl: float) -> AsyncGenerator[WorldAgent, None]:
    """The full product in a temporary folder. Without a host, its embedded store has the same roles."""
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(home=Path(folder))
        if host is None:
            await hosts.fill(storage.roles, _SCOPE, ROLE_TEXT)
        lm, roles, settings = constant_lm(answering), Roles(host=host), Settings(role_cache_ttl=ttl)
        async with WorldAgent(_SCOPE.workspace, lm=lm, storage=storage, roles=roles, settings=settings) as agent:
            yield agent


async def run(report: Report, sizes: Sizes) -> None:
    """Measure everything, in the order of README.md."""
    with tempfile.TemporaryDirectory() as folder:
        file = Storage(home=Path(folder)).roles
        await hosts.fill(file, _SCOPE, ROLE_TEXT)
        with hosts.process(file) as (url, pid):
            place = Place(file=file, url=url, pid=pid)
            report.section("Resolving four tiers", await resolution(sizes, place))
            report.section("The reference host, a call", await host_work(sizes, place))
            report.section("Requests a turn, counted at the host", await requests(sizes, place))
            report.section("Complete turns", await turns(sizes, place))
            report.section("Connecting", await connecting(sizes, place))
        report.section("Fresh processes", starting(sizes, folder))


if __name__ == "__main__":
    main("roles", "What roles from a role host cost.", lambda report: run(report, QUICK if report.quick else FULL))
