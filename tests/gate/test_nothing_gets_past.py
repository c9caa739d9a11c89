"""Random trees of calls, policies and answers: exactly what is allowed happens, once, with what was approved (H9)."""

import asyncio
import itertools
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from support.agents import Muse, Nothing, scripted_agent
from support.agents import Said as Gave
from support.gate_model import HOSTILE, TOOLS, Asked, Kind, Line, Model, Node, Refused, Said
from worldagent import WorldAgent
from worldagent.agent import Turn
from worldagent.core.errors import CallRefused
from worldagent.core.pauses import Approve, Pause, Reject
from worldagent.graphs import Shape, TaskContext
from worldagent.graphs.shapes import map_shape
from worldagent.harness import CallContext, Function, Policy, Worker, flow, tool
from worldagent.harness.gate import Predicate, Rule
from worldagent.testing import ScriptedCall, ScriptedLM

_MOST_RUNS = 60
_WHO = re.compile(r"<(worker\d+)>")
_THREADS = itertools.count(1)


@dataclass(kw_only=True)
class Person:
    """Who answers, and when.

    Attributes:
        says: What they say to a function with a path; approve, if left out.
        second: What they say where the policy refused what they put in its place.
        seed: Says how many pauses are answered at once, in which order, and whether the agent is opened again before.
        asked: What they were asked, in order.
    """

    says: Mapping[tuple[str, str], Said]
    second: str = "approve"
    seed: int = 0
    asked: list[Asked] = field(default_factory=list)
    _seen: set[tuple[str, str | None]] = field(default_factory=set)

    def see(self, pauses: Sequence[Pause]) -> None:
        """Note what is asked, once each time that it is asked."""
        for pause in pauses:
            if (pause.id, pause.problem) not in self._seen:
                self._seen.add((pause.id, pause.problem))
                path = str(pause.arguments.get("path", ""))
                self.asked.append(Asked(function=pause.function, path=path, caller=pause.caller))

    def answer(self, pause: Pause) -> Approve | Reject:
        """What they say to one pause, for what they saw of it."""
        said: str = self.says.get((pause.function, str(pause.arguments.get("path", ""))), "approve")
        if said in ("notes/changed", "etc/changed"):
            if pause.problem is None:
                return Approve(arguments={"path": said}, hash=pause.hash)
            said = self.second
        if said == "reject":
            return Reject("no")
        return Approve(always=_ALWAYS.get(said, False), hash=pause.hash)


_ALWAYS: Mapping[str, Any] = {"always": True, "any": "any"}


@dataclass(kw_only=True)
class World:
    """An agent's functions, workers and shapes for one tree, and what they did.

    Attributes:
        root: The tree.
        done: What happened, in order, over all processes.
        plug: A function in the place of `plug.put`, such as one of a real server.
    """

    root: Node
    done: list[tuple[str, str]] = field(default_factory=list)

    def agent(self, home: Path, policy: Policy, **more: Any) -> WorldAgent:
        """An agent that has all of it."""
        nodes = list(_below(self.root))
        return scripted_agent(
            home,
            ScriptedLM(self._reply),
            tools=[*self._leaves(), *(self._flow(each) for each in nodes if each.kind == "flow")],
            shapes=[map_shape(), *(self._shape(each) for each in nodes if each.kind in ("shape", "thinking"))],
            workers=[self._worker(each) for each in nodes if each.kind == "worker"],
            policy=policy,
            **more,
        )

    def _leaves(self) -> Iterator[Function]:
        for name, what in TOOLS.items():
            options: dict[str, Any] = {} if name == "unsaid" else {"risk": sorted(what.risk)}
            yield self._leaf(name, untrusted=what.untrusted, approval=what.approval, **options)

    def _leaf(self, name: str, **options: Any) -> Function:
        async def body(path: str) -> str:
            self.done.append((name, path))
            return "Fine."

        made: Function = tool(name=name, **options)(body)
        return made

    def _flow(self, node: Node) -> Function:
        async def body(ctx: CallContext) -> str:
            await _made(node, ctx.call)
            return "Fine."

        made: Function = flow(name=node.name)(body)
        return made

    def _shape(self, node: Node) -> Shape[Any, Any]:
        async def run(params: Nothing, ctx: TaskContext) -> Gave:
            if node.kind == "thinking":
                await ctx.predict(Muse, about="it")
            await _made(node, ctx.call)
            return Gave(text="Fine.")

        entry = Muse if node.kind == "thinking" else None
        return Shape(node.name, Nothing, Gave, run, entry=entry, description="works")

    def _worker(self, node: Node) -> Worker:
        return Worker(node.name, f"You are <{node.name}>.", "works", tools=tuple(each.name for each in node.children))

    # --- the model ---------------------------------------------------------------------------------------------------

    def _reply(self, call: ScriptedCall) -> dict[str, Any]:
        if "about" in call.fields:
            return {"thought": "Hm."}
        who = _WHO.search(call.system)
        if who is not None:
            return self._worked(next(each for each in _below(self.root) if each.name == who[1]), call)
        if call.steps:  # what came of the tree is there
            return {"reply": "Fine."}
        to = self.root.name
        what: dict[str, Any] = {"request": "go"} if self.root.kind == "worker" else {}
        return {"reply": "", "calls": [{"tool": to, "arguments": what}]}

    @staticmethod
    def _worked(node: Node, call: ScriptedCall) -> dict[str, Any]:
        calls = [{"tool": each.name, "arguments": _input(each)} for each in node.children]
        made = sum("You called" in text for _, text in call.messages[:-1])
        wanted = calls[made:] if node.together else calls[made : made + 1]
        return {"calls": wanted, "result": ""} if wanted else {"calls": [], "result": "Fine."}


def _rule(line: Line) -> Rule:
    arguments: dict[str, Any] = {}
    if line.path is not None:
        arguments["path"] = line.path
    if line.under is not None:
        arguments["path"] = Predicate(under=line.under)
    more: dict[str, Any] = {"risk": tuple(sorted(line.risk)), "after": line.after}
    return Rule(
        decision=line.decision,
        function=line.function,
        caller=line.caller,
        arguments=arguments,
        times=line.times,
        optional=True,
        **{name: said for name, said in more.items() if said},
    )


async def play(world: World, home: Path, policy: Policy, person: Person, *, planned: bool, **more: Any) -> str:
    """Run a turn to its end: how it ended, `done` or the code of its error.

    Args:
        world: What there is, and gets what happens.
        home: Where the agent keeps its things.
        policy: Its policy.
        person: Who answers.
        planned: Whether the planner dispatches the tree, or the host's own code.
        more: For the agent.
    """
    dice = random.Random(person.seed)
    name = f"t{next(_THREADS)}"
    begun = False
    turn: Turn | None = None
    for _ in range(_MOST_RUNS):
        async with world.agent(home, policy, **more) as agent:
            thread = agent.thread(name)
            try:
                while True:
                    if not begun:
                        begun = True
                        turn = await (thread.converse("Go.") if planned else thread.task(world.root.name, {}))
                    else:
                        assert turn is not None
                        turn = await thread.resume(_answers(turn.pauses, person, dice))
                    if turn.status != "paused":
                        return turn.status
                    person.see(turn.pauses)
                    if dice.random() < 0.4:
                        break
            except CallRefused as error:
                return error.code
    raise AssertionError("the turn comes to no end")


def _answers(pauses: Sequence[Pause], person: Person, dice: random.Random) -> dict[str, Any]:
    """Answers to some of the pauses, at least one."""
    chosen = dice.sample(list(pauses), dice.randint(1, len(pauses)))
    return {pause.id: person.answer(pause) for pause in chosen}


async def _made(node: Node, call: Callable[..., Awaitable[Any]]) -> None:
    """Make a node's calls."""

    async def one(place: int, child: Node) -> None:
        try:
            # Equal calls of branches need a key; those of a sequence differ by their place.
            await call(child.name, _input(child), **({"key": str(place)} if node.together else {}))
        except CallRefused:
            if node.brittle:
                raise

    if node.together:
        await asyncio.gather(*(one(place, child) for place, child in enumerate(node.children)))
        return
    for place, child in enumerate(node.children):
        await one(place, child)


def _input(node: Node) -> dict[str, Any]:
    match node.kind:
        case "leaf":
            return {"path": node.path}
        case "worker":
            return {"request": "go"}
        case "map":
            return {"shape": node.children[0].name, "items": [{}] * node.times}
        case _:
            return {}


def _below(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _below(child)


pytestmark = [pytest.mark.on_every_database(soak=True), pytest.mark.requirement("H9"), pytest.mark.timeout(3600)]

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


Outcome = tuple[str, list[tuple[str, str]], list[Asked]]
"""How a turn ends, what it did, and what was asked."""


def outcomes(home: Path, root: Node, model: Model, *, planned: bool, seed: int) -> tuple[Outcome, Outcome]:
    """What the model foretells of a turn, and what happens in it."""
    model, planned, end = replace(model, asked=[], done=[]), planned or root.kind == "worker", "done"
    try:
        model.call(root, "converse" if planned else "code", model_influenced=planned)
    except Refused:
        end = "done" if planned else "call_refused"
    event(f"{min(len(model.asked), 5)} asked, {min(len(model.done), 5)} done")
    person, world = Person(says=model.person, second=model.second, seed=seed), World(root=root)
    policy = Policy(rules=tuple(map(_rule, model.lines)), default=model.default, times=model.times)
    ended = asyncio.run(play(world, home, policy, person, planned=planned))
    return (end, model.done, model.asked), (ended, world.done, person.asked)


@given(
    root=nodes(names=tuple(TOOLS), together=False, depth=4, kinds=("worker", "shape", "thinking")).map(named),
    model=POLICIES,
    planned=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_allowed_calls_run_in_order(tmp_path: Path, root: Node, model: Model, planned: bool, seed: int) -> None:
    expected, found = outcomes(tmp_path, root, model, planned=planned, seed=seed)
    assert found == expected


@pytest.mark.on_every_database
@given(
    before=st.lists(leaves(STRANGE), max_size=2).map(tuple),
    below=nodes(names=TRUSTED, together=True, depth=3, kinds=("flow", "shape", "thinking", "worker")),
    root=st.sampled_from([Node(kind="worker", name="worker"), Node(kind="thinking", name="thinking")]),
    model=SIDE_BY_SIDE,
    planned=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_allowed_concurrent_calls_run_once(
    tmp_path: Path, before: tuple[Node, ...], below: Node, root: Node, model: Model, planned: bool, seed: int
) -> None:
    # What decides by the order of calls stands before the branches, or is left out.
    root = named(replace(root, children=(*before, replace(below, together=True))))
    expected, found = outcomes(tmp_path, root, replace(model, times=1000), planned=planned, seed=seed)
    assert found[0] == expected[0]
    assert [Counter(each) for each in found[1:]] == [Counter(each) for each in expected[1:]]


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
def test_no_argument_evades_a_rule(
    tmp_path: Path, calls: tuple[Node, ...], narrow: list[tuple[Any, dict[str, Any]]], seed: int
) -> None:
    rules = (*(Line(decision=what, **where) for what, where in narrow), Line(decision="approve"))
    model = Model(lines=rules, person={(each.name, each.path): "reject" for each in calls})
    root = named(Node(kind="worker", name="worker", children=calls))
    expected, found = outcomes(tmp_path, root, model, planned=True, seed=seed)
    assert found == expected
