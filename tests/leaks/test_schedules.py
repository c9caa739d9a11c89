"""Stored roles are nowhere after a schedule fired or a submitted turn ran, also not in the queue (R7, T7)."""

from pathlib import Path
from typing import Any

import dspy
import pytest

from support.agents import calls, paying
from support.broken_hosts import MemoryStore
from support.leaks import Watch, awkward_canary, repeated, traces_of, watch
from support.schedules import START, hourly, opened, passes
from support.submissions import working
from worldagent import Role, Roles, Tier, Worker
from worldagent.agent import Thread
from worldagent.core.pauses import Approve
from worldagent.harness.trace import JsonLinesTrace, Trace
from worldagent.scheduling import Schedule, StartMessage, StartSkill, StartTask
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

pytestmark = [pytest.mark.requirement("R7", "T7"), pytest.mark.on_every_database(soak=True)]

OUTCOMES = ("answers", "pauses", "repeats the role", "refuses and quotes the prompt", "cannot be parsed")
STARTS: dict[str, Any] = {
    "message": StartMessage("What is the tide?"),
    "task": StartTask("subagent", {"worker": "critic", "request": "Judge the tide."}),
    "skill": StartSkill("tea", "Two cups."),
}


def model(outcome: str, role: str) -> ScriptedLM:
    def answer(call: ScriptedCall) -> Any:
        reply = "result" if "You judge" in call.system else "reply"
        if outcome == "refuses and quotes the prompt":
            return dspy.lm15.InvalidRequestError(f"400: you sent {call.user}")
        if outcome == "cannot be parsed":
            return f"As {role} I say nothing."
        if not call.steps:
            return {reply: "", **calls(("pay", {"what": "tea"}))}
        return {reply: repeated(role) if outcome == "repeats the role" else "Fine."}

    return ScriptedLM(answer)


async def parts(folder: Path, role: str, seen: Watch) -> dict[str, Any]:
    """What the agent of a case has, with roles of the workspace and of the account `ana`."""
    (folder / "skills" / "tea").mkdir(parents=True)
    (folder / "skills" / "tea" / "SKILL.md").write_text("---\nname: tea\ndescription: Makes tea.\n---\nBoil water.\n")
    store = MemoryStore()
    await store.put(Tier.WORKSPACE, "novel", Role("quiet", "Answer quietly."))
    await store.put(Tier.ACCOUNT, "ana", Role("loud", role))
    return {
        "skills": [folder / "skills"],
        "tools": [paying([])],
        "workers": [Worker("critic", "You judge.", "judges", tools=("pay",))],
        "trace": Trace(
            sinks=(JsonLinesTrace(seen.home / "traced.jsonl"),),
            capture=("inputs", "outputs"),
            callbacks=[seen.model, seen.chain],
        ),
        "roles": Roles(host=store),
    }


async def answered(seen: Watch, thread: Thread, outcome: str) -> None:
    """Approve what the thread's turn waits for, unless the case is about a turn that waits."""
    pauses = await thread.pauses()
    if pauses and outcome != "pauses":
        await seen.outcome(thread.resume({pause.id: Approve() for pause in pauses}))
    seen.kept += [await thread.history(), await thread.state()]


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("starts", STARTS)
async def test_stored_roles_are_nowhere_after_a_schedule_fired(tmp_path: Path, starts: str, outcome: str) -> None:
    role = awkward_canary(200, seed=f"{starts} {outcome}")
    lm, clock = model(outcome, role), VirtualClock(START)
    with watch(tmp_path / "home") as seen:
        more = await parts(tmp_path, role, seen)
        async with opened(seen.home, lm, clock, **more) as (agent, schedules):
            schedule = hourly(starts=STARTS[starts], account="ana", unattended="pause")
            await schedules.add(schedule)
            seen.kept += [await schedules.list(), schedule.to_json(), Schedule.from_json(schedule.to_json())]
            await passes(schedules, clock, 1)
            await schedules.settled()
            seen.assert_clean(*traces_of(role))
            await answered(seen, agent.thread(schedule.thread_id, account="ana"), outcome)
            await schedules.fire_due()
            seen.kept += [await schedules.history("tide")]
            seen.assert_clean(*traces_of(role))
        seen.assert_clean(*traces_of(role))
    assert any(role in call.text for call in lm.calls), "the role never reached a model"


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize(
    "starts", ["message", *(pytest.param(each, marks=pytest.mark.soak) for each in ("task", "skill"))]
)
async def test_stored_roles_are_nowhere_after_a_submitted_turn(tmp_path: Path, starts: str, outcome: str) -> None:
    role = awkward_canary(200, seed=f"submitted {starts} {outcome}")
    lm = model(outcome, role)
    with watch(tmp_path / "home") as seen:
        more = await parts(tmp_path, role, seen)
        async with working(seen.home, lm, **more) as (agent, worker):
            thread = agent.thread("t", account="ana")
            submission = await agent.submit(STARTS[starts], thread=thread, unattended="pause")
            await seen.outcome(submission.wait())
            seen.kept += [repr(submission), await submission.status(), repr(worker.counts)]
            seen.assert_clean(*traces_of(role))
            await answered(seen, thread, outcome)
            seen.assert_clean(*traces_of(role))
        seen.assert_clean(*traces_of(role))
    assert any(role in call.text for call in lm.calls), "the role never reached a model"
