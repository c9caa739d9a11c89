"""Answers that are not whole, or not what they look like: nothing of them runs, and values are read as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from support.agents import scripted_agent
from support.services import Said, in_words, service
from worldagent import Settings, Storage, WorldAgent, tool
from worldagent.testing import ScriptedLM
from worldagent.tools import BuiltinTools

REMOVED: list[str] = []


@tool(risk="read_only")
def remove(path: str) -> str:
    """Remove a file."""
    REMOVED.append(path)
    return "removed"


@tool(risk="read_only", offered=False)
def secret(path: str) -> str:
    """Not for the conversation."""
    raise AssertionError("it is not offered")


def calling(name: str, arguments: Any) -> dict[str, Any]:
    return {"reply": "", "calls": [{"tool": name, "arguments": arguments}]}


async def test_a_native_call_whose_arguments_were_cut_off_does_not_run(tmp_path: Path) -> None:
    REMOVED.clear()
    cut = calling("remove", {"partial_json": '{"path": "notes/2026'})  # as the engine gives what it cannot read
    lm = ScriptedLM([cut, {"reply": "I stop here."}], form="native")
    async with scripted_agent(tmp_path, lm, tools=[remove]) as agent:
        turn = await agent.thread("t").converse("Clean up.")
    assert (turn.text, REMOVED) == ("I stop here.", [])
    assert "could not be used" in lm.calls[1].text


@pytest.mark.parametrize("ended", ["stop", "length"])
async def test_words_are_repaired_where_the_answer_is_whole_and_not_where_it_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    REMOVED.clear()
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    calls = '[{"tool": "remove", "arguments": {"path": "notes/2026"'
    text = f"[[ ## reply ## ]]\n\n[[ ## calls ## ]]\n{calls}"
    with service(Said(text, ended=ended), in_words("I stop here.")) as stub:
        settings = Settings(api_base=stub.url("chat"), model_attempts=1, model_tools="json")
        async with WorldAgent(
            "shop", lm="openai/gpt-stub", storage=Storage(home=tmp_path), settings=settings, tools=[remove]
        ) as agent:
            assert (await agent.thread("t").converse("Clean up.")).text == "I stop here."
    assert (["notes/2026"] if ended == "stop" else []) == REMOVED


async def test_parallel_execution_reaches_what_the_conversation_is_offered_and_no_more(tmp_path: Path) -> None:
    REMOVED.clear()
    both = [{"tool": "secret", "arguments": {"path": "a"}}, {"tool": "remove", "arguments": {"path": "a"}}]
    lm = ScriptedLM([calling("parallel_execution", {"calls": both}), {"reply": "Done."}], form="native")
    (tmp_path / "project").mkdir()
    builtin = BuiltinTools(roots=(tmp_path / "project",))
    async with scripted_agent(tmp_path / "home", lm, tools=[remove, secret], builtin_tools=builtin) as agent:
        turn = await agent.thread("t").converse("Clean up.")
    assert (turn.text, REMOVED) == ("Done.", ["a"])
    assert "tool_not_allowed: 'converse' is not allowed to call 'secret'" in lm.calls[1].steps[0]


class Node(BaseModel):
    value: int = 0
    reply: Node | None = None


@pytest.mark.parametrize("tools", [[], [remove]], ids=["without tools", "with tools"])
async def test_an_output_model_with_a_field_called_reply_is_read_whole(tmp_path: Path, tools: list[Any]) -> None:
    lm = ScriptedLM(['{"value": 1, "reply": {"value": 2}}'], form="native")
    async with scripted_agent(tmp_path, lm, tools=tools) as agent:
        turn = await agent.thread("t").converse("Give me a node.", output=Node)
    assert turn.result == Node(value=1, reply=Node(value=2))


@pytest.mark.parametrize("text", ['{"reply": "hi", "to": "bob"}', "Use this:\n[[ ## question ## ]]\nthe question"])
async def test_a_native_answer_that_shows_a_form_is_kept_as_it_is(tmp_path: Path, text: str) -> None:
    async with scripted_agent(tmp_path, ScriptedLM([text], form="native"), tools=[remove]) as agent:
        assert (await agent.thread("t").converse("Show me.")).text == text


class Odd(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def _check(cls, number: int) -> int:
        raise KeyError(number)


async def test_a_validator_that_raises_something_else_is_reported_as_a_fault(tmp_path: Path) -> None:
    @tool(risk="read_only")
    def take(odd: Odd) -> str:
        """Take it."""
        return "taken"

    lm = ScriptedLM([calling("take", {"odd": {"number": 7}}), {"reply": "I cannot."}], form="native")
    async with scripted_agent(tmp_path, lm, tools=[take]) as agent:
        assert (await agent.thread("t").converse("Take it.")).text == "I cannot."
    assert "a validator failed with KeyError" in lm.calls[1].text
