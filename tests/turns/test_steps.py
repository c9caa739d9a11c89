"""Steps of a conversation: their numbers, what a model receives of them, invalid ones, and a resume."""

import logging
from pathlib import Path
from typing import Any

import pytest

from support.agents import scripted_agent, streamed
from support.services import Said, in_words, service
from worldagent import Approve, Settings, Storage, WorldAgent, tool
from worldagent.core import events as ev
from worldagent.core.errors import OutputInvalid
from worldagent.profiles import Profile
from worldagent.profiles.profile import Verification
from worldagent.testing import ScriptedCall, ScriptedLM

FORMS = pytest.mark.parametrize("form", ["native", "chat"])
REMOVED: list[str] = []


@tool(risk="read_only")
def price(item: str, number: int = 1) -> float:
    """Price of an item, in euros."""
    return 12.5 * number


@tool(risk="read_only", offered=False)
def secret(item: str) -> str:
    """Not for the conversation."""
    raise AssertionError("it is not offered")


@tool(risk="read_only")
def remove(path: str) -> str:
    """Remove a file."""
    REMOVED.append(path)
    return "removed"


@tool(approval=True)
def buy(item: str) -> str:
    """Buy an item."""
    return f"bought {item}"


def calling(name: str, *many: dict[str, Any]) -> dict[str, Any]:
    return {"reply": "", "calls": [{"tool": name, "arguments": arguments} for arguments in many or ({"item": "hat"},)]}


async def test_a_step_number_is_not_used_again_after_a_check_that_failed(tmp_path: Path) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "answer" in call.fields:
            return {"satisfied": "second" in call.fields["answer"], "findings": "bad"}
        return {"reply": "second" if "check of it" in call.text else "first"}

    checked = Profile("checked", verification=Verification(enabled=True, max_iterations=2))
    async with scripted_agent(tmp_path, ScriptedLM(reply), profile=checked) as agent:
        _, events = await streamed(agent.thread("t").stream("Hi"))
    texts = {event.step: event.text for event in events if isinstance(event, ev.TextDelta)}
    ends = [(event.step, event.interim) for event in events if isinstance(event, ev.StepEnded)]
    assert (texts, ends) == ({0: "first", 1: "second"}, [(0, True), (1, False)])


@FORMS
async def test_model_and_log_receive_the_changed_arguments(tmp_path: Path, form: Any) -> None:
    lm = ScriptedLM([calling("buy"), {"reply": "Done."}, {"reply": "A rope."}], form=form)
    async with scripted_agent(tmp_path, lm, tools=[buy]) as agent:
        thread = agent.thread("t")
        turn = await thread.converse("Buy a hat.")
        turn = await thread.resume({turn.pauses[0].id: Approve(arguments={"item": "rope"})})
        assert turn.text == "Done."
        [step] = lm.calls[1].steps
        assert 'A person changed the arguments to {"item": "rope"} before it ran.' in step
        [result] = [message.body for message in await thread.history() if message.kind == "result"]
        assert (result["arguments"], result["result"]) == ({"item": "rope"}, {"value": "bought rope"})
        await thread.converse("What did you buy?")
    assert """You called 'buy' with {"item": "rope"}.""" in lm.calls[2].text


async def test_a_call_that_is_done_keeps_its_result_though_its_tool_is_gone_by_the_resume(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, ScriptedLM([calling("price"), calling("buy")]), tools=[price, buy]) as agent:
        turn = await agent.thread("t").converse("Buy a hat.")
    lm = ScriptedLM([{"reply": "Done."}])
    async with scripted_agent(tmp_path, lm, tools=[buy]) as agent:
        turn = await agent.thread("t").resume({turn.pauses[0].id: Approve()})
    assert turn.text == "Done."
    assert [step.splitlines()[-1] for step in lm.calls[0].steps] == ["12.5", "bought hat"]


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


@pytest.mark.parametrize(
    ("form", "what"), [*(("native", what) for what in BAD), ("chat", "a missing argument"), ("chat", "nothing at all")]
)
async def test_a_bad_step_is_reported_once_and_mended(tmp_path: Path, form: Any, what: str) -> None:
    bad, said = BAD[what]
    lm = ScriptedLM([bad, GOOD, {"reply": "12.50."}], form=form)
    async with scripted_agent(tmp_path, lm, tools=[price, secret]) as agent:
        turn, events = await streamed(agent.thread("t").stream("What?"))
    assert turn.text == "12.50."
    [rejected] = [event for event in events if isinstance(event, ev.PlanRejected)]
    assert said in rejected.reason
    assert said in lm.calls[1].text, "the model reads what was wrong"
    assert len([event for event in events if isinstance(event, ev.CallStarted)]) == 1


@FORMS
async def test_one_that_calls_even_then_fails_the_turn_and_the_thread_continues(tmp_path: Path, form: Any) -> None:
    lm = ScriptedLM([*[GOOD] * 3, {"reply": "Here I am."}], form=form)
    async with scripted_agent(tmp_path, lm, tools=[price], settings={"max_rounds": 2}) as agent:
        thread = agent.thread("t")
        with pytest.raises(OutputInvalid, match="gave no answer"):
            await thread.converse("What?")
        assert (await thread.converse("And now?")).text == "Here I am."


async def test_native_call_with_truncated_arguments_does_not_run(tmp_path: Path) -> None:
    REMOVED.clear()
    cut = calling("remove", {"partial_json": '{"path": "notes/2026'})  # as the engine gives what it cannot read
    lm = ScriptedLM([cut, {"reply": "I stop here."}], form="native")
    async with scripted_agent(tmp_path, lm, tools=[remove]) as agent:
        turn = await agent.thread("t").converse("Clean up.")
    assert (turn.text, REMOVED) == ("I stop here.", [])
    assert "could not be used" in lm.calls[1].text


@FORMS
async def test_an_answer_that_could_not_be_used_is_shown_to_the_model_again(tmp_path: Path, form: Any) -> None:
    wrong = {"reply": None, "calls": [{"tool": "price", "arguments": {"thing": "a hat"}}]}
    lm = ScriptedLM([wrong, {"reply": "No price."}], form=form)
    async with scripted_agent(tmp_path, lm, tools=[price]) as agent:
        await agent.thread("t").converse("What does a hat cost?")
    assert "a hat" in lm.calls[1].text.partition("could not be used")[2]


@FORMS
@pytest.mark.parametrize("name", ["functions.price", "default_api.price", "Price", "tools:price"])
async def test_a_tool_is_found_under_the_names_that_models_give_it(tmp_path: Path, form: Any, name: str) -> None:
    lm = ScriptedLM(
        [{"reply": None, "calls": [{"tool": name, "arguments": {"item": "hat"}}]}, {"reply": "20"}], form=form
    )
    async with scripted_agent(tmp_path, lm, tools=[price]) as agent:
        turn = await agent.thread("t").converse("What does a hat cost?")
    assert (turn.text, len(lm.calls)) == ("20", 2)
    assert "could not be used" not in lm.calls[1].text


@pytest.mark.parametrize("ended", ["stop", "length"])
async def test_only_complete_answers_are_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: str) -> None:
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


@pytest.mark.parametrize("text", ['{"reply": "hi", "to": "bob"}', "Use this:\n[[ ## question ## ]]\nthe question"])
async def test_a_native_answer_that_shows_a_form_is_kept_as_it_is(tmp_path: Path, text: str) -> None:
    async with scripted_agent(tmp_path, ScriptedLM([text], form="native"), tools=[remove]) as agent:
        assert (await agent.thread("t").converse("Show me.")).text == text


@pytest.mark.requirement("R7")
async def test_what_dspy_logs_during_a_call_is_in_the_log_of_the_package_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger("dspy.clients.lm")

    def reply(call: ScriptedCall) -> dict[str, Any]:
        log.warning("LM response was truncated: %s", call.user)
        return {"reply": "Fine."}

    caplog.set_level(logging.INFO, logger="worldagent.models")
    async with scripted_agent(tmp_path, ScriptedLM(reply)) as agent:
        await agent.thread("t").converse("Hello there")
    [record] = [each for each in caplog.records if each.name == "worldagent.models"]
    assert "dspy logged a message (WARNING) at test_steps.py:" in record.getMessage()
    assert "Hello" not in record.getMessage()
    assert "truncated" not in "".join(capsys.readouterr())
    log.warning("from the user's own program")
    assert "from the user's own program" in capsys.readouterr().err
