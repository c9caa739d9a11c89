"""Random trees of calls, answered, interrupted and resumed in any order: each effect happens once, each turn ends."""

from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from support.databases import ENGINES, Engine
from support.trees import LEAVES, VIAS, WAYS, End, How, Move, grown, play

Tree = dict[str, Any]

_EXAMPLES = (settings.default or settings()).max_examples
EXAMPLES = _EXAMPLES * 2 // 5 if _EXAMPLES < 100 else _EXAMPLES  # each is a turn of several runs and processes
LEAF = st.sampled_from(LEAVES).map(lambda kind: Tree(kind=kind))
HOWS: tuple[How, ...] = ("run", "run", "kill", "kill", "drain", "cut", "late", "meanwhile", "twice")
ENDS: tuple[End, ...] = ("cancelled", "left", "closed")


def inner(below: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.builds(
        lambda kind, via, children: Tree(kind=kind, via=via, below=children),
        st.sampled_from(WAYS),
        st.sampled_from(VIAS),
        st.lists(below, min_size=1, max_size=3),
    )


def deeper(tree: Tree, vias: list[str]) -> Tree:
    """The tree at the end of a chain of calls, which may be too long."""
    for via in vias:
        tree = Tree(kind="one by one", via=via, below=[tree])
    return tree


CALLS = st.recursive(LEAF, inner, max_leaves=8)
BRANCHES = st.one_of(CALLS, CALLS, st.builds(deeper, CALLS, st.lists(st.sampled_from(VIAS), min_size=2, max_size=6)))
TREES = st.builds(
    lambda kind, below: grown(Tree(kind=kind, via="task", below=below)),
    st.sampled_from([way for way in WAYS if way != "raises"]),
    st.lists(BRANCHES, min_size=2, max_size=4),
)
MOVES = st.builds(
    lambda how, unit, effect, step, seed, fresh: Move(how, effect if unit == "effects" else step, unit, seed, fresh),
    st.sampled_from(HOWS),
    st.sampled_from(["effects", "effects", "steps"]),
    st.integers(1, 8),
    st.integers(1, 600),
    st.integers(0, 1000),
    st.booleans(),
)


@pytest.mark.requirement("T4", "T5")
@pytest.mark.timeout(3600)
@given(
    engine=st.sampled_from(ENGINES),
    tree=TREES,
    moves=st.lists(MOVES, min_size=1, max_size=5),
    planned=st.booleans(),
    end=st.none() | st.none() | st.tuples(st.sampled_from(ENDS), st.integers(1, 8)),
)
@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_every_turn_ends_with_each_effect_once(
    engine: Engine, tree: Tree, moves: list[Move], planned: bool, end: tuple[End, int] | None
) -> None:
    for seen in play(tree, moves, planned=planned, end=end, engine=engine):
        event(seen)
