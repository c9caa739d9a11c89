"""The product of turns that the leak suite runs to their end, samples of it, and what cases of other turns share."""

import heapq
import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from typing import Any, Final, Literal, TypeVar

import pytest

from support.leaks import LONG, SHORT, canary, planted
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
        length: Characters of the role; a long one can be a role of the labelled set instead.
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
        return planted(self.length, seed=f"{self}")

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


ANOTHER = "another"
"""The role that comes instead of one of the turn's own, where it does."""


class Roled(ABC):
    """A case whose turn has roles of its own, so that what one case leaves is not taken for another's."""

    path: str
    surface: str
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
        return Role(label, planted(self.length, seed=f"{which} of {self}"), applies_to=applies_to)

    @property
    def contents(self) -> list[str]:
        """The texts that must be nowhere."""
        return [self.role(which).content for which in (*self.planted, ANOTHER)]

    @property
    def labels(self) -> list[str]:
        """The names that must be in no file, log, event or error."""
        return [self.role(which).name for which in (*self.planted, ANOTHER)]
