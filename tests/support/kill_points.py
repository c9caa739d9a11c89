"""Points at which a process can be killed: around writes of a database, checkpoints and effects, and in model calls.

A point has a name of two parts, when and what, and is counted by name: the third `after | a leaf: begun` is the same in
every run, whatever runs beside it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worldagent.storage import _lane as lane
from worldagent.storage.postgres import PostgresDatabase

BEFORE, WITHIN, AFTER, IN = "before", "within", "after", "in the middle of"
_POLL, _QUIET = 0.01, 5  # seconds between two looks, and how many must find nothing moving


@dataclass(frozen=True, slots=True)
class Point:
    """Where a process is killed.

    Attributes:
        when: Before, within or after; within is between the last statement and its commit.
        what: What is written or done there.
        nth: Which of all with this name, from 1.
    """

    when: str
    what: str
    nth: int


class Killer:
    """Kills this process at one of the points that it passes; without one it counts them.

    Args:
        point: Where.
        log: A file that tells that it was passed.
        at_once: Kill whatever runs beside it; else what can go on beside it does first, so that each kill at the same
            point leaves the same behind.
    """

    def __init__(self, point: Point | None, log: Path, *, at_once: bool = False) -> None:
        self.point, self.log, self.at_once = point, log, at_once
        self.on = False  # whether it counts
        self.busy = 0  # reads and writes that are under way
        self.passed: Counter[tuple[str, str]] = Counter()
        self._next = False  # whether the next transaction is where to kill

    async def __call__(self, when: str, what: str) -> None:
        """Pass a point."""
        nth = self._pass(when, what)
        if self.point == Point(when, what, nth):
            await self._settled()
            self._kill()
        if when == BEFORE and self.point == Point(WITHIN, what, nth):
            await self._settled()  # while a transaction is open nobody else can come to rest
            self._next = True

    def within(self, what: str) -> None:
        """Pass a point inside a transaction, on whatever thread that runs; it is counted as the one before it."""
        self._pass(WITHIN, what)
        if self._next and self.point is not None and self.point.what == what:
            self._kill()

    def _pass(self, when: str, what: str) -> int:
        if not self.on:
            return 0
        self.passed[when, what] += 1
        return self.passed[when, what]

    async def _settled(self) -> None:
        """Wait until nothing else moves any more."""
        quiet, last = 0, None
        while quiet < _QUIET and not self.at_once:
            await asyncio.sleep(_POLL)
            now = (self.passed.total(), self.busy)
            quiet, last = (quiet + 1 if now == last and self.busy == 0 else 0), now

    def _kill(self) -> None:
        assert self.point is not None
        self.log.write_text(f"{self.point.when} {self.point.what}")
        os.kill(os.getpid(), signal.SIGKILL)


def armed(killer: Killer) -> None:
    """Have the killer passed around each write of a database, on either engine."""
    run, transact, read = lane.Lane.run, PostgresDatabase.transact, PostgresDatabase.read

    async def lane_run(self: Any, work: Any, **how: Any) -> Any:
        if self._read_only:
            return await _busy(killer, run(self, work, **how))
        return await _transaction(killer, work, lambda cut: run(self, cut, **how))

    async def database_transact(self: Any, work: Any, **how: Any) -> Any:
        return await _transaction(killer, work, lambda cut: transact(self, cut, **how))

    async def database_read(self: Any, work: Any) -> Any:
        return await _busy(killer, read(self, work))

    lane.Lane.run = lane_run  # type: ignore[method-assign]  # a kill between two writes has no other way in
    PostgresDatabase.transact = database_transact  # type: ignore[method-assign]  # likewise
    PostgresDatabase.read = database_read  # type: ignore[method-assign]  # likewise


async def _transaction(killer: Killer, work: Any, run: Callable[[Any], Any]) -> Any:
    names = written(work)

    def cut(transaction: Any) -> Any:
        done = work(transaction)
        for what in names:
            killer.within(what)
        return done

    for what in names:
        await killer(BEFORE, what)
    done = await _busy(killer, run(cut))
    for what in names:
        await killer(AFTER, what)
    return done


async def _busy(killer: Killer, work: Any) -> Any:
    killer.busy += 1
    try:
        return await work
    finally:
        killer.busy -= 1


_STATES = {"started": "begun", "waiting": "waits for a person", "uncertain": "is uncertain", "done": "done"}
_WRITERS: dict[str, Callable[[dict[str, Any]], str]] = {
    "Leases.hold": lambda given: "the thread's owner",
    "TurnRegister.begin": lambda given: "the turn: begun",
    "TurnRegister.end": lambda given: f"the turn: {given['status']}",
    "ConversationLog.append": lambda given: f"the log: {given['rows'][-1].kind}",
    "SqlJournal.put": lambda given: _call(given["records"][-1]),
    "SqlJournal.finish": lambda given: _call(given["records"][-1]),
    "SqlJournal.answer": lambda given: "a person's answer",
    "CheckpointSaver._write": lambda given: "a checkpoint",
    "SqlJournal.load": lambda given: "a pause",
    "_nothing": lambda given: "what waits",
}


def written(work: Any) -> list[str]:
    """What a transaction writes: each of its parts, by the method that made it and by what that was given."""
    owner = str(work.__qualname__).partition(".<locals>")[0]
    names, cells = work.__code__.co_freevars, work.__closure__ or ()
    given: dict[str, Any] = {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}
    if owner == "Lease._transact":
        return [name for part in given["parts"] for name in written(part)]
    return [_WRITERS[owner](given) if owner in _WRITERS else owner]


def _call(record: Any) -> str:
    return f"a {record.kind}: {_STATES.get(record.state, record.state)}"
