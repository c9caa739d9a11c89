"""A worker's own policy narrows the agent's for all that it calls, at any depth, and never widens it (H6, H9)."""

from pathlib import Path

import pytest

from support.agents import calls, scripted_agent, told
from worldagent import WorldAgent
from worldagent.core.pauses import Approve
from worldagent.harness import CallContext, Function, Policy, Worker, flow, tool
from worldagent.harness.gate import Rule
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("H6", "H9")

ALL_APPROVED = Policy(rules=(Rule(decision="approve", function=("write", "send")),))


class Sent:
    """Functions that record what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []

    @property
    def functions(self) -> list[Function]:
        @tool(risk="write")
        async def write(path: str) -> str:
            self.done.append(f"write {path}")
            return "written"

        @tool(risk="network")
        async def send(path: str) -> str:
            self.done.append(f"send {path}")
            return "sent"

        @flow
        async def relay(ctx: CallContext, path: str) -> str:
            return str(await ctx.call("send", {"path": path}))

        return [write, send, relay]


def worker(name: str = "clerk", *, policy: Policy | None = None, tools: tuple[str, ...] = ("*",)) -> Worker:
    return Worker(name, "You file things.", tools=tools, policy=policy)


NO_MAIL = Policy(rules=(Rule(decision="refuse", function="send", name="no mail"),))


async def test_what_a_worker_s_policy_refuses_is_refused_though_the_agent_s_approves_it(tmp_path: Path) -> None:
    sent = Sent()
    asked = calls(("send", {"path": "a"}), ("write", {"path": "b"}), ("relay", {"path": "c"}))
    lm = ScriptedLM([asked, {"result": "Done."}, asked, {"result": "Done."}])
    workers = [worker(policy=NO_MAIL), worker("postman")]
    async with scripted_agent(tmp_path, lm, workers=workers, tools=sent.functions, policy=ALL_APPROVED) as agent:
        await agent.call("clerk", {"request": "Go."})
        assert sent.done == ["write b"]
        assert [("the rule 'no mail' of 'clerk' refuses" in each) for each in told(lm.calls[1])] == [True, False, True]
        await agent.call("postman", {"request": "Go."})
    assert sorted(sent.done) == ["send a", "send c", "write b", "write b"]


async def test_it_holds_for_turns_that_are_begun_from_what_the_worker_calls(tmp_path: Path) -> None:
    sent, agents = Sent(), list[WorldAgent]()

    @tool(risk="read_only")
    async def delegate(path: str) -> str:
        turn = await agents[0].thread("u").task("subagent", {"worker": "postman", "request": path})
        return str(getattr(turn.result, "text", None))

    dispatch, send = calls(("delegate", {"path": "a"})), calls(("send", {"path": "a"}))
    lm = ScriptedLM([dispatch, send, {"result": "No."}, {"result": "Ok."}])
    workers = [worker(policy=NO_MAIL, tools=("delegate",)), worker("postman", tools=("send",))]
    functions = [*sent.functions, delegate]
    async with scripted_agent(tmp_path, lm, workers=workers, tools=functions, policy=ALL_APPROVED) as agent:
        agents.append(agent)
        assert await agent.call("clerk", {"request": "Go."}) == "Ok."
    lm.assert_all_used()
    assert sent.done == []


async def test_what_it_approves_still_needs_the_agent_s_policy(tmp_path: Path) -> None:
    sent = Sent()
    wide = Policy(rules=(Rule(decision="approve", function="*"),))
    lm = ScriptedLM([calls(("write", {"path": "a"})), {"result": "Done."}])
    async with scripted_agent(tmp_path, lm, workers=[worker(policy=wide)], tools=sent.functions) as agent:
        thread = agent.thread("t")
        turn = await thread.task("subagent", {"worker": "clerk", "request": "Go."})
        assert turn.status == "paused"
        assert sent.done == []
        await thread.resume({turn.pauses[0].id: Approve()})
    assert sent.done == ["write a"]


async def test_with_a_default_what_no_rule_of_it_matches_is_refused(tmp_path: Path) -> None:
    sent = Sent()
    listed = Policy(rules=(Rule(decision="approve", function="write"),), default="refuse")
    lm = ScriptedLM([calls(("write", {"path": "a"}), ("send", {"path": "b"})), {"result": "Done."}])
    async with scripted_agent(
        tmp_path, lm, workers=[worker(policy=listed)], tools=sent.functions, policy=ALL_APPROVED
    ) as agent:
        await agent.call("clerk", {"request": "Go."})
    assert sent.done == ["write a"]
    assert "nothing in the policy of 'clerk' allows it" in told(lm.calls[1])[1]
