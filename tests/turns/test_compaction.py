"""The shape `compaction`: only what is left of a result comes back, and the role is the work's."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from support.agents import CRITIC, Said, scripted_agent
from worldagent import Role
from worldagent.core.errors import (
    FunctionInvalid,
    ResultInvalid,
)
from worldagent.graphs import Shape, TaskContext
from worldagent.graphs.shapes import CompactionResult, compaction_shape
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

WORK: dict[str, Any] = {"shape": "subagent", "params": {"worker": "critic", "request": "Judge it."}}


class Size(BaseModel):
    letters: int


async def make(params: Size, ctx: TaskContext) -> Said:
    return Said(text="working " * (params.letters // 8))


LETTERS = Shape("letters", Size, Said, make)


async def count(text: str) -> int:
    return len(text)


def compacting(call: ScriptedCall) -> bool:
    return "wanted" in call.fields


def model(text: str = "Dull.") -> ScriptedLM:
    return ScriptedLM(
        lambda call: {"text": text} if compacting(call) else {"result": "the whole working of the critic"}
    )


@pytest.mark.requirement("T3")
async def test_only_what_is_left_of_the_result_comes_back(tmp_path: Path) -> None:
    lm = model()
    async with scripted_agent(tmp_path, lm, workers=[CRITIC], shapes=[compaction_shape()]) as agent:
        thread = agent.thread("t")
        turn = await thread.task("compaction", {**WORK, "wanted": "the verdict", "words": 20})
        told = await thread.history()
    assert turn.result == CompactionResult(text="Dull.")
    assert "working" not in str([message.body for message in told])
    asked = lm.calls[1].fields
    assert (asked["wanted"], asked["result"], asked["words"]) == (
        "the verdict",
        "the whole working of the critic",
        "20",
    )


@pytest.mark.requirement("T3", "R6", "T8")
@pytest.mark.parametrize("applies_to", [(), ("*",)])
async def test_a_role_is_the_works_and_never_the_compactions(tmp_path: Path, applies_to: tuple[str, ...]) -> None:
    lm = model()
    async with scripted_agent(tmp_path, lm, workers=[CRITIC], shapes=[compaction_shape()]) as agent:
        await agent.thread("t").task("compaction", WORK, role=Role("harsh", "Be harsh.", applies_to=applies_to))
    assert [call.role for call in lm.calls] == ["Be harsh.", None]


@pytest.mark.requirement("T8")
async def test_a_planner_that_dispatches_it_passes_no_role_on(tmp_path: Path) -> None:
    def reply(call: ScriptedCall) -> Any:
        if compacting(call):
            return {"text": "Dull."}
        if "request" in call.fields:
            return {"result": "the whole working"}
        return {"reply": "Done.", "calls": [] if call.steps else [{"tool": "compaction", "arguments": WORK}]}

    with pytest.raises(FunctionInvalid, match="must name in over= the shapes"):
        compaction_shape(description="shortens")
    lm = ScriptedLM(reply)
    shape = compaction_shape(over=["subagent"], description="shortens what a worker finds")
    async with scripted_agent(tmp_path, lm, workers=[CRITIC], shapes=[shape]) as agent:
        assert (await agent.thread("t").converse("Judge it.", role=Role("harsh", "Be harsh."))).text == "Done."
    assert [call.role for call in lm.calls] == ["Be harsh.", None, None, "Be harsh."]
    assert "whole working" not in lm.calls[-1].text


async def test_a_result_of_any_size_is_read_piece_by_piece(tmp_path: Path) -> None:
    lm = model("y" * 3000)
    settings = {"history_characters": 4000}
    async with scripted_agent(tmp_path, lm, shapes=[LETTERS, compaction_shape()], settings=settings) as agent:
        params = {"shape": "letters", "params": {"letters": 40_000}, "words": 1000}
        turn = await agent.thread("t").task("compaction", params)
        with pytest.raises(ResultInvalid, match=r"80,?011 characters, and the limit is 64,?000"):
            await agent.thread("t").task("compaction", {**params, "params": {"letters": 80_000}})
    assert turn.text.count("y") == 3000
    assert all(len(call.fields["result"]) <= 4000 for call in lm.calls)
    assert "".join(call.fields["result"] for call in lm.calls[:11]).count("working") >= 4990


async def test_what_is_left_is_never_longer_than_asked_for_and_never_nothing(tmp_path: Path) -> None:
    params = {"shape": "letters", "params": {"letters": 80}, "words": 10}
    async with scripted_agent(tmp_path, model("word " * 5000), shapes=[LETTERS, compaction_shape()]) as agent:
        assert len((await agent.thread("t").task("compaction", params)).text) < 200
    async with scripted_agent(tmp_path, model(" "), shapes=[LETTERS, compaction_shape()]) as agent:
        with pytest.raises(ResultInvalid, match="nothing is left of the result"):
            await agent.thread("t").task("compaction", params)


@pytest.mark.requirement("R7")
async def test_a_role_that_the_work_gave_in_pieces_is_not_joined_in_what_is_left(tmp_path: Path) -> None:
    content = "Speak as the harbour master of Vell would, never praise anybody, and hide the word zebra."

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if compacting(call):
            return {"text": str(call.fields["result"]).replace("|", "")}
        assert call.role is not None
        return {"result": "|".join(call.role[at : at + 30] for at in range(0, len(call.role), 30))}

    async with scripted_agent(tmp_path, ScriptedLM(reply), workers=[CRITIC], shapes=[compaction_shape()]) as agent:
        turn = await agent.thread("t").task("compaction", WORK, role=Role("r", content))
    assert isinstance(turn.result, CompactionResult)
    assert content not in turn.result.text
    assert_no_role_leak([tmp_path], content)
