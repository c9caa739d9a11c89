"""The three products that the leak suite runs, and samples of them: turns that end, that pause, and that are judged."""

from __future__ import annotations

import heapq
import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from typing import Any, Final, Literal, TypeVar

import pytest

from support.leaks import LONG, SHORT, awkward_canary, canary
from worldagent import Role
from worldagent.core import ECHO_RUN
from worldagent.graphs.checkpoints.saver import Durability

C = TypeVar("C")
Values = tuple[tuple[int, object], ...]
"""Values that meet in a case, each with the number of its field."""

SURFACES = ("converse", "stream", "task", "shape", "skill", "schedule")
SOURCES = ("call", "thread", "channel", "workspace", "account", "code")
MODES: Final[tuple[Durability, ...]] = ("sync", "async", "exit")
STORES = ("embedded", "stdio", "http")
"""Where stored roles are kept: here, or in the reference host."""
LENGTHS = (len(SHORT), len(LONG))
# What each outcome does, in the words of a test's name; `support.leak_turns` carries it out.
OUTCOMES = (
    "answers",
    "calls",
    "two at once",
    "model refuses and quotes the prompt",
    "model crashes and quotes the prompt",
    "service answers 400 and quotes the prompt",
    "fails in passing and is tried again",
    "cannot be parsed and quotes the role",
    "role as value that does not fit",
    "handler raises what predict gave",
    "model repeats the role",
    "model repeats the role and echo is fail",
    "model is too slow",
    "cancelled in mid-call",
    "cancelled in mid-call over HTTP",
    "agent closed in mid-call",
)
PLANNED = ("converse", "stream", "schedule")
"""The surfaces whose entry Signature is the planner's."""

_ON_SHAPES_TOO = ("cannot be parsed and quotes the role", "role as value that does not fit")


@dataclass(frozen=True)
class Case:
    """One turn to run, and to find nothing of its role after.

    Attributes:
        surface: Through what it is asked for; `shape` is a task whose handler predicts with two Signatures.
        source: The role's tier; `code` is a role that the code of a handler passes to a task (T8).
        mode: LangGraph's durability.
        outcome: How it goes.
        length: Characters of the role.
        store: Where a stored role is kept.
    """

    surface: str
    source: str
    mode: Durability
    outcome: str
    length: int
    store: str = "embedded"

    def __str__(self) -> str:
        stored = "" if self.store == "embedded" else f"-{self.store}"
        return f"{self.outcome}-{self.surface}-{self.source}-{self.mode}-{self.length}{stored}"

    @property
    def revision(self) -> Literal["auto", "legacy"]:
        """How a host is spoken to: in the newest protocol revision or an older one, which the rest decides."""
        return random.Random(f"revision of {self}").choice(("auto", "legacy"))

    @property
    def content(self) -> str:
        """The role's text: its own, so that what one case leaves behind is not taken for another's."""
        return awkward_canary(self.length, seed=f"{self}")

    @property
    def label(self) -> str:
        """The role's name, which no file and no event may hold either."""
        return canary(12, seed=f"label of {self}")

    @property
    def _misplaced(self) -> bool:
        return self.outcome == "role as value that does not fit"

    @property
    def possible(self) -> bool:
        planned, shape = self.surface in PLANNED, self.surface == "shape"
        if self.store != "embedded" and self.source not in ("workspace", "account", "channel"):
            return False
        # What a model says is withheld from 40 characters on; less is its own word, and stays in answers (R16), which
        # the journal keeps as well.
        repeated = self.outcome.startswith("model repeats") or self.outcome == "handler raises what predict gave"
        if self.length < ECHO_RUN and (repeated or (shape and self._misplaced)):
            return False
        if self.source == "code" and not shape:
            return False
        if self.outcome == "calls":
            return planned
        if self.outcome in _ON_SHAPES_TOO:
            return planned or (shape and self.source != "code")
        if self.outcome == "handler raises what predict gave":
            return shape and self.source != "code"
        return True


def every_case() -> list[Case]:
    """The whole product, without what cannot be."""
    cases = itertools.starmap(Case, itertools.product(SURFACES, SOURCES, MODES, OUTCOMES, LENGTHS, STORES))
    return [case for case in cases if case.possible]


def sample() -> list[Case]:
    """Cases such that every two values that can meet do meet in one of them; the same in every run."""

    def pairs(case: Case) -> Iterator[Values]:
        # How a host is reached counts as one: it takes a second to start, and the soak has both.
        told = replace(case, store="embedded" if case.store == "embedded" else "a host")
        return itertools.combinations(enumerate(astuple(told)), 2)

    return covering(every_case(), pairs)


def sample_of_values() -> list[Case]:
    """Cases of the embedded store such that each value is in one of them; the same in every run."""
    cases = [case for case in every_case() if case.store == "embedded"]
    return covering(cases, lambda case: ((value,) for value in enumerate(astuple(case))))


def soaked() -> list[Case]:
    """What the soak runs: every case of the embedded store; over a host, such that any three values meet."""
    embedded = [case for case in every_case() if case.store == "embedded"]
    hosted = [case for case in every_case() if case.store != "embedded"]
    return embedded + covering(hosted, lambda case: itertools.combinations(enumerate(astuple(case)), 3))


def covering(cases: list[C], meetings: Callable[[C], Iterator[Values]]) -> list[C]:
    """So many of `cases` that each of their meetings is in one of them; greedy, those with many new ones first."""
    random.Random("leaks").shuffle(cases)
    met = [frozenset(meetings(case)) for case in cases]
    missing = frozenset[Values]().union(*met)
    # A case never brings more new ones than when it was last looked at, so most need not be looked at again.
    waiting = [(-len(values), place) for place, values in enumerate(met)]
    heapq.heapify(waiting)
    chosen: list[C] = []
    while missing:
        _, place = heapq.heappop(waiting)
        new = len(missing & met[place])
        if waiting and new < -waiting[0][0]:
            heapq.heappush(waiting, (-new, place))
            continue
        missing -= met[place]
        chosen.append(cases[place])
    return sorted(chosen, key=str)


def each_third(cases: list[C]) -> list[Any]:
    """All cases, of which two thirds are left to the soak: what runs again only because it is on another database."""
    return [case if at % 3 == 0 else pytest.param(case, marks=pytest.mark.soak) for at, case in enumerate(cases)]


# --- turns that pause -------------------------------------------------------------------------------------------------

PAUSED_SOURCES = ("call", "thread", "both", "code")
"""Where the role is from; `both` is one of the call over another of the thread, `code` is T8's."""
PAUSES = ("approval", "question at depth", "siblings")
PAUSED_SURFACES = ("converse", "stream", "task")
# What becomes of the turn, in the words of a test's name; `support.leak_pauses` carries it out.
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
PAUSED_PATHS = (*_ANY, *_OF_THE_TURN)
ANOTHER = "another"
"""The role that comes instead of one of the turn's own, where it does."""


class Roled(ABC):
    """A case whose turn has roles of its own, so that what one case leaves is not taken for another's."""

    source: str
    length: int

    def __str__(self) -> str:
        return "-".join(map(str, vars(self).values()))

    @property
    @abstractmethod
    def planted(self) -> tuple[str, ...]:
        """The roles that its turn has."""

    def role(self, which: str) -> Role:
        """One of its roles; a stored one attaches where the default says."""
        label = canary(12, seed=f"label of {which} of {self}")
        applies_to = () if self.source in ("workspace", "account") else "*"
        return Role(label, awkward_canary(self.length, seed=f"{which} of {self}"), applies_to=applies_to)

    @property
    def contents(self) -> list[str]:
        """The texts that must be nowhere."""
        return [self.role(which).content for which in (*self.planted, ANOTHER)]

    @property
    def labels(self) -> list[str]:
        """The names that must be in no file, log, event or error."""
        return [self.role(which).name for which in (*self.planted, ANOTHER)]


@dataclass(frozen=True)
class PausedCase(Roled):
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
    mode: Durability
    surface: str

    @property
    def planted(self) -> tuple[str, ...]:
        return ("call", "thread") if self.source == "both" else (self.source,)


def every_paused_case() -> list[PausedCase]:
    """The product of paths, sources, pauses and lengths; modes and surfaces take turns over it."""
    product = itertools.product(PAUSED_PATHS, PAUSED_SOURCES, PAUSES, LENGTHS)
    possible = [four for four in product if four[1] in _OF_THE_TURN.get(four[0], PAUSED_SOURCES)]
    turns = itertools.cycle(random.Random("turns").sample(list(itertools.product(MODES, PAUSED_SURFACES)), 9))
    return [PausedCase(*four, *next(turns)) for four in possible]


def paused_sample() -> list[PausedCase]:
    """Cases such that each path but one is met, and every two values of the rest; the same in every run."""

    def meetings(case: PausedCase) -> Iterator[Values]:
        path, *rest = enumerate(astuple(case))
        # A process to kill takes seconds to start; that it is gone with its pause differs little from resuming in
        # another agent.
        if case.path != "killed while paused":
            yield (path,)
        yield from itertools.combinations(rest, 2)

    return covering(every_paused_case(), meetings)


# --- answers that are judged ------------------------------------------------------------------------------------------

VERIFIED_SOURCES = ("call", "thread", "channel", "workspace", "account")
# What becomes of the turn, in the words of a test's name; `support.leak_verified` carries it out.
VERIFIED_PATHS = (
    "satisfied at once",
    "wanting once",
    "wanting to the last",
    "judge refuses and quotes the prompts",
    "judge crashes and quotes the prompts",
    "judge cannot be parsed and quotes the prompts",
    "model repeats the role and echo is fail",
    "judge repeats the role and echo is fail",
    "paused while it mends",
    "resumes under another role",
    "cancelled while judged",
    "cancelled while it mends",
    "drained while judged",
    "killed while judged",
    "killed while it mends",
)


@dataclass(frozen=True)
class VerifiedCase(Roled):
    """One turn to run, and to find nothing of its role after.

    Attributes:
        path: What becomes of it.
        surface: Through what it is asked for.
        source: The role's tier.
        length: Characters of the role.
        mode: LangGraph's durability.
    """

    path: str
    surface: str
    source: str
    length: int
    mode: Durability

    @property
    def planted(self) -> tuple[str, ...]:
        return ("first",)


def every_verified_case() -> list[VerifiedCase]:
    """The product of paths, surfaces, sources and lengths; modes take turns over it."""
    modes = itertools.cycle(MODES)
    product = itertools.product(VERIFIED_PATHS, PLANNED, VERIFIED_SOURCES, (len(SHORT), len(LONG)))
    # What a model says is withheld from 40 characters on; less is its own word (R16).
    possible = [four for four in product if four[3] >= ECHO_RUN or "repeats" not in four[0]]
    random.Random("verified leaks").shuffle(possible)
    return [VerifiedCase(*four, next(modes)) for four in possible]


def verified_sample() -> list[VerifiedCase]:
    """Cases such that each path meets each length, and any two values of the rest each other; the same in every run."""

    def meetings(case: VerifiedCase) -> Iterator[tuple[tuple[int, object], ...]]:
        path, surface, source, length, mode = enumerate(astuple(case))
        # A process to kill takes a second to start, so each of those paths is there once.
        yield (path,) if case.path.startswith("killed") else (path, length)
        yield from itertools.combinations((surface, source, length, mode), 2)

    return covering(every_verified_case(), meetings)
