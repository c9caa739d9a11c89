"""Random chains of workers and ceilings: no call gets further than each ceiling above it allows (H9, A8, A9)."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.agents import Nothing, Said, calls, scripted_agent
from worldagent import Ceiling, Policy, Rule, Shape, Worker
from worldagent.graphs import TaskContext
from worldagent.harness import CallContext, Function, Risk, flow, tool
from worldagent.harness.gate import Authority, Caller, Gate, Verdict
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = [pytest.mark.requirement("H9", "A9"), pytest.mark.timeout(120)]

DECISIONS = ("approve", "ask", "refuse")
"""From the most to the least permissive."""

EXAMPLES = (settings.default or settings()).max_examples
CHAIN = ("w0", "w1", "w2", "w3")
GLOBS = st.sampled_from(["*", "p*", "pay", "look", "money", "n*"])
ALL = get_args(Risk)
RISKS: st.SearchStrategy[Any] = st.sampled_from([ALL, ALL, ("write", "network"), ("write",), ("network",), ()])


def ceilings(parents: st.SearchStrategy[Ceiling | None]) -> st.SearchStrategy[Ceiling | None]:
    return st.none() | st.builds(
        Ceiling,
        functions=st.sampled_from([("*",), ("*",), ("p*", "n*"), ("pay", "n1"), ()]),
        risk=RISKS,
        authority=st.none() | st.dictionaries(GLOBS, st.sampled_from(get_args(Authority)), max_size=3),
        parent=parents,
    )


CEILINGS = ceilings(ceilings(st.none()))
CHAINS = st.lists(CEILINGS, min_size=1, max_size=len(CHAIN))


@tool(name="pay")
async def pay() -> str:
    return "paid"


def callee(name: str, risk: tuple[Risk, ...], *, money: bool, approval: bool) -> Function:
    return replace(pay, name=name, risk=risk, capabilities=("money",) if money else (), approval=approval)


CALLEES = st.builds(
    callee,
    st.sampled_from(["pay", "pay", "look"]),
    st.sampled_from([("write",), ("write", "network"), ("network",), ("destructive",), ("read_only",)]),
    money=st.booleans(),
    approval=st.booleans(),
)
APPROVED = Policy(rules=(Rule(decision="approve", function="*"),))
RULES = st.lists(
    st.builds(lambda decision, glob: Rule(decision=decision, function=glob), st.sampled_from(DECISIONS), GLOBS),
    max_size=2,
    unique_by=lambda rule: rule.function,
).filter(lambda rules: all(rule.function != ("*",) for rule in rules[:-1]))
POLICIES = st.sampled_from([APPROVED, Policy()]) | st.builds(
    lambda rules, default: Policy(rules=rules, default=default), RULES, st.sampled_from(DECISIONS[1:])
)
MARKS = st.sampled_from([(), ("page",)])


def decided(
    policy: Policy, chain: Sequence[Ceiling | None], function: Function, marks: Sequence[str], **more: Any
) -> Verdict:
    """The verdict about a call that is made for a chain of workers with these ceilings."""
    names = CHAIN[: len(chain)]
    workers = {name: Worker(name, "Work.", ceiling=each) for name, each in zip(names, chain, strict=True)}
    gate = Gate(policy, workers=workers, **more)
    gate.mark(*marks)
    return gate.decide(function, {}, Caller("inner", model_influenced=True, workers=names))


def allowed(ceiling: Ceiling | None, function: Function) -> int:
    """What a ceiling and its parents allow at most, as a place in `DECISIONS`."""
    if ceiling is None:
        return 0
    above = allowed(ceiling.parent, function)
    only_reads = function.risk == ("read_only",)
    if not any(fnmatchcase(function.name, glob) for glob in ceiling.functions):
        return 2
    if not only_reads and any(risk not in ceiling.risk for risk in function.risk):
        return 2
    if ceiling.authority is None:
        return above
    names = (function.name, *function.capabilities)
    found = [each for glob, each in ceiling.authority.items() if any(fnmatchcase(name, glob) for name in names)]
    if not found:
        return max(above, 0 if only_reads else 1)
    return max(above, 2 if "forbidden" in found else 1 if "needs_approval" in found else 0)


def place(verdict: Verdict) -> int:
    return DECISIONS.index(verdict.decision)


@given(policy=POLICIES, chain=CHAINS, function=CALLEES, marks=MARKS, trust=st.sampled_from([None, 0.7, 0.71, 1.0]))
@settings(max_examples=EXAMPLES)
def test_no_call_gets_further_than_each_ceiling_above_it_allows(
    policy: Policy, chain: list[Ceiling | None], function: Function, marks: tuple[str, ...], trust: float | None
) -> None:
    given = None if trust is None else (lambda *_: trust)
    verdict = decided(policy, chain, function, marks, trust=given)
    assert place(verdict) >= max(allowed(each, function) for each in chain)


@given(
    policy=POLICIES,
    chain=CHAINS,
    function=CALLEES,
    marks=MARKS,
    more=CEILINGS,
    at=st.integers(0, 3),
    below=st.booleans(),
)
@settings(max_examples=EXAMPLES)
def test_a_further_ceiling_never_allows_more(
    policy: Policy,
    chain: list[Ceiling | None],
    function: Function,
    marks: tuple[str, ...],
    more: Ceiling | None,
    at: int,
    below: bool,
) -> None:
    before = decided(policy, chain, function, marks)
    if below:  # one more worker in the chain
        narrower = [*chain[:at], more, *chain[at:]] if len(chain) < len(CHAIN) else chain
    else:  # a parent of a ceiling that is there, or the first ceiling of a worker
        at %= len(chain)
        first = chain[at]
        added = more if first is None else first.model_copy(update={"parent": joined(first.parent, more)})
        narrower = [*chain[:at], added, *chain[at + 1 :]]
    assert place(decided(policy, narrower, function, marks)) >= place(before)


def joined(first: Ceiling | None, more: Ceiling | None) -> Ceiling | None:
    return more if first is None else first.model_copy(update={"parent": joined(first.parent, more)})


@pytest.mark.requirement("A8")
@given(policy=POLICIES, chain=CHAINS, function=CALLEES, marks=MARKS)
@settings(max_examples=EXAMPLES)
def test_trust_changes_nothing_but_an_ask_that_no_rule_makes(
    policy: Policy, chain: list[Ceiling | None], function: Function, marks: tuple[str, ...]
) -> None:
    before = decided(policy, chain, function, marks)
    after = decided(policy, chain, function, marks, trust=lambda *_: 1.0)
    if after == before:
        return
    assert (before.decision, before.by) == ("ask", "default")
    assert not marks
    assert "destructive" not in function.risk
    assert (after.by, after.decision) in (("trust", "approve"), ("function", "ask"))
    assert any(each is not None and each.authority is not None for top in chain if top for each in top.lineage())


@pytest.mark.requirement("A8")
@pytest.mark.parametrize(
    ("trust", "authority", "risk", "decision"),
    [
        (0.71, {"pay": "autonomous"}, "write", "approve"),
        (0.71, {"pay": "autonomous"}, "network", "approve"),
        (0.70, {"pay": "autonomous"}, "write", "ask"),
        (0.71, {"pay": "autonomous"}, "destructive", "ask"),
        (0.71, {"pay": "needs_approval"}, "write", "ask"),
        (0.71, {}, "write", "ask"),
        (0.71, None, "write", "ask"),
        (1.0, {"pay": "forbidden"}, "write", "refuse"),
    ],
)
def test_trust_above_070_replaces_an_approval_where_the_ceiling_says_autonomous(
    trust: float, authority: dict[str, Authority] | None, risk: Risk, decision: str
) -> None:
    asked: list[tuple[str, str]] = []

    def trusted(caller: Caller, function: Function) -> float:
        asked.append((caller.workers[-1], function.name))
        return trust

    chain = [Ceiling(), None, Ceiling(authority=authority)]
    verdict = decided(Policy(), chain, replace(pay, risk=(risk,)), (), trust=trusted)
    assert verdict.decision == decision
    assert set(asked) <= {("w2", "pay")}


@pytest.mark.requirement("A8")
@pytest.mark.parametrize("asks", ["rule", "function", "worker", "untrusted text"])
def test_no_trust_replaces_an_approval_that_something_asks_for(asks: str) -> None:
    rule = Rule(decision="ask", function="pay")
    policy = Policy(rules=(rule,)) if asks == "worker" else None
    worker = Worker("w", "Work.", policy=policy, ceiling=Ceiling(authority={"pay": "autonomous"}))
    rules = (rule,) if asks == "rule" else ()
    gate = Gate(Policy(rules=rules), workers={"w": worker}, trust=lambda *_: 1.0)
    if asks == "untrusted text":
        gate.mark("page")
    function = replace(pay, approval=asks == "function")
    verdict = gate.decide(function, {}, Caller("w", model_influenced=True, workers=("w",)))
    assert verdict.decision == "ask"


def test_a_worker_that_is_added_later_brings_its_ceiling() -> None:
    workers: dict[str, Worker] = {}
    gate = Gate(APPROVED, workers=workers)
    workers["child"] = Worker("child", "Work.", ceiling=Ceiling(functions=()))
    verdict = gate.decide(pay, {}, Caller("child", model_influenced=True, workers=("child",)))
    assert (verdict.decision, verdict.by) == ("refuse", "ceiling:child")


# --- through an agent ---------------------------------------------------------------------------------------------


NODES = st.lists(st.tuples(st.sampled_from(["worker", "flow", "shape"]), CEILINGS), min_size=1, max_size=3)


class Chain:
    """Workers, flows and shapes that call each other in a row; the last one calls `pay`."""

    def __init__(self, nodes: Sequence[tuple[str, Ceiling | None]]) -> None:
        self.nodes = [("worker", Ceiling()), *nodes]  # a model begins it
        self.paid = 0

    def below(self, at: int) -> str:
        return f"n{at + 1}" if at + 1 < len(self.nodes) else "pay"

    def given(self, at: int) -> dict[str, Any]:
        return {"request": "Go."} if at + 1 < len(self.nodes) and self.nodes[at + 1][0] == "worker" else {}

    def parts(self) -> dict[str, Any]:
        @tool(name="pay", risk="write", capabilities=["money"])
        async def spend() -> str:
            self.paid += 1
            return "paid"

        made: dict[str, list[Any]] = {"worker": [], "flow": [spend], "shape": []}
        for at, (kind, ceiling) in enumerate(self.nodes):
            made[kind].append(getattr(self, kind)(at, ceiling))
        return {"workers": made["worker"], "tools": made["flow"], "shapes": made["shape"]}

    def worker(self, at: int, ceiling: Ceiling | None) -> Worker:
        return Worker(f"n{at}", f"You are <{at}>.", tools=(self.below(at),), ceiling=ceiling)

    def flow(self, at: int, _: Ceiling | None) -> Function:
        @flow(name=f"n{at}", risk="read_only")
        async def run(ctx: CallContext) -> str:
            return str(await ctx.call(self.below(at), self.given(at)))

        made: Function = run
        return made

    def shape(self, at: int, _: Ceiling | None) -> Shape[Any, Any]:
        async def run(params: Nothing, ctx: TaskContext) -> Said:
            return Said(text=str(await ctx.call(self.below(at), self.given(at))))

        return Shape(f"n{at}", Nothing, Said, run, description="runs")

    def reply(self, call: ScriptedCall) -> dict[str, Any]:
        at = int(call.system.partition("You are <")[2].partition(">")[0])
        return {"result": "Done."} if call.steps else calls((self.below(at), self.given(at)))

    def expected(self) -> int:
        """How often `pay` runs: never, if a ceiling stops a call on the way."""
        above: list[Ceiling | None] = []
        known = {"pay": replace(pay, risk=("write",), capabilities=("money",))}
        for at, (kind, ceiling) in enumerate(self.nodes):
            above += [ceiling] if kind == "worker" else []
            name = self.below(at)
            if any(allowed(each, known.get(name, replace(pay, name=name, risk=("read_only",)))) for each in above):
                return 0
        return 1


@given(nodes=NODES)
@settings(max_examples=max(10, EXAMPLES // 6), deadline=None)
def test_chains_of_an_agent_do_what_all_ceilings_above_allow(nodes: list[tuple[str, Ceiling | None]]) -> None:
    chain = Chain(nodes)

    async def run() -> None:
        with tempfile.TemporaryDirectory() as home:
            async with scripted_agent(Path(home), ScriptedLM(chain.reply), policy=APPROVED, **chain.parts()) as agent:
                await agent.call("n0", {"request": "Go."})

    asyncio.run(run())
    assert chain.paid == chain.expected()
