"""A turn, an edit or a branch that breaks at any point: a write fails, or the process is killed.

Where a write fails, the disk is full, the connection is cut, or the answer to a commit is lost: the caller gets an
error, makes room, and resumes the turn in the same process. After a kill another process resumes it.
"""

import asyncio
import contextlib
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from support import kill_turn
from support.agents import open_pauses
from support.databases import Engine, made, removed
from support.homes import said
from support.kill_points import (
    AFTER,
    IN,
    WITHIN,
    Killer,
    Point,
    armed,
    bare_agent,
    lost_parts,
    numbered,
    points_of,
    prepare,
    some,
)
from support.processes import add, be_program, forked_result, lines
from worldagent import WorldAgent
from worldagent.agent import Thread
from worldagent.core.errors import NothingToResume, StorageUnavailable
from worldagent.core.pauses import Happened, Pause, RunAgain
from worldagent.harness import tool
from worldagent.storage import Transaction
from worldagent.testing import ScriptedCall, ScriptedLM

OLD, NEW, KEPT = "Order the old one.", "Order the new one.", "as it was"


def _edited_agent(home: Path) -> WorldAgent:
    async def order(which: str) -> str:
        add(home / "effects", which)
        return which

    def answer(call: ScriptedCall) -> dict[str, Any]:
        told = str(call.messages[-1])
        for which, text in (("old", OLD), ("new", NEW)):
            if text in told:
                return {"reply": "", "calls": [{"tool": "order", "arguments": {"which": which}}]}
        return {"reply": "Ordered."}

    return bare_agent(home, ScriptedLM(answer, form="native"), "order", tools=[tool(risk="write")(order)])


async def edit_through(home: Path, killer: Killer) -> dict[str, Any]:
    """Run a turn and edit it; if a write of the edit fails, resume it in this agent or in another one."""
    async with _edited_agent(home) as here, _edited_agent(home) as there:
        prepare(home)
        if await here.thread("t").state() is None:
            await here.thread("t").converse(OLD)
        states = await kill_turn.mended(here, there, killer, lambda thread: _to_the_end(thread, home))
        histories = [await said(agent.thread(name)) for agent in (here, there) for name in ("t", KEPT)]
        threads = sorted([item.thread for item in await here.threads()])
    [now, kept, *same] = histories
    return {
        "states": states,
        "effects": Counter(lines(home / "effects")),
        "now": now,
        "kept": kept,
        "threads": threads,
        "same": [now, kept] == same,
    }


async def _to_the_end(thread: Thread, home: Path) -> None:
    """Edit, unless that is written, and resume until the turn is done; a person looks at the effects."""
    if (await said(thread))[0] != NEW:
        await thread.edit(NEW, keep_as=KEPT)
    with contextlib.suppress(NothingToResume):
        while (await thread.resume({pause.id: _answer(pause, home) for pause in await open_pauses(thread)})).pauses:
            pass


def _answer(pause: Pause, home: Path) -> object:
    which = pause.arguments["which"]
    return Happened(which) if which in lines(home / "effects") else RunAgain()


WAYS = ("fork", "replay", "edit back")
SAID = ["one", "Fine.", "two", "Fine."]
EDITED = ["one", "Fine.", "TWO", "Fine."]


async def _branched(way: str, thread: Thread) -> None:
    """Branch; what is new, or what was, gets the name `new`."""
    match way:
        case "fork":
            await thread.fork(to="new")
        case "replay":
            await thread.replay(to="new", role=kill_turn.ROLE)
        case _:
            await thread.edit("TWO", keep_as="new", role=kill_turn.ROLE)


async def branch_through(way: str, home: Path, killer: Killer) -> dict[str, Any]:
    """Run two turns and branch their thread; where a killed process has, see what there is, and continue it."""

    async def answer(call: ScriptedCall) -> dict[str, Any]:
        await killer(IN, "a model call")
        return {"reply": "Fine."}

    async with bare_agent(home, answer) as agent:
        prepare(home)
        threads = thread, new = agent.thread("t"), agent.thread("new")
        if await thread.state() is None:
            for text in SAID[::2]:
                await thread.converse(text)
            killer.on = True
            await _branched(way, thread)
            killer.on = False
            return {}
        found = [await said(each) for each in threads]
        for each in threads:
            state = await each.state()
            if state is not None and state.resumable:
                await each.resume(role=kill_turn.ROLE)
        if await new.state() is None:
            await _branched(way, thread)
        then = [await said(each) for each in threads]
        for each in threads:
            await each.converse("on")
        return {"found": found, "then": then, "on": [await said(each) for each in threads]}


_UNBOUNDED = 1_000_000  # pages
_FILLER = 2_000_000  # bytes, more than is free in any page of a home of a test


class FailingWrites(Killer):
    """Has the write at one point fail; without a point it counts them.

    On SQLite the disk is full from then on, until `mend` makes room. On Postgres the server cuts the connection in the
    transaction, or the client loses it after the commit.

    Args:
        point: Where; within or after a transaction.
        home: The home of the turn.
        engine: Where the turn is kept.
        elsewhere: Whether another agent resumes the turn.
    """

    def __init__(self, point: Point | None, home: Path, engine: Engine, *, elsewhere: bool) -> None:
        super().__init__(point, home / "where")
        self._engine, self._elsewhere = engine, elsewhere
        self._failed = self._mended = self._full = False

    async def __call__(self, when: str, what: str) -> bool:
        """As `Killer` has it; after a commit its answer is lost here."""
        if when == AFTER and not self._failed and self.point == Point(AFTER, what, self._pass(when, what)):
            self._failed = True
            raise StorageUnavailable("the connection was lost", remedy="try again")
        return when != AFTER and await super().__call__(when, what)

    def within(self, what: str, transaction: Transaction) -> None:
        """As `Killer` has it; where the disk is full, nothing is written by anybody."""
        if self._full:
            self._write_too_much(transaction)
        super().within(what, transaction)

    def end(self, transaction: Transaction) -> None:
        """Fail the transaction; a group of which it is one runs it again alone, and the disk is still full then."""
        if self._failed:
            return
        self._failed = True
        if self._engine == "postgres":
            transaction.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        self._full = True
        self._write_too_much(transaction)

    def mend(self, error: StorageUnavailable) -> bool:
        """See `Killer.mend`. The failure was caused here, once; any other one is raised."""
        if not self._failed or self._mended:
            raise error
        self._full, self._mended = False, True
        return self._elsewhere

    @staticmethod
    def _write_too_much(transaction: Transaction) -> None:
        [(pages,)] = transaction.execute("PRAGMA page_count")
        transaction.execute(f"PRAGMA max_page_count={pages}")
        try:
            transaction.execute("CREATE TABLE filler AS SELECT zeroblob(?)", (_FILLER,))
        finally:
            transaction.execute(f"PRAGMA max_page_count={_UNBOUNDED}")


TURNS: dict[str, Callable[[Path, Killer], Coroutine[Any, Any, dict[str, Any]]]] = {
    "parts": kill_turn.through,
    "edit": edit_through,
    **{way: partial(branch_through, way) for way in WAYS},
}


def ran(turn: str, killer: Killer, home: Path) -> tuple[int, dict[str, Any]]:
    """Run a turn in a fork to its end; gives how the fork ended, and what came of the turn."""

    def work() -> dict[str, Any]:
        armed(killer)
        numbered(home)
        found = asyncio.run(TURNS[turn](home, killer))
        return found | {"points": killer.counted()}

    return forked_result(work)


def failures(
    turn: str, engine: Engine, *, kills: bool = False, sample: int | None = None, seed: int = 0
) -> Iterator[dict[str, Any]]:
    """Have each write of a turn fail, or kill the process at each point, or do so at `sample` of them."""
    source = random.Random(seed)
    fails = (WITHIN,) if engine == "sqlite" else (WITHIN, AFTER)
    with tempfile.TemporaryDirectory() as folder:
        home = made(engine, Path(folder, "counted"))
        ended, counted = ran(turn, Killer(None, home / "where"), home)
        assert ended == 0, f"the turn {turn!r} ended with {ended}"
        points = [point for point in points_of(counted["points"]) if kills or point.when in fails]
        for number, point in enumerate(some(points, sample, source)):
            home = made(engine, Path(folder, str(number)))
            leaks: list[str] = []
            if kills:
                ended, _ = ran(turn, Killer(point, home / "where"), home)
                assert ended == -signal.SIGKILL, f"the turn {turn!r} did not come to {point}"
                leaks = kill_turn.leaks_of(home)
                ended, found = ran(turn, Killer(None, home / "where"), home)
            else:
                ended, found = ran(turn, FailingWrites(point, home, engine, elsewhere=source.random() < 0.5), home)
            assert ended == 0, f"the turn {turn!r} did not come through with {point}"
            gaps, _ = lost_parts(home)
            removed(home)
            yield {**asdict(point), "gaps": gaps, "leaks": leaks, "kills": kills} | found


if __name__ == "__main__":
    be_program(failures)
