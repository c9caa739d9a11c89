"""Stored roles are nowhere after a schedule fired: not with what it started, its runs or the queue (R7, T7)."""

from pathlib import Path
from typing import Any

import dspy
import pytest

from support.agents import calls, paying
from support.broken_hosts import MemoryStore
from support.leaks import awkward_canary, repeated, traces_of, watch
from support.schedules import START, hourly, opened, passes
from worldagent import Role, Roles, Tier, Worker
from worldagent.core.pauses import Approve
from worldagent.harness.trace import JsonLinesTrace, Trace
from worldagent.scheduling import Schedule, StartMessage, StartSkill, StartTask
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

pytestmark = [pytest.mark.requirement("R7", "T7"), pytest.mark.on_every_database(soak=True)]

OUTCOMES = ("answers", "pauses", "repeats the role", "refuses and quotes the prompt", "cannot be parsed")
STARTS = {
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


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("starts", STARTS)
async def test_stored_roles_are_nowhere_after_a_schedule_fired(tmp_path: Path, starts: str, outcome: str) -> None:
    role = awkward_canary(200, seed=f"{starts} {outcome}")
    (tmp_path / "skills" / "tea").mkdir(parents=True)
    (tmp_path / "skills" / "tea" / "SKILL.md").write_text("---\nname: tea\ndescription: Makes tea.\n---\nBoil water.\n")
    lm, done, store, clock = model(outcome, role), list[str](), MemoryStore(), VirtualClock(START)
    await store.put(Tier.WORKSPACE, "novel", Role("quiet", role))
    await store.put(Tier.ACCOUNT, "ana", Role("loud", f"{role} Loudly."))
    with watch(tmp_path / "home") as seen:
        trace = Trace(
            sinks=(JsonLinesTrace(seen.home / "traced.jsonl"),),
            capture=("inputs", "outputs"),
            callbacks=[seen.model, seen.chain],
        )
        more: dict[str, Any] = {
            "skills": [tmp_path / "skills"],
            "tools": [paying(done)],
            "workers": [Worker("critic", "You judge.", "judges", tools=("pay",))],
            "trace": trace,
            "roles": Roles(host=store),
        }
        async with opened(seen.home, lm, clock, **more) as (agent, schedules):
            schedule = hourly(starts=STARTS[starts], account="ana", unattended="pause")
            await schedules.add(schedule)
            seen.kept += [await schedules.list(), schedule.to_json(), Schedule.from_json(schedule.to_json())]
            await passes(schedules, clock, 1)
            await schedules.settled()
            seen.assert_clean(*traces_of(role))
            thread = agent.thread(schedule.thread_id, account="ana")
            if outcome != "pauses":
                answers = {pause.id: Approve() for pause in await thread.pauses()}
                if answers:
                    await seen.outcome(thread.resume(answers))
                await schedules.fire_due()
            seen.kept += [await schedules.history("tide"), await thread.history(), await thread.state()]
            seen.assert_clean(*traces_of(role))
        seen.assert_clean(*traces_of(role))
    assert any(role in call.text for call in lm.calls), "the role never reached a model"
