"""Points at which a process can be killed: around writes of a database, checkpoints and effects, and in model calls.

With `queued`, also where the owner of a thread has enqueued a part that is not committed yet. With a crowd, other
threads' turns write in the same moment (`support.kill_crowd`).

A point has a name of two parts, when and what, and is counted by name: the third `after | a leaf: begun` is the same in
every run, whatever runs beside it.
"""

import asyncio
import functools
import inspect
import os
import random
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.agents import approving
from support.databases import Engine, copied, execute, made, rows_of, storage_of
from support.kill_crowd import Crowd
from support.processes import forked_result, lines
from worldagent import Policy, Rule, Settings, WorldAgent
from worldagent.core.errors import StorageUnavailable
from worldagent.storage import Lease, Transaction
from worldagent.storage import sqlite as lane
from worldagent.storage.postgres import PostgresDatabase
from worldagent.testing import ScriptedLM

BEFORE, WITHIN, AFTER, IN = "before", "within", "after", "in the middle of"
QUEUED = "between queue and flush of"
_POLL, _QUIET = 0.01, 5  # seconds between two looks, and how many must find nothing moving


@dataclass(frozen=True, slots=True)
class Point:
    """Where a process is killed.

    Attributes:
        when: Before, within or after; within is between the last statement and its commit. `QUEUED` is right after a
            part was enqueued.
        what: What is written or done there.
        nth: Which of all with this name, from 1.
    """

    when: str
    what: str
    nth: int


Passed = Sequence[tuple[str, str, int]]
"""How often each point was passed."""


def points_of(passed: Passed) -> list[Point]:
    return [Point(when, what, nth) for when, what, most in passed for nth in range(1, most + 1)]


def some(points: list[Point], sample: int | None, source: random.Random) -> list[Point]:
    """All points, or so many of them."""
    return points if sample is None else source.sample(points, min(sample, len(points)))


def bare_agent(home: Path, answer: Any, *approved: str, rules: Sequence[Rule] = (), **more: Any) -> WorldAgent:
    """An agent in a home whose writes are those of its turns alone: traces are written whenever there is time.

    Args:
        home: Its home.
        answer: What its model says, or the model.
        approved: Functions whose calls are approved: else a person would be asked for each effect.
        rules: Further rules of its policy.
        more: Further arguments of the agent; `settings` is a mapping.
    """
    settings = Settings(model_attempts=1, trace=False, **more.pop("settings", {}))
    policy = Policy(rules=(*rules, *([approving(*approved)] if approved else [])))
    lm = answer if isinstance(answer, ScriptedLM) else ScriptedLM(answer)
    return WorldAgent("novel", lm=lm, policy=policy, storage=storage_of(home), settings=settings, **more)


class Killer:
    """Kills this process at one of the points that it passes; without one it counts them.

    Args:
        point: Where.
        log: A file that tells that it was passed.
        at_once: Kill whatever runs beside it; else what can go on beside it does first, so that each kill at the same
            point leaves the same behind.
        queued: Whether parts that are enqueued are points, too.
        crowd: Turns of other threads that write in the moment of the kill.
    """

    def __init__(
        self, point: Point | None, log: Path, *, at_once: bool = False, queued: bool = False, crowd: Crowd | None = None
    ) -> None:
        self.point, self.log, self.at_once, self.queued, self.crowd = point, log, at_once, queued, crowd
        self.on = False  # whether it counts
        self.busy = 0  # reads and writes that are under way
        self.passed: Counter[tuple[str, str]] = Counter()
        self._next = False  # whether the next transaction is where to kill
        self._dying: asyncio.Task[None] | None = None

    async def __call__(self, when: str, what: str) -> bool:
        """Pass a point; returns whether the transaction that follows is where to kill."""
        nth = self._pass(when, what)
        if self.point == Point(when, what, nth):
            await self._settled()
            if self.crowd is not None and not self.crowd.pressed:
                await self.crowd.press()
            self._kill()
        if when != BEFORE or self.point not in (Point(WITHIN, what, nth), Point(AFTER, what, nth)):
            return False
        if self.point.when == WITHIN or self.crowd is not None:
            await self._settled()  # while a transaction is open nothing else can come to rest
        self._next = self.point.when == WITHIN
        return True

    def within(self, what: str, transaction: Transaction) -> None:
        """Pass a point inside a transaction, on whatever thread that runs; it is counted as the one before it."""
        if self.crowd is not None and self.crowd.doomed:
            return  # the group fails, and each of its transactions comes again
        self._pass(WITHIN, what)
        if self._next and self.point is not None and self.point.what == what:
            self.end(transaction)

    def at(self, when: str, what: str) -> None:
        """Pass a point that is in no transaction, on whatever thread that runs."""
        if self.point == Point(when, what, self._pass(when, what)):
            self._kill()

    def end(self, transaction: Transaction) -> None:
        """What happens at a point inside a transaction."""
        self._kill()

    def mend(self, error: StorageUnavailable) -> bool:
        """Handle a failed write of the turn; returns whether another agent is to resume it. Here no write may fail."""
        raise error

    def enqueued(self, what: str) -> None:
        """Pass the point where a part was enqueued; nothing of the owner's is committed any more where it dies here."""
        if not self.queued or self._dying is not None:
            return
        if self.point != Point(QUEUED, what, self._pass(QUEUED, what)):
            return
        if self.crowd is None:
            self._kill()
        self._dying = asyncio.get_running_loop().create_task(self._die())

    async def alive(self) -> None:
        """Wait for the end where the process dies with what is enqueued."""
        if self._dying is not None:
            await asyncio.get_running_loop().create_future()

    def counted(self) -> Passed:
        return [(when, what, most) for (when, what), most in self.passed.items()]

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

    async def _die(self) -> None:
        """Kill once all others' parts are on the disk."""
        try:
            assert self.crowd is not None
            await self._settled()
            await self.crowd.press()
            await self.crowd.written()
        except BaseException:  # no task awaits it, and those that are held would wait for ever
            traceback.print_exc()
            os._exit(3)
        self._kill()

    def _kill(self) -> None:
        assert self.point is not None
        self.log.write_text(f"{self.point.when} {self.point.what}")
        if self.crowd is not None:
            self.log.with_name("group").write_text(str(self.crowd.size))
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Copies:
    """Homes of one case, which are copies of one: it is made by `begin`, in a process that is not killed.

    Attributes:
        name: The name of the case.
        folder: Where homes are made.
        engine: Where they keep their tables.
    """

    name: str
    folder: Path
    engine: Engine

    def begin(self, home: Path) -> bool:
        """Fill a home in another process; returns whether that went well."""
        raise NotImplementedError

    def work(self, home: Path, killer: Killer) -> Passed:
        """Do what is killed, in this process; returns the points that it passed."""
        raise NotImplementedError

    def home(self) -> Path:
        """A home to work in."""
        before, home = self.folder / "before", self.folder / "home"
        if not before.exists():
            made(self.engine, before)
            assert self.begin(before), self.name
        copied(before, home)
        return home

    def counted(self, home: Path) -> list[Point]:
        """Every point that the work passes, by doing it without a kill."""
        code, passed = forked_result(lambda: self.work(home, Killer(None, home / "where")))
        assert code == 0, self.name
        return points_of(passed)

    def killed(self, point: Point) -> Path:
        """The home of a process that was killed at `point`."""
        home = self.home()
        code, _ = forked_result(lambda: self.work(home, Killer(point, home / "where")))
        assert code == -signal.SIGKILL, f"{self.name}: {point} was not passed: the work ended with {code}"
        return home


def armed(killer: Killer) -> None:
    """Have the killer passed around each write of a database, on either engine."""
    run, transact, read = lane.Lane.run, PostgresDatabase.transact, PostgresDatabase.read
    enqueue, keep = Lease.enqueue, Lease._keep

    async def lane_run(self: Any, work: Any, **how: Any) -> Any:
        if self._read_only:
            return await _busy(killer, run(self, work, **how))
        return await _transaction(killer, work, lambda cut: run(self, cut, **how))

    async def database_transact(self: Any, work: Any, **how: Any) -> Any:
        return await _transaction(killer, work, lambda cut: transact(self, cut, **how))

    async def database_read(self: Any, work: Any) -> Any:
        return await _busy(killer, read(self, work))

    def lease_enqueue(self: Lease, part: Any) -> None:
        enqueue(self, part)
        if killer.crowd is None or not killer.crowd.has(self.key):
            for what in written(part):
                killer.enqueued(what)

    def lease_keep(self: Lease, part: Any, done: Any) -> None:
        keep(self, part if done is None else _mark, done)  # what `after` keeps is not a write

    lane.Lane.run = lane_run  # type: ignore[method-assign]  # a kill between two writes has no other way in
    PostgresDatabase.transact = database_transact  # type: ignore[method-assign]  # likewise
    PostgresDatabase.read = database_read  # type: ignore[method-assign]  # likewise
    Lease.enqueue = lease_enqueue  # type: ignore[method-assign]  # likewise
    Lease._keep = lease_keep  # type: ignore[method-assign]  # likewise
    if killer.crowd is not None:
        killer.crowd.armed(run)


async def _transaction(killer: Killer, work: Any, run: Callable[[Any], Any]) -> Any:
    crowd = killer.crowd
    if crowd is not None and crowd.has(owner(work)):
        return await crowd.transaction(work, run)
    names, fatal = written(work), False

    def cut(transaction: Any) -> Any:
        done = work(transaction)
        for what in names:
            killer.within(what, transaction)
        return done

    await killer.alive()
    for what in names:
        fatal |= await killer(BEFORE, what)
    running = run(cut) if crowd is None or not fatal else crowd.shared(cut, run)
    done = await _busy(killer, running)
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
    "Journal.put": lambda given: _call(given["records"][-1]),
    "Journal.finish": lambda given: _call(given["records"][-1]),
    "Journal.answer": lambda given: "a person's answer",
    "CheckpointSaver._write": lambda given: "a checkpoint",
    "Journal.load": lambda given: "a pause",
    "_nothing": lambda given: "what waits",
}


def _mark(transaction: Transaction) -> None:
    """Where something waits for the parts before it."""


def written(work: Any) -> list[str]:
    """What a transaction writes: each of its parts, by the method that made it and by what that was given."""
    owner, given = _made(work)
    if owner == "_mark":
        return []
    if owner == "Lease._transact":
        return [name for part in given["parts"] for name in written(part)]
    return [_WRITERS[owner](given) if owner in _WRITERS else owner]


def owner(work: Any) -> str:
    """The key whose owner writes a transaction; empty where it is written without a lease."""
    made, given = _made(work)
    return str({"Lease._transact": lambda: given["self"].key, "Leases.hold": lambda: given["key"]}.get(made, str)())


def _made(work: Any) -> tuple[str, dict[str, Any]]:
    """The method that made it, and what it was given."""
    work = inspect.unwrap(work)
    names, cells = work.__code__.co_freevars, work.__closure__ or ()
    given = {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}
    return str(work.__qualname__).partition(".<locals>")[0], given


def _call(record: Any) -> str:
    return f"a {record.kind}: {_STATES.get(record.state, record.state)}"


_TABLE = "CREATE TABLE IF NOT EXISTS kill_part(owner TEXT NOT NULL, epoch BIGINT NOT NULL, place BIGINT NOT NULL)"
_WRITTEN, _ANSWERED = "parts", "committed"
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def prepare(home: Path) -> None:
    """Make the table in a database that is there."""
    execute(home, _TABLE)


def numbered(home: Path) -> None:
    """Give each part a number, in this process.

    What an owner writes after a transaction that failed, to say how the turn ended, is counted again under "key!".
    """
    enqueue, commit, recover = Lease.enqueue, Lease.commit, Lease.recover
    counts: Counter[tuple[str, int]] = Counter()
    recovered: set[tuple[str, int]] = set()
    parts, committed = (os.open(home / name, _APPENDING) for name in (_WRITTEN, _ANSWERED))

    def numbered_part(lease: Lease, part: Callable[[Any], Any]) -> tuple[Callable[[Any], Any], bytes]:
        owner = (lease.key, lease.epoch)
        if owner in recovered:
            owner = (f"{lease.key}!", lease.epoch)
        place = counts[owner]
        counts[owner] += 1

        @functools.wraps(part)
        def written(transaction: Any) -> Any:
            transaction.execute("INSERT INTO kill_part(owner, epoch, place) VALUES(?, ?, ?)", (*owner, place))
            return part(transaction)

        line = f"{owner[0]} {owner[1]} {place}\n".encode()
        os.write(parts, line)
        return written, line

    def lease_enqueue(self: Lease, part: Callable[[Any], Any]) -> None:
        enqueue(self, numbered_part(self, part)[0])

    async def lease_commit(self: Lease, part: Callable[[Any], Any], **how: bool) -> Any:
        written, line = numbered_part(self, part)
        done = await commit(self, written, **how)
        os.write(committed, line)
        return done

    def lease_recover(self: Lease) -> None:
        recover(self)
        recovered.add((self.key, self.epoch))

    Lease.recover = lease_recover  # type: ignore[method-assign]  # likewise
    Lease.enqueue = lease_enqueue  # type: ignore[method-assign]  # the order of parts shows nowhere else
    Lease.commit = lease_commit  # type: ignore[method-assign]  # likewise


def lost_parts(home: Path) -> tuple[list[str], list[str]]:
    """What is wrong with the disk, and which parts it has not, as the killed process left them.

    Returns:
        Where it has no prefix, or lacks what the owner was told is committed; and the parts that it lacks.
    """
    found = {f"{owner} {epoch} {place}" for owner, epoch, place in rows_of(home, "SELECT * FROM kill_part")}
    wrong = [f"committed and gone: {part}" for part in lines(home / _ANSWERED) if part not in found]
    missing = [part for part in lines(home / _WRITTEN) if part not in found]
    for part in missing:
        owner, _, place = part.rpartition(" ")
        later = [each for each in found if each.rpartition(" ")[0] == owner and int(each.split()[-1]) > int(place)]
        wrong += [f"{each} is there without {part}" for each in later]
    return wrong, missing
