"""Workers are added to an agent and removed from it while its turns run (A3, C2, H10)."""

import gc
from pathlib import Path
from typing import Any

import pytest

from support.agents import Said, answering, calls, paying, price, scripted_agent, shape, to, told
from worldagent import Policy, Rule
from worldagent.core.errors import (
    AgentClosed,
    FunctionInvalid,
    GraphChanged,
    ModelNotConfigured,
    NameTaken,
    PolicyInvalid,
    ToolNotAllowed,
    UnknownFunction,
    UnknownWorker,
    WorldAgentError,
)
from worldagent.core.pauses import Approve
from worldagent.graphs import TaskContext
from worldagent.harness import Worker
from worldagent.profiles import Profile
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("A3", "H10")

EYE = Worker("eye", "You see.", "sees")
ASKS_NOTHING = Policy(rules=(Rule(name="one", function="nothing", decision="ask"),))
BUYER = Worker("buyer", "You buy.", "buys", tools=("pay",))


async def test_a_worker_is_called_once_it_is_added_and_never_after_it_is_removed(tmp_path: Path) -> None:
    lm = ScriptedLM(
        [{"result": "a hat"}, to("eye"), {"result": "a coat"}, {"reply": "Seen."}, {"reply": "Alone."}], form="native"
    )
    async with scripted_agent(tmp_path, lm) as agent:
        agent.add_worker(EYE)
        assert await agent.call("eye", {"request": "Look."}) == "a hat"
        assert (await agent.thread("t").converse("Look")).text == "Seen."
        agent.remove_worker("eye")
        with pytest.raises(UnknownFunction):
            await agent.call("eye", {"request": "Look."})
        with pytest.raises(UnknownWorker, match="there is no worker 'eye'"):
            await agent.thread("t").task("subagent", {"worker": "eye", "request": "Look."})
        with pytest.raises(UnknownWorker):
            agent.remove_worker("eye")
        assert (await agent.thread("t").converse("Look")).text == "Alone."
    assert ["eye" in lm.calls[place].tools for place in (1, 4)] == [True, False]


async def test_a_conversation_that_runs_is_offered_it_when_it_resumes(tmp_path: Path) -> None:
    done: list[str] = []
    lm = ScriptedLM(
        [calls(("pay", {"what": "hat"})), to("eye"), {"result": "a hat"}, {"reply": "Seen."}], form="native"
    )
    async with scripted_agent(tmp_path, lm, tools=[paying(done)]) as agent:
        turn = await agent.thread("t").converse("Go")
        agent.add_worker(EYE)
        turn = await agent.thread("t").resume({turn.pauses[0].id: Approve()})
    assert (turn.text, done) == ("Seen.", ["hat"])
    assert ["eye" in call.tools for call in lm.calls[:2]] == [False, True]


async def test_code_of_a_turn_that_runs_can_call_it_at_once(tmp_path: Path) -> None:
    async def hire(ctx: TaskContext) -> str:
        agent.add_worker(EYE)
        return str(await ctx.call("eye", {"request": "Look."}))

    async with scripted_agent(tmp_path, answering("a hat"), shapes=[shape(hire)]) as agent:
        assert (await agent.thread("t").task("job", {})).result == Said(text="a hat")


async def test_a_removed_worker_ends_what_it_does_and_can_call_nothing_more(tmp_path: Path) -> None:
    done: list[str] = []

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "message" in call.fields:
            return {"reply": told(call)[0]} if told(call) else to("buyer")
        if told(call):
            return {"result": told(call)[0]}
        agent.remove_worker("buyer")
        return calls(("pay", {"what": "hat"}))

    tools, policy = [paying(done)], Policy(rules=(Rule(name="pays", function="pay", decision="approve"),))
    async with scripted_agent(tmp_path, ScriptedLM(reply), workers=[BUYER], tools=tools, policy=policy) as agent:
        turn = await agent.thread("t").converse("Go")
        assert (turn.status, done) == ("done", [])
        assert "it is made for 'buyer', which no longer exists" in turn.text
        assert [message.kind for message in await agent.thread("t").history()] == [
            "message",
            "plan",
            "result",
            "answer",
        ]


async def nested(ctx: TaskContext) -> str:
    return str(await ctx.call("buyer", {"request": "Buy."}))


@pytest.mark.requirement("T4")
@pytest.mark.parametrize("surface", ["converse", "task", "shape"])
async def test_a_turn_that_waits_below_a_removed_worker_takes_no_answer_until_it_is_back(
    tmp_path: Path, surface: str
) -> None:
    done: list[str] = []

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "message" in call.fields:
            return {"reply": "Bought."} if told(call) else to("buyer")
        return {"result": "Bought."} if told(call) else calls(("pay", {"what": "hat"}))

    tools, shapes = [paying(done)], [shape(nested)]
    async with scripted_agent(tmp_path, ScriptedLM(reply), workers=[BUYER], tools=tools, shapes=shapes) as agent:
        thread = agent.thread("t")
        params: Any = {"worker": "buyer", "request": "Buy."}
        begun = {
            "converse": lambda: thread.converse("Go"),
            "task": lambda: thread.task("subagent", params),
            "shape": lambda: thread.task("job", {}),
        }
        [pause] = (await begun[surface]()).pauses
        agent.remove_worker("buyer")
        with pytest.raises(GraphChanged, match="'buyer'"):
            await thread.resume({pause.id: Approve()})
        with pytest.raises(GraphChanged, match="'buyer'"):
            await thread.resume()
        [kept] = await thread.pauses()
        assert (kept.id, kept.answered, done) == (pause.id, False, [])
        agent.add_worker(BUYER)
        assert (await thread.resume({pause.id: Approve()})).status == "done"
    assert done == ["hat"]


@pytest.mark.parametrize(
    ("worker", "kind", "says"),
    [
        (Worker("price", "You see."), NameTaken, "'price'"),
        (Worker("critic", "You see."), NameTaken, "'critic'"),
        (Worker("job", "You see."), NameTaken, "'job'"),
        (Worker("Converse", "You see."), NameTaken, "'Converse'"),
        (Worker("eye", "You see.", model="nothing"), ModelNotConfigured, "the worker 'eye'"),
        (Worker("eye", "You see.", tools=("nothing",)), FunctionInvalid, "'nothing'"),
        (Worker("eye", "You see.", policy=ASKS_NOTHING), PolicyInvalid, "'nothing'"),
        ("eye", FunctionInvalid, "'eye' is not a worker"),
    ],
)
async def test_a_worker_that_does_not_fit_is_refused_and_leaves_nothing(
    tmp_path: Path, worker: Any, kind: type[WorldAgentError], says: str
) -> None:
    critic = Worker("critic", "You judge.")
    async with scripted_agent(
        tmp_path, answering("a hat"), workers=[critic], tools=[price], shapes=[shape(nested)]
    ) as agent:
        before = agent.functions
        with pytest.raises(kind, match=says):
            agent.add_worker(worker)
        assert agent.functions == before
        agent.add_worker(EYE)
        assert await agent.call("eye", {"request": "Look."}) == "a hat"
        assert await agent.call("critic", {"request": "Look."}) == "a hat"


async def test_a_worker_that_the_profile_excludes_is_refused(tmp_path: Path) -> None:
    async with scripted_agent(
        tmp_path, answering(), tools=[price], profile=Profile(name="p", tools=("price",))
    ) as agent:
        for _ in range(2):
            with pytest.raises(ToolNotAllowed, match="'eye'"):
                agent.add_worker(EYE)


async def test_a_closed_agent_takes_no_worker(tmp_path: Path) -> None:
    agent = scripted_agent(tmp_path, answering())
    with pytest.raises(AgentClosed):
        agent.add_worker(EYE)


async def test_a_name_is_used_again_with_other_instructions(tmp_path: Path) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent:
        for said in ("You see.", "You hear."):
            agent.add_worker(Worker("member", said))
            await agent.call("member", {"request": "Go."})
            assert said in lm.calls[-1].system
            agent.remove_worker("member")


async def test_a_thousand_workers_that_the_conversation_may_not_call_are_not_in_its_prompt(tmp_path: Path) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm, tools=[price]) as agent:
        await agent.thread("a").converse("Go")
        for number in range(1000):
            agent.add_worker(Worker(f"member{number}", f"You are {number}.", "works", offered=False))
        await agent.thread("b").converse("Go")
    assert lm.calls[0].messages == lm.calls[1].messages


@pytest.mark.timeout(120)
async def test_workers_that_come_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    """Each has a Signature, a predictor and tools; caches of a fixed size are full before counting begins."""

    def come_and_go(count: int, mark: str) -> int:
        for number in range(count):
            agent.add_worker(Worker(f"{mark}{number}", f"You are {number}.", tools=("price",)))
            agent.remove_worker(f"{mark}{number}")
        gc.collect()
        return len(gc.get_objects())

    async with scripted_agent(tmp_path, answering(), tools=[price]) as agent:
        before = come_and_go(300, "first")
        assert come_and_go(1000, "second") - before < 500
        assert [function.name for function in agent.functions] == ["price", "subagent"]
