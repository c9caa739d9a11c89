"""Plays one random tree of calls to its end: answers, wrong answers, cancels, drains, kills, and what came of it."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

from support.agents import open_pauses
from support.databases import Engine, made, removed
from support.processes import be_program, eventually, others, run_child
from support.steps import Steps
from support.trees import Node, Said, World, agent_of, answered, begun, outcome, path_of, said
from worldagent import WorldAgent
from worldagent.core import errors
from worldagent.core.pauses import Answer, Pause
from worldagent.testing import VirtualClock


async def run_and_die(**order: Any) -> str:
    """Begin or resume the turn, in a process; killed at the point that is ordered, if it comes that far."""
    steps = Steps(order["at"], order["unit"], lambda: os.kill(os.getpid(), signal.SIGKILL))
    async with agent_of(Path(order["home"]), order["tree"], steps.passed) as agent:
        steps.watch()
        if order["begin"]:
            turn = await begun(agent, order["tree"], planned=order["planned"])
        else:
            answers = {pause_id: answered((kind, value)) for pause_id, (kind, value) in order["answers"].items()}
            try:
                turn = await agent.thread("t").resume(answers)
            except errors.NothingToResume:
                return "nothing"
        return str(turn.status)


LIMIT = 60.0  # seconds that one run at a turn may take before it counts as one that waits for ever
RUNS = 60  # how often a turn may be gone on with before it counts as one that never ends
TURN_TIMEOUT = 1000.0

How = Literal["run", "drain", "cut", "late", "kill", "meanwhile", "twice"]
End = Literal["cancelled", "closed", "left"]


@dataclass(frozen=True)
class Move:
    """What one run at the turn goes through.

    Attributes:
        how: `drain` and `cut` close the agent so that the turn can go on; `late` lets its time pass, `kill` kills the
            process, `meanwhile` answers from another agent while it runs, `twice` gives an answer twice at once.
        at: After how many steps or effects.
        unit: Which of the two.
        seed: Chooses the pauses that are answered.
        fresh: Whether a new agent resumes it.
    """

    how: How
    at: int
    unit: Literal["steps", "effects"]
    seed: int
    fresh: bool


@dataclass
class Play:
    """One tree, and what is done to its turn until that ends.

    Attributes:
        seen: What happened on the way, counted.
    """

    tree: Node
    moves: Sequence[Move]
    planned: bool
    end: tuple[End, int] | None
    home: Path
    seen: Counter[str] = field(default_factory=Counter)
    looked: dict[str, str] = field(default_factory=dict)
    ids: dict[tuple[str, str], str] = field(default_factory=dict)

    async def run(self) -> None:
        """Play it, and check what came of it."""
        moves = [*self.moves]
        self.clock = VirtualClock()
        self.agent = await self._opened()
        self.tasks = others()
        self.seed = 0
        status = "nothing"
        try:
            for _ in range(RUNS):
                move = moves.pop(0) if moves else None
                if move is None and self.end is not None:
                    return await self._ended(*self.end, begin=status == "nothing")
                status = await self._moved(move, begin=status == "nothing")
                self.seen[status] += 1
                if status == "done":
                    return await self._over()
            raise AssertionError(f"it does not end; the last run was {status}")
        finally:
            await self.agent.aclose()

    # --- one run ----------------------------------------------------------------------------------------------------

    async def _moved(self, move: Move | None, *, begin: bool) -> str:
        if move is not None and move.fresh:
            await self._reopened()
        pauses = () if begin else await open_pauses(self.agent.thread("t"))
        for pause in pauses:
            assert (
                self.ids.setdefault((pause.kind + pause.function, path_of(pause) + _number(pause)), pause.id)
                == pause.id
            )
        answers = self._answers(pauses, move)
        if move is None:
            return await self._to_its_end(self._run(answers, begin=begin))
        self.seen[move.how] += 1
        match move.how:
            case "kill":
                return await self._killed(move, answers, begin=begin)
            case "twice":
                return await self._twice(answers, begin=begin)
            case "run":
                await self._wrong(pauses)
                return await self._to_its_end(self._run(answers, begin=begin))
            case _:
                return await self._cut(move, answers, begin=begin)

    def _answers(self, pauses: Sequence[Pause], move: Move | None) -> dict[str, Said]:
        chosen = list(pauses)
        if move is not None and chosen:
            order = Random(move.seed)
            chosen = order.sample(chosen, order.randint(0, len(chosen)))
        effects = World(self.home).effects
        self.seen["answers"] += len(chosen)
        for pause in chosen:
            self.seen[pause.kind] += 1
        return {pause.id: said(pause, effects, self.looked) for pause in chosen}

    async def _run(self, answers: dict[str, Said], *, begin: bool, agent: WorldAgent | None = None) -> str:
        agent = agent or self.agent
        if begin:
            return str((await begun(agent, self.tree, planned=self.planned)).status)
        try:
            return str((await agent.thread("t").resume({one: answered(what) for one, what in answers.items()})).status)
        except errors.NothingToResume as error:
            return "done" if "is done" in error.problem else "nothing"
        except errors.TurnTimeout:
            return "late"

    async def _to_its_end(self, run: Coroutine[Any, Any, str]) -> str:
        async with asyncio.timeout(LIMIT):
            status = await run
        await self._nothing_left()
        return status

    async def _cut(self, move: Move, answers: dict[str, Said], *, begin: bool) -> str:
        """Do something to the turn in the middle of its run."""
        running = await self._reached(move.at, move.unit, answers, begin=begin)
        if not running.done():
            self.seen[f"{move.how} in the middle"] += 1
        async with asyncio.timeout(LIMIT):
            match move.how:
                case "late":
                    await self.clock.advance(TURN_TIMEOUT + 1)
                case "meanwhile":
                    await self._meanwhile(move, answers)
                case _:
                    await self.agent.drain(LIMIT if move.how == "drain" else 0)
            try:
                status = await running
            except errors.AgentClosed:  # it had not begun
                status = "nothing" if begin else "refused"
            except errors.TurnTimeout:
                status = "late"
        if move.how in ("drain", "cut"):
            await self._reopened()
        await self._nothing_left()
        return status

    async def _reached(self, at: int, unit: str, answers: dict[str, Said], *, begin: bool) -> asyncio.Task[str]:
        """A run of a new agent, once it has come so far, or has ended."""
        reached = asyncio.Event()
        steps = Steps(at, unit, reached.set)
        await self._reopened(steps.passed)
        running = asyncio.create_task(self._run(answers, begin=begin))
        end, reaching = steps.watch(), asyncio.create_task(reached.wait())
        await asyncio.wait({running, reaching}, timeout=LIMIT, return_when=asyncio.FIRST_COMPLETED)
        end()
        reaching.cancel()
        return running

    async def _meanwhile(self, move: Move, given: dict[str, Said]) -> None:
        """Answer from another agent what is asked while the turn runs, but for what its run was given answers to."""
        async with agent_of(self.home, self.tree) as other:
            asked = await open_pauses(other.thread("t"))
            answers = self._answers([pause for pause in asked if pause.id not in given], move)
            if answers:
                self.seen["answered while it runs"] += 1
                await self._run(answers, begin=False, agent=other)

    async def _twice(self, answers: dict[str, Said], *, begin: bool) -> str:
        """Two agents give the same answers at once; one of them is told that it came second."""
        if begin or not answers:
            return await self._to_its_end(self._run(answers, begin=begin))
        async with agent_of(self.home, self.tree) as other, asyncio.timeout(LIMIT):
            both = await asyncio.gather(
                *(self._run(answers, begin=False, agent=agent) for agent in (self.agent, other)), return_exceptions=True
            )
        statuses = [one for one in both if isinstance(one, str)]
        told = [one for one in both if not isinstance(one, str)]
        assert all(isinstance(one, errors.AlreadyAnswered) for one in told), both
        # Who came when the turn was over is told that, by `resume()` or here.
        assert len(told) == 1 or statuses.count("done") == 2, both
        await self._nothing_left()
        return statuses[0]

    async def _killed(self, move: Move, answers: dict[str, Said], *, begin: bool) -> str:
        order = {"begin": begin, "planned": self.planned, "tree": self.tree, "answers": answers}
        at = move.at * (1 if move.unit == "effects" else 4)
        code, _, told = await run_child("tree_plays", home=str(self.home), at=at, unit=move.unit, **order)
        assert code in (0, -9), f"the other process ended with {code}: {told}"
        self.seen["killed" if code else "not killed"] += 1
        return "unknown"

    async def _wrong(self, pauses: Sequence[Pause]) -> None:
        """Answers that do not fit are refused, and leave every pause open."""
        thread = self.agent.thread("t")
        for pause in pauses:
            wrong: object = "elsewhere" if pause.options else Answer(7)
            try:
                await thread.resume({pause.id: wrong})
            except errors.AnswerInvalid:
                continue
            raise AssertionError(f"{wrong!r} was taken for {pause}")
        if pauses:
            fitting = answered(said(pauses[0], World(self.home).effects, {}))
            try:
                await thread.resume({"call": "x", pauses[0].id: fitting})
            except errors.UnknownPause:
                assert await open_pauses(thread) == list(pauses)
                return
            raise AssertionError("an answer to a pause that there is not was taken")

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _ended(self, end: End, at: int, *, begin: bool) -> None:
        """End the turn in the middle of a run: nothing continues, nothing happens twice, the thread is free."""
        answers = self._answers(() if begin else await open_pauses(self.agent.thread("t")), None)
        running = await self._reached(at, "effects", answers, begin=begin)
        async with asyncio.timeout(LIMIT):
            match end:
                case "cancelled":
                    async with agent_of(self.home, self.tree) as other:
                        await other.thread("t").cancel()
                        await asyncio.wait({running})
                case "left":
                    running.cancel()
                    await asyncio.wait({running})
                case "closed":
                    await self.agent.aclose()
                    await asyncio.wait({running})
                    self.agent = await self._opened()
            self.seen[end] += 1
            await self._nothing_left()
            thread = self.agent.thread("t")
            await thread.cancel()
            assert await thread.pauses() == ()
            assert (await thread.converse("Still there?")).text == "All done."
        found = outcome(self.tree, self.looked)
        assert World(self.home).effects <= found.must + found.may

    async def _over(self) -> None:
        """The turn is done: everything has happened once, and its result is the right one."""
        found = outcome(self.tree, self.looked)
        effects = World(self.home).effects
        assert found.must <= effects <= found.must + found.may, (effects, found)
        results = [one for one in await self.agent.thread("t").history() if one.kind == "result"]
        assert [one.body["result"]["value"] for one in results] == [found.value]
        assert await self.agent.thread("t").pauses() == ()

    # --- agents -----------------------------------------------------------------------------------------------------

    async def _opened(self, passed: Callable[[], None] = lambda: None) -> WorldAgent:
        more = {"settings": {"turn_timeout": TURN_TIMEOUT}, "clock": self.clock}
        return await agent_of(self.home, self.tree, passed, **more).start()

    async def _reopened(self, passed: Callable[[], None] = lambda: None) -> None:
        await self.agent.aclose()
        self.agent = await self._opened(passed)

    async def _nothing_left(self) -> None:
        assert await eventually(lambda: others() <= self.tasks), asyncio.all_tasks()


def _number(pause: Pause) -> str:
    return pause.id.rpartition(":")[2].partition(".")[2]


def play(
    tree: Node, moves: Sequence[Move], *, planned: bool, end: tuple[End, int] | None, engine: Engine
) -> Counter[str]:
    """Play a tree in a home of its own; gives what happened on the way."""
    with tempfile.TemporaryDirectory() as folder:
        home = made(engine, Path(folder) / "home")
        played = Play(tree, moves, planned, end, home)
        try:
            asyncio.run(played.run())
        finally:
            removed(home)
    return played.seen


if __name__ == "__main__":
    be_program(lambda **order: [asyncio.run(run_and_die(**order))])
