"""Turns of other threads in the process that is killed: their transactions share a group with the one that is killed.

SQLite commits the transactions of several threads as one. `TOGETHER` kills in such a group. `APART` has each group
fail, after which each of its transactions is run again alone. On Postgres each thread's transaction has a connection of
its own: `TOGETHER` they are open at once, `APART` one comes after the other.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from support.agents import Said, open_pauses
from support.processes import add, lines
from worldagent import WorldAgent
from worldagent.core.pauses import Happened, RunAgain
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import Function, tool
from worldagent.storage import sqlite as lane

ALONE, TOGETHER, APART = "alone", "together", "apart"
GROUPINGS: Final = (ALONE, TOGETHER, APART)
MEMBERS: Final = ("c0", "c1")  # with the killed turn's there are as many transactions as connections at most
_BOUND = 30.0  # seconds that anything here is waited for


class Member(BaseModel):
    who: str


class GroupFails(Exception):
    """Takes a group apart."""


class Crowd:
    """Turns that wait, until they are pressed to write in the same moment.

    Args:
        grouping: `TOGETHER` or `APART`.
        home: Where the effects of the turns are written down, in the file `crowd`.

    Attributes:
        pressed: Whether they were pressed.
        doomed: Whether the group that is under way is going to fail.
        size: How many transactions were in the group of the one that is killed, with its own; 0 where none is.
    """

    def __init__(self, grouping: str, home: Path) -> None:
        self.grouping, self._effects = grouping, home / "crowd"
        self.pressed = self.doomed = False
        self._go, self._all_wait, self._all_in, self._all_written = (asyncio.Event() for _ in range(4))
        self._waiting: set[str] = set()
        self._in = self._written = 0  # how many of their transactions are in the group, and are committed
        self._may = threading.Event()  # whether what is in the group may be committed
        self._lane: Any = None
        self._run: Callable[..., Any] | None = None
        self._running: list[asyncio.Task[Any]] = []
        self._group = 0
        self.size = 0

    # --- the turns --------------------------------------------------------------------------------------------------

    @property
    def functions(self) -> list[Function]:
        """What the turns call: a gate, and an effect that cannot be taken back."""

        async def gate(who: str) -> str:
            self._waiting.add(who)
            if len(self._waiting) == len(MEMBERS):
                self._all_wait.set()
            await self._go.wait()
            return who

        async def spend(who: str) -> str:
            add(self._effects, who)
            return who

        return [tool(idempotent=True, risk="read_only")(gate), tool(risk="write")(spend)]

    @property
    def shape(self) -> Shape[Any, Any]:
        """What the turns run."""

        async def handle(params: Member, ctx: TaskContext) -> Said:
            await ctx.call("gate", {"who": params.who})
            return Said(text=await ctx.call("spend", {"who": params.who}))

        return Shape("member", Member, Said, handle)

    async def begin(self, agent: WorldAgent) -> None:
        """Begin the turns; returns when each of them waits."""
        self._running = [asyncio.create_task(agent.thread(who).task("member", {"who": who})) for who in MEMBERS]
        async with asyncio.timeout(_BOUND):
            await self._all_wait.wait()

    async def to_the_end(self, agent: WorldAgent) -> dict[str, Any]:
        """Resume each turn in a process that is not killed; returns what came of them."""
        self._go.set()
        texts: dict[str, str] = {}
        for who in MEMBERS:
            thread = agent.thread(who)
            while True:
                state = await thread.state()
                assert state is not None, "it had begun when the process was killed"
                if state.status == "done":
                    break
                happened = who in lines(self._effects)
                answers = {each.id: Happened(who) if happened else RunAgain() for each in await open_pauses(thread)}
                await thread.resume(answers)
            [*_, last] = await thread.history()
            texts[who] = last.kind
        return {"effects": Counter(lines(self._effects)), "last": texts}

    # --- their transactions -----------------------------------------------------------------------------------------

    def armed(self, run: Callable[..., Any]) -> None:
        """Watch the groups of SQLite's transactions; `run` is `Lane.run`."""
        crowd, transacted = self, lane.Lane._transacted
        self._run = run

        def group(self: Any, works: Any, synced: bool) -> list[Any]:
            if self._read_only:
                return transacted(self, works, synced)
            crowd._lane, crowd._group = self, len(works)
            if crowd.grouping == TOGETHER or len(works) == 1:
                return transacted(self, works, synced)
            crowd.doomed = True
            try:
                return transacted(self, [*works, _failing], synced)
            finally:
                crowd.doomed = False

        lane.Lane._transacted = group  # type: ignore[method-assign]  # what is committed as one shows nowhere else

    def has(self, key: str) -> bool:
        """Whether a thread is one of these."""
        return key.rpartition("/")[2] in MEMBERS

    async def press(self) -> None:
        """Have each turn write; on SQLite nothing is committed before `shared` or `written` lets it."""
        self.pressed = True
        if self._lane is not None:
            assert self._run is not None
            entered = threading.Event()
            self._running.append(asyncio.create_task(self._run(self._lane, self._plug(entered))))
            assert await asyncio.to_thread(entered.wait, _BOUND)
        self._go.set()
        async with asyncio.timeout(_BOUND):
            await self._all_in.wait()

    async def transaction(self, work: Any, run: Callable[[Any], Any]) -> Any:
        """Run a transaction of one of these turns."""
        if not self.pressed:
            return await run(work)
        loop = asyncio.get_running_loop()
        if self._lane is not None:
            self._enters()
            done = await run(work)
        elif self.grouping == TOGETHER and not self._may.is_set():

            def held(transaction: Any) -> Any:
                done = work(transaction)
                loop.call_soon_threadsafe(self._enters)
                assert self._may.wait(_BOUND)
                return done

            done = await run(held)
        else:
            done = await run(work)
            self._enters()
        self._written += 1
        if self._written == len(MEMBERS):
            self._all_written.set()
        return done

    async def shared(self, work: Any, run: Callable[[Any], Any]) -> Any:
        """Run the transaction that is killed, in a group with theirs."""
        await self.press()

        def last(transaction: Any) -> Any:
            if self._lane is None:
                self._group = 1 + len(MEMBERS) if self.grouping == TOGETHER else 1
            self.size = self._group
            done = work(transaction)
            self._may.set()
            return done

        running = asyncio.ensure_future(run(last))
        if self._lane is not None:
            await asyncio.sleep(0)  # it is in the queue
            self._may.set()
        return await running

    async def written(self) -> None:
        """Let them commit, and wait until all have."""
        self._may.set()
        async with asyncio.timeout(_BOUND):
            await self._all_written.wait()

    def _plug(self, entered: threading.Event) -> Callable[[Any], None]:
        def plug(transaction: Any) -> None:
            entered.set()
            assert self._may.wait(_BOUND)

        return plug

    def _enters(self) -> None:
        self._in += 1
        if self._in == len(MEMBERS):
            self._all_in.set()


def _failing(transaction: Any) -> None:
    raise GroupFails
