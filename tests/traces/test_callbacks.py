"""Callbacks of LangChain and dspy that the embedder passes see its turns, without roles (H5, R7)."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.utils.callback import BaseCallback
from langchain_core.callbacks import BaseCallbackHandler

from support.agents import CRITIC, calls, scripted_agent
from support.leaks import ChainCallbacks, ModelCallbacks
from support.traced import KEEPER, SECRET, Draft, Review, Verdict, look
from worldagent import Role, Trace
from worldagent.core.errors import InvalidArgument, ModelUnavailable, TaskFailed
from worldagent.graphs.shapes import module_shape
from worldagent.testing import ScriptedLM, assert_no_role_leak

pytestmark = [pytest.mark.requirement("H5"), pytest.mark.requirement("R7")]


def names(seen: ChainCallbacks | ModelCallbacks) -> list[str]:
    return [name for name, _, _ in seen.seen]


async def test_callbacks_see_the_graph_and_the_calls_of_a_turn_and_no_role(tmp_path: Path) -> None:
    chains, models = ChainCallbacks(), ModelCallbacks()
    asked = calls(("look", {"what": "hat"}), ("critic", {"request": "?"}))
    lm = ScriptedLM([asked, {"result": "Dull."}, {"reply": f"A hat. {SECRET}"}])
    trace = Trace(callbacks=[chains, models])
    async with scripted_agent(tmp_path, lm, tools=[look], workers=[CRITIC], trace=trace) as agent:
        turn = await agent.thread("t").converse("A hat?", role=KEEPER)
    assert lm.calls[0].role == SECRET
    assert turn.text.startswith("A hat.")
    nodes = [more["name"] for name, _, more in chains.seen if name == "on_chain_start"]
    assert nodes[:3] == ["turn", "think", "act"]
    assert names(chains).count("on_chain_start") == names(chains).count("on_chain_end")
    began = [more for name, _, more in models.seen if name == "on_module_start"]
    assert [each["instance"].signature.__name__ for each in began] == ["Converse", "critic", "Converse"]
    assert began[0]["inputs"]["kwargs"]["message"] == "A hat?"
    ended = [more for name, _, more in models.seen if name == "on_module_end"]
    assert [each["call_id"] for each in began] == [each["call_id"] for each in ended]
    assert ended[-1]["outputs"].reply.startswith("A hat.")
    assert_no_role_leak([chains.seen, models.seen, tmp_path], SECRET)


async def test_a_message_that_became_the_role_is_withheld_from_callbacks(tmp_path: Path) -> None:
    chains, models = ChainCallbacks(), ModelCallbacks()
    trace = Trace(callbacks=[chains, models])
    async with scripted_agent(tmp_path, ScriptedLM([{"reply": "Hm."}]), trace=trace) as agent:
        await agent.thread("t").converse(SECRET, role=KEEPER)
    [began] = [more for name, _, more in models.seen if name == "on_module_start"]
    assert "[role withheld]" in began["inputs"]["kwargs"]["message"]
    assert_no_role_leak([chains.seen, models.seen], SECRET)


async def test_a_role_too_short_to_be_an_echo_is_withheld_from_callbacks_too(tmp_path: Path) -> None:
    models = ModelCallbacks()
    lm = ScriptedLM([{"reply": "Aye, speak like Ahab!"}])
    async with scripted_agent(tmp_path, lm, trace=Trace(callbacks=[models])) as agent:
        turn = await agent.thread("t").converse("Hm?", role=Role("ahab", "speak like Ahab"))
    assert turn.text == "Aye, speak like Ahab!"
    [ended] = [more for name, _, more in models.seen if name == "on_module_end"]
    assert ended["outputs"].reply == "Aye, [role withheld]!"


async def test_callbacks_see_a_failure_without_the_role(tmp_path: Path) -> None:
    chains, models = ChainCallbacks(), ModelCallbacks()
    lm = ScriptedLM([ConnectionError(SECRET)])
    async with scripted_agent(tmp_path, lm, trace=Trace(callbacks=[chains, models])) as agent:
        with pytest.raises(ModelUnavailable):
            await agent.thread("t").converse("A hat?", role=KEEPER)
    assert "on_chain_error" in names(chains)
    [ended] = [more for name, _, more in models.seen if name == "on_module_end"]
    assert isinstance(ended["exception"], ModelUnavailable)
    assert_no_role_leak([chains.seen, models.seen], SECRET)


async def test_callbacks_of_dspy_see_the_modules_of_a_shape(tmp_path: Path) -> None:
    models = ModelCallbacks()
    shape = module_shape("review", dspy.ChainOfThought(Review), params=Draft, result=Verdict, entry=Review)
    lm = ScriptedLM([{"reasoning": "so", "verdict": "Dull."}])
    async with scripted_agent(tmp_path, lm, shapes=[shape], trace=Trace(callbacks=[models])) as agent:
        turn = await agent.thread("t").task("review", Draft(), role=KEEPER)
    assert turn.result == Verdict(verdict="Dull.")
    assert lm.calls[0].role == SECRET
    began = [type(more["instance"]).__name__ for name, _, more in models.seen if name == "on_module_start"]
    assert began == ["ChainOfThought", "Predict"]
    assert_no_role_leak([models.seen], SECRET)


class Repeating(dspy.Module):
    """Repeats what its predictor says, or fails with it."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.review, self.fails = dspy.Predict(Review), fails

    async def aforward(self, draft: str) -> dspy.Prediction:
        found = await self.review.acall(draft=draft)
        if self.fails:
            raise ValueError(found.verdict)
        return found


class FailingNext(Repeating):
    """Fails with another error, whose cause says what its predictor said."""

    async def aforward(self, draft: str) -> dspy.Prediction:
        try:
            return await super().aforward(draft=draft)
        except ValueError as error:
            raise RuntimeError("no verdict") from error


SPOKEN = {"short": "speak like Ahab", "long": SECRET}


@pytest.mark.parametrize("fails", [False, True], ids=["answers", "fails"])
@pytest.mark.parametrize("text", SPOKEN)
async def test_a_role_that_a_module_gets_to_see_is_withheld_from_callbacks(
    tmp_path: Path, text: str, fails: bool
) -> None:
    models, role = ModelCallbacks(), SPOKEN[text]
    shape = module_shape("review", Repeating(fails=fails), params=Draft, result=Verdict, entry=Review)
    lm = ScriptedLM([{"verdict": f"Aye, {role}!"}])
    more: dict[str, Any] = {"shapes": [shape], "settings": {"echo": "allow"}}
    async with scripted_agent(tmp_path, lm, trace=Trace(callbacks=[models]), **more) as agent:
        with pytest.raises(TaskFailed) if fails else nullcontext():
            await agent.thread("t").task("review", Draft(draft=f"Please {role}!"), role=Role("ahab", role))
    assert lm.calls[0].role == role
    outer, inner = [more["inputs"]["kwargs"]["draft"] for name, _, more in models.seen if name == "on_module_start"]
    assert outer == inner == "Please [role withheld]!"
    *_, ended = [more for name, _, more in models.seen if name == "on_module_end"]
    told = str(ended["exception"]) if fails else ended["outputs"].verdict
    assert told == "Aye, [role withheld]!"
    assert_no_role_leak([models.seen], role)


async def test_a_role_in_the_cause_of_a_modules_error_is_withheld_from_callbacks(tmp_path: Path) -> None:
    models = ModelCallbacks()
    shape = module_shape("review", FailingNext(fails=True), params=Draft, result=Verdict, entry=Review)
    lm = ScriptedLM([{"verdict": f"Aye, {SECRET}!"}])
    more: dict[str, Any] = {"shapes": [shape], "settings": {"echo": "allow"}}
    async with scripted_agent(tmp_path, lm, trace=Trace(callbacks=[models]), **more) as agent:
        with pytest.raises(TaskFailed):
            await agent.thread("t").task("review", Draft(draft="A hat."), role=KEEPER)
    [*_, ended] = [more["exception"] for name, _, more in models.seen if name == "on_module_end"]
    assert str(ended) == "no verdict"
    assert_no_role_leak([models.seen], SECRET)


async def test_a_role_that_a_conversation_hands_on_to_a_worker_is_withheld_from_callbacks(tmp_path: Path) -> None:
    models = ModelCallbacks()
    asked = {"tool": "critic", "arguments": {"request": SECRET}}
    lm = ScriptedLM([{"calls": [asked]}, {"result": SECRET}, {"reply": SECRET}])
    trace = Trace(callbacks=[models])
    async with scripted_agent(tmp_path, lm, workers=[CRITIC], settings={"echo": "allow"}, trace=trace) as agent:
        assert (await agent.thread("t").converse("A hat?", role=KEEPER)).text == SECRET
    assert [call.role for call in lm.calls] == [SECRET, None, SECRET]
    assert len(models.seen) == 6
    assert_no_role_leak([models.seen], SECRET)


async def test_a_callback_that_fails_does_not_fail_the_turn(tmp_path: Path) -> None:
    class Broken(BaseCallback):
        def on_module_start(self, *_: Any, **__: Any) -> None:
            raise RuntimeError("oh")

    class BrokenChain(BaseCallbackHandler):
        def on_chain_start(self, *_: Any, **__: Any) -> None:
            raise RuntimeError("oh")

    trace = Trace(callbacks=[Broken(), BrokenChain()])
    async with scripted_agent(tmp_path, ScriptedLM([{"reply": "Hm."}]), trace=trace) as agent:
        assert (await agent.thread("t").converse("A hat?")).text == "Hm."


def test_what_is_not_a_callback_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"a function in `callbacks` is not a callback; pass instances of"):
        Trace(callbacks=[lambda: None])
