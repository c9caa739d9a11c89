"""`signature_worker(...)`: a worker with the instructions, inputs and outputs of a Signature of dspy."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import dspy
import pytest
from pydantic import BaseModel, Field

from support.agents import scripted_agent
from worldagent import Role, Shape, Worker, tool
from worldagent.core.errors import FunctionInvalid, OutputInvalid, ParamsInvalid
from worldagent.graphs import TaskContext
from worldagent.graphs.shapes import signature_worker
from worldagent.members import agent_node, llm_node
from worldagent.signatures import Converse
from worldagent.testing import ScriptedLM, assert_no_role_leak

pytestmark = pytest.mark.requirement("T20")

FORMS = pytest.mark.parametrize("form", ["native", "chat"])
HOW = "Judge as a ferryman of nine rivers would, slowly and with care."


class JudgeSign(dspy.Signature):
    """Judge the sign over a door.

    Be strict.
    """

    text: str = dspy.InputField(desc="the words on it")
    role: str | None = dspy.InputField(default=None, desc="whose taste counts")
    height: int = dspy.InputField(default=2, ge=1)
    verdict: Literal["good", "bad"] = dspy.OutputField()
    reasons: list[str] = dspy.OutputField(desc="why")


SAID = {"verdict": "bad", "reasons": ["It leans."]}


@tool(risk="read_only")
def measure(what: str) -> int:
    """Measure something."""
    return 7


def judging(form: Any) -> ScriptedLM:
    calls = {"calls": [{"tool": "measure", "arguments": {"what": "sign"}}], "result": None}
    return ScriptedLM(lambda call: {"result": SAID} if call.steps else calls, form=form)


@FORMS
async def test_params_and_result_are_the_inputs_and_outputs(tmp_path: Path, form: Any) -> None:
    worker, lm = signature_worker(JudgeSign, tools=("measure",)), judging(form)
    assert (worker.name, worker.description) == ("judge_sign", "Judge the sign over a door.")
    assert worker.instructions == "Judge the sign over a door.\n\nBe strict."
    assert list(worker.params.model_fields) == ["text", "height"]
    async with scripted_agent(tmp_path, lm, workers=[worker], tools=[measure]) as agent:
        found = await agent.call("judge_sign", {"text": "Hats"})
        request = json.dumps({"text": "Hats", "height": 3})
        turn = await agent.thread("t").task(
            "subagent", {"worker": "judge_sign", "request": request}, role=Role("ferry", HOW)
        )
        with pytest.raises(ParamsInvalid, match="height"):
            await agent.call("judge_sign", {"text": "Hats", "height": 0})
    assert found.model_dump() == json.loads(turn.result.text) == SAID
    assert "[[ ## text ## ]]\nHats\n\n[[ ## height ## ]]\n2" in lm.calls[0].text
    assert "role" not in lm.calls[0].system
    assert "`role` (str): whose taste counts" in lm.calls[-1].system
    assert_no_role_leak(tmp_path, HOW)


async def test_a_result_that_does_not_fit_is_reported_until_the_retries_are_used_up(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda _: {"result": {"verdict": "odd", "reasons": []}})
    async with scripted_agent(tmp_path, lm, workers=[signature_worker(JudgeSign, retries=1, name="judge")]) as agent:
        with pytest.raises(OutputInvalid, match="'judge' gave nothing usable in 2 tries"):
            await agent.call("judge", {"text": "Hats"})
    assert len(lm.calls) == 2


class Verdict(dspy.Signature):
    """Judge the sign."""

    text: str = dspy.InputField()
    verdict: str = dspy.OutputField(desc="good or bad")


class Reasons(dspy.Signature):
    """Judge the sign."""

    text: str = dspy.InputField()
    reasons: list[str] = dspy.OutputField()


@agent_node()
def name_colour(text: str) -> Annotated[str, Field(description="a colour")]:  # type: ignore[empty-body] # it never runs
    """Name the colour of the sign."""


@pytest.mark.requirement("A14")
@pytest.mark.parametrize(
    ("worker", "said", "about"),
    [
        (signature_worker(Verdict), "bad", "`result` (str): verdict: good or bad"),
        (llm_node(Verdict), "bad", "`result` (str): verdict: good or bad"),
        (signature_worker(Reasons), ["It leans."], "reasons; JSON that fits this schema"),
        (name_colour, "blue", "`result` (str): a colour"),
    ],
    ids=["text", "operator", "JSON", "function"],
)
async def test_one_output_has_its_name_and_its_description(
    tmp_path: Path, worker: Worker, said: object, about: str
) -> None:
    lm = ScriptedLM(lambda _: {"result": said}, form="chat")
    async with scripted_agent(tmp_path, lm, workers=[worker]) as agent:
        assert await agent.call(worker.name, {"text": "Hats"}) == said
    assert about in lm.calls[0].system


class Named(dspy.Signature):
    calls: str = dspy.InputField()
    verdict: str = dspy.OutputField()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: signature_worker(print), "a Signature must be a subclass of dspy.Signature"),  # type: ignore[arg-type] # what is refused
        (lambda: signature_worker(Named), "has a param that cannot be named 'calls'"),
        (lambda: signature_worker(JudgeSign, colour="red"), "has the option 'colour', which no worker has"),
    ],
)
def test_what_makes_no_worker_is_refused(make: Any, problem: str) -> None:
    with pytest.raises(FunctionInvalid, match=problem):
        make()


@pytest.mark.parametrize("given", [JudgeSign, Converse])
def test_a_signature_among_the_workers_is_refused_with_what_to_write(tmp_path: Path, given: Any) -> None:
    with pytest.raises(FunctionInvalid, match=rf"write workers=\[signature_worker\({given.__name__}\)\]"):
        scripted_agent(tmp_path, ScriptedLM([]), workers=[given])


async def test_a_program_of_the_signature_is_refused_with_both_lists_of_fields_without_the_role(tmp_path: Path) -> None:
    worker = signature_worker(JudgeSign)
    with pytest.raises(
        FunctionInvalid,
        match=r"fields: \['text', 'height', 'verdict', 'reasons'\]; .* fields are \['text', 'height', 'result'\]",
    ):
        async with scripted_agent(
            tmp_path, ScriptedLM([]), workers=[worker], programs={"judge_sign": dspy.Predict(JudgeSign)}
        ):
            pass


async def test_predict_refuses_a_worker_with_what_to_write(tmp_path: Path) -> None:
    worker: Any = signature_worker(JudgeSign)

    class Text(BaseModel):
        text: str

    async def judge(params: Text, ctx: TaskContext) -> Any:
        return await ctx.predict(worker, text=params.text)

    async with scripted_agent(tmp_path, ScriptedLM([]), shapes=[Shape("look", Text, Text, judge)]) as agent:
        with pytest.raises(FunctionInvalid, match=r"takes a Signature of dspy, got a 'Worker'; .*call\(NAME"):
            await agent.thread("t").task("look", {"text": "Hats"})
