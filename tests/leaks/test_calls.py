"""A role that a model repeats while it calls tools is nowhere: in its reasoning, beside calls, in them, in the answer.

Over four services, with calls by their own means and in words, and answers that are texts or JSON.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from support.leaks import canary, traces_of, watch
from support.services import FORMATS, Format, Said, in_words, service
from worldagent import Role, Settings, Storage, WorldAgent, tool
from worldagent.core import events as ev


class Found(BaseModel):
    text: str


@tool(risk="read_only", capture=True)
def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing at {where}"


def script(role: str, *, native: bool, output: bool) -> list[Said]:
    """A step that thinks, speaks and calls, and an answer; each repeats the role."""
    loud = f"I go by this: {role} That is all."
    answer = json.dumps({"text": loud}) if output else loud
    given = {"where": loud}
    if native:
        return [Said(loud, (("look", given),), loud), Said(answer, (), loud)]
    said = (in_words(loud, json.dumps([{"tool": "look", "arguments": given}])), in_words(answer, "[]"))
    return [replace(each, thinking=loud) for each in said]


@pytest.mark.requirement("R7", "R16")
@pytest.mark.parametrize("wanted", FORMATS)
@pytest.mark.parametrize("tools", ["native", "json"])
@pytest.mark.parametrize("output", [None, Found], ids=["text", "structured"])
async def test_a_role_that_is_repeated_in_a_step_is_nowhere(
    tmp_path: Path, wanted: Format, tools: Any, output: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "key")
    role = canary(200, seed=f"{wanted} {tools} {output}")
    with (
        service(*script(role, native=tools == "native", output=output is not None)) as stub,
        watch(tmp_path / "h") as seen,
    ):
        shown = {"reasoning_summary": "auto"}
        settings = Settings(api_base=stub.url(wanted), model_attempts=1, model_tools=tools, model_options=shown)
        given: dict[str, Any] = {"storage": Storage(home=seen.home), "settings": settings, "tools": [look]}
        async with WorldAgent("w", lm=FORMATS[wanted], **given) as agent:
            thread = agent.thread("t")
            async with thread.stream("Look.", role=Role("quiet", role), output=output, key="k") as stream:
                events = [event async for event in stream]
            seen.kept.append([events, stream.turn, await thread.history()])
            seen.assert_clean(*traces_of(role))
    sent = [json.dumps(body) for body in stub.requests]
    assert len(sent) == 2
    assert all(role in body for body in sent), "the role never reached the model, so this shows nothing"
    assert stream.turn is not None
    assert "[role withheld]" in stream.turn.text
    assert "[role withheld]" in "".join(event.text for event in events if isinstance(event, ev.ReasoningDelta))
    assert "[role withheld]" in str([event.arguments for event in events if isinstance(event, ev.CallStarted)])
    seen.assert_clean(*traces_of(role))
