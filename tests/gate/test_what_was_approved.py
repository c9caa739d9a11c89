"""What was approved is what runs, also where answers come together, late, twice, or after a policy has changed (H9)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.agents import Muse, scripted_agent, shape
from worldagent import WorldAgent
from worldagent.agent import Turn
from worldagent.core.errors import AlreadyAnswered, CallRefused, NothingToResume, ThreadBusy, ToolFailed, TurnTimeout
from worldagent.core.pauses import Approve, Reject, RunAgain
from worldagent.graphs import TaskContext
from worldagent.harness import Function, Policy, Worker, tool
from worldagent.harness.gate import Rule
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("H9")


class World:
    """A function `write` whose risk may change, and what it did; it waits where it is told to."""

    def __init__(self, *paths: str) -> None:
        self.paths, self.done = paths, list[str]()
        self.go = asyncio.Event()
        self.go.set()
        self.risk: Any = "write"

    @property
    def write(self) -> Function:
        async def write(path: str) -> str:
            await self.go.wait()
            self.done.append(path)
            return path

        return tool(risk=self.risk)(write)

    async def handler(self, ctx: TaskContext) -> str:
        await ctx.predict(Muse, about="it")
        said = await asyncio.gather(*(self._written(ctx, path) for path in self.paths))
        return ", ".join(said)

    @staticmethod
    async def _written(ctx: TaskContext, path: str) -> str:
        try:
            return str(await ctx.call("write", {"path": path}, key=path))
        except CallRefused:
            return "no"

    def agent(self, home: Path, policy: Policy | None = None, **more: Any) -> WorldAgent:
        job = shape(self.handler, entry=Muse)
        lm = ScriptedLM(lambda call: {"thought": "Hm."})
        return scripted_agent(home, lm, tools=[self.write], shapes=[job], policy=policy, **more)

    async def begun(self, home: Path, policy: Policy | None = None) -> Turn:
        async with self.agent(home, policy) as agent:
            return await agent.thread("t", account="ana").task("job", {})


async def resumed(agent: WorldAgent, answers: Any, account: str = "ana") -> Turn:
    return await agent.thread("t", account=account).resume(answers)


@pytest.mark.on_every_database
async def test_always_for_one_call_does_not_cover_another(tmp_path: Path) -> None:
    world = World("a", "b", "c")
    turn = await world.begun(tmp_path)
    said = {"a": Approve(always=True), "b": Approve(arguments={"path": "safe"}), "c": Reject()}
    async with world.agent(tmp_path) as agent:
        turn = await resumed(agent, {pause.id: said[str(pause.arguments["path"])] for pause in turn.pauses})
    assert (turn.status, sorted(world.done)) == ("done", ["a", "safe"])


@pytest.mark.on_every_database
async def test_what_is_made_again_is_what_a_person_put_there(tmp_path: Path) -> None:
    world = World("a")
    turn = await world.begun(tmp_path)
    world.go.clear()
    async with world.agent(tmp_path, settings={"turn_timeout": 1.0}) as agent:
        with pytest.raises(TurnTimeout):
            await resumed(agent, {turn.pauses[0].id: Approve(arguments={"path": "safe"})})
    world.go.set()
    async with world.agent(tmp_path) as agent:
        turn = await resumed(agent, None)
        [pause] = turn.pauses
        assert (pause.kind, pause.function, pause.arguments) == ("uncertain", "write", {"path": "safe"})
        turn = await resumed(agent, {pause.id: RunAgain()})
    assert (turn.status, world.done) == ("done", ["safe"])


LATER: dict[str, tuple[Policy | None, tuple[str, ...], tuple[str, ...], str]] = {
    "by whom": (
        Policy(rules=(Rule(decision="ask", function="write", approvers="lead"),)),
        ("write",),
        ("lead",),
        "one of these accounts must now answer: lead",
    ),
    "how risky": (None, ("write", "destructive"), (), "its risk now includes destructive"),
}


@pytest.mark.on_every_database
@pytest.mark.parametrize("changed", LATER)
async def test_approval_is_requested_again_where_the_rules_changed(tmp_path: Path, changed: str) -> None:
    policy, risk, approvers, problem = LATER[changed]
    world = World("a")
    turn = await world.begun(tmp_path)
    world.risk = risk
    async with world.agent(tmp_path, policy) as agent:
        turn = await resumed(agent, {turn.pauses[0].id: Approve(always=changed == "how risky")})
        [pause] = turn.pauses
        assert (pause.risk, pause.approvers, world.done) == (risk, approvers, [])
        assert problem in (pause.problem or "")
        turn = await resumed(agent, {pause.id: Approve()}, "lead")
    assert (turn.status, world.done) == ("done", ["a"])


@pytest.mark.on_every_database
async def test_what_the_policy_refuses_by_now_is_not_done(tmp_path: Path) -> None:
    world = World("a")
    turn = await world.begun(tmp_path)
    async with world.agent(tmp_path, Policy(rules=(Rule(decision="refuse", function="write"),))) as agent:
        turn = await resumed(agent, {turn.pauses[0].id: Approve()})
    assert (turn.status, str(turn.result), world.done) == ("done", "text='no'", [])


@pytest.mark.on_every_database
async def test_of_two_who_answer_at_once_one_counts(tmp_path: Path) -> None:
    world = World("a")
    turn = await world.begun(tmp_path)
    async with world.agent(tmp_path) as one, world.agent(tmp_path) as other:
        ways = [{turn.pauses[0].id: Approve(arguments={"path": path})} for path in ("b", "c")]
        outcomes = await asyncio.gather(resumed(one, ways[0]), resumed(other, ways[1]), return_exceptions=True)
    [(path, ended)] = [(path, each) for path, each in zip("bc", outcomes, strict=True) if isinstance(each, Turn)]
    assert (ended.id, ended.status, str(ended.result)) == (turn.id, "done", f"text={path!r}")
    assert world.done == [path], "what happened is what the one who was heard said"
    [refused] = [each for each in outcomes if each is not ended]
    assert isinstance(refused, AlreadyAnswered | NothingToResume | ThreadBusy)


@pytest.mark.on_every_database
async def test_pause_of_a_cancelled_turn_approves_nothing_later(tmp_path: Path) -> None:
    world = World("a")
    turn = await world.begun(tmp_path)
    async with world.agent(tmp_path) as agent:
        await agent.thread("t", account="ana").cancel()
        with pytest.raises((AlreadyAnswered, NothingToResume)):
            await resumed(agent, {turn.pauses[0].id: Approve(always=True)})
        turn = await agent.thread("t", account="ana").task("job", {})
    assert (turn.status, world.done) == ("paused", [])


@pytest.mark.on_every_database
@pytest.mark.parametrize("planned", [True, False], ids=["by the planner", "by code"])
async def test_worker_runs_with_the_approved_request(tmp_path: Path, planned: bool) -> None:
    asked = list[str]()

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "request" in call.fields:
            asked.append(call.fields["request"])
            return {"result": "Done."}
        if "about" in call.fields:
            return {"thought": "Hm."}
        if len(call.messages) > 1:
            return {"reply": "Fine."}
        return {"reply": "", "calls": [{"tool": "scribe", "arguments": {"request": "stolen"}}]}

    async def handler(ctx: TaskContext) -> str:
        await ctx.predict(Muse, about="it")
        return str(await ctx.call("scribe", {"request": "stolen"}))

    workers = [Worker("scribe", "You write.", "writes", risk=("write",)), Worker("other", "You do else.", "does else")]
    job = shape(handler, entry=Muse)
    async with scripted_agent(tmp_path, ScriptedLM(reply), workers=workers, shapes=[job]) as agent:
        thread = agent.thread("t")
        turn = await (thread.converse("Go.") if planned else thread.task("job", {}))
        [pause] = turn.pauses
        assert (pause.function, pause.risk, pause.arguments["request"]) == ("scribe", ("write",), "stolen")
        turn = await thread.resume({pause.id: Approve(arguments={**pause.arguments, "worker": "other"})})
        [pause] = turn.pauses
        assert "must be for the worker 'scribe'" in (pause.problem or "")
        turn = await thread.resume({pause.id: Approve(arguments={**pause.arguments, "request": "safe"})})
    assert (turn.status, asked) == ("done", ["safe"])


# --- what marks a turn -----------------------------------------------------------------------------------------------


async def marked(home: Path, policy: Policy, *calls: str, answer: Any = None) -> tuple[str, list[str]]:
    """What becomes of calls of these functions, and what was done; `answer` is said to the first pause."""
    done: list[str] = []

    def function(name: str, risk: Any, *, untrusted: bool = False) -> Function:
        async def body() -> str:
            if name == "fails":
                raise ToolFailed("no", remedy="no")
            done.append(name)
            return name

        return tool(name=name, risk=risk, untrusted=untrusted)(body)

    async def handler(ctx: TaskContext) -> str:
        await ctx.predict(Muse, about="it")
        for place, name in enumerate(calls):
            try:
                await ctx.call(name, {}, key=str(place))
            except (CallRefused, ToolFailed):
                continue
        return "Fine."

    functions = [
        function("write", "write"),
        function("look", "read_only"),
        *(function(name, "read_only", untrusted=True) for name in ("fetch", "browse", "fails")),
        function("post", "network", untrusted=True),
    ]
    lm = ScriptedLM(lambda call: {"thought": "Hm."})
    job = shape(handler, entry=Muse)
    async with scripted_agent(home, lm, tools=functions, shapes=[job], policy=policy) as agent:
        turn = await agent.thread(home.name).task("job", {})
        if turn.status == "paused" and answer is not None:
            turn = await agent.thread(home.name).resume({turn.pauses[0].id: answer})
    return turn.status, done


WRITE = Rule(decision="approve", function="write")


@pytest.mark.on_every_database
async def test_what_an_untrusted_function_fails_with_marks_and_what_was_not_allowed_does_not(tmp_path: Path) -> None:
    policy = Policy(rules=(WRITE,))
    assert await marked(tmp_path / "1", policy, "fails", "write") == ("paused", [])
    assert await marked(tmp_path / "2", policy, "post", "write", answer=Reject()) == ("done", ["write"])
    assert await marked(tmp_path / "3", policy, "post", "write", answer=Approve()) == ("paused", ["post"])


@pytest.mark.on_every_database
async def test_call_without_approval_uses_no_rule_up(tmp_path: Path) -> None:
    policy = Policy(rules=(Rule(decision="approve", function="*", times=1),))
    assert await marked(tmp_path, policy, "look", "look", "write") == ("done", ["look", "look", "write"])


@pytest.mark.parametrize(("decision", "holds"), [("approve", False), ("ask", True), ("refuse", True)])
def test_rule_about_a_source_holds_after_other_reads(decision: Any, holds: bool) -> None:
    rule = Rule(decision=decision, function="write", arguments={"path": "*"}, after="fetch")
    assert rule.matches_marks({"fetch"})
    assert not rule.matches_marks({"browse"})
    assert not rule.matches_marks(set())
    assert rule.matches_marks({"fetch", "browse"}) is holds
