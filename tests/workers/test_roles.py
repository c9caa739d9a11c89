"""A role is there at each step of a worker's loop, and nowhere else (R5, R6, R7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dspy.lm15 import ServerError

from support.agents import SHOPPER, calls, paying, price, scripted_agent, stock, told
from support.leaks import LONG, SHORT, watch
from worldagent import Role
from worldagent.core.pauses import Approve
from worldagent.graphs import Composed
from worldagent.harness import Worker
from worldagent.testing import ScriptedLM

TASK = {"worker": "shopper", "request": "What is a hat?"}


def script(call: Any) -> dict[str, Any]:
    """A bad answer, calls, a call that waits, a result."""
    notes = told(call)
    if not notes:
        return calls(("steal", {}))
    if "could not be used" in notes[0]:
        return calls(("price", {"what": "hat"}), ("stock", {"what": "hat"}))
    return {"result": "Bought."} if any("'pay'" in note for note in notes) else calls(("pay", {"what": "hat"}))


@pytest.mark.requirement("R6", "R7")
@pytest.mark.parametrize(("native", "content"), [(False, SHORT), (True, LONG)], ids=["json", "native"])
async def test_a_role_is_there_at_each_step_and_kept_nowhere(tmp_path: Path, native: bool, content: str) -> None:
    role, done = Role("critic", content), list[str]()
    lm = ScriptedLM(script, form="native" if native else "chat")
    with watch(tmp_path) as seen:
        async with scripted_agent(tmp_path, lm, workers=[SHOPPER], tools=[price, stock, paying(done)]) as agent:
            thread = agent.thread("t")
            turn = await seen.outcome(thread.task("subagent", TASK, role=role))
            answers = {pause.id: Approve() for pause in turn.pauses}
            turn = await seen.outcome(thread.resume(answers, role=role))
            assert (turn.status, done) == ("done", ["hat"])
            seen.kept.append(await thread.history())
    assert [call.role for call in lm.calls] == [content] * 4
    assert all(content not in call.system and content not in "".join(told(call)) for call in lm.calls)
    seen.assert_clean(content)


@pytest.mark.requirement("R5", "R6")
@pytest.mark.parametrize("native", [False, True], ids=["json", "native"])
async def test_without_a_role_each_prompt_is_as_if_there_were_none(tmp_path: Path, native: bool) -> None:
    def reply(call: Any) -> dict[str, Any]:
        return {"result": "Fine."} if told(call) else calls(("price", {"what": "hat"}))

    prompts = []
    for name, role in (("bare", None), ("roled", Role("critic", "Zebras only, in every line of it."))):
        lm = ScriptedLM(reply, form="native" if native else "chat")
        async with scripted_agent(tmp_path / name, lm, workers=[SHOPPER], tools=[price]) as agent:
            await agent.thread("t").task("subagent", TASK, role=role)
        prompts.append(lm.calls)
    for bare, roled in zip(*prompts, strict=True):
        assert bare.role is None
        assert roled.role is not None
        assert told(bare) == told(roled), "what stands before the last message knows of no role"
        assert roled.user.startswith(bare.user.partition("Respond with")[0].rstrip())


@pytest.mark.requirement("R6")
async def test_a_skill_and_a_role_are_there_at_each_step_also_with_another_model(tmp_path: Path) -> None:
    lm, other = ScriptedLM([calls(("price", {"what": "hat"})), ServerError("down")]), ScriptedLM([{"result": "Fine."}])
    worker = Worker("shopper", "You find prices.", tools=("price",), fallbacks=("other",))
    async with scripted_agent(tmp_path, lm, workers=[worker], tools=[price], models={"other": other}) as agent:
        skill = Composed("Count in zebras.", params={"worker": "shopper"})
        await agent.thread("t").run_skill(skill, {"request": "Go."}, role=Role("critic", "Be very brief about it."))
    for call in (*lm.calls, *other.calls):
        assert "Count in zebras." in call.system
        assert call.role == "Be very brief about it."
