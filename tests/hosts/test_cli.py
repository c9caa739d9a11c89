"""The command line in process, against a chat server on this machine; `test_cli_process` runs it as people do."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.arithmetic import write_examples
from support.command_line import Run, run_on_stub
from support.openai_stub import ANSWER_TOKENS, PROMPT_TOKENS, OpenAIStub
from support.role_host_stub import StubHost, over_http
from worldagent.core.events import TurnEnded, TurnStarted, parse_event

__all__ = ["run_on_stub"]  # a fixture

SECRET = "Answer as the keeper of the seventh lighthouse would answer."
CRITIC = "critic=You judge in one sentence."
TASK = ("task", "subagent", "--worker", CRITIC, "-p", "worker=critic", "-p", "request=Judge it.")
NAMED = json.dumps({"fast": "openai/fast", "down": "openai/down-500"})


def prompt(stub: OpenAIStub) -> str:
    """Give all that the last request told the model."""
    return "\n".join(message["content"] for message in stub.requests[-1]["messages"])


async def test_ask_prints_the_answer_and_nothing_else(run: Run) -> None:
    result = await run("ask", "What is the capital of France?")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Paris.\n", "")


@pytest.mark.parametrize(
    ("text", "data", "message"),
    [
        (("-",), "Où est Málaga?\n", "Où est Málaga?"),
        ((), "What is the capital of France?\n", "What is the capital of France?"),
    ],
)
async def test_stdin_is_the_message(run: Run, stub: OpenAIStub, text: tuple[str, ...], data: str, message: str) -> None:
    result = await run("ask", *text, stdin=data.encode())
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Paris.\n", "")
    assert message in prompt(stub)


@pytest.mark.requirement("R9")
async def test_the_stored_roles_of_a_role_host_shape_the_answer(run: Run, stub: OpenAIStub, tmp_path: Path) -> None:
    host = StubHost()
    host.kept["account", "ana"] = ("ana", SECRET)
    (tmp_path / "token").write_text("t0ken\n")
    with over_http(host, token="t0ken") as url:
        words = ("ask", "Hi", "--account", "ana", "-v", "--role-host", url)
        result = await run(*words, "--token-file", str(tmp_path / "token"))
        refused = await run(*words)
    assert (result.exit_code, result.stderr) == (0, "role tiers: account\n")
    assert SECRET in prompt(stub)
    assert refused.exit_code == 1
    assert "remedy: pass a token that it accepts" in refused.stderr


async def test_json_gives_the_turn_as_one_object(run: Run) -> None:
    result = await run("ask", "Hello", "--json", "--role", SECRET)
    turn: dict[str, Any] = json.loads(result.stdout)
    assert turn.pop("id").startswith("turn_")
    assert turn.pop("thread").startswith("ask_")
    [name] = turn["usage"]["models"]
    assert name.startswith("openai/")
    used = {
        **{"calls": 1, "input_tokens": PROMPT_TOKENS, "output_tokens": ANSWER_TOKENS},
        **{"cached_tokens": 0, "reasoning_tokens": 0, "cost": None},
    }
    assert turn == {
        "status": "done",
        "text": "Paris.",
        "result": None,
        "role_tiers": ["call"],
        "skipped_tiers": [],
        "usage": {**used, "models": {name: used}},
        "pauses": [],
        "recalled": [],
    }
    assert SECRET not in result.output


@pytest.mark.requirement("T10")
async def test_events_gives_each_event_as_a_line_of_json(run: Run) -> None:
    result = await run("ask", "Hello", "--events", "--role", SECRET)
    events = [parse_event(line) for line in result.stdout.splitlines()]
    assert isinstance(events[0], TurnStarted)
    assert events[0].role_tiers == ("call",)
    assert isinstance(events[-1], TurnEnded)
    assert events[-1].text == "Paris."
    assert [event.seq for event in events if event] == list(range(1, len(events) + 1))
    assert SECRET not in result.output


@pytest.mark.requirement("R8", "T2")
async def test_task_runs_a_worker_that_the_command_line_defines(run: Run, stub: OpenAIStub, tmp_path: Path) -> None:
    stub.text = "[[ ## result ## ]]\nIt is wrong.\n\n[[ ## completed ## ]]"
    file = tmp_path / "critic.md"
    file.write_text("You judge in one sentence.", encoding="utf-8")
    for critic in (CRITIC, f"critic=@{file}"):
        words = ("task", "subagent", "--worker", critic, "-p", "worker=critic", "-p", "request=a=b?", "--role", SECRET)
        result = await run(*words)
        assert (result.exit_code, result.stdout) == (0, "It is wrong.\n"), result.stderr
        told = prompt(stub)
        assert "You judge in one sentence." in told
        assert "a=b?" in told
        assert SECRET in told
    turn = json.loads((await run(*words, "--json")).stdout)
    assert turn["result"] == {"worker": "critic", "text": "It is wrong."}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("ask", "-", "--role", "-"), "TEXT and --role both read standard input"),
        (("ask", "Hello", "--role", "@no/such/file"), "'no/such/file'"),
        (("ask", "-"), "standard input, read for TEXT, is not UTF-8 at byte 2"),
        (("ask",), "there is no message: standard input is empty"),
        (("task", "subagent", "--params", "{,"), "line 1, column 2"),
        (("task", "nothing", "-p", "request=y"), "no shape 'nothing'"),
    ],
)
async def test_bad_usage_exits_with_2(run: Run, stub: OpenAIStub, words: tuple[str, ...], named: str) -> None:
    result = await run(*words, stdin=b"ab\xff" if "-" in words else b"")
    assert result.exit_code == 2, result.output
    error, remedy = result.stderr.splitlines()
    assert error.startswith("error: ")
    assert named in error
    assert remedy.startswith("remedy: ")
    assert result.stdout == ""
    assert stub.requests == []


async def test_a_model_that_fails_exits_with_1_and_says_so_in_the_form_that_was_asked_for(run: Run) -> None:
    words = ("ask", "Hello", "--lm", "openai/down-500", "--role", SECRET)
    told = await run(*words)
    assert (told.exit_code, told.stdout) == (1, "")
    assert [line.partition(":")[0] for line in told.stderr.splitlines()] == ["error", "remedy"]
    as_json = await run(*words, "--json")
    error = json.loads(as_json.stdout)["error"]
    assert as_json.exit_code == 1
    assert set(error) == {"code", "message", "remedy", "retryable", "turn_id"}
    assert (error["code"], error["retryable"]) == ("model_unavailable", True)
    assert error["turn_id"].startswith("turn_")
    as_events = (await run(*words, "--events")).stdout.splitlines()
    assert json.loads(as_events[-2])["type"] == "turn_ended"
    assert json.loads(as_events[-1])["error"]["code"] == "model_unavailable"
    assert SECRET not in told.output + as_json.output + "".join(as_events)


# --- models ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("words", [("ask", "Hi"), TASK])
async def test_debug_prints_types_and_places_and_no_text(run: Run, words: tuple[str, ...]) -> None:
    given = (*words, "--role", SECRET, "--lm", "openai/quoting-400")
    plain = await run(*given)
    debug = await run("--debug", *given)
    assert "debug:" not in plain.output
    assert debug.exit_code == plain.exit_code == 1
    assert "debug: a model call failed; messages are omitted" in debug.stderr
    assert "LMInvalidRequestError (HTTP 400)" in debug.stderr
    assert "debug: worldagent.core.errors.ModelRefused (model_refused)" in debug.stderr
    assert "debug:   status of the service's answer: 400" in debug.stderr
    assert "request id of the service's answer: req_42" in debug.stderr
    assert "predictor.py:" in debug.stderr
    for text in (SECRET, "lighthouse", "You judge", "Judge it."):
        assert text not in debug.output


@pytest.mark.requirement("H4")
@pytest.mark.parametrize(("words", "form"), [(("ask", "Hi"), ()), (TASK, ("--json",))])
async def test_rate_limit_is_noted(run: Run, stub: OpenAIStub, words: tuple[str, ...], form: tuple[str, ...]) -> None:
    stub.limits, stub.retry_after = 1, "1"
    if words is TASK:
        stub.text = "[[ ## result ## ]]\nFine.\n\n[[ ## completed ## ]]"
    result = await run(*words, *form, WORLDAGENT_MODEL_ATTEMPTS="2")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("waiting 1 s for the rate limit of openai/") == 1
    assert "waiting" not in result.stdout
    assert len(stub.requests) == 2


@pytest.mark.requirement("H3")
async def test_the_next_model_is_asked_where_one_is_out_and_resume_takes_the_same(run: Run, stub: OpenAIStub) -> None:
    done = await run(*TASK, "--turn-model", "down", "--turn-model", "openai/limited-429", WORLDAGENT_MODELS=NAMED)
    assert done.exit_code == 1, done.output
    assert [request["model"] for request in stub.requests] == ["down-500", "limited-429"]
    stub.requests.clear()
    stub.text = "[[ ## result ## ]]\nFine.\n\n[[ ## completed ## ]]"
    resume = ("resume", "main", "--worker", CRITIC)
    done = await run(*resume, WORLDAGENT_MODELS=json.dumps({"other": "openai/fast"}))
    assert done.exit_code == 1, done.output
    assert "wants the model 'down', which is neither a model string nor the name of a model" in done.output
    assert stub.requests == []
    done = await run(*resume, WORLDAGENT_MODELS=json.dumps({"down": "openai/fast"}))
    assert done.exit_code == 0, done.output
    assert [request["model"] for request in stub.requests] == ["fast"]


@pytest.mark.requirement("R12")
async def test_optimise_counts_the_calls_of_the_agents_service(run: Run, stub: OpenAIStub, tmp_path: Path) -> None:
    stub.text, stub.cost = "[[ ## reply ## ]]\n25\n\n[[ ## completed ## ]]", 0.25
    examples = write_examples(tmp_path / "examples.jsonl", "Converse", 6)
    line = ("--examples", str(examples), "--metric", "support.arithmetic:exact", "--optimizer", "bootstrap")
    more = ("--header", "x-team=squares", "--temperature", "0.5", "--out", str(tmp_path / "program.json"), "--json")
    result = await run("optimise", "Converse", *line, *more)
    assert result.exit_code == 1, result.output
    shown = json.loads(result.stdout)
    calls = len(stub.requests)
    assert (shown["saved"], shown["usage"]["calls"], shown["usage"]["cost"]) == (False, calls, 0.25 * calls)
    assert shown["usage"]["output_tokens"] == ANSWER_TOKENS * calls
    assert {headers["x-team"] for headers in stub.headers} == {"squares"}
    assert {request["temperature"] for request in stub.requests} == {0.5}
    stub.limits = 100
    limited = json.loads((await run("optimise", "Converse", *line, *more)).stdout)["error"]
    assert limited["code"] == "model_rate_limited"
