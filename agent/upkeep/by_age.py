"""Removes what is older than an age, in small transactions, so that turns of a large database do not wait (D10).

Each batch leaves the database to others for as long as it took. A killed run has removed complete batches.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar

from ...core import Scope, utc_text
from ...core.errors import InvalidArgument, ThreadBusy
from ...memory import OPEN, thread_key
from ...memory.schedules import OPEN_RUNS
from ...memory.turns import keys_of
from ...society.events import part_of
from ...society.outcomes import fold_outcomes, members_with_old
from ...society.reading import member_of
from ...society.retention import FIRST, Place, count_old, drop_events, drop_mail, drop_steps, named_after, old_events
from ...storage import Transaction
from ..stores import Stores
from .removal import AGE_LIMIT, remove_rows

T = TypeVar("T")

PruneProgress = Callable[[str, int, int], object]
"""Receives after each batch: the part, how many of its items are done, and how many it has."""

_BATCH: Final = 500  # rows, or ids that are looked at
_TURNS: Final = 50  # turns whose calls one transaction removes; a turn has up to some hundreds
_MAX_PAUSE_SECONDS: Final = 0.25
_ALL: Final = 1_000_000  # pauses

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
_ACCOUNTS: Final = "SELECT DISTINCT account FROM wa_turn WHERE thread=?"
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
        left: Threads that another process took up in the meantime.
        attachments: Images and files that no message refers to any more.
        dry_run: Whether they are still there.
    """

    runs: int
    calls: int
    traces: int
    threads: int
    events: int = 0
    messages: int = 0
    outcomes: int = 0
    steps: int = 0
    left: int = 0
    attachments: int = 0
    dry_run: bool = False


async def prune_by_age(
    stores: Stores,
    workspace: str,
    *,
    runs: float | None,
    calls: float | None,
    traces: float | None,
    threads: float | None,
    society: float | None = None,
    dry_run: bool,
    progress: PruneProgress,
) -> PrunedByAge:
    """Remove what has not changed for a number of seconds; None keeps it. See `Upkeep.prune_by_age`."""
    ages = {"runs": runs, "calls": calls, "traces": traces, "threads": threads, "society": society}
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
    now = stores.clock.now().timestamp()
    before = {name: None if age is None else now - age for name, age in ages.items()}
    work = _ByAge(stores, workspace, dry_run, progress)
    return PrunedByAge(
        runs=await work.runs(before["runs"]),
        calls=await work.calls(before["calls"]),
        traces=await work.traces(before["traces"]),
        threads=await work.threads(before["threads"]),
        **await work.society(before["society"]),
        left=work.left,
        attachments=await work.attachments(),
        dry_run=dry_run,
    )


class _ByAge:
    def __init__(self, stores: Stores, workspace: str, dry_run: bool, progress: PruneProgress) -> None:
        self.left = 0
        self._stores = stores
        self._workspace = workspace
        self._keys = keys_of(workspace)
        self._dry_run = dry_run
        self._progress = progress
        self._unreferenced = False

    async def runs(self, before: float | None) -> int:
        if before is None:
            return 0
        over = (self._workspace, _text(before))
        [(total,)] = await self._read(_COUNT_RUNS, over)
        if self._dry_run:
            return int(total)
        done, last = 0, tuple[Any, ...](("", ""))
        while found := await self._read(_FIND_RUNS, (*over, *last)):
            first, last = last, found[-1]
            done += len(await self._batch(_DROP_RUNS, (*over, *first, *last)))
            self._progress("runs", done, max(done, total))
        return done

    async def calls(self, before: float | None) -> int:
        if before is None:
            return 0
        total = sum([await self._count_calls(turns) async for turns in self._ended_turns(before)])
        if self._dry_run:
            return total
        done = 0
        async with aclosing(self._ended_turns(before)) as ended:
            async for turns in ended:
                done += len(await self._batch(_DROP_CALLS.format(_marks(turns)), turns))
                self._progress("calls", done, max(done, total))
        return done

    async def _count_calls(self, turns: Sequence[str]) -> int:
        [(count,)] = await self._read(_COUNT_CALLS.format(_marks(turns)), turns)
        return int(count)

    async def _ended_turns(self, before: float) -> AsyncGenerator[Sequence[str]]:
        """Yield the turns with calls that ended before a time, in batches. A turn that is over never runs again."""
        last = ""
        while rows := await self._read(_WITH_CALLS, (last,)):
            some = [str(turn) for (turn,) in rows]
            last = some[-1]
            marks = _marks(some)
            found = await self._read(_FIND_ENDED.format(marks), (*some, *self._keys, before))
            if found:
                yield [str(turn) for (turn,) in found]
            [(began,)] = await self._read(_FIRST_BEGAN.format(marks), some)
            if began is not None and began >= before:
                return  # all later turns are younger

    async def traces(self, before: float | None) -> int:
        if before is None:
            return 0
        async with self._stores.traces() as traces:
            total = await traces.count(self._workspace, before)
            done = 0
            while not self._dry_run and (count := await _throttled(traces.prune(before, self._workspace))):
                done += count
                self._progress("traces", done, max(done, total))
        return total if self._dry_run else done

    async def threads(self, before: float | None) -> int:
        if before is None:
            return 0
        total = sum([len(found) async for found in self._quiet_threads(before)])
        if self._dry_run:
            return total
        done = 0
        async with aclosing(self._quiet_threads(before)) as quiet:
            async for found in quiet:
                for key, name in found:
                    removed = await _throttled(self._remove(key, name, before))
                    done, self.left = done + removed, self.left + (not removed)
                    self._progress("threads", done + self.left, max(done + self.left, total))
        self._unreferenced |= done > 0
        return done

    async def _quiet_threads(self, before: float) -> AsyncGenerator[Sequence[tuple[str, str]]]:
        """Yield the keys and names of threads whose newest turn ended before a time, in batches."""
        last = ""
        while rows := await self._read(_NEWEST, (last, *self._keys)):
            newest = [str(turn) for (turn,) in rows]
            marks = _marks(newest)
            found = await self._read(_QUIET.format(marks), (*newest, before))
            [(last,)] = await self._read(_LAST_OF.format(marks), newest)
            if found:
                yield [(str(key), str(name)) for key, name in found]

    async def _remove(self, key: str, name: str, before: float) -> bool:
        """Remove a thread; False if another process has begun a turn on it, or removes it."""
        scope = Scope(workspace=self._workspace, thread=name)
        assert thread_key(scope) == key, "the key is made of both"
        try:
            async with self._stores.leases.hold(key, wait=0, last=True) as lease:
                latest = await self._stores.turns.latest(key)
                if latest is None or latest.status in ("running", "paused", "stopped"):
                    return False
                if latest.changed.timestamp() >= before:
                    return False
                return await remove_rows(self._stores, scope, lease, latest.id) is not None
        except ThreadBusy:
            return False

    async def society(self, before: float | None) -> dict[str, int]:
        """Remove what is over of the workspace's members; returns how many of each kind."""
        if before is None:
            return {}
        total = await self._stores.database.read(lambda tx: count_old(tx, self._workspace, before))
        if self._dry_run:
            return total
        done = {"messages": await self._mail(before), "outcomes": await self._outcomes(before), "steps": 0}
        while gone := await self._transacted(lambda tx: drop_steps(tx, self._workspace, before)):
            done["steps"] += gone
        return {**done, "events": await self._events(before, total["events"])}

    async def _events(self, before: float, total: int) -> int:
        done, last = 0, FIRST
        while True:
            find = partial(old_events, workspace=self._workspace, before=before, last=last)
            found = await self._stores.database.read(find)
            if not found:
                return done
            last = found[-1]
            ids = [id_ for _, id_ in found]
            named = await self._stores.database.read(partial(named_after, workspace=self._workspace, ids=ids))
            free = [id_ for id_ in ids if id_ not in named and await self._without_turns(id_, before)]
            done += await self._transacted(partial(drop_events, workspace=self._workspace, ids=free))
            self._progress("events", done, max(done, total))

    async def _without_turns(self, event: str, before: float) -> bool:
        """Remove the thread of an event; False if a turn of it is not over, began since, or is no member's."""
        name = f"event {part_of(event)}"
        key = thread_key(Scope(workspace=self._workspace, thread=name))
        accounts = [account for (account,) in await self._read(_ACCOUNTS, (key,))]
        if not accounts:
            return True
        if any(member_of(self._workspace, each) is None for each in accounts):  # a person uses a thread of this name
            return False
        removed = await _throttled(self._remove(key, name, before))
        self._unreferenced |= removed
        self.left += not removed
        return removed

    async def _mail(self, before: float) -> int:
        waits = await self._stores.journal.open_replies(self._workspace, limit=_ALL)
        waited, done = {each.message_id for each in waits}, 0
        while True:  # a message goes once no answer to it is left, so each round takes the ends of conversations
            gone = 0
            last: Place | None = FIRST
            while last is not None:
                drop = partial(drop_mail, workspace=self._workspace, before=before, last=last, waited=waited)
                some, last = await self._transacted(drop)
                gone += some
            done += gone
            self._progress("messages", done, done)
            if not gone:
                return done

    async def _outcomes(self, before: float) -> int:
        done = 0
        for member in await self._stores.database.read(lambda tx: members_with_old(tx, self._workspace, before)):
            fold = partial(fold_outcomes, workspace=self._workspace, role_id=member, before=before)
            while gone := await self._transacted(fold):
                done += gone
                self._progress("outcomes", done, done)
        return done

    async def _transacted(self, work: Callable[[Transaction], T]) -> T:
        return await _throttled(self._stores.database.transact(work))

    async def attachments(self) -> int:
        """Remove the attachments of removed threads; returns how many."""
        return len(await self._stores.attachments.drop_unreferenced()) if self._unreferenced else 0

    async def _read(self, query: str, given: Sequence[object]) -> list[tuple[Any, ...]]:
        return await self._stores.database.read(lambda tx: tx.execute(query, given))

    async def _batch(self, statement: str, given: Sequence[object]) -> list[tuple[Any, ...]]:
        return await _throttled(self._stores.database.transact(lambda tx: tx.execute(statement, given)))


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
