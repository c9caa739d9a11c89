"""Plays one random tree of calls to its end: answers, drains, kills, and what came of it."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

from support.agents import open_pauses
from support.databases import Engine, made, removed
from support.loop_steps import Steps
from support.processes import eventually, others
from support.tree_forks import Forks
from support.trees import Node, Said, World, agent_of, outcome, path_of, run, said
from worldagent import WorldAgent
from worldagent.core.errors import AgentClosed
from worldagent.core.pauses import Pause

LIMIT = 60.0  # seconds that one run at a turn may take before it counts as one that waits for ever
RUNS = 60  # how often a turn may be resumed before it counts as one that never ends

How = Literal["run", "drain", "cut", "kill"]


@dataclass(frozen=True)
class Move:
    """What one run at the turn goes through.

    Attributes:
        how: `drain` and `cut` close the agent so that the turn can be resumed, `kill` kills the process.
        at: After how many steps or effects.
        unit: Which of the two.
        seed: Chooses the pauses that are answered.
        anew: Whether a new agent resumes it.
    """

    how: How
    at: int
    unit: Literal["steps", "effects"]
    seed: int
    anew: bool


@dataclass
class Play:
    """One tree, and what is done to its turn until that ends.

    Attributes:
        seen: What happened on the way, counted.
    """

    tree: Node
    moves: Sequence[Move]
    forks: Forks
    home: Path
    seen: Counter[str] = field(default_factory=Counter)
    looked: dict[str, str] = field(default_factory=dict)
    ids: dict[tuple[str, str], str] = field(default_factory=dict)

    async def play(self) -> None:
        """Play it, and check what came of it."""
        moves = [*self.moves]
        self.agent = await agent_of(self.home, self.tree).start()
        self.tasks = others()
        status = "nothing"
        try:
            for _ in range(RUNS):
                status = await self._moved(moves.pop(0) if moves else None, begin=status == "nothing")
                self.seen[status] += 1
                if status == "done":
                    return await self._over()
            raise AssertionError(f"it does not end; the last run was {status}")
        finally:
            await self.agent.aclose()

    async def _moved(self, move: Move | None, *, begin: bool) -> str:
        if move is not None and move.anew:
            await self._anew()
        pauses = [] if begin else await open_pauses(self.agent.thread("t"))
        for pause in pauses:  # a pause keeps its id
            number = pause.id.rpartition(":")[2].partition(".")[2]
            assert self.ids.setdefault((pause.kind + pause.function, path_of(pause) + number), pause.id) == pause.id
        answers = None if begin else self._answers(pauses, move)
        if move is not None:
            self.seen[move.how] += 1
            if move.how == "kill":
                return self._killed(move, answers)
            if move.how != "run":
                return await self._cut(move, answers)
        async with asyncio.timeout(LIMIT):
            status = await run(self.agent, answers)
        await self._nothing_left()
        return status

    def _answers(self, pauses: list[Pause], move: Move | None) -> dict[str, Said]:
        if move is not None and pauses:
            order = Random(move.seed)
            pauses = order.sample(pauses, order.randint(0, len(pauses)))
        effects = World(self.home).effects
        self.seen.update(pause.kind for pause in pauses)
        return {pause.id: said(pause, effects, self.looked) for pause in pauses}

    async def _cut(self, move: Move, answers: dict[str, Said] | None) -> str:
        """Close the agent in the middle of a run."""
        reached = asyncio.Event()
        steps = Steps(move.at, move.unit, reached.set)
        await self._anew(steps.passed)
        running = asyncio.create_task(run(self.agent, answers))
        end, reaching = steps.watch(), asyncio.create_task(reached.wait())
        await asyncio.wait({running, reaching}, timeout=LIMIT, return_when=asyncio.FIRST_COMPLETED)
        end()
        reaching.cancel()
        self.seen[f"{move.how} in the middle"] += not running.done()
        async with asyncio.timeout(LIMIT):
            await self.agent.drain(LIMIT if move.how == "drain" else 0)
            try:
                status = await running
            except AgentClosed:  # it had not begun
                status = "nothing" if answers is None else "refused"
        await self._anew()
        await self._nothing_left()
        return status

    def _killed(self, move: Move, answers: dict[str, Said] | None) -> str:
        at = move.at * (1 if move.unit == "effects" else 4)
        code = self.forks.run(home=str(self.home), tree=self.tree, at=at, unit=move.unit, answers=answers)
        assert code in (0, -9), f"the other process ended with {code}"
        self.seen["killed" if code else "not killed"] += 1
        return "unknown"

    async def _over(self) -> None:
        """The turn is done: everything has happened once, and its result is the right one."""
        found = outcome(self.tree, self.looked)
        effects = World(self.home).effects
        assert found.must <= effects <= found.must + found.may, (effects, found)
        results = [one for one in await self.agent.thread("t").history() if one.kind == "result"]
        assert [one.body["result"]["value"] for one in results] == [found.value]
        assert await self.agent.thread("t").pauses() == ()

    async def _anew(self, passed: Callable[[], None] = lambda: None) -> None:
        await self.agent.aclose()
        self.agent: WorldAgent = await agent_of(self.home, self.tree, passed).start()

    async def _nothing_left(self) -> None:
        assert await eventually(lambda: others() <= self.tasks), asyncio.all_tasks()


def play(tree: Node, moves: Sequence[Move], *, forks: Forks, engine: Engine) -> Counter[str]:
    """Play a tree in a home of its own; gives what happened on the way."""
    with tempfile.TemporaryDirectory() as folder:
        home = made(engine, Path(folder) / "home")
        played = Play(tree, moves, forks, home)
        try:
            asyncio.run(played.play())
        finally:
            removed(home)
    return played.seen
