"""`evaluate` runs cases against an open agent: threads, refusals, metrics, scores and their spread."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support import quiz
from support.agents import scripted_agent
from support.quiz import CAPITALS, write_cases
from worldagent import Role, WorldAgent
from worldagent.core.errors import AgentClosed, EvalInvalid, FunctionInvalid, InvalidArgument
from worldagent.testing import EvalCase, ScriptedCall, ScriptedLM, evaluate, read_cases

FRANCE = EvalCase("What is the capital of France?", expected="paris", id="france")
NORWAY = EvalCase("What is the capital of Norway?", expected="Oslo", id="norway")


def agent_at(home: Path, lm: Any = quiz.answer) -> WorldAgent:
    return scripted_agent(home, ScriptedLM(lm), tools=[quiz.pay, quiz.look])


async def test_the_score_is_the_mean_over_the_cases(tmp_path: Path) -> None:
    async with agent_at(tmp_path) as agent:
        run = await evaluate(agent, [FRANCE, NORWAY])
    assert [(each.id, each.score, each.metric) for each in run.results] == [
        ("france", 1.0, "contains"),
        ("norway", 0.0, "contains"),
    ]
    assert (run.score, run.scores, run.deviation, run.complete) == (0.5, (0.5,), None, True)
    [attempt] = run.results[0].attempts
    assert (attempt.reply, attempt.error, attempt.usage.calls) == ("Paris.", None, 1)
    assert attempt.seconds > 0
    assert run.usage.calls == 2
    assert run.models == ("scripted",)


async def test_repeats_show_how_much_the_score_varies(tmp_path: Path) -> None:
    answers = iter(["Paris", "Oslo", "Paris", "Rome", "Rome", "Rome"])
    async with agent_at(tmp_path, lambda call: {"reply": next(answers), "calls": []}) as agent:
        run = await evaluate(agent, [FRANCE, NORWAY], repeat=3, jobs=1)
    assert run.scores == (1.0, 0.5, 0.0)
    assert run.deviation == pytest.approx(0.5)
    assert [each.score for each in run.results[0].attempts] == [1.0, 1.0, 0.0]
    assert run.score == pytest.approx(0.5)


async def test_each_attempt_has_a_thread_and_an_account_of_its_own(tmp_path: Path) -> None:
    async with agent_at(tmp_path) as agent:
        run = await evaluate(agent, [FRANCE, NORWAY], repeat=2)
        threads = await agent.threads()
    assert {each.thread for each in run.attempts} == {each.thread for each in threads}
    assert len({each.account for each in threads}) == len(threads) == 4


async def test_a_call_that_requires_approval_is_refused_and_reported(tmp_path: Path) -> None:
    async with agent_at(tmp_path) as agent:
        cases = [EvalCase("Buy tea.", expected="Could not"), EvalCase("Look for tea.", metric=called_look)]
        bought, looked = (await evaluate(agent, cases)).results
    assert (bought.attempts[0].refused, bought.attempts[0].calls, bought.score) == (("pay",), (), 1.0)
    assert (looked.attempts[0].refused, looked.attempts[0].calls, looked.score) == ((), ("look",), 1.0)


def called_look(case: EvalCase, answer: Any) -> bool:
    return bool(answer.calls == ("look",) and answer.turn.status == "done")


async def test_a_turn_that_fails_has_its_error_and_the_score_0(tmp_path: Path) -> None:
    async with agent_at(tmp_path) as agent:
        run = await evaluate(agent, [EvalCase("Fail.", expected="x"), FRANCE])
    [attempt] = run.results[0].attempts
    assert attempt.error is not None
    assert (attempt.error.source, attempt.error.code, attempt.score) == ("turn", "model_unavailable", 0.0)
    assert "secret" not in run.model_dump_json()
    assert attempt.turn
    assert run.score == 0.5


async def test_roles_reach_the_turn_and_no_metric_and_only_their_digest_is_kept(tmp_path: Path) -> None:
    pirate = Role("pirate", "Answer like a pirate of the seven seas.")
    cases = [EvalCase("France?", role=pirate, expected="Arr", id=name) for name in ("one", "two")]
    async with agent_at(tmp_path) as agent:
        run = await evaluate(agent, [*cases, EvalCase("France?", role=pirate, metric=quiz.no_role, id="three"), FRANCE])
    assert run.score == 1.0
    roles = {each.role for each in run.results[:3]}
    assert len(roles) == 1
    assert run.results[3].role is None
    assert "seven seas" not in run.model_dump_json()


METRICS: dict[str, tuple[Any, float]] = {
    "exact": ("exact", 0.0),  # it answers `Paris.`
    "contains": ("contains", 1.0),
    "function": (quiz.brief, 1.0),
    "coroutine function": (quiz.half, 0.5),
    "by name": ("support.quiz:half", 0.5),
    "of dspy": (quiz.with_feedback, 1.0),
}


@pytest.mark.parametrize("name", METRICS)
async def test_a_metric_is_a_name_or_a_function(tmp_path: Path, name: str) -> None:
    metric, score = METRICS[name]
    async with agent_at(tmp_path) as agent:
        run = await evaluate(agent, [EvalCase("France?", expected="Paris")], metric)
    assert run.score == score
    assert run.results[0].attempts[0].feedback == ("It must be the capital." if name == "of dspy" else "")


FAILING = {
    quiz.raising: "the metric 'raising' raised ValueError in 'quiz.py', line ",
    quiz.leaving: "the metric 'leaving' raised SystemExit in 'quiz.py', line ",
    quiz.text: "the metric 'text' returned 'str', which is not a number",
    quiz.too_much: "the metric 'too_much' returned 5, which is not from 0 to 1",
}


@pytest.mark.parametrize("metric", FAILING, ids=lambda metric: metric.__name__)
async def test_a_metric_that_fails_is_an_error_of_the_attempt(tmp_path: Path, metric: Any) -> None:
    async with agent_at(tmp_path) as agent:
        run = await evaluate(agent, [FRANCE, EvalCase("Spain?", expected="Madrid", metric="contains")], metric)
    [attempt] = run.results[0].attempts
    assert attempt.error is not None
    assert (attempt.error.source, attempt.error.code, attempt.reply) == ("metric", "function_invalid", "Paris.")
    assert attempt.error.message.startswith(FAILING[metric])
    assert "secret" not in run.model_dump_json()
    assert run.results[1].score == 1.0
    with pytest.raises(AssertionError, match="the metric failed for 1 of 2 answers"):
        run.assert_score(0.0)


BAD: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "no cases": ([], None, InvalidArgument, "`cases` must be one EvalCase or more"),
    "another type": (["Hello"], None, InvalidArgument, "`cases` must be one EvalCase or more"),
    "same id": ([FRANCE, FRANCE], None, InvalidArgument, "two cases have the id 'france'"),
    "nothing to compare": ([EvalCase("Hi")], None, InvalidArgument, "'hi' has neither `expected` nor a metric"),
    "nothing for exact": ([EvalCase("Hi")], "exact", InvalidArgument, "which must be a text; "),
    "a number": ([EvalCase("Hi", expected=4)], None, InvalidArgument, "a text, or a list of texts"),
    "a list for exact": ([EvalCase("Hi", expected=["a"])], "exact", InvalidArgument, "must be a text; "),
    "unknown metric": ([FRANCE], "equal", InvalidArgument, "there is no metric 'equal'"),
    "unknown function": ([FRANCE], "support.quiz:none", InvalidArgument, "'support.quiz' has no 'none'"),
    "no function": ([FRANCE], 3, FunctionInvalid, "is not a function that returns a score"),
    "one argument": ([FRANCE], lambda case: 1.0, FunctionInvalid, "cannot be called with"),
    "no file": ("missing.yaml", None, EvalInvalid, "cannot be read"),
}


@pytest.mark.parametrize("wrong", BAD)
async def test_what_cannot_be_scored_is_refused_before_a_model_is_called(tmp_path: Path, wrong: str) -> None:
    cases, metric, error, says = BAD[wrong]
    lm = ScriptedLM(quiz.answer)
    async with scripted_agent(tmp_path, lm) as agent:
        with pytest.raises(error, match=says):
            await evaluate(agent, cases, metric)
    assert not lm.calls


async def test_an_error_about_a_case_of_a_file_has_its_line(tmp_path: Path) -> None:
    file = write_cases(tmp_path / "cases.jsonl", {"message": "France?", "expected": "Paris"}, {"message": "Spain?"})
    async with agent_at(tmp_path) as agent:
        with pytest.raises(InvalidArgument, match=r"cases.jsonl:2: the case 'spain' has neither"):
            await evaluate(agent, file)


@pytest.mark.parametrize("given", [{"repeat": 0}, {"jobs": 0}])
async def test_numbers_are_checked(tmp_path: Path, given: dict[str, int]) -> None:
    async with agent_at(tmp_path) as agent:
        with pytest.raises(InvalidArgument, match=next(iter(given))):
            await evaluate(agent, [FRANCE], **given)  # type: ignore[arg-type]  # its values are of one type


async def test_an_agent_that_is_not_open_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AgentClosed):
        await evaluate(agent_at(tmp_path), [FRANCE])


async def test_as_many_turns_run_at_once_as_jobs(tmp_path: Path) -> None:
    running, most, full = 0, 0, asyncio.Event()

    async def answer(call: ScriptedCall) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        await asyncio.wait_for(full.wait(), 20)
        running -= 1
        return {"reply": "x", "calls": []}

    cases = [EvalCase("Hi", expected="x", id=str(number)) for number in range(9)]
    async with agent_at(tmp_path, answer) as agent:
        assert (await evaluate(agent, cases, jobs=3)).score == 1.0
    assert most == 3


async def test_the_assertion_lists_the_lowest_scores(tmp_path: Path) -> None:
    async with agent_at(tmp_path) as agent:
        run = await evaluate(agent, [FRANCE, NORWAY, EvalCase("Fail.", expected="x")])
    run.assert_score(0.3)
    with pytest.raises(AssertionError) as caught:
        run.assert_score(0.5)
    first, *others = str(caught.value).splitlines()
    assert first == "the score 0.333 is under 0.5"
    assert others[0] == "  norway: 0.000, answered 'I do not know.', expected 'Oslo'"
    assert others[1].startswith("  fail: 0.000, model_unavailable: ")
    assert len(others) == 2


CASES = [EvalCase(f"What is the capital of {land}?", expected=capital, id=land) for land, capital in CAPITALS.items()]


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_case_can_be_a_test_of_its_own(tmp_path: Path, case: EvalCase) -> None:
    async with agent_at(tmp_path) as agent:
        (await evaluate(agent, [case])).assert_score(1.0)


async def test_a_file_can_be_given_by_its_path(tmp_path: Path) -> None:
    file = write_cases(tmp_path / "cases.jsonl", {"message": "France?", "expected": "Paris"})
    async with agent_at(tmp_path) as agent:
        by_path, by_cases = await evaluate(agent, file), await evaluate(agent, read_cases(file))
    assert (by_path.source, by_cases.source) == (str(file), "")
    assert by_path.score == by_cases.score == 1.0
