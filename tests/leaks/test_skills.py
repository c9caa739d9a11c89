"""A role is nowhere after a skill package ran for a host or a conversation, and neither is the package (R7, T6)."""

from pathlib import Path
from typing import Any

import dspy
import pytest

from support.agents import calls, paying, scripted_agent
from support.leaks import awkward_canary, repeated, traces_of, watch
from worldagent import Role
from worldagent.agent import Turn
from worldagent.core.errors import WorldAgentError
from worldagent.core.pauses import Approve
from worldagent.harness.trace import JsonLinesTrace, Trace
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

pytestmark = [pytest.mark.requirement("R7", "R8", "T6"), pytest.mark.on_every_database(soak=True)]

TEXT = "Boil the water in the copper kettle, then count to seventeen before the leaves go in."
OUTCOMES = ("answers", "pauses", "repeats the role", "refuses and quotes the prompt", "cannot be parsed")


def model(outcome: str, role: str) -> ScriptedLM:
    def answer(call: ScriptedCall) -> Any:
        if TEXT not in call.system:
            asked = calls(("skill", {"name": "tea", "request": "Two."}))
            return {"reply": "Served."} if call.steps else {"reply": "", **asked}
        if outcome == "refuses and quotes the prompt":
            return dspy.lm15.InvalidRequestError(f"400: you sent {call.user}")
        if outcome == "cannot be parsed":
            return f"As {role} I say nothing."
        if not call.steps:
            return {"reply": "", **calls(("pay", {"what": "tea"}))}
        return {"reply": repeated(role) if outcome == "repeats the role" else "Fine."}

    return ScriptedLM(answer)


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("surface", ["run_skill", "converse"])
async def test_a_role_is_nowhere_after_a_skill_ran(tmp_path: Path, surface: str, outcome: str) -> None:
    role = awkward_canary(200, seed=f"{surface} {outcome}")
    (tmp_path / "skills" / "tea").mkdir(parents=True)
    (tmp_path / "skills" / "tea" / "SKILL.md").write_text(f"---\nname: tea\ndescription: Makes tea.\n---\n{TEXT}\n")
    lm, done = model(outcome, role), list[str]()
    with watch(tmp_path / "home") as seen:
        trace = Trace(
            sinks=(JsonLinesTrace(seen.home / "traced.jsonl"),),
            capture=("inputs", "outputs"),
            callbacks=[seen.model, seen.chain],
        )
        more: dict[str, Any] = {"skills": [tmp_path / "skills"], "tools": [paying(done)], "trace": trace}
        async with scripted_agent(seen.home, lm, **more) as agent:
            thread, given = agent.thread("t"), Role("quiet", role)
            if surface == "run_skill":
                begun = await seen.outcome(thread.run_skill("tea", {"request": "Two."}, role=given))
            else:
                begun = await seen.outcome(thread.converse("Tea.", role=given))
            seen.assert_clean(*traces_of(role))
            if isinstance(begun, Turn) and begun.status == "paused" and outcome != "pauses":
                answers = {pause.id: Approve() for pause in begun.pauses}
                begun = await seen.outcome(thread.resume(answers, role=given))
            seen.kept += [await thread.history()]
            seen.assert_clean(*traces_of(role))
        seen.assert_clean(*traces_of(role))
        assert_no_role_leak(seen.home, TEXT)
    assert any(role in call.text and TEXT in call.system for call in lm.calls), "the role never reached the skill"
    assert isinstance(begun, WorldAgentError | Turn), begun
