"""Removes what is older than an age, in small transactions, so that turns of a large database do not wait (D10).

Each batch leaves the database to others for as long as it took. A killed run has removed complete batches.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from ...core import Scope, utc_text
from ...core.errors import InvalidArgument, ThreadBusy
from ...memory import OPEN, thread_key
from ...memory.schedules import OPEN_RUNS
from ...memory.turns import keys_of
from ...storage import Transaction
from ..stores import Stores
from .removal import AGE_LIMIT, remove_rows

T = TypeVar("T")

PruneProgress = Callable[[str, int, int], object]
"""Receives after each batch: the part, how many of its items are done, and how many it has."""

AgedPart = Callable[["ByAge", float], Awaitable[dict[str, int]]]
"""Removes what a capability has from before a time; returns how many of each kind."""

_BATCH: Final = 500  # rows, or ids that are looked at
_TURNS: Final = 50  # turns whose calls one transaction removes; a turn has up to some hundreds
_MAX_PAUSE_SECONDS: Final = 0.25

_OVER: Final = f"""workspace=? AND status NOT IN ({", ".join(map(repr, OPEN_RUNS))}) AND at < ?"""
_COUNT_RUNS: Final = f"SELECT COUNT(*) FROM wa_schedule_run WHERE {_OVER}"
_FIND_RUNS: Final = f"""SELECT schedule, slot FROM wa_schedule_run WHERE {_OVER} AND (schedule, slot) > (?, ?)
                        ORDER BY schedule, slot LIMIT {_BATCH}"""
# A range of the primary key: with a list of keys, Postgres reads the whole table for each batch.
_DROP_RUNS: Final = f"""DELETE FROM wa_schedule_run WHERE {_OVER} AND (schedule, slot) > (?, ?)
                          AND (schedule, slot) <= (?, ?) RETURNING slot"""

_IS_OPEN: Final = f"status IN ({', '.join(map(repr, OPEN))})"
# A turn that failed can be resumed while it is the newest of its thread. Ids of turns sort by the time of their start.
_ENDED: Final = f"""id IN ({{}}) AND thread >= ? AND thread < ? AND changed < ? AND (NOT {_IS_OPEN} OR (
                      status='failed' AND id < (SELECT MAX(id) FROM wa_turn last WHERE last.thread=wa_turn.thread)))"""
_WITH_CALLS: Final = f"SELECT DISTINCT turn FROM wa_call WHERE turn > ? ORDER BY turn LIMIT {_TURNS}"
_FIND_ENDED: Final = f"SELECT id FROM wa_turn WHERE {_ENDED}"
_FIRST_BEGAN: Final = "SELECT MIN(began) FROM wa_turn WHERE id IN ({})"
_COUNT_CALLS: Final = "SELECT COUNT(*) FROM wa_call WHERE turn IN ({})"
_DROP_CALLS: Final = "DELETE FROM wa_call WHERE turn IN ({}) RETURNING id"

_NEWEST: Final = f"""SELECT MAX(id) FROM wa_turn WHERE thread > ? AND thread >= ? AND thread < ?
                     GROUP BY thread ORDER BY thread LIMIT {_BATCH}"""
_QUIET: Final = """SELECT thread, name FROM wa_turn WHERE id IN ({}) AND changed < ?
                   AND status NOT IN ('running', 'paused', 'stopped') ORDER BY thread"""
_LAST_OF: Final = "SELECT MAX(thread) FROM wa_turn WHERE id IN ({})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedByAge:
    """What was older than its age. With `dry_run` nothing was removed.

    Attributes:
        runs: Runs of schedules that are over.
        calls: Journal rows of turns that are over.
        traces: Traces of turns in this home.
        threads: Threads whose newest turn is over, with all that they had.
        events: Events of members that are over, with the threads of their turns.
        messages: Messages between members and people.
        outcomes: What members did; what it changed of the trust in them stays.
        steps: Steps of the lives of members.
        briefs: Task briefs of members that are over.
        left: Threads that another process took up in the meantime.
        attachments: Images and files that no message refers to any more.
        dry_run: Whether they are still there.
        more: What capabilities had by ages of their own, by the names that they give it.
    """

    runs: int
    calls: int
    traces: int
    threads: int
    events: int = 0
    messages: int = 0
    outcomes: int = 0
    steps: int = 0
    briefs: int = 0
    left: int = 0
    attachments: int = 0
    dry_run: bool = False
    more: Mapping[str, int] = field(default_factory=dict)


async def prune_by_age(
    stores: Stores,
    workspace: str,
    *,
    runs: float | None,
    calls: float | None,
    traces: float | None,
    threads: float | None,
    capabilities: Mapping[str, float | None],
    dry_run: bool,
    progress: PruneProgress,
    aged: Mapping[str, AgedPart],
) -> PrunedByAge:
    """Remove what has not changed for a number of seconds; None keeps it. See `Upkeep.prune_by_age`."""
    ages = {"runs": runs, "calls": calls, "traces": traces, "threads": threads, **capabilities}
    for name, age in ages.items():
        if age is not None and (isinstance(age, bool) or not isinstance(age, int | float) or not 0 <= age <= AGE_LIMIT):
            raise InvalidArgument(
                f"`{name}` must be seconds from 0 to {AGE_LIMIT}, got {age!r}",
                remedy="pass an age, or None to keep them",
            )
    if all(age is None for age in ages.values()):
        raise InvalidArgument(
            "nothing to remove: no age is given", remedy="give an age of runs, calls, traces, threads or society"
        )
    for name, age in capabilities.items():
        if age is not None and name not in aged:
            raise InvalidArgument(
                f"no capability here removes {name!r} by age",
                remedy=f"create the agent with the one that does, or leave {name}= out; there are: "
                f"{', '.join(sorted(aged)) or 'none'}",
            )
    now = stores.clock.now().timestamp()
    before = {name: None if age is None else now - age for name, age in ages.items()}
    work, counts, more = ByAge(stores, workspace, dry_run, progress), dict[str, int](), dict[str, int]()
    runs, calls_ = await work.runs(before["runs"]), await work.calls(before["calls"])
    traces_, threads_ = await work.traces(before["traces"]), await work.threads(before["threads"])
    for name in capabilities:
        if (old := before[name]) is not None:
            (counts if name == "society" else more).update(await aged[name](work, old))
    return PrunedByAge(
        runs=runs,
        calls=calls_,
        traces=traces_,
        threads=threads_,
        **counts,
        more=more,
        left=work.left,
        attachments=await work.attachments(),
        dry_run=dry_run,
    )


class ByAge:
    """Removes what is older than an age, part by part."""

    def __init__(self, stores: Stores, workspace: str, dry_run: bool, progress: PruneProgress) -> None:
        self.left = 0
        self.stores = stores
        self.workspace = workspace
        self.keys = keys_of(workspace)
        self.dry_run = dry_run
        self.progress = progress
        self.unreferenced = False

    async def runs(self, before: float | None) -> int:
        if before is None:
            return 0
        over = (self.workspace, _text(before))
        [(total,)] = await self.read(_COUNT_RUNS, over)
        if self.dry_run:
            return int(total)
        done, last = 0, tuple[Any, ...](("", ""))
        while found := await self.read(_FIND_RUNS, (*over, *last)):
            first, last = last, found[-1]
            done += len(await self._batch(_DROP_RUNS, (*over, *first, *last)))
            self.progress("runs", done, max(done, total))
        return done

    async def calls(self, before: float | None) -> int:
        if before is None:
            return 0
        total = sum([await self._count_calls(turns) async for turns in self._ended_turns(before)])
        if self.dry_run:
            return total
        done = 0
        async with aclosing(self._ended_turns(before)) as ended:
            async for turns in ended:
                done += len(await self._batch(_DROP_CALLS.format(_marks(turns)), turns))
                self.progress("calls", done, max(done, total))
        return done

    async def _count_calls(self, turns: Sequence[str]) -> int:
        [(count,)] = await self.read(_COUNT_CALLS.format(_marks(turns)), turns)
        return int(count)

    async def _ended_turns(self, before: float) -> AsyncGenerator[Sequence[str]]:
        """Yield the turns with calls that ended before a time, in batches. A turn that is over never runs again."""
        last = ""
        while rows := await self.read(_WITH_CALLS, (last,)):
            some = [str(turn) for (turn,) in rows]
            last = some[-1]
            marks = _marks(some)
            found = await self.read(_FIND_ENDED.format(marks), (*some, *self.keys, before))
            if found:
                yield [str(turn) for (turn,) in found]
            [(began,)] = await self.read(_FIRST_BEGAN.format(marks), some)
            if began is not None and began >= before:
                return  # all later turns are younger

    async def traces(self, before: float | None) -> int:
        if before is None:
            return 0
        async with self.stores.traces() as traces:
            total = await traces.count(self.workspace, before)
            done = 0
            while not self.dry_run and (count := await _throttled(traces.prune(before, self.workspace))):
                done += count
                self.progress("traces", done, max(done, total))
        return total if self.dry_run else done

    async def threads(self, before: float | None) -> int:
        if before is None:
            return 0
        total = sum([len(found) async for found in self._quiet_threads(before)])
        if self.dry_run:
            return total
        done = 0
        async with aclosing(self._quiet_threads(before)) as quiet:
            async for found in quiet:
                for key, name in found:
                    removed = await _throttled(self.remove(key, name, before))
                    done, self.left = done + removed, self.left + (not removed)
                    self.progress("threads", done + self.left, max(done + self.left, total))
        self.unreferenced |= done > 0
        return done

    async def _quiet_threads(self, before: float) -> AsyncGenerator[Sequence[tuple[str, str]]]:
        """Yield the keys and names of threads whose newest turn ended before a time, in batches."""
        last = ""
        while rows := await self.read(_NEWEST, (last, *self.keys)):
            newest = [str(turn) for (turn,) in rows]
            marks = _marks(newest)
            found = await self.read(_QUIET.format(marks), (*newest, before))
            [(last,)] = await self.read(_LAST_OF.format(marks), newest)
            if found:
                yield [(str(key), str(name)) for key, name in found]

    async def remove(self, key: str, name: str, before: float) -> bool:
        """Remove a thread; False if another process has begun a turn on it, or removes it."""
        scope = Scope(workspace=self.workspace, thread=name)
        assert thread_key(scope) == key, "the key is made of both"
        try:
            async with self.stores.leases.hold(key, wait=0, last=True) as lease:
                latest = await self.stores.turns.latest(key)
                if latest is None or latest.status in ("running", "paused", "stopped"):
                    return False
                if latest.changed.timestamp() >= before:
                    return False
                return await remove_rows(self.stores, scope, lease, latest.id) is not None
        except ThreadBusy:
            return False

    async def transact(self, work: Callable[[Transaction], T]) -> T:
        """Do one batch."""
        return await _throttled(self.stores.database.transact(work))

    async def attachments(self) -> int:
        """Remove the attachments of removed threads; returns how many."""
        return len(await self.stores.attachments.drop_unreferenced()) if self.unreferenced else 0

    async def read(self, query: str, given: Sequence[object]) -> list[tuple[Any, ...]]:
        return await self.stores.database.read(lambda tx: tx.execute(query, given))

    async def _batch(self, statement: str, given: Sequence[object]) -> list[tuple[Any, ...]]:
        return await _throttled(self.stores.database.transact(lambda tx: tx.execute(statement, given)))


async def _throttled(batch: Awaitable[T]) -> T:
    """Do one batch, and then leave the database to others for as long as it took."""
    began = time.monotonic()
    done = await batch
    await asyncio.sleep(min(time.monotonic() - began, _MAX_PAUSE_SECONDS))
    return done


def _marks(ids: Sequence[str]) -> str:
    return ", ".join("?" * len(ids))


def _text(at: float) -> str:
    return utc_text(datetime.fromtimestamp(at, UTC))
