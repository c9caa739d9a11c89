"""A worker's ceiling holds for all that it calls, at any depth, and only narrows what is decided (H9, A9)."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dspy
import pytest

from support.agents import Nothing, Said, calls, scripted_agent, streamed, told
from support.mcp_tools import stdio
from support.processes import call_of, killed, start_script, wait_for_kill
from support.submissions import queued_agent
from worldagent import Ceiling, Policy, Rule, Shape, Worker, WorldAgent
from worldagent.agent.submitting import Submission
from worldagent.core.errors import CallRefused, FunctionInvalid, PolicyInvalid
from worldagent.core.events import CallDecided
from worldagent.core.pauses import Approve
from worldagent.graphs import TaskContext
from worldagent.graphs.shapes import map_shape
from worldagent.harness import CallContext, Function, flow, tool
from worldagent.scheduling import QueueWorker, StartTask
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = [pytest.mark.requirement("H9", "A9"), pytest.mark.timeout(120)]

APPROVED = Policy(rules=(Rule(decision="approve", function="*"),))
INNER_ALONE = Ceiling(functions="inner")
PAY_ASKS = Ceiling(authority={"pay": "needs_approval", "*": "autonomous"})
LAST = {"result": "Done."}


class Shop:
    """Functions that pay and look, what was paid, and the errors of `inner`."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.errors: list[str] = []

    @property
    def functions(self) -> list[Function]:
        @tool(risk="write", capabilities=["money"])
        async def pay(what: str) -> str:
            self.paid.append(what)
            return f"paid {what}"

        @flow(risk="read_only")
        async def inner(ctx: CallContext, what: str) -> str:
            try:
                return str(await ctx.call("pay", {"what": what}))
            except CallRefused as error:
                self.errors.append(str(error))
                raise

        @tool(risk="read_only")
        async def look() -> str:
            return "a hat"

        return [pay, inner, look]


def buyer(name: str = "buyer", *, tools: Sequence[str] = ("*",), **more: Any) -> Worker:
    return Worker(name, f"You are {name}.", "buys", tools=tuple(tools), **more)


def asks_inner() -> dict[str, Any]:
    return calls(("inner", {"what": "hat"}))


def asks(name: str) -> dict[str, Any]:
    return calls((name, {"request": "Go."}))


async def bought(home: Path, lm: ScriptedLM, *workers: Worker, **more: Any) -> list[str]:
    """What is paid when the first worker is called, under a policy that approves all."""
    shop = Shop()
    more = {"tools": shop.functions, "policy": APPROVED, **more}
    async with scripted_agent(home, lm, workers=workers, **more) as agent:
        await agent.call(workers[0].name, {"request": "Go."})
    lm.assert_all_used()
    return shop.paid


@pytest.mark.parametrize("ceiling", [None, INNER_ALONE, Ceiling(functions=("inner", "pay"))])
async def test_a_function_is_reached_through_another_only_if_the_ceiling_includes_it(
    tmp_path: Path, ceiling: Ceiling | None
) -> None:
    lm = ScriptedLM([asks_inner(), LAST])
    paid = await bought(tmp_path, lm, buyer(tools=["inner"], ceiling=ceiling))
    assert paid == ([] if ceiling is INNER_ALONE else ["hat"])


async def test_a_refusal_names_the_caller_the_function_and_whose_ceiling_it_is(tmp_path: Path) -> None:
    shop = Shop()
    lm = ScriptedLM([asks_inner(), LAST])
    async with scripted_agent(
        tmp_path, lm, workers=[buyer(ceiling=INNER_ALONE)], tools=shop.functions, policy=APPROVED
    ) as agent:
        task = agent.thread("t").stream_task("subagent", {"worker": "buyer", "request": "Go."})
        _, events = await streamed(task)
    [decided] = [event for event in events if isinstance(event, CallDecided)]
    assert (decided.function, decided.decision, decided.gate) == ("pay", "refuse", "ceiling:buyer")
    assert shop.errors == [
        "the call of 'pay' is refused: 'inner' is under the ceiling of 'buyer', which reaches only: inner; "
        "do without it, or ask for something else"
    ]


DRY = Ceiling(dry_run=True)


class Till:
    """A function with a dry run, one without, a flow over both, and what was done for real."""

    def __init__(self) -> None:
        self.done: list[str] = []

    @property
    def functions(self) -> list[Function]:
        async def rehearse(what: str) -> str:
            return f"would pay {what}"

        @tool(risk=("write", "destructive"), approval=True, dry_run=rehearse)
        async def pay(what: str) -> str:
            self.done.append(what)
            return f"paid {what}"

        @tool(risk="network")
        async def order(what: str) -> str:
            self.done.append(what)
            return f"ordered {what}"

        @flow(risk="read_only")
        async def both(ctx: CallContext, what: str) -> list[str]:
            found = [str(await ctx.call("pay", {"what": what}))]
            try:
                found.append(str(await ctx.call("order", {"what": what})))
            except CallRefused as error:
                found.append(str(error))
            return found

        return [pay, order, both]


async def test_where_only_dry_runs_are_allowed_nothing_has_an_effect(tmp_path: Path) -> None:
    """A7: a call with effects is answered by its dry run without approval, and refused where there is none."""
    till, lm = Till(), ScriptedLM([calls(("both", {"what": "hat"})), LAST])
    workers = [buyer(ceiling=DRY)]
    async with scripted_agent(tmp_path, lm, workers=workers, tools=till.functions, policy=APPROVED) as agent:
        task = agent.thread("t").stream_task("subagent", {"worker": "buyer", "request": "Go."})
        _, events = await streamed(task)
    assert till.done == []
    [found] = told(lm.calls[-1])
    assert json.loads(found.partition("\n")[2] or found) == [
        "would pay hat",
        "the call of 'order' is refused: 'both' is under the ceiling of 'buyer', which allows dry runs only, and it has"
        " none; do without it, or ask for something else",
    ]
    decided = [(each.function, each.decision, each.gate) for each in events if isinstance(each, CallDecided)]
    assert decided == [("order", "refuse", "ceiling:buyer")]


async def test_what_is_refused_has_no_dry_run_either(tmp_path: Path) -> None:
    till, lm = Till(), ScriptedLM([calls(("pay", {"what": "hat"})), LAST])
    refuse = Policy(default="refuse")
    async with scripted_agent(tmp_path, lm, workers=[buyer(ceiling=DRY)], tools=till.functions, policy=refuse) as agent:
        await agent.call("buyer", {"request": "Go."})
    assert "nothing in the policy allows it" in str(told(lm.calls[-1]))


@pytest.mark.parametrize("kind", ["other", "sync", "none"])
def test_a_dry_run_is_called_as_its_function_is(kind: str) -> None:
    async def other(which: str) -> str:
        return which

    def sync(what: str) -> str:
        return what

    async def pay(what: str) -> str:
        return what

    given: Any = {"other": other, "sync": sync, "none": "paid"}[kind]
    with pytest.raises(FunctionInvalid, match="dry run of the function 'pay'"):
        tool(risk="write", dry_run=given)(pay)


@pytest.mark.parametrize(
    ("ceiling", "reason"),
    [
        (Ceiling(functions=()), "reaches only: nothing"),
        (Ceiling(risk="network"), "does not reach the risk 'write'"),
        (Ceiling(risk=()), "does not reach the risk 'write'"),
        (Ceiling(authority={"p*": "forbidden"}), "forbids it"),
        (Ceiling(authority={"money": "forbidden", "pay": "autonomous"}), "forbids it"),
        (Ceiling(authority={"money": "needs_approval", "pay": "autonomous"}), "requires approval"),
        (Ceiling(authority={"look": "autonomous"}), "does not list it, so it requires approval"),
        (Ceiling(risk="write", authority={"pay": "autonomous"}), ""),
        (Ceiling(authority={"money": "autonomous"}), ""),
    ],
)
async def test_a_ceiling_decides_by_name_risk_and_authority(tmp_path: Path, ceiling: Ceiling, reason: str) -> None:
    lm = ScriptedLM([calls(("pay", {"what": "hat"})), LAST])
    assert await bought(tmp_path, lm, buyer(ceiling=ceiling)) == ([] if reason else ["hat"])
    assert f"'buyer' is under the ceiling of 'buyer', which {reason}" in told(lm.calls[1])[0] or not reason


async def test_calls_that_only_read_need_no_authority(tmp_path: Path) -> None:
    lm = ScriptedLM([calls(("look", {})), LAST])
    await bought(tmp_path, lm, buyer(ceiling=Ceiling(authority={})))
    assert "a hat" in told(lm.calls[1])[0]


async def test_autonomous_approves_nothing(tmp_path: Path) -> None:
    lm = ScriptedLM([calls(("pay", {"what": "hat"})), LAST])
    assert await bought(tmp_path, lm, buyer(ceiling=Ceiling(authority={"*": "autonomous"})), policy=None) == []


async def test_no_worker_that_is_called_can_do_more_than_its_caller(tmp_path: Path) -> None:
    wide = Ceiling(functions="*", authority={"*": "autonomous"})
    lm = ScriptedLM([asks("clerk"), asks("runner"), asks_inner(), LAST, LAST, LAST])
    workers = [
        buyer(ceiling=Ceiling(authority={"*": "autonomous", "pay": "forbidden"})),
        buyer("clerk", ceiling=wide),
        buyer("runner", ceiling=wide),
    ]
    assert await bought(tmp_path, lm, *workers) == []
    assert "'inner' is under the ceiling of 'buyer', which forbids it" in told(lm.calls[3])[0]


async def test_a_parent_narrows_the_ceiling_of_its_child(tmp_path: Path) -> None:
    parent = buyer("parent", ceiling=Ceiling(functions=("inner", "look")))
    child = buyer("child", ceiling=Ceiling(functions=("inner", "pay"), parent=parent.ceiling))
    lm = ScriptedLM([asks_inner(), LAST])
    assert await bought(tmp_path, lm, child, parent) == []
    assert "'inner' is under the ceiling of 'parent', which reaches only: inner, look" in told(lm.calls[1])[0]


BY_NAME = calls(("subagent", {"worker": "clerk", "request": "Go."}))


@pytest.mark.parametrize(
    ("ceiling", "rules", "gate"),
    [
        (Ceiling(authority={"clerk": "forbidden", "*": "autonomous"}), (), "ceiling:buyer"),
        (Ceiling(authority={"filing": "forbidden", "*": "autonomous"}), (), "ceiling:buyer"),
        (Ceiling(functions="clerk"), (), "ceiling:buyer"),
        (None, (Rule(decision="refuse", function="clerk", name="no clerk"),), "rule:no clerk"),
        (None, (Rule(decision="refuse", function="subagent", name="by name"),), "rule:by name"),
    ],
)
async def test_a_worker_that_is_run_by_the_name_of_its_shape_is_judged_by_both_names(
    tmp_path: Path, ceiling: Ceiling | None, rules: tuple[Rule, ...], gate: str
) -> None:
    lm = ScriptedLM([BY_NAME, LAST])
    workers = [buyer(tools=["subagent"], ceiling=ceiling), buyer("clerk", capabilities=("filing",))]
    policy = Policy(rules=(*rules, *APPROVED.rules))
    async with scripted_agent(tmp_path, lm, workers=workers, policy=policy) as agent:
        task = agent.thread("t").stream_task("subagent", {"worker": "buyer", "request": "Go."})
        _, events = await streamed(task)
    [decided] = [event for event in events if isinstance(event, CallDecided)]
    assert (decided.decision, decided.gate) == ("refuse", gate)
    lm.assert_all_used()


async def test_the_risk_of_a_worker_counts_if_it_is_run_by_the_name_of_its_shape(tmp_path: Path) -> None:
    lm = ScriptedLM([BY_NAME, LAST, LAST])
    workers = [buyer(tools=["subagent"]), buyer("clerk", risk="destructive")]
    async with scripted_agent(tmp_path, lm, workers=workers, policy=APPROVED) as agent:
        thread = agent.thread("t")
        turn = await thread.task("subagent", {"worker": "buyer", "request": "Go."})
        [pause] = turn.pauses
        assert (pause.function, pause.risk) == ("clerk", ("destructive",))
        changed = Approve(arguments={**pause.arguments, "request": "Wait."}, hash=pause.hash)
        assert (await thread.resume({pause.id: changed})).status == "done"
    assert lm.calls[1].fields["request"] == "Wait."


async def test_an_approval_deep_below_a_ceiling_waits_and_another_agent_resumes(tmp_path: Path) -> None:
    workers = [buyer(ceiling=PAY_ASKS), buyer("clerk"), buyer("runner")]
    lm = ScriptedLM([asks("clerk"), asks("runner"), asks_inner()])
    shop = Shop()
    more: dict[str, Any] = {"workers": workers, "policy": APPROVED}
    async with scripted_agent(tmp_path, lm, tools=shop.functions, **more) as agent:
        turn = await agent.thread("t").task("subagent", {"worker": "buyer", "request": "Go."})
    [pause] = turn.pauses
    assert (turn.status, pause.function, pause.caller) == ("paused", "pay", "inner")
    assert pause.reason == "'inner' is under the ceiling of 'buyer', which requires approval"
    async with scripted_agent(tmp_path, ScriptedLM([LAST] * 3), tools=shop.functions, **more) as agent:
        turn = await agent.thread("t").resume({pause.id: Approve()})
    assert (turn.status, shop.paid) == ("done", ["hat"])


async def test_a_call_that_waits_is_refused_if_the_ceiling_forbids_it_by_then(tmp_path: Path) -> None:
    shop = Shop()
    lm = ScriptedLM([asks_inner()])
    async with scripted_agent(tmp_path, lm, tools=shop.functions, workers=[buyer(ceiling=PAY_ASKS)]) as agent:
        turn = await agent.thread("t").task("subagent", {"worker": "buyer", "request": "Go."})
    lower, lm = Ceiling(authority={"pay": "forbidden"}), ScriptedLM([LAST])
    async with scripted_agent(tmp_path, lm, tools=shop.functions, workers=[buyer(ceiling=lower)]) as agent:
        turn = await agent.thread("t").resume({turn.pauses[0].id: Approve()})
    assert (turn.status, shop.paid) == ("done", [])
    assert "which forbids it" in told(lm.calls[0])[0]


class Thinker(dspy.Module):
    """A module without predictors."""

    def forward(self, about: str) -> dspy.Prediction:
        return dspy.Prediction(text=about)


async def reach(params: Nothing, ctx: TaskContext) -> Said:
    text = (await ctx.run_module(Thinker(), about="hat")).text
    return Said(text=await ctx.call("pay", {"what": text}))


async def map_over(params: Nothing, ctx: TaskContext) -> Said:
    found: Any = await ctx.task("map", {"shape": "reach", "items": [{}]})
    return Said(text=str(found.items[0].error))


@pytest.mark.parametrize("name", ["reach", "map_over"])
async def test_it_holds_for_shapes_maps_and_modules(tmp_path: Path, name: str) -> None:
    reaching = Shape("reach", Nothing, Said, reach, description="reaches")
    shapes = [map_shape(), reaching, Shape("map_over", Nothing, Said, map_over, description="maps")]
    for ceiling in (None, Ceiling(functions=("map*", "reach"))):
        lm = ScriptedLM([calls((name, {})), LAST])
        home = tmp_path / str(ceiling is None)
        assert await bought(home, lm, buyer(ceiling=ceiling), shapes=shapes) == (["hat"] if ceiling is None else [])
        assert ("is under the ceiling of 'buyer'" in told(lm.calls[1])[0]) == (ceiling is not None)


@pytest.mark.parametrize("tools", ["", "allowed-tools: pay\n"])
async def test_it_holds_for_a_skill_that_a_turn_below_the_worker_runs(tmp_path: Path, tools: str) -> None:
    folder = tmp_path / "skills" / "tea"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: tea\ndescription: Makes tea.\n{tools}---\nPay for it.\n")
    shop, agents = Shop(), list[WorldAgent]()

    @tool(risk="read_only")
    async def delegate() -> str:
        turn = await agents[0].thread("u").run_skill("tea", {"request": "Two."})
        return str(turn.result.reply)

    lm = ScriptedLM([calls(("delegate", {})), calls(("pay", {"what": "tea"})), {"reply": "Refused."}, LAST])
    more: dict[str, Any] = {"skills": [tmp_path / "skills"], "policy": APPROVED}
    worker = buyer(ceiling=Ceiling(functions=("delegate", "skill")))
    async with scripted_agent(
        tmp_path / "home", lm, workers=[worker], tools=[*shop.functions, delegate], **more
    ) as agent:
        agents.append(agent)
        assert await agent.call("buyer", {"request": "Go."}) == "Done."
    assert shop.paid == []
    assert "'RunSkill' is under the ceiling of 'buyer', which reaches only: delegate, skill" in told(lm.calls[2])[0]


async def test_it_holds_for_tools_of_a_server_whose_annotations_say_the_risk(tmp_path: Path) -> None:
    lm = ScriptedLM([calls(("t_echo", {"text": "a"}), ("t_count", {"text": "a"})), LAST])
    worker = buyer(tools=["t_*"], ceiling=Ceiling(risk="read_only"))
    async with scripted_agent(
        tmp_path, lm, workers=[worker], mcp={"t": stdio(tmp_path, trust_annotations=True)}, policy=APPROVED
    ) as agent:
        await agent.call("buyer", {"request": "Go."})
    [echo, count] = told(lm.calls[1])
    assert "is under" not in echo
    assert "the call of 't_count' is refused: 'buyer' is under the ceiling of 'buyer'" in count


def killable(shop: Shop, *, alive: bool) -> list[Function]:
    """The functions of a shop whose `inner` looks first, which in the process that is killed never ends."""

    @tool(risk="read_only", idempotent=True)
    async def think() -> str:
        if not alive:
            await wait_for_kill()
        return "hat"

    @flow(name="inner", risk="read_only")
    async def inner(ctx: CallContext, what: str) -> str:
        return str(await ctx.call("pay", {"what": await ctx.call("think", {})}))

    return [*(each for each in shop.functions if each.name != "inner"), think, inner]


def crowd() -> list[Worker]:
    return [buyer(ceiling=Ceiling(functions=("clerk", "inner", "think"))), buyer("clerk")]


def steps(call: ScriptedCall) -> dict[str, Any]:
    """The buyer calls the clerk, who calls `inner`."""
    return LAST if call.steps else asks("clerk") if "You are buyer" in call.system else asks_inner()


async def die(home: Path) -> None:
    """Run a worker in this process, up to a call below it that never ends."""
    tools = killable(Shop(), alive=False)
    async with scripted_agent(home, ScriptedLM(steps), workers=crowd(), tools=tools, policy=APPROVED) as agent:
        await agent.thread("t").task("subagent", {"worker": "buyer", "request": "Go."})


async def test_it_holds_after_a_kill(tmp_path: Path) -> None:
    await killed(await start_script(call_of(die, tmp_path)))
    shop, lm = Shop(), ScriptedLM(steps)
    tools = killable(shop, alive=True)
    async with scripted_agent(tmp_path, lm, workers=crowd(), tools=tools, policy=APPROVED) as agent:
        turn = await agent.thread("t").resume()
    assert (turn.status, shop.paid) == ("done", [])
    assert "'inner' is under the ceiling of 'buyer'" in told(lm.calls[-2])[0]


async def test_a_turn_begun_below_a_worker_that_no_longer_exists_can_call_nothing(tmp_path: Path) -> None:
    shop, agents = Shop(), list[WorldAgent]()

    @tool(risk="read_only")
    async def delegate() -> str:
        turn = await agents[0].thread("u").task("subagent", {"worker": "clerk", "request": "Go."})
        return turn.status

    tools = [*shop.functions, delegate]
    lm = ScriptedLM([calls(("delegate", {})), asks_inner(), LAST])
    workers = [buyer(ceiling=Ceiling(functions=("delegate", "clerk", "inner", "pay"))), buyer("clerk")]
    async with scripted_agent(tmp_path, lm, workers=workers, tools=tools) as agent:
        agents.append(agent)
        await agent.call("buyer", {"request": "Go."})
        [pause] = await agent.thread("u").pauses()
    lm = ScriptedLM([LAST])
    async with scripted_agent(tmp_path, lm, workers=[buyer("clerk")], tools=tools) as agent:
        await agent.thread("u").resume({pause.id: Approve()})
    assert shop.paid == []
    assert "it is made for 'buyer', which no longer exists" in told(lm.calls[0])[0]


async def test_it_holds_for_a_turn_that_a_function_below_the_worker_submits(tmp_path: Path) -> None:
    shop, agents, submitted = Shop(), list[WorldAgent](), list[Submission]()

    @tool(risk="read_only")
    async def later() -> str:
        start = StartTask("subagent", {"worker": "clerk", "request": "Go."})
        submitted.append(await agents[0].submit(start, thread=agents[0].thread("u")))
        return "submitted"

    lm = ScriptedLM([calls(("later", {})), LAST, asks_inner(), LAST])
    workers = [buyer(ceiling=Ceiling(functions=("later", "clerk", "inner"))), buyer("clerk")]
    async with queued_agent(tmp_path, lm, workers=workers, tools=[*shop.functions, later], policy=APPROVED) as agent:
        agents.append(agent)
        await agent.call("buyer", {"request": "Go."})
        async with QueueWorker(agent).running(drain=0):
            turn = await asyncio.wait_for(submitted[0].wait(), 60)
    assert (turn.status, shop.paid) == ("done", [])
    assert "'inner' is under the ceiling of 'buyer'" in told(lm.calls[3])[0]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"risk": "fire"}, "a ceiling cannot be read: risk"),
        ({"authority": {"pay": "always"}}, "a ceiling cannot be read: authority"),
        ({"name": "cro", "tools": "pay"}, "the ceiling 'cro' cannot be read: tools"),
    ],
)
def test_a_ceiling_that_cannot_be_read_is_an_error(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(PolicyInvalid, match=problem):
        Ceiling(**given)


def test_a_worker_takes_a_ceiling_and_nothing_else() -> None:
    with pytest.raises(FunctionInvalid, match="the ceiling of the worker 'w' must be a Ceiling, got 'Policy'"):
        Worker("w", "Do it.", ceiling=Policy())  # type: ignore[arg-type]  # what a user may get wrong


async def test_a_call_without_a_person_that_a_ceiling_asks_about_is_refused(tmp_path: Path) -> None:
    shop, lm = Shop(), ScriptedLM([asks_inner(), LAST])
    async with scripted_agent(
        tmp_path, lm, workers=[buyer(ceiling=PAY_ASKS)], tools=shop.functions, policy=APPROVED
    ) as agent:
        assert await agent.call("buyer", {"request": "Go."}) == "Done."
        assert await agent.call("inner", {"what": "tie"}) == "paid tie"
    assert shop.paid == ["tie"]
