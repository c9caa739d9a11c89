"""`--turn-model`: the model of one turn of the command line, which a later command goes on with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command_line import Run, run_on_stub, stub
from support.openai_stub import OpenAIStub

__all__ = ["run_on_stub", "stub"]

NAMED = json.dumps({"fast": "openai/fast", "down": "openai/down-500"})


@pytest.mark.requirement("H3")
@pytest.mark.parametrize("form", ["--events", ""])
async def test_ask_takes_a_name_of_the_settings_for_its_turn(run: Run, stub: OpenAIStub, form: str) -> None:
    words = ("ask", "Hello", "--turn-model", "fast", *([form] if form else []))
    done = await run(*words, WORLDAGENT_MODELS=NAMED)
    assert done.exit_code == 0, done.output
    assert [request["model"] for request in stub.requests] == ["fast"]


@pytest.mark.requirement("H3")
async def test_the_next_model_is_asked_where_one_is_out_and_resume_takes_the_same(
    run: Run, stub: OpenAIStub, tmp_path: Path
) -> None:
    task = ("task", "subagent", "-p", "worker=critic", "-p", "request=Go.", "--worker", "critic=You judge.")
    done = await run(*task, "--turn-model", "down", "--turn-model", "openai/limited-429", WORLDAGENT_MODELS=NAMED)
    assert done.exit_code == 1, done.output
    assert [request["model"] for request in stub.requests] == ["down-500", "limited-429"]
    stub.requests.clear()
    stub.text = "[[ ## result ## ]]\nFine.\n\n[[ ## completed ## ]]"
    resume = ("resume", "main", "--worker", "critic=You judge.")
    done = await run(*resume, WORLDAGENT_MODELS=json.dumps({"other": "openai/fast"}))
    assert done.exit_code == 1, done.output
    assert "wants the model 'down', which is neither a model string nor the name of a model" in done.output
    assert stub.requests == []
    done = await run(*resume, WORLDAGENT_MODELS=json.dumps({"down": "openai/fast"}))
    assert done.exit_code == 0, done.output
    assert [request["model"] for request in stub.requests] == ["fast"]
