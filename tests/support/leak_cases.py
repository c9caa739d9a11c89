"""The product that the leak suite runs (surface, source, durability, outcome, length), and a sample of it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import astuple, dataclass

from support.canaries import LONG, SHORT, canary
from worldagent.core import ECHO_RUN

SURFACES = ("converse", "stream", "task", "shape", "skill", "schedule")
SOURCES = ("call", "thread", "channel", "workspace", "account", "code")
MODES = ("sync", "async", "exit")
LENGTHS = (len(SHORT), len(LONG))
# What each outcome does, in the words of a test's name; `support.leak_turns` carries it out.
OUTCOMES = (
    "answers",
    "dispatches",
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
    """

    surface: str
    source: str
    mode: str
    outcome: str
    length: int

    def __str__(self) -> str:
        return f"{self.outcome}-{self.surface}-{self.source}-{self.mode}-{self.length}"

    @property
    def content(self) -> str:
        """The role's text: its own, so that what one case leaves behind is not taken for another's."""
        return canary(self.length, seed=f"{self}")

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
        # What a model says is withheld from 40 characters on; less is its own word, and stays in answers (R16).
        if self.length < ECHO_RUN and (self.outcome.startswith("model repeats") or (shape and self._misplaced)):
            return False
        if self.source == "code" and not shape:
            return False
        if self.outcome == "dispatches":
            return planned
        if self.outcome in _ON_SHAPES_TOO:
            return planned or (shape and self.source != "code")
        if self.outcome == "handler raises what predict gave":
            return shape and self.source != "code"
        return True


def every_case() -> list[Case]:
    """The whole product, without what cannot be."""
    cases = itertools.starmap(Case, itertools.product(SURFACES, SOURCES, MODES, OUTCOMES, LENGTHS))
    return [case for case in cases if case.possible]


def sample() -> list[Case]:
    """Cases such that every two values that can meet do meet in one of them; the same in every run."""
    cases = every_case()
    random.Random("leaks").shuffle(cases)
    missing = {pair for case in cases for pair in _pairs(case)}
    chosen: list[Case] = []
    # Greedy: first those that bring many new pairs, so that few are needed.
    for gain in range(10, 0, -1):
        for case in cases:
            new = missing.intersection(_pairs(case))
            if len(new) >= gain:
                missing -= new
                chosen.append(case)
    return sorted(chosen, key=str)


def _pairs(case: Case) -> Iterator[tuple[tuple[int, object], ...]]:
    return itertools.combinations(enumerate(astuple(case)), 2)
