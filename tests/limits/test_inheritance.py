"""Over random trees of calls: nobody uses more than they have, or more than is left above them (H4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldagent.core import ModelUsage
from worldagent.core.errors import LimitReached
from worldagent.harness.limits import Budget, Limits, Spent, TurnLimitReached
from worldagent.harness.limits.budget import LimitCounter

LIMITS = st.builds(
    Limits,
    calls=st.none() | st.integers(1, 4),
    tokens=st.none() | st.integers(0, 200),
    cost=st.none() | st.integers(0, 8).map(lambda eighths: eighths / 8),
)
# Who acts, by a number that picks one of those there are; what they do.
STEPS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.one_of(
            st.tuples(st.just("call"), LIMITS),
            st.tuples(st.just("model"), st.integers(0, 90), st.integers(0, 3).map(lambda eighths: eighths / 8)),
            st.tuples(st.just("again")),
        ),
    ),
    min_size=8,
    max_size=40,
)


@dataclass
class Node:
    """A call as a model of its own has it: who made it, what it may use, what it and all below it used."""

    path: str
    limits: Limits
    above: Node | None = None
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    largest: tuple[int, float] = (0, 0.0)
    below: list[Node] = field(default_factory=list)

    def line(self) -> Iterator[Node]:
        node: Node | None = self
        while node is not None:
            yield node
            node = node.above

    def used_up(self, *kinds: str) -> bool:
        return any(
            (most := getattr(node.limits, kind)) is not None and getattr(node, kind) >= most
            for node in self.line()
            for kind in kinds
        )


class Tree:
    """The same tree as budgets, which can be let go of and made again from what is kept of them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.root = Node("turn", limits)
        self.nodes = [self.root]
        self.budgets: dict[str, Budget] = {}
        self.begin({}, set())

    def begin(self, kept: dict[str, Spent], counted: set[str]) -> None:
        spent = replace(kept.get("", Spent()), calls=len(counted))
        turn = Budget((LimitCounter("the turn", self.limits, "raise it", spent, ends_turn=True),))
        turn.ledger.kept = kept
        turn.ledger.counted |= counted
        self.budgets = {"turn": turn}
        for node in self.nodes[1:]:
            assert node.above is not None
            self.budgets[node.path] = self.budgets[node.above.path].child(node.path, node.limits, node.path)

    def again(self) -> None:
        """Another process goes on: it has what was kept, and the calls that the journal has."""
        ledger, turn = self.budgets["turn"].ledger, self.budgets["turn"].counters[-1]
        kept = {"": replace(turn.spent), **{path: replace(purse.spent) for path, purse in ledger.counters.items()}}
        self.begin(kept, set(ledger.counted))

    def call(self, node: Node, limits: Limits) -> None:
        path = f"{node.path}/{len(node.below)}"
        budget = self.budgets[node.path]
        refused = node.used_up("calls", "tokens", "cost")
        reached: LimitReached | None = None
        try:
            budget.take(path)
        except LimitReached as error:
            reached = error
        assert (reached is not None) == refused
        if reached is not None:
            assert isinstance(reached, TurnLimitReached) == reached.problem.startswith("the turn ")
            return
        made = Node(path, limits, node)
        node.below.append(made)
        self.nodes.append(made)
        self.budgets[path] = budget.child(path, limits, path)
        for each in node.line():
            each.calls += 1
        budget.take(path)  # when its caller runs again

    def model(self, node: Node, tokens: int, cost: float) -> None:
        budget = self.budgets[node.path]
        refused = node.used_up("tokens", "cost")
        reached = False
        try:
            budget.check()
        except LimitReached:
            reached = True
        assert reached == refused
        if reached:
            return
        budget.spend("some/model", ModelUsage(calls=1, input_tokens=tokens, cost=cost), tokens, cost)
        for each in node.line():
            each.tokens += tokens
            each.cost += cost
            each.largest = max(each.largest[0], tokens), max(each.largest[1], cost)

    def check(self) -> None:
        for node in self.nodes:
            budget = self.budgets[node.path]
            counted = [each for each in node.line() if each.limits.counted or each is self.root]
            assert [purse.limits for purse in budget.counters] == [each.limits for each in counted]
            above: Spent | None = None
            for purse, each in zip(reversed(budget.counters), reversed(counted), strict=True):
                spent, limits, (tokens, cost) = purse.spent, purse.limits, each.largest
                assert (spent.calls, spent.tokens, spent.cost) == (each.calls, each.tokens, each.cost)
                assert limits.calls is None or spent.calls <= limits.calls
                # A model says what it took afterwards: at most its last call is over.
                assert limits.tokens is None or spent.tokens < limits.tokens + tokens or spent.tokens == 0
                assert limits.cost is None or spent.cost < limits.cost + cost or spent.cost == 0
                if above is not None:
                    assert spent.calls <= above.calls
                    assert spent.tokens <= above.tokens
                    assert spent.cost <= above.cost
                above = spent


@pytest.mark.requirement("H4")
@settings(max_examples=300)
@given(LIMITS, STEPS)
def test_a_child_never_outspends_its_parent_over_any_tree_and_any_number_of_processes(
    limits: Limits, steps: list[tuple[int, tuple[Any, ...]]]
) -> None:
    tree = Tree(limits)
    for who, (what, *how) in steps:
        node = tree.nodes[who % len(tree.nodes)]
        match what:
            case "call":
                tree.call(node, *how)
            case "model":
                tree.model(node, *how)
            case _:
                tree.again()
        tree.check()
