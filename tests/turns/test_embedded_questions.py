"""The embedded model answers 20 questions by a call that fits the tool, or by a reply: its grammar allows no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types

from support.agents import scripted_agent
from worldagent.benchmarks.embedded_tools import QUESTIONS, TOOLS
from worldagent.core import events as ev

pytestmark = [pytest.mark.local, pytest.mark.timeout(400)]


@pytest.mark.requirement("T11")
async def test_each_of_20_questions_gets_a_fitting_call_or_a_reply(tmp_path: Path) -> None:
    schemas = {each.name: Draft202012Validator(each.input_schema) for each in TOOLS}
    found: dict[str, bool] = {}
    called: list[str] = []
    async with scripted_agent(tmp_path, "local", tools=TOOLS) as agent:
        for number, (question, _) in enumerate(QUESTIONS):
            async with agent.thread(f"t{number}").stream(question) as stream:
                events = [event async for event in stream]
            # A person is asked before each of the tools, so a turn that calls one waits, and nothing repairs the call.
            calls = [(pause.function, pause.arguments) for pause in stream.turn.pauses]
            fits = all(name in schemas and schemas[name].is_valid(dict(given)) for name, given in calls)
            called += [name for name, _ in calls]
            rejected = any(isinstance(event, ev.PlanRejected) for event in events)
            found[question] = fits and not rejected and bool(calls or stream.turn.text.strip())
    assert found == {question: True for question, _ in QUESTIONS}
    assert len(found) == 20
    assert len(called) >= 5, "replies alone would show nothing of the grammar; the benchmark counts the right tools"
