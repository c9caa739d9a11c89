"""What traces and events hold of workers and shapes: params and results where both sides want it, risk and gate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.agents import scripted_agent, to
from worldagent import Role, WorldAgent
from worldagent.agent import Turn
from worldagent.core.events import TaskStarted
from worldagent.core.pauses import Approve
from worldagent.harness import Policy, Worker
from worldagent.harness.gate import Rule
from worldagent.harness.trace import Trace, TraceRecord
from worldagent.testing import ScriptedLM, assert_no_role_leak

ROLE = Role("tone", "Speak as an old lighthouse keeper would, and name the lamp in each line.")


def judging() -> ScriptedLM:
    return ScriptedLM([to("critic", "Judge the hat."), {"result": "A fine hat."}, {"reply": "Done."}])


async def tasks_of(agent: WorldAgent, turn: Turn) -> list[TraceRecord]:
    return [record for record in (await agent.traces.get(turn.id)).records if record.kind == "task"]


@pytest.mark.requirement("H5")
@pytest.mark.parametrize(
    ("allowed", "wanted"), [(True, {"inputs", "outputs"}), (False, {"inputs", "outputs"}), (True, set[str]())]
)
async def test_a_worker_is_captured_where_it_allows_it_and_the_trace_wants_it(
    tmp_path: Path, allowed: bool, wanted: Any
) -> None:
    worker = Worker("critic", "You judge.", "judges", capture=allowed)
    trace = Trace(capture=wanted)
    async with scripted_agent(tmp_path, judging(), workers=[worker], trace=trace) as agent:
        turn = await agent.thread("t").converse("Go", role=ROLE)
        [task] = await tasks_of(agent, turn)
        captured = ({"worker": "critic", "request": "Judge the hat."}, {"worker": "critic", "text": "A fine hat."})
        assert (task.inputs, task.outputs) == (captured if allowed and wanted else (None, None))
        assert_no_role_leak(ROLE, [task.line()])


@pytest.mark.requirement("H5", "H9")
@pytest.mark.parametrize("asks", [True, False])
async def test_a_tasks_start_says_its_risk_and_what_let_it_through(tmp_path: Path, asks: bool) -> None:
    worker = Worker("critic", "You judge.", "judges", risk=("write", "network"))
    policy = Policy(rules=(Rule(decision="ask" if asks else "approve", function="critic", name="critics"),))
    async with scripted_agent(tmp_path, judging(), workers=[worker], policy=policy) as agent:
        thread = agent.thread("t")
        async with thread.stream("Go") as stream:
            events = [event async for event in stream]
        if asks:
            assert not any(isinstance(event, TaskStarted) for event in events)
            [pause] = stream.turn.pauses
            async with thread.stream_resume({pause.id: Approve()}) as resumed:
                events = [event async for event in resumed]
        [started] = [event for event in events if isinstance(event, TaskStarted)]
        told = (("write", "network"), "person" if asks else "rule:critics")
        assert (started.risk, started.gate) == told
        [task] = await tasks_of(agent, stream.turn)
        assert (task.risk, task.gate) == told
