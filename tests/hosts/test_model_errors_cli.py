"""What the command line says of a model's service that fails or asks to wait, and what `--debug` adds."""

from __future__ import annotations

import pytest

from support.command_line import Run, run_on_stub, stub
from support.openai_stub import OpenAIStub

__all__ = ["run_on_stub", "stub"]  # fixtures

SECRET = "Answer as the keeper of the seventh lighthouse would answer."
CRITIC = "critic=You judge in one sentence."
TASK = ("task", "subagent", "--worker", CRITIC, "-p", "worker=critic", "-p", "request=Judge it.")


@pytest.mark.parametrize(
    ("model", "status", "code", "remedy"),
    [
        ("missing-404", 404, "model_not_found", "check the model's name"),
        ("quoting-400", 400, None, "check that the model accepts"),
    ],
)
async def test_error_has_the_status_and_the_code_of_the_service(
    run: Run, model: str, status: int, code: str | None, remedy: str
) -> None:
    result = await run("ask", SECRET, "--lm", f"openai/{model}")
    assert result.exit_code == 1
    assert f"(HTTP {status}{f', {code}' if code else ''})" in result.stderr
    assert remedy in result.stderr
    assert SECRET not in result.output
    assert "lighthouse" not in result.output


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
    assert "debug: worldagent.core.errors.host.ModelRefused (model_refused)" in debug.stderr
    assert "debug:   status of the service's answer: 400" in debug.stderr
    assert "request id of the service's answer: req_42" in debug.stderr
    assert "predictor.py:" in debug.stderr
    for text in (SECRET, "lighthouse", "You judge", "Judge it."):
        assert text not in debug.output


async def test_debug_of_a_usage_error_says_where_it_was_raised(run: Run) -> None:
    result = await run("--debug", "ask", "Hi", "--lm", "nosuch")
    assert result.exit_code != 0
    assert "debug: worldagent.core.errors" in result.stderr


@pytest.mark.requirement("H4")
@pytest.mark.parametrize(("words", "form"), [(("ask", "Hi"), ()), (TASK, ("--json",))])
async def test_wait_for_a_rate_limit_is_noted(
    run: Run, stub: OpenAIStub, words: tuple[str, ...], form: tuple[str, ...]
) -> None:
    stub.limits, stub.retry_after = 1, "1"
    if words is TASK:
        stub.text = "[[ ## result ## ]]\nFine.\n\n[[ ## completed ## ]]"
    result = await run(*words, *form, WORLDAGENT_MODEL_ATTEMPTS="2")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("waiting 1 s for the rate limit of openai/") == 1
    assert "waiting" not in result.stdout
    assert len(stub.requests) == 2
