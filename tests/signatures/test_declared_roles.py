"""R18: a Signature declares `role`. Without a role its prompt is that of a Signature that never declared it."""

import json
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.signatures import make_signature
from pydantic import BaseModel

from support.agents import scripted_agent
from support.skill_turns import package
from worldagent import Role, Worker
from worldagent.agent.optimising import Training, optimise_program
from worldagent.core.errors import FunctionInvalid, InvalidArgument, ParamsInvalid
from worldagent.graphs import Shape, TaskContext
from worldagent.graphs.shapes import module_shape
from worldagent.members import agent_node, llm_node
from worldagent.signatures import Converse
from worldagent.signatures.signature import ROLE_DESCRIPTION
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

pytestmark = pytest.mark.requirement("R18")

SECRET = "Answer as the lighthouse keeper who has not spoken to a soul since the great storm of 1911."
KEEPER = Role("keeper", SECRET, applies_to=["*"])  # all predictors of a module, too
ABOUT = "How the publisher wants it judged"
DOC = "Judge the text as the publisher wants it."


class Params(BaseModel):
    text: str = "It was night."
    year: str = "1911"


class Verdict(BaseModel):
    verdict: str


ANNOTATIONS: dict[str, Any] = {"str": str, "optional": str | None, "union": Role | str | None}


def judging(annotation: Any = None, place: int = 0, doc: str | None = DOC, about: str | None = ABOUT) -> Any:
    """A Signature with two inputs and `role` at a place between them, if it has an annotation."""
    fields: list[tuple[str, Any]] = [("text", (str, dspy.InputField())), ("year", (str, dspy.InputField()))]
    if annotation is not None:
        more: dict[str, Any] = {} if annotation is str else {"default": None}
        more |= {} if about is None else {"desc": about}
        fields.insert(place, ("role", (annotation, dspy.InputField(**more))))
    fields.append(("verdict", (str, dspy.OutputField())))
    return make_signature(dict(fields), doc, "Judge")


def shape_of(signature: Any) -> Shape[Params, Verdict]:
    async def judge(params: Params, ctx: TaskContext) -> Any:
        return await ctx.predict(signature, **params.model_dump())

    return Shape("judge", Params, Verdict, judge, entry=signature)


def look_up(what: str) -> str:
    """Look something up."""
    return what


MODULES: dict[str, Callable[[Any], dspy.Module]] = {
    "predict": dspy.Predict,
    "reasoned": dspy.ChainOfThought,
    "react": lambda signature: dspy.ReAct(signature, tools=[look_up], max_iters=1),
}


def answer(call: ScriptedCall) -> dict[str, Any]:
    said = {"verdict": "Good.", "reasoning": "It rhymes.", "result": "Good.", "next_thought": "Done."}
    return said | {"next_tool_name": "finish", "next_tool_args": {}}


async def prompts(home: Path, signature: Any, role: Role | None) -> list[str]:
    """All that models read of one Signature in a shape, in modules and as an operator. No file has the role."""
    lm = ScriptedLM(answer)
    modules = [
        module_shape(name, make(signature), params=Params, result=Verdict, entry=signature)
        for name, make in MODULES.items()
    ]
    operator = llm_node(signature, name="operator")
    given = Params().model_dump()
    async with scripted_agent(home, lm, shapes=[shape_of(signature), *modules], workers=[operator]) as agent:
        for name in ("judge", *MODULES):
            assert (await agent.thread(name).task(name, given, role=role)).result.verdict == "Good."
        task = {"worker": "operator", "request": json.dumps(given)}
        assert (await agent.thread("operator").task("subagent", task, role=role)).status == "done"
        assert "role" not in agent.program("Judge").signature.fields
    assert_no_role_leak([home], SECRET)
    assert [call.role for call in lm.calls] == [None if role is None else SECRET] * len(lm.calls)
    return [json.dumps([call.system, call.messages]) for call in lm.calls]


@pytest.mark.parametrize("doc", [DOC, None], ids=["docstring", "no docstring"])
@pytest.mark.parametrize("place", range(3), ids=["first", "middle", "last"])
@pytest.mark.parametrize("annotation", ANNOTATIONS)
async def test_plain_prompts_are_those_of_a_signature_without_the_field(
    tmp_path: Path, annotation: str, place: int, doc: str | None
) -> None:
    undeclared, declared = judging(doc=doc), judging(ANNOTATIONS[annotation], place, doc)
    plain = await prompts(tmp_path / "plain", undeclared, None)
    assert await prompts(tmp_path / "declared", declared, None) == plain
    roled = await prompts(tmp_path / "roled", undeclared, KEEPER)
    assert await prompts(tmp_path / "both", declared, KEEPER) == [
        prompt.replace(ROLE_DESCRIPTION, ABOUT) for prompt in roled
    ]
    assert all(ROLE_DESCRIPTION in prompt for prompt in roled)


async def test_a_role_without_a_description_has_the_usual_one(tmp_path: Path) -> None:
    expected = await prompts(tmp_path / "undeclared", judging(), KEEPER)
    assert await prompts(tmp_path / "declared", judging(str, about=None), KEEPER) == expected


def scene(annotation: Any, doc: str | None) -> Any:
    """A class of the conversation that describes the role, if it has an annotation."""
    kinds, fields = {"weather": str}, {"weather": dspy.InputField()}
    if annotation is not None:
        kinds, fields = {"role": annotation, **kinds}, {"role": dspy.InputField(desc=ABOUT), **fields}
    own = {"__annotations__": kinds, "__module__": __name__, **({} if doc is None else {"__doc__": doc}), **fields}
    return types.new_class("Scene", (Converse,), exec_body=lambda namespace: namespace.update(own))


@pytest.mark.parametrize("doc", [DOC, None], ids=["docstring", "no docstring"])
@pytest.mark.parametrize("annotation", ANNOTATIONS)
async def test_plain_prompts_of_a_conversation_are_those_of_a_class_that_does_not_describe_the_role(
    tmp_path: Path, annotation: str, doc: str | None
) -> None:
    seen: list[list[str]] = []
    for name, kind in (("undeclared", None), ("declared", ANNOTATIONS[annotation])):
        lm = ScriptedLM([{"reply": "Good."}] * 2)
        async with scripted_agent(tmp_path / name, lm, converse=scene(kind, doc)) as agent:
            for role in (None, KEEPER):
                await agent.thread(str(role)).converse("Hi", inputs={"weather": "rain"}, role=role)
        seen.append([json.dumps([call.system, call.messages]) for call in lm.calls])
        assert [call.role for call in lm.calls] == [None, SECRET]
    (plain, roled), declared = seen
    assert declared == [plain, roled.replace(ROLE_DESCRIPTION, ABOUT)]
    assert_no_role_leak([tmp_path], SECRET)


class Text(BaseModel):
    text: str = "It was night."


class Judge(dspy.Signature):
    """Judge the text."""

    role: str | None = dspy.InputField(default=None, desc=ABOUT)
    text: str = dspy.InputField()
    verdict: str = dspy.OutputField()


# --- workers and skills -----------------------------------------------------------------------------------------------


@agent_node()
def reader(text: str, role: Role | str | None = None) -> str:
    """Read the text.

    Args:
        text: A text of
            any length.
        role: How the publisher
            wants it judged
    """
    raise AssertionError("it is never run")


@agent_node(name="reader")
def plain_reader(text: str) -> str:
    """Read the text.

    Args:
        text: A text of
            any length.
    """
    raise AssertionError("it is never run")


def with_schema(kind: Any) -> dict[str, Any]:
    role = {} if kind is None else {"role": {"type": kind, "description": ABOUT}}
    return {"type": "object", "properties": {**role, "text": {"type": "string"}}, "required": [*role, "text"]}


WORKERS: dict[str, tuple[Worker, Worker]] = {
    "function": (plain_reader, reader),
    "schema": (
        Worker("reader", "You read.", input=with_schema(None)),
        Worker("reader", "You read.", input=with_schema(["null", "string"])),
    ),
    "text": (Worker("reader", "You read."), Worker("reader", "You read.", about_role=ABOUT)),
}


@pytest.mark.parametrize("kind", WORKERS)
async def test_a_worker_describes_the_role(tmp_path: Path, kind: str) -> None:
    seen: list[list[str]] = []
    request = "Read." if kind == "text" else json.dumps({"text": "It was night."})
    for place, worker in enumerate(WORKERS[kind]):
        lm = ScriptedLM([{"result": "Good."}] * 2)
        async with scripted_agent(tmp_path / str(place), lm, workers=[worker]) as agent:
            for role in (None, KEEPER):
                await agent.thread("t").task("subagent", {"worker": "reader", "request": request}, role=role)
        seen.append([json.dumps([call.system, call.messages]) for call in lm.calls])
        assert [call.role for call in lm.calls] == [None, SECRET]
    (plain, roled), declared = seen
    assert declared == [plain, roled.replace(ROLE_DESCRIPTION, ABOUT)]


@pytest.mark.parametrize("kind", ["string", ["string", "null"]], ids=str)
async def test_a_skill_describes_the_role_in_the_schema_of_its_input(tmp_path: Path, kind: Any) -> None:
    seen: list[list[str]] = []
    for name, schema in (("plain", with_schema(None)), ("declared", with_schema(kind))):
        package(tmp_path / name, front="metadata: {worldagent-input: in.json}\n", in_dot_json=json.dumps(schema))
        lm = ScriptedLM([{"reply": "Good."}] * 2)
        async with scripted_agent(tmp_path / name / "home", lm, skills=[tmp_path / name / "skills"]) as agent:
            for role in (None, KEEPER):
                await agent.thread("t").run_skill("tea", {"text": "It was night."}, role=role)
            with pytest.raises(ParamsInvalid, match="role: is not declared"):
                await agent.thread("t").run_skill("tea", {"text": "It was night.", "role": "Be harsh."})
        seen.append([call.text.replace(name, "") for call in lm.calls])
        assert [call.role for call in lm.calls] == [None, SECRET]
    (plain, roled), declared = seen
    assert declared == [plain, roled.replace(ROLE_DESCRIPTION, ABOUT)]


# --- what is refused --------------------------------------------------------------------------------------------------


class WithRole(BaseModel):
    text: str
    role: str


def output_role() -> Any:
    return make_signature("text -> verdict, role", "Judge.", "Judge")


def numbered(text: str, role: int) -> str:
    """Read the text."""
    raise AssertionError("it is never run")


DECLARE = r"; declare it as `role: str \| None = dspy\.InputField\(default=None, desc=\.\.\.\)`, or rename the field"
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "output": (lambda: shape_of(output_role()), "'role' of the Signature 'Judge' is an output, but" + r".*" + DECLARE),
    "number": (lambda: shape_of(judging(int)), "'role' of the Signature 'Judge' is not a text, but" + r".*" + DECLARE),
    "list": (lambda: shape_of(judging(list[str])), "'Judge' is not a text.*" + DECLARE),
    "number or text": (lambda: shape_of(judging(int | str)), "'Judge' is not a text.*" + DECLARE),
    "nothing": (lambda: shape_of(judging(type(None))), "'Judge' is not a text.*" + DECLARE),
    "no other input": (lambda: shape_of(make_signature("role -> verdict", "Judge.", "Judge")), "must have input"),
    "module": (
        lambda: module_shape("judge", dspy.Predict(output_role()), params=Params, result=Verdict),
        "is an output.*" + DECLARE,
    ),
    "operator": (lambda: llm_node(output_role()), "is an output.*" + DECLARE),
    "function": (
        lambda: agent_node()(numbered),
        "'role' of the function 'numbered' is not a text.*; declare it as `role",
    ),
    "model": (lambda: Worker("w", "x", input=WithRole), r"'w' has the param 'role'.*; leave it out.*about_role="),
    "schema": (lambda: Worker("w", "x", input=with_schema("integer")), "'role'.* other than a text; write role: {type"),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_a_field_that_cannot_hold_a_role_is_refused_with_how_to_declare_it(refused: str) -> None:
    make, says = REFUSED[refused]
    with pytest.raises(FunctionInvalid, match=says):
        make()


class Passing(dspy.Module):
    """Passes on a role of its own, as it does outside of an agent."""

    def __init__(self, role: str | None) -> None:
        super().__init__()
        self.judge, self.role = dspy.Predict(Judge), role

    def forward(self, text: str) -> dspy.Prediction:
        made: dspy.Prediction = self.judge(text=text, role=self.role)
        return made


async def test_code_passes_no_role_to_a_model(tmp_path: Path) -> None:
    async def judge(params: Params, ctx: TaskContext) -> Any:
        return await ctx.predict(Judge, text=params.text, role="Be harsh.")

    lm = ScriptedLM(answer)
    shapes: list[Any] = [Shape("judge", Params, Verdict, judge, entry=Judge)]
    for name, role in (("own", "Be harsh."), ("none", None)):
        shapes.append(module_shape(name, Passing(role), params=Text, result=Verdict, entry=Judge))
    async with scripted_agent(tmp_path, lm, shapes=shapes) as agent:
        with pytest.raises(
            InvalidArgument, match=r"'Judge' must not have a role.*; leave it out.*thread\.task"
        ) as caught:
            await agent.thread("t").task("judge", Params(), role=KEEPER)
        assert "harsh" not in str(caught.value)
        with pytest.raises(
            FunctionInvalid, match=r"passes a role to the predictor 'Judge.judge'.*; leave it out"
        ) as told:
            await agent.thread("t").task("own", Text(), role=KEEPER)
        assert "harsh" not in str(told.value)
        assert (await agent.thread("t").task("none", Text(), role=KEEPER)).status == "done"
    assert [call.role for call in lm.calls] == [SECRET]


# --- programs and models ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["module", "predictor's file", "module's file"])
@pytest.mark.parametrize("signature", [Judge, judging(str, 1, None)], ids=["docstring", "no docstring"])
async def test_a_program_that_was_optimised_with_the_field_loses_the_role(
    tmp_path: Path, form: str, signature: Any
) -> None:
    given = {name: "It rained." for name in signature.input_fields if name != "role"}
    made = dspy.Predict(signature)
    made.demos = [dspy.Example(**given, role=SECRET, verdict="Dull.")]
    made.signature = signature.with_instructions(f"{signature.instructions} Be fair.")
    around: Any = dspy.Module()
    around.judge = made
    program: Any = made
    if form != "module":
        program = tmp_path / "judge.json"
        (made if form.startswith("predictor") else around).save(program)
    lm = ScriptedLM(answer)

    async def judge(params: Params, ctx: TaskContext) -> Any:
        return await ctx.predict(signature, **dict.fromkeys(given, params.text))

    shape = Shape("judge", Params, Verdict, judge, entry=signature)
    async with scripted_agent(tmp_path / "home", lm, shapes=[shape], programs={"Judge": program}) as agent:
        await agent.thread("t").task("judge", Params())
        await agent.thread("t").task("judge", Params(), role=KEEPER)
        await agent.use_program("Judge", program)
        await agent.thread("t").task("judge", Params())
        saved = agent.program("Judge").dump_state()
    plain, roled, again = lm.calls
    assert (plain.system, plain.messages) == (again.system, again.messages)
    assert (plain.role, roled.role, roled.text.count(SECRET)) == (None, SECRET, 1)
    for call in lm.calls:
        assert ("Be fair." in call.system, "It rained." in call.messages[0][1]) == (True, True)
    assert "role" not in plain.text
    assert ABOUT in roled.system
    assert_no_role_leak([saved, tmp_path / "home"], SECRET)


async def test_the_model_of_a_declared_role_is_guarded(tmp_path: Path) -> None:
    lm = ScriptedLM([{"verdict": f"I was told: {SECRET}"}])
    async with scripted_agent(tmp_path, lm, shapes=[shape_of(judging(str))]) as agent:
        turn = await agent.thread("t").task("judge", Params(), role=KEEPER)
    assert turn.result.verdict.startswith("I was told: [role withheld]")
    assert ABOUT in lm.calls[0].system
    assert_no_role_leak([tmp_path], SECRET)


def fair(example: Any, made: Any, trace: object = None) -> float:
    return float(example.verdict == made.verdict)


async def test_optimise_trains_a_declared_signature_without_its_role(tmp_path: Path) -> None:
    lines = [{"text": str(n), "role": SECRET, "verdict": f"{n}!"} for n in range(12)]
    examples = tmp_path / "judged.jsonl"
    examples.write_text("\n".join(map(json.dumps, lines)))

    def skill(call: ScriptedCall) -> dict[str, str]:
        learned = any(speaker == "assistant" for speaker, _ in call.messages)
        return {"verdict": f"{call.fields['text']}!" if learned else "Fine."}

    training = Training(metric=fair, examples=examples, optimizer="bootstrap")
    lm = ScriptedLM(skill)
    async with scripted_agent(tmp_path / "home", lm, shapes=[shape_of(Judge)]) as agent:
        optimised = await optimise_program(agent, "Judge", training)
        await agent.use_program("Judge", optimised.program)
    optimised.program.save(tmp_path / "made.json")
    assert (optimised.before, optimised.after) == (0.0, 1.0)
    assert all(SECRET not in call.text for call in lm.calls)
    assert_no_role_leak([tmp_path / "made.json", tmp_path / "home"], SECRET)


@pytest.mark.parametrize("annotation", ["str", "optional", "union"])
def test_outside_of_an_agent_it_is_an_input_like_any_other(annotation: str) -> None:
    lm = ScriptedLM(answer)
    with dspy.context(lm=lm):
        made = dspy.Predict(judging(ANNOTATIONS[annotation]))(text="It was night.", year="1911", role="Be harsh.")
    assert made.verdict == "Good."
    assert "[[ ## role ## ]]\nBe harsh." in lm.calls[0].user
