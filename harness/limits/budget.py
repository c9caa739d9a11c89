"""What is left of limits: one `Budget` a turn, and one of its own for each call below it that has limits (H4).

A budget spends from all above it, so a child cannot use more than its parents have left. What is kept of it over a
pause or a crash is `usage`'s; who asks it, and when, is decided in `pipeline` and in the graphs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from ...core import Clock, ModelUsage, SystemClock
from ...core.errors import LimitReached
from .limits import AT_ONCE, DEPTH, Limits, Spent

Kind = Literal["calls", "tokens", "cost"]

_CALL: Final[tuple[Kind, ...]] = ("calls", "tokens", "cost")
_MODEL: Final[tuple[Kind, ...]] = ("tokens", "cost")
_UNIT: Final[Mapping[Kind, str]] = {"calls": "calls", "tokens": "tokens", "cost": "US dollars"}


class TurnLimitReached(LimitReached):
    """A limit of the turn, its account or its workspace: it ends the turn, and no model is told of it."""


@dataclass(slots=True, eq=False)
class Purse:
    """What one who has limits has used.

    Attributes:
        whose: Who, for people, such as `the turn`.
        limits: What they may use.
        remedy: What can be done where it is used up.
        spent: What they have used.
        ends_turn: Whether the turn ends where it is used up.
        per: In which time, for people.
    """

    whose: str
    limits: Limits = field(default_factory=Limits)
    remedy: str = "do without it, or raise its limits"
    spent: Spent = field(default_factory=Spent)
    ends_turn: bool = False
    per: str = ""

    def check(self, kinds: Iterable[Kind]) -> None:
        """Raise if any of these is used up.

        Raises:
            LimitReached: The text says which, whose, and how much it was.
        """
        for kind in kinds:
            limit = getattr(self.limits, kind)
            if limit is not None and getattr(self.spent, kind) >= limit:
                error = TurnLimitReached if self.ends_turn else LimitReached
                raise error(
                    f"{self.whose} may use {limit} {_UNIT[kind]}{self.per}, and has",
                    remedy=self.remedy.format(kind=kind),
                )

    def add(self, spent: Spent) -> None:
        """Count what is used."""
        self.spent.add(spent)


@dataclass(slots=True, eq=False)
class Book:
    """What the budgets of one turn have in common.

    Attributes:
        counted: The path ids of the calls that count, whichever run made them.
        kept: What earlier runs have used, by the path ids of whose limits it counts for.
        purses: Those of the calls that have limits, by their path ids.
        settle: Writes down what was used since the last time; None where nothing is kept.
        always: Whether it is written down after each model call, whatever the limits.
        depth: How deep calls may nest.
        chosen: What models may choose to call, where nothing else says how much the turn may use.
        bill: What model calls used, by the model's name, in earlier runs too.
        slots: Held by each model call and each leaf that a model chose, so that not too many run at once.
    """

    counted: set[str] = field(default_factory=set)
    kept: Mapping[str, Spent] = field(default_factory=dict)
    purses: dict[str, Purse] = field(default_factory=dict)
    settle: Callable[[], Awaitable[None]] | None = None
    always: bool = False
    depth: int = DEPTH
    chosen: Purse | None = None
    bill: dict[str, ModelUsage] = field(default_factory=dict)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))


@dataclass(frozen=True, slots=True)
class Budget:
    """What a turn, or a call of it, and all below may still use. Whoever spends spends from every purse.

    Attributes:
        purses: Its own first, then those above it.
        book: The turn's.
        clock: Tells the time for the limits in seconds.
    """

    purses: tuple[Purse, ...] = ()
    book: Book = field(default_factory=Book)
    clock: Clock = field(default_factory=SystemClock)

    def take(self, call_id: str, *, chosen: bool = False) -> None:
        """Count a call that is to be made. One that is counted is not counted again, in whatever run it was made.

        Args:
            call_id: Its path id.
            chosen: Whether a model chose it.

        Raises:
            LimitReached: A limit is used up, and the call must not be made.
        """
        if call_id in self.book.counted:
            return
        bound = self.book.chosen if chosen else None
        for purse in self.purses if bound is None else (*self.purses, bound):
            purse.check(_CALL)
        if bound is not None:
            bound.add(Spent(calls=1))
        self.book.counted.add(call_id)
        if self.purses:
            self._add(Spent(calls=1))

    def check(self) -> None:
        """Before a model is called.

        Raises:
            LimitReached: A limit in tokens or cost is used up.
        """
        for purse in self.purses:
            purse.check(_MODEL)

    def spend(self, model: str, used: ModelUsage, tokens: int, cost: float) -> None:
        """Count what a model call has used. It may be more than was left: a model says so afterwards.

        Args:
            model: The model's name.
            used: What its service says.
            tokens: What counts for limits: an estimate, where the service says nothing.
            cost: The same in US dollars; 0 where no price is known.
        """
        bill = self.book.bill
        bill[model] = bill.get(model, ModelUsage()) + used
        self._add(Spent(tokens=tokens, cost=cost))

    async def settle(self) -> None:
        """After a model call: have what was used written down, where a limit would not outlive a crash otherwise."""
        book = self.book
        if book.settle is not None and (book.always or any(_modelled(purse.limits) for purse in self.purses)):
            await book.settle()

    def child(self, whose: str, limits: Limits, path: str) -> Budget:
        """The budget of a call: its own limits, and what is left of these.

        Args:
            whose: Who has the limits, for people.
            limits: Its own.
            path: Its path id.
        """
        if not limits.counted:
            return self
        purse = self.book.purses.get(path)
        if purse is None:
            below = f"{path}/"
            spent = replace(
                self.book.kept.get(path, Spent()), calls=sum(each.startswith(below) for each in self.book.counted)
            )
            purse = self.book.purses[path] = Purse(whose, limits, spent=spent)
        return replace(self, purses=(purse, *self.purses))

    def _add(self, spent: Spent) -> None:
        for purse in self.purses:
            purse.add(spent)


def _modelled(limits: Limits) -> bool:
    return limits.tokens is not None or limits.cost is not None


__all__ = ["Book", "Budget", "Purse", "TurnLimitReached"]
