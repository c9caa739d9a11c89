"""Steps of a conversation that cannot be used: each is reported once, typed, and the turn still ends in an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.agents import scripted_agent
from worldagent import tool
from worldagent.core import events as ev
from worldagent.core.errors import OutputInvalid
from worldagent.testing import ScriptedCall, ScriptedLM

FORMS = pytest.mark.parametrize("form", ["native", "chat"])


@tool(risk="read_only")
def price(item: str, number: int = 1) -> float:
    """Price of an item, in euros."""
    return 12.5 * number


@tool(risk="read_only", offered=False)
def secret(item: str) -> str:
    """Not for the conversation."""
    raise AssertionError("it is not offered")


def calling(name: str, arguments: Any) -> dict[str, Any]:
    return {"reply": "", "calls": [{"tool": name, "arguments": arguments}]}


GOOD = calling("price", {"item": "rope"})
BAD: dict[str, tuple[Any, str]] = {
    "what is not there": (calling("prize", {"item": "rope"}), "there is no tool 'prize'; the tools are: price"),
    "what is not offered": (calling("secret", {"item": "rope"}), "there is no tool 'secret'"),
    "a missing argument": (calling("price", {}), "item"),
    "an argument of another type": (calling("price", {"item": "rope", "number": "some"}), "number"),
    "an argument that is not there": (calling("price", {"item": "rope", "colour": "red"}), "colour"),
    "nothing at all": ({"reply": "  "}, "it has neither calls nor an answer"),
    "more calls than are made at once": (
        {"reply": "", "calls": [{"tool": "price", "arguments": {"item": str(n)}} for n in range(17)]},
        "17 calls, and at most 16",
    ),
}


@FORMS
@pytest.mark.parametrize(("bad", "said"), BAD.values(), ids=BAD.keys())
async def test_a_bad_step_is_reported_once_and_mended(tmp_path: Path, form: Any, bad: Any, said: str) -> None:
    lm = ScriptedLM([bad, GOOD, {"reply": "12.50."}], form=form)
    async with (
        scripted_agent(tmp_path, lm, tools=[price, secret]) as agent,
        agent.thread("t").stream("What?") as stream,
    ):
        events = [event async for event in stream]
    assert stream.turn is not None
    assert stream.turn.text == "12.50."
    [rejected] = [event for event in events if isinstance(event, ev.PlanRejected)]
    assert said in rejected.reason
    assert said in lm.calls[1].text, "the model reads what was wrong"
    assert len([event for event in events if isinstance(event, ev.CallStarted)]) == 1


@FORMS
async def test_a_model_that_never_stops_calling_must_answer_at_last(tmp_path: Path, form: Any) -> None:
    def reply(call: ScriptedCall) -> Any:
        return GOOD if call.may_call else {"reply": "Enough."}

    lm = ScriptedLM(reply, form=form)
    async with scripted_agent(tmp_path, lm, tools=[price], settings={"max_rounds": 3}) as agent:
        turn = await agent.thread("t").converse("What?")
    assert turn.text == "Enough."
    assert len(lm.calls) == 4


@FORMS
async def test_one_that_calls_even_then_fails_the_turn_and_the_thread_continues(tmp_path: Path, form: Any) -> None:
    lm = ScriptedLM([*[GOOD] * 3, {"reply": "Here I am."}], form=form)
    async with scripted_agent(tmp_path, lm, tools=[price], settings={"max_rounds": 2}) as agent:
        thread = agent.thread("t")
        with pytest.raises(OutputInvalid, match="gave no answer"):
            await thread.converse("What?")
        assert (await thread.converse("And now?")).text == "Here I am."
