"""However an answer is judged, and whatever becomes of the turn: its role is nowhere afterwards, nor in a verdict."""

from pathlib import Path
from typing import Any

import pytest

from support.agents import scripted_agent
from support.leak_cases import each_third
from support.leak_verified import FINDING, PATHS, Verified, VerifiedCase, every_verified_case, verified_sample
from support.leaks import LONG, awkward_canary, on_the_server, traces_of, watch
from worldagent import Role
from worldagent.core.events import AnswerChecked
from worldagent.graphs.checkpoints import DURABILITY
from worldagent.harness.trace import Trace
from worldagent.profiles import Profile, Verification
from worldagent.testing import ScriptedCall, ScriptedLM, scan_for_roles

SAMPLE = verified_sample()
REST = [case for case in every_verified_case() if case not in set(SAMPLE)]
_FAILS = "judge repeats the role and echo is fail"
_UNJUDGED = ("judge refuses and quotes the prompts", "judge cannot be parsed and quotes the prompts", _FAILS)
"""Where the judge says nothing that could be kept."""


async def check(case: VerifiedCase, home: Path) -> None:
    DURABILITY.set(case.mode)
    with watch(home) as seen:
        turn = Verified(case, home, seen)
        await PATHS[turn.case.path](turn)
    contents = case.contents
    assert contents[0] in turn.sent(), "the role never reached the model, so the case shows nothing"
    assert turn.judged, "no answer was judged, so the case shows nothing"
    assert not [call for call in turn.judged if any(content in call.text for content in contents)]
    assert f"[role: {len(contents[0])} characters]" in turn.traced(), "no prompt was captured"
    assert ('"kind":"check"' in turn.traced()) == (case.path != _FAILS)
    if case.path not in _UNJUDGED:
        assert [event for event in seen.events if isinstance(event, AnswerChecked) and FINDING in event.findings]
        assert FINDING.encode() in kept(home), "no verdict is kept, so the case shows nothing"
    seen.assert_clean(*(text for content in contents for text in traces_of(content)), names=case.labels)


def kept(home: Path) -> bytes:
    """All that the database holds."""
    tables = on_the_server() or {file.name: file.read_bytes() for file in home.glob("agent.db*")}
    return b"".join(tables.values())


@pytest.mark.requirement("R7", "R6", "P5")
@pytest.mark.parametrize("case", SAMPLE, ids=str)
async def test_a_role_is_nowhere_after_its_answers_were_judged(tmp_path: Path, case: VerifiedCase) -> None:
    await check(case, tmp_path / "home")


@pytest.mark.requirement("R7", "R6", "P5")
@pytest.mark.parametrize("case", each_third(SAMPLE), ids=str)
@pytest.mark.parametrize("database_engine", ["postgres"], indirect=True)
async def test_a_role_is_in_no_table_after_its_answers_were_judged(tmp_path: Path, case: VerifiedCase) -> None:
    await check(case, tmp_path / "home")


@pytest.mark.soak
@pytest.mark.on_every_database
@pytest.mark.parametrize("case", REST, ids=str)
async def test_a_role_is_nowhere_after_any_answers_were_judged(tmp_path: Path, case: VerifiedCase) -> None:
    await check(case, tmp_path / "home")


def test_every_path_is_in_the_sample() -> None:
    assert {case.path for case in SAMPLE} == set(PATHS)


def judging(verdict: Any) -> ScriptedLM:
    """A model that judges each answer by `verdict`, which gets the call."""

    def reply(call: ScriptedCall) -> Any:
        return verdict(call) if "answer" in call.fields else {"reply": "Fine."}

    return ScriptedLM(reply)


CHECKED = Profile("checked", verification=Verification(max_iterations=1))


@pytest.mark.requirement("R7", "R10")
async def test_a_persons_message_that_is_the_role_gets_no_second_copy_in_findings_or_traces(tmp_path: Path) -> None:
    content = awkward_canary(len(LONG), seed="said, and judged")
    lm = judging(lambda call: {"findings": f"They asked: {call.fields['request']}", "satisfied": False})
    with watch(tmp_path / "home") as seen:
        async with scripted_agent(tmp_path / "home", lm, profile=CHECKED, trace=Trace(capture=["prompts"])) as agent:
            turn = await agent.thread("t").converse(content, role=Role("said", content))
            history = await agent.thread("t").history()
            tree = await agent.traces.get(turn.id)
    assert content in next(call.text for call in lm.calls if "answer" in call.fields), "the judge saw the message"
    [checked] = [event for event in seen.events if isinstance(event, AnswerChecked)]
    assert checked.findings.startswith("They asked: [role withheld]")
    assert [message.kind for message in history if scan_for_roles([message.body], content).findings] == ["message"]
    prompts = {record.name: record.prompt for record in tree.records if record.kind == "model"}
    assert set(prompts) == {"Converse", "CheckAnswer"}
    assert not scan_for_roles([prompts], content).findings


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("length", [12, 400])
async def test_a_role_that_got_into_findings_would_be_found(tmp_path: Path, length: int) -> None:
    content = awkward_canary(length, seed="planted in findings")
    lm = judging(lambda call: {"findings": f"It is not {content}", "satisfied": False})
    with watch(tmp_path / "home") as seen:
        async with scripted_agent(tmp_path / "home", lm, profile=CHECKED) as agent:
            await agent.thread("t").converse("Hello")
            found = seen.leaks(content)
    assert [finding for finding in found if "agent.db: wa_call.result" in finding], found
    assert [finding for finding in found if "['events']" in finding], found
