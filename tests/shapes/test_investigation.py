"""`investigation`: programs are run until there is an answer, and their calls are calls of the turn (T3)."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.agents import scripted_agent
from worldagent import Role, WorldAgent
from worldagent.core.errors import (
    Diverged,
    OutputInvalid,
)
from worldagent.core.pauses import Approve, Reject
from worldagent.graphs.shapes import InvestigationResult, SandboxLimits, investigation_shape
from worldagent.harness import Function, tool
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

pytestmark = pytest.mark.requirement("T3")

RATES = {"EUR": 1.0, "USD": 1.25, "GBP": 0.8}


@tool(risk="read_only")
async def rate(currency: str) -> float:
    """How much of a currency one euro buys."""
    return RATES[currency]


def program(code: str) -> dict[str, str]:
    return {"code": code, "answer": ""}


def answer(text: str) -> dict[str, str]:
    return {"code": "", "answer": text}


def agent(home: Path, lm: ScriptedLM, functions: list[Function] | None = None, **more: Any) -> WorldAgent:
    given = functions if functions is not None else [rate]
    shape = investigation_shape(functions=[function.name for function in given], **more)
    return scripted_agent(home, lm, tools=given, shapes=[shape])


def found(result: Any) -> InvestigationResult:
    assert isinstance(result, InvestigationResult)
    return result


TRIES = [
    ("rate('USD', 'GBP')", "params_invalid"),
    ("rate('DKK')", "task_failed"),
    ("given['dollar']", "KeyError"),
    ("dollars = rate('USD')\nround(given['dollars'] / dollars * rate(currency='GBP'), 2)", "32.0"),
]


async def test_a_program_that_is_wrong_is_corrected_until_there_is_an_answer(tmp_path: Path) -> None:
    def reply(call: ScriptedCall) -> dict[str, str]:
        """The next try once the one before has shown what it must, as a model does that reads what it is told."""
        told = str(call.fields["steps"])
        for place, (code, shows) in enumerate(TRIES):
            if f"Program {place + 1}:" not in told:
                return program(f"```python\n{code}\n```" if place % 2 else code)
            assert shows in told.split(f"Program {place + 1}:")[1].split(f"Program {place + 2}:")[0]
        return answer("32 pounds")

    limits = SandboxLimits(seconds=0.5)
    async with agent(tmp_path, ScriptedLM(reply), limits=limits) as solver:
        params = {"question": "How many pounds?", "inputs": {"given": {"dollars": 50}}, "functions": ["rate"]}
        turn = await solver.thread("t").task("investigation", params)
    result = found(turn.result)
    assert result.answer == "32 pounds"
    assert [step.code for step in result.steps] == [code for code, _ in TRIES]
    assert all(shows in step.output for step, (_, shows) in zip(result.steps, TRIES, strict=True))


async def test_the_model_is_shown_the_question_the_inputs_and_the_functions_and_no_more_of_them(tmp_path: Path) -> None:
    lm = ScriptedLM([program("len(log)"), answer("9000")])
    async with agent(tmp_path, lm) as solver:
        params = {"question": "How long?", "inputs": {"log": "x" * 9000}, "functions": ["rate"], "max_steps": 3}
        await solver.thread("t").task("investigation", params)
    first, second = (call.fields for call in lm.calls)
    assert first["question"] == "How long?"
    assert first["inputs"].startswith('log = "xxx')
    assert "str of 9002 characters" in first["inputs"]
    assert len(first["inputs"]) < 500
    assert "- rate(currency): How much of a currency one euro buys.; takes: " in first["functions"]
    assert 'gives: {"type": "number"}' in first["functions"]
    assert (first["steps"], first["steps_left"], second["steps_left"]) == ("none", "3", "2")
    assert "It showed:\n9000" in second["steps"]


async def test_a_program_calls_only_what_its_investigation_was_given(tmp_path: Path) -> None:
    called: list[str] = []

    @tool(risk="read_only")
    async def pay(what: str) -> str:
        called.append(what)
        return what

    lm = ScriptedLM([program("pay('x')"), answer("No.")])
    async with agent(tmp_path, lm, [rate, pay]) as solver:
        turn = await solver.thread("t").task("investigation", {"question": "?", "functions": ["rate"]})
    assert "name 'pay' is not defined" in found(turn.result).steps[0].output
    assert called == []
    assert "pay" not in lm.calls[0].fields["functions"]


async def test_without_an_answer_in_time_the_task_fails_and_the_last_call_asks_for_one(tmp_path: Path) -> None:
    lm = ScriptedLM([program("1"), {"code": "", "answer": ""}, {"code": "3", "answer": "three"}])
    async with agent(tmp_path, lm) as solver:
        turn = await solver.thread("t").task("investigation", {"question": "?", "max_steps": 2})
        assert found(turn.result).answer == "three"
        assert [step.code for step in found(turn.result).steps] == ["1", ""]
    assert [call.fields["steps_left"] for call in lm.calls] == ["2", "1", "0"]
    async with agent(tmp_path, ScriptedLM([program("1"), program("2")])) as solver:
        with pytest.raises(OutputInvalid, match="no answer in 1 steps"):
            await solver.thread("t").task("investigation", {"question": "?", "max_steps": 1})


def shop(done: list[str]) -> list[Function]:
    @tool(risk="read_only")
    async def look(what: str) -> int:
        done.append(f"look {what}")
        return 7

    async def pay(what: str) -> str:
        done.append(f"pay {what}")
        return f"paid for {what}"

    return [look, tool(approval=True)(pay)]


@pytest.mark.requirement("T4", "R13")
@pytest.mark.parametrize("allowed", [True, False])
async def test_paused_program_resumes_in_another_process(tmp_path: Path, allowed: bool) -> None:
    done: list[str] = []
    role = Role("brief", "Be brief as the eleventh lighthouse keeper.")
    now = "import random\nfrom datetime import datetime\nnow = f'{datetime.now()} {random.random()}'"
    code = f"{now}\nx = look(now) + seen\nprint(x, pay('hat'), now)"
    said = [program("seen = look('a')"), program(code), answer("Done.")]
    params = {"question": "?", "functions": ["look", "pay"]}
    async with agent(tmp_path, ScriptedLM(said[:2]), shop(done)) as solver:
        turn = await solver.thread("t").task("investigation", params, role=role)
    [pause] = turn.pauses
    assert (turn.status, pause.function, pause.arguments) == ("paused", "pay", {"what": "hat"})
    lm = ScriptedLM(said[2:])
    async with agent(tmp_path, lm, shop(done)) as solver:
        reply = Approve() if allowed else Reject("too dear")
        turn = await solver.thread("t").resume({pause.id: reply}, role=role)
    result = found(turn.result)
    assert result.answer == "Done."
    if allowed:
        assert result.steps[1].output == f"14 paid for hat {done[1].removeprefix('look ')}"
    else:
        assert "call_refused: a person refused the call of 'pay': too dear" in result.steps[1].output
    assert [what.split()[0] for what in done] == ["look", "look", *(["pay"] if allowed else [])]
    assert [call.fields["role"] for call in lm.calls] == [role.content]
    assert_no_role_leak([tmp_path, turn, result, pause], role.content)


@pytest.mark.requirement("T4")
async def test_program_over_its_limit_resumes_with_a_higher_one(tmp_path: Path) -> None:
    done: list[str] = []
    code = "x = 0\nfor i in range(10**6): x += i\npay('hat')"
    params = {"question": "?", "functions": ["pay"]}
    more = SandboxLimits(seconds=30)
    async with agent(tmp_path, ScriptedLM([program(code)]), shop(done), limits=more) as solver:
        turn = await solver.thread("t").task("investigation", params)
    [pause] = turn.pauses
    async with agent(tmp_path, ScriptedLM([]), shop(done), limits=SandboxLimits(seconds=0.01)) as solver:
        with pytest.raises(Diverged, match=r"reached its time limit before it repeated .*; resume with SandboxLimits"):
            await solver.thread("t").resume({pause.id: Approve()})
    async with agent(tmp_path, ScriptedLM([answer("Done.")]), shop(done), limits=more) as solver:
        turn = await solver.thread("t").resume()
    assert found(turn.result).steps[0].output.startswith("'paid for hat'")
    assert done == ["pay hat"]


async def test_program_that_does_not_repeat_its_calls_is_named(tmp_path: Path) -> None:
    async with agent(tmp_path, ScriptedLM([program("pay('hat')")]), shop([])) as solver:
        await solver.thread("t").task("investigation", {"question": "?", "functions": ["pay"]})
    with closing(sqlite3.connect(tmp_path / "agent.db")) as database, database:
        database.execute("UPDATE wa_call SET id=id || '0' WHERE name='pay'")
    async with agent(tmp_path, ScriptedLM([]), shop([])) as solver:
        [pause] = await solver.thread("t").pauses()
        with pytest.raises(Diverged, match=r"does not repeat the calls that it made before the pause: 'pay:\w+'"):
            await solver.thread("t").resume({pause.id: Approve()})
