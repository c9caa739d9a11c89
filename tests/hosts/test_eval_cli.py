"""`worldagent eval` runs cases and keeps the run; `worldagent evals` lists, shows and compares runs."""

import asyncio
import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.command_line import BOUND, Run, as_json, home, refusal, run, started
from support.quiz import write_cases

__all__ = ["home", "run"]  # fixtures

QUIZ = ("--app", "support.quiz:agent")
FRANCE = {"id": "france", "message": "What is the capital of France?", "expected": "Paris", "tags": ["south"]}
SPAIN = {"id": "spain", "message": "What is the capital of Spain?", "expected": "Madrid", "tags": ["south"]}
NORWAY = {"id": "norway", "message": "What is the capital of Norway?", "expected": "Oslo"}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cases(tmp_path: Path) -> str:
    return str(write_cases(tmp_path / "cases.jsonl", FRANCE, NORWAY))


def runs_of(home: Path) -> list[Any]:
    return [json.loads(file.read_text()) for file in sorted((home / "evals").glob("*.json"))]


async def test_it_prints_a_table_and_keeps_the_run(run: Run, home: Path, cases: str) -> None:
    result = await run("eval", cases, *QUIZ, "--name", "first")
    assert result.exit_code == 0, result.output
    head, france, norway, _, total = result.stdout.splitlines()
    assert head.split() == ["CASE", "SCORE", "TOKENS", "COST", "TIME", "NOTE"]
    assert france.split()[:2] == ["france", "1.000"]
    assert norway.split()[:2] == ["norway", "0.000"]
    assert total.startswith("score 0.500, 2 cases, 2 turns, ")
    assert "turns: 2 of 2" in result.stderr
    assert "kept: worldagent evals show first" in result.stderr
    [kept] = runs_of(home)
    assert (kept["id"], kept["score"], kept["source"], kept["complete"]) == ("first", 0.5, cases, True)
    assert (home / "evals" / "first.json").stat().st_mode & 0o777 == 0o600


async def test_repeats_have_a_spread(run: Run, cases: str) -> None:
    result = await run("eval", cases, *QUIZ, "--repeat", "3")
    head, france, *_, total = result.stdout.splitlines()
    assert "SPREAD" in head
    assert "1.00 to 1.00" in france
    assert "(3 repeats: 0.500 to 0.500, standard deviation 0.000), 2 cases, 6 turns" in total


async def test_json_is_the_run_and_whether_it_passes(run: Run, home: Path, cases: str) -> None:
    value = await as_json(run, "eval", cases, *QUIZ, "--bound", "0.5")
    assert (value["score"], value["bound"], value["passed"]) == (0.5, 0.5, True)
    assert value["file"] == str(home / "evals" / f"{value['id']}.json")
    [kept] = runs_of(home)
    assert kept == {name: each for name, each in value.items() if name not in ("bound", "passed", "file")}


@pytest.mark.requirement("H11")
async def test_cases_run_with_the_guard_off_and_on(run: Run, home: Path, cases: str) -> None:
    value = await as_json(run, "eval", cases, *QUIZ, "--guard", "off,on", "--name", "quiz", "--home", str(home))
    assert [(each["id"], each["score"]) for each in value["runs"]] == [("quiz-off", 0.5), ("quiz-on", 0.5)]
    assert [each["id"] for each in runs_of(home)] == ["quiz-off", "quiz-on"]
    with closing(sqlite3.connect(home / "agent.db")) as database:
        found = database.execute("SELECT body FROM wa_message WHERE kind='message'").fetchall()
    assert sorted(json.loads(body).get("guard", False) for (body,) in found) == [False, False, True, True]


async def test_guard_is_off_or_on(run: Run, cases: str) -> None:
    for wrong in ("yes", "on,on", "off,on,off"):
        assert (
            "is none of off, on and off,on" in (await refusal(run, "eval", cases, *QUIZ, "--guard", wrong))["message"]
        )


async def test_a_score_under_the_bound_exits_with_1(run: Run, home: Path, cases: str) -> None:
    result = await run("eval", cases, *QUIZ, "--bound", "0.6")
    assert result.exit_code == 1
    assert "error: the score 0.500 is under the bound 0.6" in result.stderr
    [kept] = runs_of(home)
    assert f"remedy: see the answers to a case: worldagent evals show {kept['id']} CASE" in result.stderr
    assert result.stdout.startswith("CASE")
    assert (await as_json(run, "eval", cases, *QUIZ, "--bound", "0.6", code=1))["passed"] is False
    assert len(runs_of(home)) == 2


async def test_without_a_bound_a_turn_that_fails_exits_with_1(run: Run, tmp_path: Path) -> None:
    file = str(write_cases(tmp_path / "cases.jsonl", FRANCE, {"message": "Fail.", "expected": "x"}))
    result = await run("eval", file, *QUIZ)
    assert result.exit_code == 1
    assert "model_unavailable" in result.stdout
    assert "error: 1 turn failed: " in result.stderr
    assert "secret" not in result.output
    assert (await run("eval", file, *QUIZ, "--bound", "0.5")).exit_code == 0
    assert (await run("eval", file, *QUIZ, "--bound", "0.51")).exit_code == 1


async def test_a_metric_that_fails_exits_with_1_and_loses_no_answer(run: Run, home: Path, cases: str) -> None:
    given = ("eval", cases, *QUIZ, "--metric", "support.quiz:raising", "--bound", "0")
    result = await run(*given)
    assert result.exit_code == 1
    assert "the metric failed for 2 answers: the metric 'support.quiz:raising' raised ValueError" in result.stderr
    assert "secret" not in result.output
    assert [each["attempts"][0]["reply"] for each in runs_of(home)[0]["results"]] == ["Paris.", "I do not know."]
    assert "debug: the metric raised builtins.ValueError: secret Paris." in (await run("--debug", *given)).stderr


async def test_refused_calls_are_noted(run: Run, tmp_path: Path) -> None:
    file = write_cases(tmp_path / "cases.jsonl", {"message": "Buy tea.", "expected": "Could not"})
    result = await run("eval", str(file), *QUIZ)
    assert result.exit_code == 0, result.output
    assert "refused: pay" in result.stdout


# --- where it runs ----------------------------------------------------------------------------------------------------


async def test_the_threads_of_the_user_stay_as_they_are(run: Run, home: Path, cases: str) -> None:
    assert (await run("eval", cases, *QUIZ)).exit_code == 0
    assert sorted(path.name for path in home.iterdir()) == ["evals"]
    assert (await run("eval", cases, "--lm", "local", "--bound", "0")).exit_code == 0
    assert sorted(path.name for path in home.iterdir()) == ["evals"]
    assert len(runs_of(home)) == 2


async def test_a_home_that_is_named_has_the_threads_and_the_run(
    run: Run, home: Path, tmp_path: Path, cases: str
) -> None:
    named = ("--home", str(tmp_path / "named"))
    value = await as_json(run, "eval", cases, *QUIZ, *named, "--name", "there")
    threads = await as_json(run, "threads", "list", "--workspace", "quiz", *named)
    attempts = [attempt["thread"] for each in value["results"] for attempt in each["attempts"]]
    assert sorted(each["thread"] for each in threads["threads"]) == sorted(attempts)
    assert not list(home.iterdir())
    assert (await as_json(run, "evals", "show", "there", *named))["score"] == 0.5


async def test_an_app_with_a_home_of_its_own_is_refused_unless_that_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cases: str
) -> None:
    own = tmp_path / "own"
    monkeypatch.setenv("QUIZ_HOME", str(own))
    given = ("eval", cases, "--app", "support.quiz:with_home")
    error = await refusal(run, *given)
    assert f"the agent of --app has a home of its own, {str(own)!r}" in error["message"]
    assert "give --home with that folder" in error["remedy"]
    assert not own.exists()
    assert (await run(*given, "--home", str(own))).exit_code == 0
    assert (own / "agent.db").exists()


async def test_a_database_of_the_environment_is_not_used_and_one_of_the_settings_file_is_refused(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cases: str
) -> None:
    monkeypatch.setenv("WORLDAGENT_DATABASE_URL", "postgresql://user@127.0.0.1:1/none")
    assert (await run("eval", cases, *QUIZ)).exit_code == 0
    assert os.environ["WORLDAGENT_DATABASE_URL"].startswith("postgresql://")
    assert os.environ["WORLDAGENT_HOME"] == str(home)
    (tmp_path / "settings.toml").write_text('database_url = "postgresql://user@127.0.0.1:1/none"\n')
    monkeypatch.setenv("WORLDAGENT_SETTINGS", str(tmp_path / "settings.toml"))
    error = await refusal(run, "eval", cases, *QUIZ)
    assert "names a database" in error["message"]
    assert "WORLDAGENT_SETTINGS=FILE" in error["remedy"]


# --- which cases ------------------------------------------------------------------------------------------------------


async def test_only_the_cases_that_are_named_are_run(run: Run, tmp_path: Path) -> None:
    file = str(write_cases(tmp_path / "cases.jsonl", FRANCE, NORWAY, SPAIN))
    for names, ids in {("south",): ["france", "spain"], ("norway", "spain"): ["norway", "spain"]}.items():
        words = [word for name in names for word in ("--only", name)]
        assert [each["id"] for each in (await as_json(run, "eval", file, *QUIZ, *words))["results"]] == ids
    error = await refusal(run, "eval", file, *QUIZ, "--only", "north")
    assert "has the id or the tag 'north'" in error["message"]
    assert error["remedy"] == "name one of france, norway, south, spain"


async def test_a_role_is_that_of_cases_without_one(run: Run, tmp_path: Path) -> None:
    with_role = {"id": "other", "message": "France?", "role": "Answer like a sailor.", "expected": "Arr, Paris"}
    file = write_cases(tmp_path / "cases.jsonl", FRANCE, with_role)
    value = await as_json(run, "eval", str(file), *QUIZ, "--role", "Answer like a pirate.")
    one, other = value["results"]
    assert one["attempts"][0]["reply"] == "Arr, Paris!"
    assert None is not one["role"] != other["role"] is not None


REFUSED = {
    "a bound": (("--bound", "2"), "`--bound` must be a number from 0 to 1"),
    "a name": (("--name", "a/b"), "the id of a run must be 1 to 64 letters"),
    "a metric": (("--metric", "equal"), "there is no metric 'equal'"),
    "a missing metric": (("--metric", "support.quiz:none"), "the module 'support.quiz' has no 'none'"),
    "jobs": (("--jobs", "0"), "`jobs`"),
}


@pytest.mark.parametrize("wrong", REFUSED)
async def test_options_that_have_no_meaning_are_refused(run: Run, home: Path, cases: str, wrong: str) -> None:
    more, says = REFUSED[wrong]
    assert says in (await refusal(run, "eval", cases, *QUIZ, *more))["message"]
    assert not runs_of(home)


async def test_a_name_is_used_once_and_a_file_with_an_error_has_its_line(run: Run, tmp_path: Path, cases: str) -> None:
    assert (await run("eval", cases, *QUIZ, "--name", "first")).exit_code == 0
    error = await refusal(run, "eval", cases, *QUIZ, "--name", "first")
    assert (error["code"], error["message"]) == ("eval_invalid", "there is a run 'first' already")
    assert (await run("evals", "rm", "first")).exit_code == 0
    assert (await run("eval", cases, *QUIZ, "--name", "first")).exit_code == 0
    file = write_cases(tmp_path / "bad.jsonl", FRANCE, {"mesage": "Hi"})
    assert (await refusal(run, "eval", str(file), *QUIZ))["message"] == f"{file}:2: a case has no key 'mesage'"


# --- an interrupt -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_an_interrupt_keeps_what_ended(tmp_path: Path, number: int, code: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    write_cases(home / "cases.jsonl", FRANCE, NORWAY, SPAIN)
    temporary = home / "temporary"
    temporary.mkdir()
    words = ("eval", "cases.jsonl", "--app", "support.quiz:stuck", "--jobs", "1", "--json", "--name", "cut")
    async with started(home, *words, TMPDIR=str(temporary)) as process:
        assert process.stderr is not None
        assert await asyncio.wait_for(process.stderr.readline(), BOUND) == b"asked\n"
        process.send_signal(number)
        out, told = await asyncio.wait_for(process.communicate(), BOUND)
    assert process.returncode == code
    assert json.loads(out)["error"]["code"] == ("interrupted" if code == 130 else "terminated")
    assert b"kept what ended before: worldagent evals show cut" in told
    [kept] = runs_of(home)
    assert kept["complete"] is False
    assert [len(each["attempts"]) for each in kept["results"]] == [1, 0, 0]
    assert list(temporary.iterdir()) == []


# --- kept runs --------------------------------------------------------------------------------------------------------


async def test_kept_runs_are_listed_shown_and_removed(run: Run, home: Path, cases: str) -> None:
    assert (await run("evals", "list")).stdout == "there are no runs\n"
    assert (await refusal(run, "evals", "compare", "first"))["message"].startswith("there is no run 'first'")
    for name in ("first", "second"):
        await as_json(run, "eval", cases, *QUIZ, "--name", name)
    (home / "evals" / "other.json").write_text("{}")
    listed = await run("evals", "list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["RUN", "second", "first"]
    assert "other.json' is not a run that this version can read" in listed.stderr
    [newest, _] = (await as_json(run, "evals", "list"))["runs"]
    assert (newest["id"], newest["cases"], newest["score"]) == ("second", 2, 0.5)
    assert (await run("evals", "show", "first")).stdout.startswith("CASE")
    shown = (await run("evals", "show", "first", "norway")).stdout.splitlines()
    assert shown[:2] == ["message: What is the capital of Norway?", "expected: Oslo"]
    assert shown[-2:] == ["attempt 1: 0.000", "answer: I do not know."]
    for words in (("show", "third"), ("show", "first", "spain"), ("show", "gone.json"), ("rm", "third")):
        assert (await refusal(run, "evals", *words))["code"] == "eval_invalid"
    assert (await run("evals", "rm", "first")).stdout == "first: removed\n"
    assert [each["id"] for each in (await as_json(run, "evals", "list"))["runs"]] == ["second"]


async def test_two_runs_are_compared_and_what_got_worse_is_marked(run: Run, home: Path, tmp_path: Path) -> None:
    before = write_cases(tmp_path / "cases.jsonl", FRANCE, NORWAY, {**SPAIN, "role": "Answer like a pirate."})
    await as_json(run, "eval", str(before), *QUIZ, "--name", "before")
    changed = {**NORWAY, "expected": "know"}
    worse = {**FRANCE, "metric": "exact"}
    write_cases(
        before, worse, changed, {**SPAIN, "role": "Answer like a sailor."}, {"message": "Fail.", "expected": "x"}
    )
    await as_json(run, "eval", str(before), *QUIZ, "--name", "after", code=1)
    shown = (await run("evals", "compare", "before", "after")).stdout.splitlines()
    assert [" ".join(line.split()) for line in shown] == [
        "CASE BEFORE AFTER CHANGE NOTE",
        "france 1.000 0.000 -1.000 worse, the case differs",
        "spain 1.000 1.000 +0.000 the case differs",
        "fail 0.000 new",
        "norway 0.000 1.000 +1.000 better, the case differs",
        "",
        "score 0.667 in 'before', 0.500 in 'after': 1 worse, 1 better, 1 same, 1 new",
    ]
    assert (await run("evals", "compare", "before")).stdout.splitlines() == shown
    value = await as_json(run, "evals", "compare", "after", str(home / "evals" / "before.json"))
    assert {each["id"]: each["mark"] for each in value["cases"]} == {
        "norway": "worse",
        "fail": "gone",
        "spain": "same",
        "france": "better",
    }


async def test_the_same_role_is_no_edit(run: Run, tmp_path: Path) -> None:
    file = write_cases(tmp_path / "cases.jsonl", {**FRANCE, "role": "Answer like a pirate."})
    for name in ("one", "two"):
        await as_json(run, "eval", str(file), *QUIZ, "--name", name)
    [case] = (await as_json(run, "evals", "compare", "one", "two"))["cases"]
    assert (case["mark"], case["edited"]) == ("same", False)
