"""Random trees of calls, policies and answers: exactly what is allowed happens, once, with what was approved (H9)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from support.gate_model import HOSTILE, TOOLS, Asked, Kind, Line, Model, Node, Refused, Said
from support.gate_trees import Person, World, play, policy_of

pytestmark = [pytest.mark.on_every_database, pytest.mark.requirement("H9"), pytest.mark.timeout(3600)]

EXAMPLES = (settings.default or settings()).max_examples // 6  # each is a turn of several runs
PLAIN = ("notes/a", "notes/b", "etc/x")
PATHS = (*PLAIN, *PLAIN, *PLAIN, *HOSTILE)
RISKS = ("read_only", "write", "network", "destructive")
STRANGE = tuple(name for name, what in TOOLS.items() if what.untrusted)
TRUSTED = tuple(name for name, what in TOOLS.items() if not what.untrusted)
INNER: tuple[Kind, ...] = ("flow", "flow", "shape", "thinking", "worker", "worker", "map")


def leaves(names: tuple[str, ...]) -> st.SearchStrategy[Node]:
    # What changes something is more to the point than what reads.
    return st.builds(
        lambda name, path: Node(kind="leaf", name=name, path=path), st.sampled_from(names), st.sampled_from(PATHS)
    )


@st.composite
def trees(draw: st.DrawFn, *, names: tuple[str, ...] = tuple(TOOLS), together: bool = False, depth: int = 4) -> Node:
    """A call and what it calls; a map counts as two, its items are called by it."""
    kinds = [kind for kind in INNER if depth >= (3 if kind == "map" else 2)]
    if not kinds or draw(st.integers(0, 3)) == 0:
        return draw(leaves(names))
    kind: Any = draw(st.sampled_from(kinds))
    if kind == "map":
        item = draw(nodes(names=names, together=together, depth=depth - 1, kinds=("shape", "thinking")))
        return Node(kind="map", name="map", children=(item,), times=draw(st.integers(1, 3)) if together else 1)
    return draw(nodes(names=names, together=together, depth=depth, kinds=(kind,)))


@st.composite
def nodes(draw: st.DrawFn, *, names: tuple[str, ...], together: bool, depth: int, kinds: tuple[Kind, ...]) -> Node:
    below = st.lists(trees(names=names, together=together, depth=depth - 1), min_size=1, max_size=4)
    kind = draw(st.sampled_from(kinds))
    return Node(
        kind=kind,
        name=kind,
        children=tuple(draw(below)),
        together=together and draw(st.booleans()),
        brittle=not together and kind != "worker" and draw(st.integers(0, 4)) == 0,
    )


def reachable(rules: list[Line]) -> tuple[Line, ...]:
    """The rules up to the first one that matches every call; one behind it is an error."""
    for place, line in enumerate(rules, 1):
        if line == Line(decision=line.decision, times=line.times):
            return tuple(rules[:place])
    return tuple(rules)


def named(node: Node, numbers: Any = None) -> Node:
    """The tree with a name of its own for each that is no leaf."""
    numbers = numbers or count(1)
    children = tuple(named(child, numbers) for child in node.children)
    name = node.name if node.kind in ("leaf", "map") else f"{node.kind}{next(numbers)}"
    return replace(node, name=name, children=children)


FUNCTIONS = st.sampled_from(
    ["*", "write", "s*", "look", "erase", "w*", "plug.*", "unsaid", "careful", "flow*", "worker*"]
)
CALLERS = st.sampled_from(["*", "*", "*", "code", "converse", "worker*", "flow*", "shape*", "thinking*", "map"])
WHERE: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {}, {}, *({"path": glob} for glob in ("notes/*", "etc/x", "*/x", "*")), {"under": "notes"}, {"under": "etc"}]
)


@st.composite
def lines(draw: st.DrawFn, *, limits: bool = True) -> Line:
    decision = draw(st.sampled_from(["approve", "approve", "approve", "ask", "refuse"]))
    risks = draw(st.just(()) | st.lists(st.sampled_from(RISKS), min_size=1, max_size=3, unique=True))
    where = draw(WHERE)
    after, function = None, draw(FUNCTIONS)
    if where and function != "*" and draw(st.booleans()):
        after = draw(st.sampled_from(["fetch", "post", "*", "plug.*"]))
    if decision == "approve":
        risks = [risk for risk in risks if risk != "destructive"]
    return Line(
        decision=decision,  # type: ignore[arg-type]  # it is one of them
        function=function,
        caller=draw(CALLERS),
        risk=frozenset(risks),
        after=after,
        times=draw(st.sampled_from([20, 20, 1, 2])) if limits else 100,
        **where,
    )


@st.composite
def persons(draw: st.DrawFn, said: tuple[Said, ...]) -> Mapping[tuple[str, str], Said]:
    names = st.sampled_from([*TOOLS, "flow1", "worker1", "shape2", "thinking1", "worker2", "map"])
    pairs = st.tuples(names, st.sampled_from(PATHS))
    drawn: Mapping[Any, Said] = draw(st.dictionaries(pairs, st.sampled_from(said), max_size=20))
    answers: dict[tuple[str, str], Said] = {}
    for (name, path), what in drawn.items():
        if name in TOOLS:
            alone = what in ("always", "any") and name in ("erase", "wipe")  # it is no answer to what is destructive
            answers[name, path] = "reject" if alone else what
        else:  # its params are no paths
            answers[name, ""] = "approve" if what.endswith("changed") else what
    return answers


SAID: tuple[Said, ...] = ("approve", "reject", "always", "any", "notes/changed", "etc/changed")
POLICIES = st.builds(
    Model,
    lines=st.lists(lines(), max_size=4).map(reachable),
    default=st.sampled_from(["ask", "ask", "ask", "refuse"]),
    times=st.sampled_from([20, 1, 2]),
    person=persons(SAID),
    second=st.sampled_from(["approve", "reject"]),
)
SIDE_BY_SIDE = st.builds(
    Model,
    lines=st.lists(lines(limits=False), max_size=4).map(reachable),
    default=st.sampled_from(["ask", "ask", "ask", "refuse"]),
    person=persons(tuple(each for each in SAID if each not in ("always", "any"))),
    second=st.sampled_from(["approve", "reject"]),
)


def foretold(model: Model, root: Node, *, planned: bool) -> str:
    try:
        model.call(root, "converse" if planned else "code", model_influenced=planned)
    except Refused:
        return "done" if planned else "call_refused"
    return "done"


def found(model: Model, root: Node, home: Path, *, planned: bool, seed: int) -> tuple[str, World, Person]:
    person, world = Person(says=model.person, second=model.second, seed=seed), World(root=root)
    policy = policy_of(model.lines, model.default, model.times)
    return asyncio.run(play(world, home, policy, person, planned=planned)), world, person


@given(
    root=nodes(names=tuple(TOOLS), together=False, depth=4, kinds=("worker", "shape", "thinking")).map(named),
    model=POLICIES,
    planned=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_of_calls_one_after_the_other_what_is_allowed_happens_in_order_and_nothing_else(
    tmp_path: Path, root: Node, model: Model, planned: bool, seed: int
) -> None:
    model = replace(model, asked=[], done=[])
    planned = planned or root.kind == "worker"
    end = foretold(model, root, planned=planned)
    event(f"{min(len(model.asked), 5)} asked, {min(len(model.done), 5)} done")
    assert (end, model.done, model.asked) == said(*found(model, root, tmp_path, planned=planned, seed=seed))


def said(end: str, world: World, person: Person) -> tuple[str, list[tuple[str, str]], list[Asked]]:
    return end, world.done, person.asked


@given(
    before=st.lists(leaves(STRANGE), max_size=2).map(tuple),
    below=nodes(names=TRUSTED, together=True, depth=3, kinds=("flow", "shape", "thinking", "worker")),
    root=st.sampled_from([Node(kind="worker", name="worker"), Node(kind="thinking", name="thinking")]),
    model=SIDE_BY_SIDE,
    planned=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_of_calls_side_by_side_what_is_allowed_happens_once_and_nothing_else(
    tmp_path: Path, before: tuple[Node, ...], below: Node, root: Node, model: Model, planned: bool, seed: int
) -> None:
    # What decides by the order of calls stands before the branches, or is left out.
    model = replace(model, times=1000, asked=[], done=[])
    root = named(replace(root, children=(*before, replace(below, together=True))))
    planned = planned or root.kind == "worker"
    end = foretold(model, root, planned=planned)
    event(f"{min(len(model.asked), 5)} asked, {min(len(model.done), 5)} done")
    ended, world, person = found(model, root, tmp_path, planned=planned, seed=seed)
    assert (end, Counter(model.done), Counter(model.asked)) == (ended, Counter(world.done), Counter(person.asked))


RISKY = ("write", "send", "both", "erase", "plug.put")
NARROW: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [*({"path": glob} for glob in ("notes/*", "etc/x", "*/x", "*")), {"under": "notes"}, {"under": "etc"}]
)


@given(
    calls=st.lists(
        st.builds(lambda name, path: Node(kind="leaf", name=name, path=path), *map(st.sampled_from, (RISKY, PATHS))),
        min_size=3,
        max_size=6,
    ).map(tuple),
    narrow=st.lists(st.tuples(st.sampled_from(["refuse", "ask", "approve"]), NARROW), min_size=1, max_size=3),
    seed=st.integers(0, 1000),
)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_no_text_of_an_argument_evades_a_rule_that_asks_or_refuses_before_one_that_approves(
    tmp_path: Path, calls: tuple[Node, ...], narrow: list[tuple[Any, dict[str, Any]]], seed: int
) -> None:
    rules = (*(Line(decision=what, **where) for what, where in narrow), Line(decision="approve"))
    model = Model(lines=rules, person={(each.name, each.path): "reject" for each in calls})
    root = named(Node(kind="worker", name="worker", children=calls))
    end = foretold(model, root, planned=True)
    event(f"{min(len(model.asked), 5)} asked, {min(len(model.done), 5)} done")
    assert (end, model.done, model.asked) == said(*found(model, root, tmp_path, planned=True, seed=seed))
