"""The second product of the leak suite: turns that pause, are resumed, cancelled, killed and drained, and a sample."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import astuple, dataclass

from support.canaries import LONG, SHORT, awkward_canary, canary
from support.leak_cases import MODES

SOURCES = ("call", "thread", "both", "code")
"""Where the role is from; `both` is one of the call over another of the thread, `code` is T8's."""
PAUSES = ("approval", "question at depth", "siblings")
SURFACES = ("converse", "stream", "task")
LENGTHS = (len(SHORT), len(LONG))
# What becomes of the turn, in the words of a test's name; `support.leak_paths` carries it out.
_ANY = (
    "resumed here",
    "resumed elsewhere",
    "resumed by two at once",
    "answers are refused",
    "role changed",
    "key changed",
    "model fails after the resume",
    "cancelled while paused",
    "cancelled while paused from elsewhere",
    "cancelled while running",
    "cancelled while running from elsewhere",
    "drained",
    "drained and cut off",
    "killed while running",
    "killed while paused",
    "killed in the resume",
)
# What only the role of the turn itself can meet, and who may have it.
_OF_THE_TURN = {
    "role left out": ("call", "thread", "both"),
    "refreshed with another role": ("call", "thread", "both"),
    "without a role on purpose": ("call", "both"),
    "pinned": ("call", "thread", "both"),
    "pinned elsewhere": ("call", "thread", "both"),
    "thread role expired": ("thread", "both"),
    "thread role replaced while running": ("thread", "both"),
}
PATHS = (*_ANY, *_OF_THE_TURN)
ANOTHER = "another"
"""The role that comes instead of one of the turn's own, where it does."""


@dataclass(frozen=True)
class PausedCase:
    """One turn to run, and to find nothing of its roles after.

    Attributes:
        path: What becomes of it.
        source: Where its role is from.
        pause: What it waits for.
        length: Characters of each role.
        mode: LangGraph's durability.
        surface: Through what it is asked for, and whether its resume is streamed.
    """

    path: str
    source: str
    pause: str
    length: int
    mode: str
    surface: str

    def __str__(self) -> str:
        return f"{self.path}-{self.source}-{self.pause}-{self.length}-{self.mode}-{self.surface}"

    def content(self, which: str) -> str:
        """The text of one of its roles: its own, so that what one case leaves is not taken for another's."""
        return awkward_canary(self.length, seed=f"{which} of {self}")

    def label(self, which: str) -> str:
        """The name of one of its roles."""
        return canary(12, seed=f"label of {which} of {self}")

    @property
    def planted(self) -> tuple[str, ...]:
        """The roles that its turn has."""
        return ("call", "thread") if self.source == "both" else (self.source,)

    @property
    def contents(self) -> list[str]:
        """The texts that must be nowhere."""
        return [self.content(which) for which in (*self.planted, ANOTHER)]

    @property
    def labels(self) -> list[str]:
        """The names that must be in no file, log, event or error."""
        return [self.label(which) for which in (*self.planted, ANOTHER)]


def every_case() -> list[PausedCase]:
    """The product of paths, sources, pauses and lengths; modes and surfaces take turns over it."""
    product = itertools.product(PATHS, SOURCES, PAUSES, LENGTHS)
    possible = [four for four in product if four[1] in _OF_THE_TURN.get(four[0], SOURCES)]
    turns = itertools.cycle(random.Random("turns").sample(list(itertools.product(MODES, SURFACES)), 9))
    return [PausedCase(*four, *next(turns)) for four in possible]


def sample() -> list[PausedCase]:
    """Cases such that each path but one is met, and every two values of the rest; the same in every run."""
    cases = every_case()
    random.Random("paused leaks").shuffle(cases)
    missing = {pair for case in cases for pair in _pairs(case)}
    chosen: list[PausedCase] = []
    for gain in range(8, 0, -1):
        for case in cases:
            new = missing.intersection(_pairs(case))
            if len(new) >= gain:
                missing -= new
                chosen.append(case)
    return sorted(chosen, key=str)


def _pairs(case: PausedCase) -> Iterator[tuple[object, ...]]:
    path, *rest = enumerate(astuple(case))
    # A process to kill takes seconds to start; that it is gone with its pause differs little from going on elsewhere.
    if case.path != "killed while paused":
        yield (path,)
    yield from itertools.combinations(rest, 2)
