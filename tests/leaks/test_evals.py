"""Roles of cases are in no file after an eval, also not in the kept run, and in nothing that it prints (R7)."""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest

from support.agents import calls, paying, scripted_agent
from support.command_line import Run, home, run
from support.leaks import awkward_canary, repeated, traces_of, watch
from worldagent import Role, WorldAgent
from worldagent.testing import EvalCase, ScriptedCall, ScriptedLM, assert_no_role_leak, evaluate

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("R7")

OUTCOMES = ("answers", "is refused a call", "repeats the role", "refuses and quotes the prompt", "cannot be parsed")
CANARY = awkward_canary(200, seed="eval")
LM = ScriptedLM(lambda call: {"reply": repeated(CANARY), "calls": []})


def agent() -> WorldAgent:
    """An app for `--app test_evals:agent`."""
    return WorldAgent("leaks", lm=LM)


def model(outcome: str, role: str) -> ScriptedLM:
    def answer(call: ScriptedCall) -> Any:
        if outcome == "refuses and quotes the prompt":
            return dspy.lm15.InvalidRequestError(f"400: you sent {call.user}")
        if outcome == "cannot be parsed":
            return f"As {role} I say nothing."
        if outcome == "is refused a call" and not call.steps:
            return {"reply": "", **calls(("pay", {"what": "tea"}))}
        return {"reply": repeated(role) if outcome == "repeats the role" else "Fine.", "calls": []}

    return ScriptedLM(answer)


def echoing(case: EvalCase, answer: Any) -> Any:
    """A metric that keeps all that it gets."""
    return dspy.Prediction(score=1.0, feedback=f"{case!r} {case.role} {answer!r}")


def raising(case: EvalCase, answer: Any) -> Any:
    raise ValueError(f"{case!r} {case.role} {answer!r}")


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_a_role_of_a_case_is_nowhere_after_an_eval(tmp_path: Path, outcome: str) -> None:
    role = awkward_canary(200, seed=outcome)
    cases = [
        EvalCase("Tea.", role=Role("quiet", role), metric=metric, id=metric.__name__) for metric in (echoing, raising)
    ]
    lm = model(outcome, role)
    with watch(tmp_path / "home") as seen:
        async with scripted_agent(seen.home, lm, tools=[paying([])]) as agent:
            found = await evaluate(agent, cases, repeat=2)
            seen.kept += [found, found.model_dump_json()]
            seen.assert_clean(*traces_of(role))
        seen.assert_clean(*traces_of(role))
    assert any(role in call.text for call in lm.calls), "the role never reached the model"
    assert all(each.role for each in found.results)


@pytest.mark.parametrize("metric", ["contains", f"{Path(__file__).stem}:echoing", f"{Path(__file__).stem}:raising"])
async def test_the_command_writes_and_prints_no_role(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    LM.calls.clear()
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps({"message": "Tea.", "role": CANARY, "expected": "tea"}))
    (tmp_path / "role.md").write_text(CANARY)
    app = ("--app", f"{Path(__file__).stem}:agent")
    given = ("eval", str(cases), *app, "--metric", metric, "--role", f"@{tmp_path / 'role.md'}", "--repeat", "2")
    done = [await run(*given, "--name", "one"), await run("--debug", *given, "--home", str(tmp_path / "named"))]
    done += [
        await run("evals", *words) for words in (("show", "one"), ("show", "one", "tea"), ("compare", "one", "one"))
    ]
    assert (home / "evals" / "one.json").exists()
    assert_no_role_leak([home, tmp_path / "named", *(each.output for each in done)], traces_of(CANARY))
