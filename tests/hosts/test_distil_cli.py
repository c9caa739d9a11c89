"""`worldagent memory distil`: what the model notes of one thread, and of all that are quiet."""

import pytest

from support.command_line import Run, as_json, run_on_stub, stub
from support.openai_stub import OpenAIStub

__all__ = ["run_on_stub", "stub"]  # fixtures

pytestmark = pytest.mark.requirement("M1")

NOTE = "Ana is allergic to nuts."


async def test_threads_are_distilled_and_those_that_fail_are_named(run: Run, stub: OpenAIStub) -> None:
    for thread in ("t1", "t2"):
        await run("ask", "I am allergic to nuts.", "--thread", thread, "--account", "ana")
    stub.text = f'[[ ## notes ## ]]\n[{{"text": "{NOTE}", "replaces": ""}}]\n\n[[ ## completed ## ]]'
    one = await as_json(run, "memory", "distil", "t1")
    assert [(entry["text"], entry["source"]["thread"]) for entry in one["entries"]] == [(NOTE, "t1")]
    failed = await as_json(run, "memory", "distil", "--quiet", "0", "--lm", "openai/down-500", code=1)
    assert (failed["entries"], [each["thread"] for each in failed["failed"]]) == ([], ["t2"])
    assert {"code", "message", "remedy"} == {*failed["failed"][0]["error"]}
    rest = await run("memory", "distil", "--quiet", "0")
    assert (rest.exit_code, NOTE in rest.stdout, "threads: 1 of 1" in rest.stderr) == (0, True, True)
    again = await run("memory", "distil", "--quiet", "0")
    assert (again.exit_code, again.stdout) == (0, "there is nothing new to remember\n")
