"""What a turn may cost in things that can be counted, so that a guard in CI need not time anything.

A case runs on a SQLite home as users have it, traces included: what is gathered for the trace is written within the
count. `PYTHONPATH=.dev:tests python -P tests/support/budgets.py --write` makes the figures the budgets. Budgets are
there to go down: a commit that raises one says why.
"""

import asyncio
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from typing import Any, Final

import dspy

from support.counters import Calls, Databases, Objects, Way, is_own, stopped_clock, uncollected
from support.house import ROOT
from support.processes import be_program
from support.services import in_words
from worldagent import Storage, WorldAgent
from worldagent.agent import Thread
from worldagent.benchmarks._stubs import ANSWER, CRITIC, QUESTION, constant_lm

Figures = dict[str, int]

BUDGETS: Final = ROOT / "tests" / "turns" / "budgets.json"
WRITE: Final = "PYTHONPATH=.dev:tests .venv/bin/python -P tests/support/budgets.py --write"
PYTHON: Final = (3, 11)
"""The version that the budgets of calls and objects are for: others inline more, and make fewer objects."""

OF_PYTHON: Final = frozenset({"python_calls", "own_calls", "objects_left", "cyclic_garbage"})
SLACK: Final[Mapping[str, float]] = {
    "python_calls": 0.03,  # another patch of dspy or langgraph calls a few functions more
    "own_calls": 0.01,
    "wal_bytes": 0.05,  # random ids come on other pages
    "objects_left": 0.25,  # what a timer or a finalizer frees comes before or after the count
    "cyclic_garbage": 0.25,
}
"""By what part a figure may differ from its budget, either way. The others are exact."""

WAY: Final = "way to the model"
_ROUNDS: Final = 5
_PLAN: Final = '[{"tool": "critic", "arguments": {"request": "Judge the claim that Queen Ada rules Vell."}}]'
_SUBMIT: Final = ThreadPoolExecutor.submit.__code__


@dataclass(frozen=True)
class Case:
    """A turn that is counted.

    Attributes:
        before: How many plain turns its thread has had.
        completions: What the model answers in it, call by call.
        delegates: Whether the agent has a worker.
    """

    before: int
    completions: tuple[str, ...]
    delegates: bool = False

    def agent(self, home: Path) -> WorldAgent:
        replies = itertools.cycle([*[in_words(ANSWER).text] * self.before, *self.completions])
        workers = [CRITIC] if self.delegates else []
        lm: dspy.LM = constant_lm(lambda request: next(replies))
        return WorldAgent("budgets", lm=lm, workers=workers, storage=Storage(home=home))


PLAIN: Final = Case(before=4, completions=(in_words(ANSWER).text,))
CASES: Final[Mapping[str, Case]] = {
    "first turn": Case(before=0, completions=(in_words(ANSWER).text,)),
    "plain turn": PLAIN,
    "delegation": Case(
        before=4,
        completions=(
            in_words("I will ask critic.", _PLAN).text,
            in_words(result="No source before the fire names her.").text,
            in_words(ANSWER).text,
        ),
        delegates=True,
    ),
}


@dataclass(frozen=True)
class Counted:
    """What was counted of one case; `notes` has what else helps to find the difference."""

    figures: Figures
    notes: Mapping[str, list[str]]


async def counted(name: str, home: Path) -> Counted:
    """Count a case of `CASES`, or `WAY`, in an agent of its own."""
    with stopped_clock():
        if name == WAY:
            return await _way(home)
        return Counted(await _costs(CASES[name], home), {})


async def _costs(case: Case, home: Path) -> Figures:
    """Each figure is the middle one of a few rounds. Each round has two new threads: counting calls makes objects."""
    calls, databases, objects = Calls(), Databases(), Objects()
    rounds: list[Figures] = []
    with databases.watched(), calls.in_threads():
        async with case.agent(home) as agent:
            for number in range(_ROUNDS + 1):
                turn = await _ready(agent, case, f"calls-{number}")
                databases.clear()
                before = databases.written
                with uncollected(), calls.counting():
                    await turn()
                found = _of_calls(calls) | _of_databases(databases, before)
                turn = await _ready(agent, case, f"objects-{number}")
                with objects.counting():
                    await turn()
                found |= {"objects_left": objects.left, "cyclic_garbage": objects.garbage}
                rounds.append(found)
    del rounds[0]  # what an agent does once is done in the first
    # What the turn before left can be freed within the count, which lowers the figure of that round.
    middle: dict[str, Callable[[Iterable[int]], int]] = {"objects_left": max}
    return {each: middle.get(each, median_low)(found[each] for found in rounds) for each in rounds[0]}


def _of_calls(calls: Calls) -> Figures:
    return {
        "python_calls": len(calls.seen),
        "own_calls": sum(map(is_own, calls.seen)),
        "thread_hops": calls.seen.count(_SUBMIT),
    }


def _of_databases(databases: Databases, before: int) -> Figures:
    return {
        "sql_statements": databases.statements,
        "write_transactions": databases.transactions,
        "synced_transactions": databases.synced,
        "wal_bytes": databases.written - before,
    }


async def _way(home: Path) -> Counted:
    way = Way()
    with way.in_threads(), way.over_tasks():
        async with PLAIN.agent(home) as agent:
            turn = await _ready(agent, PLAIN, "t")
            with way.counting():
                await turn()
    figures = {"files_entered": len(way.entered), "files_on_path": len(way.path)}
    return Counted(figures, {"files_entered": sorted(way.entered), "files_on_path": way.path})


async def _ready(agent: WorldAgent, case: Case, name: str) -> Callable[[], Any]:
    """A thread that has had the turns before, and nothing left to do for them; returns the turn that is next."""
    thread: Thread = agent.thread(name)

    async def turn() -> None:
        text = (await thread.converse(QUESTION)).text
        await agent._runner.parts.tracer.flush()
        assert text == ANSWER, text

    for _ in range(case.before):
        await turn()
    return turn


# --- budgets --------------------------------------------------------------------------------------------------------


def budgets() -> dict[str, Figures]:
    """The budgets by case and counter."""
    found: dict[str, Figures] = json.loads(BUDGETS.read_text(encoding="utf-8"))
    return found


def complaints(name: str, found: Counted, budget: Figures) -> list[str]:
    """Name each figure that is above its budget, or so far below that the budget must be lowered."""
    said: list[str] = []
    for counter in sorted({*found.figures, *budget}):
        figure, most = found.figures.get(counter, 0), budget.get(counter, 0)
        if (sys.version_info[:2] != PYTHON and counter in OF_PYTHON) or abs(figure - most) <= most * SLACK.get(
            counter, 0.0
        ):
            continue
        raised = "find what does more, or raise the budget and say why in the commit"
        what = raised if figure > most else "lower the budget"
        notes = "".join(f"\n    {each}" for each in found.notes.get(counter, ()))
        said.append(f"{name}: {counter} is {figure:,}, its budget is {most:,}: {what} ({WRITE}){notes}")
    return said


def counts(*, names: Sequence[str] = (*CASES, WAY)) -> Iterator[dict[str, Any]]:
    """Count each of these cases."""
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            yield {"name": name, **vars(asyncio.run(counted(name, Path(folder))))}


def write() -> None:
    """Make what is counted now the budgets."""
    if sys.version_info[:2] != PYTHON:
        raise SystemExit(f"budgets are written on Python {PYTHON[0]}.{PYTHON[1]}")
    found = {one["name"]: one["figures"] for one in counts()}
    BUDGETS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        be_program(counts)
