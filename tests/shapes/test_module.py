"""T14: modules of dspy run on the agent's model, as shapes, in handlers and in flows."""

from pathlib import Path
from typing import Any

import dspy
import pytest

from support.agents import scripted_agent
from support.modules import KEEPER, SECRET, Answer, Question, Said, asking
from worldagent import Role, Shape
from worldagent.core.errors import FunctionInvalid, LimitReached, RoleInvalid
from worldagent.core.pauses import Approve
from worldagent.graphs import TaskContext
from worldagent.graphs.shapes import module_shape, module_worker, signature_worker
from worldagent.harness import CallContext, flow, tool
from worldagent.members import llm_node
from worldagent.testing import ScriptedLM, assert_no_role_leak

pytestmark = pytest.mark.requirement("T14")


class Twice(dspy.Module):
    """Drafts, then answers; without an aforward."""

    def __init__(self) -> None:
        super().__init__()
        self.draft = dspy.Predict("question -> draft")
        self.answer = dspy.ChainOfThought(Answer)

    def forward(self, question: str) -> dspy.Prediction:
        self.draft(question=question)
        made: dspy.Prediction = self.answer(question=question)
        return made


class TwiceAwaited(Twice):
    async def aforward(self, question: str) -> dspy.Prediction:
        await self.draft.acall(question=question)
        made: dspy.Prediction = await self.answer.acall(question=question)
        return made


DRAFTED = [{"draft": "a thing"}, {"reasoning": "so", "answer": "A thing to wear."}]


@pytest.mark.parametrize("module", [Twice(), TwiceAwaited()], ids=["thread", "loop"])
async def test_a_module_runs_on_the_agents_model_and_only_the_fitting_predictor_gets_the_role(
    tmp_path: Path, module: dspy.Module
) -> None:
    lm = ScriptedLM(DRAFTED)
    async with scripted_agent(tmp_path, lm, shapes=[asking(module)]) as agent:
        turn = await agent.thread("t").task("ask", Question(), role=KEEPER)
        assert turn.result == Said(answer="A thing to wear.")
        assert [call.role for call in lm.calls] == [None, SECRET]
        assert turn.usage.calls == 2
        assert turn.role_tiers == ("call",)
    assert_no_role_leak([tmp_path, module], SECRET)


async def test_applies_to_names_a_predictor_by_its_path(tmp_path: Path) -> None:
    lm = ScriptedLM(DRAFTED)
    async with scripted_agent(tmp_path, lm, shapes=[asking(Twice())]) as agent:
        await agent.thread("t").task("ask", Question(), role=Role("r", "Be brief.", applies_to=("Answer.draft",)))
    assert [call.role for call in lm.calls] == ["Be brief.", None]


@pytest.mark.requirement("T14")
def test_a_signature_as_a_string_is_refused_with_what_to_do_instead() -> None:
    text: Any = "question -> answer"
    with pytest.raises(FunctionInvalid, match=r"'ask' must be a subclass of dspy\.Signature, .* or leave out entry="):
        module_shape("ask", dspy.Predict(text), params=Question, result=Said, entry=text)
    for make in (signature_worker, llm_node):
        with pytest.raises(FunctionInvalid, match="a string gives it no name for roles"):
            make(text)


@pytest.mark.parametrize("pattern", ["Answer.drafts", "Answer.draft.predict", "Answer.*.lm"])
async def test_applies_to_with_a_path_that_the_module_does_not_have_is_refused_before_anything_runs(
    tmp_path: Path, pattern: str
) -> None:
    role = Role("r", "Be brief.", applies_to=("Converse", pattern))
    refused = pytest.raises(
        RoleInvalid, match=r"role 'r' has 'Answer\..*; use Answer\.draft or Answer\.answer\.predict, or "
    )

    async def through(params: Question, ctx: TaskContext) -> Said:
        with refused:
            await ctx.task("ask", Question(), role=role)
        return Said(answer="refused")

    shapes = [asking(Twice()), Shape("through", Question, Said, through, entry=Answer)]
    lm = ScriptedLM([])
    async with scripted_agent(tmp_path, lm, shapes=shapes) as agent:
        with refused:
            await agent.thread("t").task("ask", Question(), role=role)
        assert await agent.threads() == ()
        assert (await agent.thread("t").task("through", Question(), role=role)).result == Said(answer="refused")
    assert lm.calls == []


@tool(risk="write")
async def pay() -> str:
    """Pay."""
    return "paid"


async def test_a_resumed_turn_repeats_no_call_of_a_module(tmp_path: Path) -> None:
    async def ask(params: Question, ctx: TaskContext) -> Said:
        made = await ctx.run_module(Twice(), question=params.question)
        await ctx.call("pay", {})
        return Said(answer=made.answer)

    shape = Shape("ask", Question, Said, ask, entry=Answer)
    lm = ScriptedLM(DRAFTED)
    async with scripted_agent(tmp_path, lm, shapes=[shape], tools=[pay]) as agent:
        waiting = await agent.thread("t").task("ask", Question())
    async with scripted_agent(tmp_path, lm, shapes=[shape], tools=[pay]) as agent:
        turn = await agent.thread("t").resume(answers={waiting.pauses[0].id: Approve()})
    assert turn.result == Said(answer="A thing to wear.")
    assert len(lm.calls) == 2


async def test_a_flow_runs_a_module_without_a_role(tmp_path: Path) -> None:
    @flow
    async def ask(ctx: CallContext, question: str) -> str:
        """Ask."""
        return str((await ctx.run_module(Twice(), question=question)).answer)

    lm = ScriptedLM(DRAFTED)
    async with scripted_agent(tmp_path, lm, tools=[ask]) as agent:
        assert await agent.call("ask", {"question": "What is a hat?"}) == "A thing to wear."
    assert [call.role for call in lm.calls] == [None, None]


class Swallows(dspy.Module):
    """Catches what it can and tries again."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = dspy.Predict(Answer)

    def forward(self, question: str) -> dspy.Prediction:
        for _ in range(10):
            try:
                self.answer(question=question)
            except Exception:  # broad: as modules do that must not fail
                continue
        return dspy.Prediction(answer="I have an answer anyway.")


async def test_a_limit_of_the_turn_ends_a_module_that_catches_everything(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda call: {"answer": "A thing."})
    async with scripted_agent(tmp_path, lm, shapes=[asking(Swallows())], settings={"turn_tokens": 1}) as agent:
        with pytest.raises(LimitReached):
            await agent.thread("t").task("ask", Question())
    assert len(lm.calls) == 1


def one_word(given: Any, made: Any) -> float:
    return float(len(made.answer.split()) == 1)


def price(what: str) -> int:
    """The price of a thing."""
    return 3


REACTED = [
    {"next_thought": "t", "next_tool_name": "price", "next_tool_args": {"what": "hat"}},
    {"next_thought": "t", "next_tool_name": "finish", "next_tool_args": {}},
    {"reasoning": "r", "answer": "3"},
]
STOCK: dict[str, tuple[Any, list[Any], str]] = {
    "ChainOfThought": (lambda: dspy.ChainOfThought(Answer), [{"reasoning": "r", "answer": "Yes"}], "Yes"),
    "BestOfN": (
        lambda: dspy.BestOfN(dspy.Predict(Answer), N=3, reward_fn=one_word, threshold=1.0),
        [{"answer": "No it is"}, {"answer": "Yes"}],
        "Yes",
    ),
    "Refine": (
        lambda: dspy.Refine(dspy.ChainOfThought(Answer), N=2, reward_fn=one_word, threshold=1.0),
        [
            {"reasoning": "r", "answer": "No it is"},
            {"discussion": "d", "advice": {"predict": "one word"}},
            {"reasoning": "r", "answer": "Yes"},
        ],
        "Yes",
    ),
    "ReAct": (lambda: dspy.ReAct(Answer, tools=[price]), REACTED, "3"),
}


@pytest.mark.parametrize("stock", STOCK)
async def test_a_module_that_ships_with_dspy_runs(tmp_path: Path, stock: str) -> None:
    make, answers, said = STOCK[stock]
    lm = ScriptedLM(answers)
    async with scripted_agent(tmp_path, lm, shapes=[asking(make())]) as agent:
        turn = await agent.thread("t").task("ask", Question(), role=KEEPER)
    assert turn.result == Said(answer=said)
    assert len(lm.calls) == len(answers)
    assert lm.calls[-1].role == SECRET


def with_own_model() -> dspy.Module:
    module = dspy.Predict(Answer)
    module.set_lm(ScriptedLM([]))
    return module


class Direct(dspy.Module):
    """Calls the model without a predictor."""

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=dspy.settings.lm(question)[0])


class NotAwaited(Twice):
    async def aforward(self, question: str) -> dspy.Prediction:
        return self.forward(question)


class NeedsRole(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.answer = dspy.Predict(Answer)

    def forward(self, question: str, role: str) -> dspy.Prediction:
        made: dspy.Prediction = self.answer(question=question, role=role)
        return made


REFUSED: dict[str, tuple[Any, str]] = {
    "no module": (lambda: 3, "must be a dspy.Module, got 'int'; pass an instance"),
    "None": (lambda: None, "must be a dspy.Module, got 'NoneType'; pass an instance"),
    "a class": (
        lambda: Twice,
        r"must be a dspy.Module, got the class 'Twice'; pass an instance of it, such as Twice\(\)",
    ),
    "a Signature": (lambda: Answer, r"must be a dspy.Module, got the Signature 'Answer'; pass dspy.Predict\(Answer\)"),
    "a function": (lambda: price, "must be a dspy.Module, got 'function'; pass an instance"),
    "no forward": (dspy.Module, r"has neither `forward` nor `aforward`; write one of them"),
    "a model of its own": (with_own_model, "has a model of its own"),
    "a role that it needs": (NeedsRole, r"it lacks \['role'\]; write role=None there"),
    "a role that is not a text": (lambda: dspy.Predict("question, role: int -> answer"), "'role' of .* is not a text"),
    "no fitting predictor": (lambda: dspy.Predict("question -> reply"), "has the fields of 'Answer'"),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_a_module_that_cannot_run_is_refused_when_it_is_declared(refused: str) -> None:
    make, says = REFUSED[refused]
    with pytest.raises(FunctionInvalid, match=says):
        asking(make())


@pytest.mark.parametrize("entry", [Twice, Twice(), "Answer", Question], ids=["class", "module", "name", "model"])
def test_an_entry_that_is_no_signature_is_refused_when_the_shape_is_declared(entry: Any) -> None:
    with pytest.raises(
        FunctionInvalid, match=r"must be a subclass of dspy\.Signature, got .{5,30}; declare it as a class"
    ):
        module_shape("ask", Twice(), params=Question, result=Said, entry=entry)


async def test_the_program_of_another_agent_needs_the_params_of_its_signature(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, ScriptedLM([])) as agent:
        program = agent.program("Converse")
    with pytest.raises(FunctionInvalid, match=r"it lacks \['message'\] and the module has no input for \['question'\]"):
        module_shape("ask", program, params=Question, result=Said)


class Named(dspy.Module):
    def __init__(self, **own: Any) -> None:
        super().__init__()
        for name, value in own.items():
            setattr(self, name, value)

    def forward(self, question: str, /, text: str, *, style: str = "plain") -> None: ...


class Keyword(dspy.Module):
    def forward(self, *, text: str, style: str = "plain", **more: Any) -> None: ...


class Static(Twice):
    @staticmethod
    async def aforward(text: str) -> None: ...


WRONG_INPUTS: dict[str, tuple[Any, str]] = {
    "forward": (
        Named,
        r"it lacks \['text'\] and the module has no input for \['question'\]; name its .* are \['text', 'style'\]$",
    ),
    "keyword only": (
        Keyword,
        r"it lacks \['text'\]; name its fields as the inputs of the module, which are \['text'\]$",
    ),
    "static aforward": (Static, r"it lacks \['text'\] and the module has no input for \['question'\]"),
    "Predict": (lambda: dspy.Predict("text -> answer"), r"it lacks \['text'\] and .* no input for \['question'\]"),
    "ChainOfThought": (lambda: dspy.ChainOfThought("question, text -> answer"), r"it lacks \['text'\]; "),
}


@pytest.mark.parametrize("wrong", WRONG_INPUTS)
def test_params_that_the_forward_of_a_module_does_not_take_are_refused_when_it_is_declared(wrong: str) -> None:
    make, says = WRONG_INPUTS[wrong]
    with pytest.raises(FunctionInvalid, match=f"`params` does not fit the module of shape 'ask': {says}"):
        module_shape("ask", make(), params=Question, result=Said)
    with pytest.raises(FunctionInvalid, match=f"`params` does not fit the module of worker 'ask': {says}"):
        module_worker("ask", make(), params=Question, result=Said)


def test_params_that_the_forward_of_a_module_can_take_are_accepted() -> None:
    for module in (
        Named(forward=lambda question, style="plain": None),
        Swallows(),
        dspy.Predict("question -> answer"),
        dspy.ReAct(Answer, tools=[price]),
    ):
        module_shape("ask", module, params=Question, result=Said)


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (NotAwaited(), "without await"),
        (dspy.Predict(Answer, n=2), "several completions"),
        (Direct(), "must not call a model directly"),
    ],
)
async def test_a_module_that_calls_a_model_wrongly_fails_its_task(
    tmp_path: Path, module: dspy.Module, says: str
) -> None:
    entry = None if isinstance(module, Direct) else Answer
    async with scripted_agent(tmp_path, ScriptedLM([]), shapes=[asking(module, entry)]) as agent:
        with pytest.raises(FunctionInvalid, match=says):
            await agent.thread("t").task("ask", Question())
