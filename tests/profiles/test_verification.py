"""Answers that are judged before they count: what the judge sees, how often, and what a crash leaves (P5)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dspy.lm15 import AuthError, ContextLengthError

from support.agents import CRITIC, scripted_agent, standing, to, told
from worldagent import Role, WorldAgent
from worldagent.core.errors import HostError
from worldagent.core.events import AnswerChecked
from worldagent.profiles import Profile, Verification
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

pytestmark = pytest.mark.requirement("P5")

WANTING = {"findings": "The capital is missing.", "satisfied": False}
FINE = {"findings": "", "satisfied": True}


def judged(*verdicts: Any, answer: Callable[[ScriptedCall], Any] | None = None) -> ScriptedLM:
    """A model that numbers its answers, and judges them so."""
    left, count = list(verdicts), 0

    def reply(call: ScriptedCall) -> Any:
        nonlocal count
        if judging(call):
            return left.pop(0)
        if "request" in call.fields:
            return {"result": "Paris"}
        if answer is not None and (given := answer(call)) is not None:
            return given
        count += 1
        return {"reply": f"Answer {count}."}

    return ScriptedLM(reply)


def judging(call: ScriptedCall) -> bool:
    return "answer" in call.fields


def checking(home: Path, lm: ScriptedLM, most: int = 3, **more: Any) -> WorldAgent:
    """An agent whose answers are judged."""
    return scripted_agent(home, lm, profile=Profile("checked", verification=Verification(max_iterations=most)), **more)


def judgements(lm: ScriptedLM) -> list[ScriptedCall]:
    return [call for call in lm.calls if judging(call)]


async def test_a_wanting_answer_is_withdrawn_and_given_again_with_the_findings(tmp_path: Path) -> None:
    lm = judged(WANTING, FINE)
    async with checking(tmp_path, lm) as agent:
        thread = agent.thread("t", account="ana")
        async with thread.stream("What is the capital of France?") as stream:
            events = [event async for event in stream]
        history = await thread.history()
        tree = await agent.traces.get(stream.turn.id)
    assert stream.turn.text == standing(events) == "Answer 2."
    assert [(e.check, e.satisfied, e.findings, e.final) for e in events if isinstance(e, AnswerChecked)] == [
        (1, False, "The capital is missing.", False),
        (2, True, "", True),
    ]
    assert [message.body["text"] for message in history] == ["What is the capital of France?", "Answer 2."]
    second = [call for call in lm.calls if not judging(call)][1]
    assert "Answer 1." in told(second)[-1]
    assert "The capital is missing." in told(second)[-1]
    assert [call.fields["answer"] for call in judgements(lm)] == ["Answer 1.", "Answer 2."]
    checks = [record for record in tree.records if record.kind == "check"]
    assert [(record.attempt, record.status) for record in checks] == [(1, "wanting"), (2, "satisfied")]
    assert [record.name for record in tree.records if record.kind == "model"].count("CheckAnswer") == 2


async def test_the_answer_of_the_last_round_is_final(tmp_path: Path) -> None:
    lm = judged(WANTING, WANTING)
    async with checking(tmp_path, lm, 2) as agent:
        turn = await agent.thread("t").converse("Hello")
    assert turn.text == "Answer 3."
    assert len(judgements(lm)) == 2


async def test_the_judge_sees_the_request_and_what_was_found_and_never_the_role(tmp_path: Path) -> None:
    content = "You speak in riddles about the harvest moon."
    lm = judged(FINE, answer=lambda call: None if told(call) else to("critic"))
    async with checking(tmp_path, lm, workers=[CRITIC]) as agent:
        await agent.thread("t").converse("Which one?", role=Role("riddler", content))
    [call] = judgements(lm)
    assert call.fields["request"] == "Which one?"
    assert "Paris" in call.fields["found"]
    assert content not in str(call.messages)
    assert content not in call.system
    assert_no_role_leak([tmp_path], [content])


async def test_tasks_and_agents_without_the_switch_are_not_judged(tmp_path: Path) -> None:
    lm = judged()
    async with checking(tmp_path, lm, workers=[CRITIC]) as agent:
        await agent.thread("t").task("subagent", {"worker": "critic", "request": "Go."})
    off = Profile("off", verification=Verification(enabled=False))
    async with scripted_agent(tmp_path, lm, profile=off) as agent:
        assert (await agent.thread("t").converse("Hello")).text == "Answer 1."
    async with scripted_agent(tmp_path, lm) as agent:
        assert (await agent.thread("t").converse("Hello")).text == "Answer 2."


async def test_a_verdict_outlives_its_process_and_is_not_asked_for_again(tmp_path: Path) -> None:
    """The turn stops between the verdict and the next answer; it goes on with the verdict that stands."""
    lm = judged(WANTING, FINE, answer=lambda call: ConnectionError() if "missing" in str(told(call)[-1:]) else None)
    async with checking(tmp_path, lm) as agent:
        with pytest.raises(Exception, match="model"):
            await agent.thread("t").converse("Hello")
    again = judged(FINE, answer=lambda call: {"reply": "Mended."})
    async with checking(tmp_path, again) as agent:
        turn = await agent.thread("t").resume()
    assert turn.text == "Mended."
    assert [call.fields["answer"] for call in judgements(again)] == ["Mended."]
    assert "The capital is missing." in told(next(call for call in again.calls if not judging(call)))[-1]


@pytest.mark.parametrize("failure", ["no fields at all", ContextLengthError("too long")])
async def test_a_judge_that_cannot_judge_finds_nothing(tmp_path: Path, failure: Any) -> None:
    async with checking(tmp_path, judged(failure)) as agent:
        assert (await agent.thread("t").converse("Hello")).text == "Answer 1."


async def test_an_unavailable_judge_fails_the_turn_until_it_is_back(tmp_path: Path) -> None:
    async with checking(tmp_path, judged(AuthError("key"))) as agent:
        with pytest.raises(HostError):
            await agent.thread("t").converse("Hello")
    async with checking(tmp_path, judged(AuthError("key"))) as agent:
        with pytest.raises(HostError):
            await agent.thread("t").resume()
    async with checking(tmp_path, judged(FINE)) as agent:
        assert (await agent.thread("t").resume()).text == "Answer 1."
