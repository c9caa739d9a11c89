"""A role is nowhere after a module of dspy ran, whatever the module and the model did (R7, T14)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import dspy
import pytest

from support.agents import calls, scripted_agent
from support.leaks import ModelCallbacks, Watch, awkward_canary, repeated, traces_of, watch
from support.modules import Answer, Question, Said, asking
from worldagent import Role
from worldagent.agent import Turn
from worldagent.core.errors import WorldAgentError
from worldagent.graphs.shapes import module_worker
from worldagent.harness.trace import JsonLinesTrace, Trace
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = [pytest.mark.requirement("R7", "R16", "T14"), pytest.mark.on_every_database(soak=True)]


class Watched(dspy.Module):
    """Keeps all that a module can see: its callbacks, traces, histories and errors."""

    seen: ClassVar[list[object]] = []  # of the class, because a run has its own copy

    def __init__(self) -> None:
        super().__init__(callbacks=[ModelCallbacks()])
        self.draft = dspy.Predict("question -> note")
        self.answer = dspy.ChainOfThought(Answer)

    def _keep(self, made: object) -> None:
        kept = [made, dspy.settings.trace, self.callbacks, self.history, dict(dspy.settings.config)]
        self.seen.append([*kept, dspy.settings.lm, dspy.settings.adapter, vars(self.answer.predict), repr(made)])

    def forward(self, question: str) -> dspy.Prediction:
        try:
            self.draft(question=question)
            made: dspy.Prediction = self.answer(question=question)
        except BaseException as error:
            self._keep([error, str(error)])
            raise
        self._keep(made)
        return made


class WatchedAwaited(Watched):
    async def aforward(self, question: str) -> dspy.Prediction:
        try:
            await self.draft.acall(question=question)
            made: dspy.Prediction = await self.answer.acall(question=question)
        except BaseException as error:
            self._keep([error, str(error)])
            raise
        self._keep(made)
        return made


class WatchedTogether(Watched):
    def forward(self, question: str) -> dspy.Prediction:
        pairs = [(self.answer, {"question": question})] * 3
        [made, *_] = dspy.Parallel(num_threads=3, disable_progress_bar=True, max_errors=9)(pairs)
        self._keep(made)
        return made or dspy.Prediction(answer="none")


def score(given: Any, made: Any) -> float:
    return 0.0  # so that all tries are made


def broken(what: str) -> str:
    """Fails with what it was given."""
    raise ValueError(f"cannot look up {what}")


MODULES: dict[str, Callable[[], dspy.Module]] = {
    "thread": Watched,
    "loop": WatchedAwaited,
    "parallel": WatchedTogether,
    "best of": lambda: dspy.BestOfN(Watched(), N=2, reward_fn=score, threshold=1.0),
    "refine": lambda: dspy.Refine(dspy.ChainOfThought(Answer), N=2, reward_fn=score, threshold=1.0),
    "react": lambda: dspy.ReAct(Answer, tools=[broken], max_iters=2),
}
OUTCOMES = ("answers", "repeats the role", "refuses and quotes the prompt", "cannot be parsed")


def model(outcome: str, role: str) -> ScriptedLM:
    def answer(call: ScriptedCall) -> Any:
        roled = role in call.text  # a model without it cannot repeat it
        text = repeated(role) if roled and outcome == "repeats the role" else "Fine."
        said: dict[str, Any] = {"note": text, "reasoning": text, "answer": text}
        if "asker" in call.tools or "asker" in call.system:  # a conversation, which calls the worker before it answers
            said = {"reply": text, **({} if call.steps else calls(("asker", {"question": text})))}
        if "next_tool_name" in call.system:
            said = {"next_thought": text, "next_tool_name": "broken", "next_tool_args": {"what": text}}
        if "advice" in call.system:
            said = {"discussion": text, "advice": {"predict": text}}
        if not roled:
            return said
        if outcome.startswith("refuses"):
            return dspy.lm15.InvalidRequestError(f"400: you sent {call.text}")
        return f"As {role} I say nothing." if outcome == "cannot be parsed" else said

    return ScriptedLM(answer)


def looking_on(seen: Watch) -> Trace:
    return Trace(
        sinks=(JsonLinesTrace(seen.home / "traced.jsonl"),),
        capture=("inputs", "outputs", "prompts"),
        callbacks=[seen.model, seen.chain],
    )


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("module", MODULES)
async def test_a_role_is_nowhere_after_a_module_ran(
    tmp_path: Path, module: str, outcome: str, capfd: pytest.CaptureFixture[str]
) -> None:
    role = awkward_canary(200, seed=f"{module} {outcome}")
    lm, made = model(outcome, role), MODULES[module]()
    Watched.seen.clear()
    with watch(tmp_path / "home") as seen:
        async with scripted_agent(seen.home, lm, shapes=[asking(made)], trace=looking_on(seen)) as agent:
            thread = agent.thread("t")
            turn = thread.task("ask", {}, role=Role("quiet", role))
            given = await seen.outcome(seen.inside_a_chain(lambda: turn))
            seen.kept += [await thread.history(), made, vars(made), *Watched.seen]
            seen.assert_clean(*traces_of(role))
        seen.kept += [dspy.cache.memory_cache if hasattr(dspy.cache, "memory_cache") else None, *capfd.readouterr()]
        seen.assert_clean(*traces_of(role))
    assert seen.model.seen, "no callback saw the module, so this shows nothing"
    assert any(role in call.text for call in lm.calls), "the role never reached the model, so this shows nothing"
    if outcome == "repeats the role" and not isinstance(given, Exception):
        assert "[role withheld]" in given.result.answer
    assert isinstance(given, WorldAgentError | Turn), given


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("module", MODULES)
async def test_the_role_of_a_conversation_is_nowhere_after_its_model_called_a_module(
    tmp_path: Path, module: str, outcome: str, capfd: pytest.CaptureFixture[str]
) -> None:
    role = awkward_canary(200, seed=f"worker {module} {outcome}")
    lm, made = model(outcome, role), MODULES[module]()
    Watched.seen.clear()
    worker = module_worker("asker", made, params=Question, result=Said, description="answers questions")
    with watch(tmp_path / "home") as seen:
        async with scripted_agent(seen.home, lm, workers=[worker], trace=looking_on(seen)) as agent:
            thread = agent.thread("t")
            turn = thread.converse("What is a hat?", role=Role("quiet", role, applies_to="*"))
            given = await seen.outcome(seen.inside_a_chain(lambda: turn))
            seen.kept += [await thread.history(), made, vars(made), *Watched.seen]
            seen.assert_clean(*traces_of(role))
        seen.kept += [*capfd.readouterr()]
        seen.assert_clean(*traces_of(role))
    conversation = [role in call.text for call in lm.calls if "message" in call.fields]
    assert conversation, "the conversation never began, so this shows nothing"
    assert all(conversation)
    if outcome in ("answers", "repeats the role"):
        of_module = [call for call in lm.calls if "message" not in call.fields]
        assert of_module, "the module never ran, so this shows nothing"
        assert not any(each in call.text for call in of_module for each in traces_of(role))
        assert any("[role withheld]" in call.text for call in of_module) == (outcome == "repeats the role")
        assert isinstance(given, Turn), given
    assert isinstance(given, WorldAgentError | Turn), given
