"""`WorldAgent(converse=...)`: a subclass of `Converse` with instructions, inputs and outputs of its own."""

import asyncio
import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import dspy
import pytest
from pydantic import BaseModel

from support.agents import open_pauses, scripted_agent, streamed
from support.leaks import Kept
from worldagent import Approve, Memory, Role, WorldAgent, tool
from worldagent.agent import Trigger
from worldagent.agent.optimising import Training, optimise_program
from worldagent.core import events as ev
from worldagent.core.errors import (
    FunctionInvalid,
    GraphChanged,
    InvalidArgument,
    KeyReused,
    ModelUnavailable,
    OutputInvalid,
)
from worldagent.graphs.loop.conversation import Conversation
from worldagent.profiles import MemoryOverrides, Profile, Verification
from worldagent.signatures import Converse
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

FORMS = pytest.mark.parametrize("form", ["native", "chat"])
HOW = "Answer as a lamplighter of four harbours would, quietly and with care."
CHECKED = Profile("checked", verification=Verification(enabled=True, max_iterations=2))
pytestmark = pytest.mark.requirement("T20")


class Sign(BaseModel):
    text: str
    size: int = 1


class Moody(Converse):
    """Answer as the keeper of a tavern would."""

    weather: str = dspy.InputField(desc="the weather in the scene")
    guests: int = dspy.InputField(default=1)
    mood: Literal["glad", "sour"] = dspy.OutputField(desc="the mood of the answer")
    signs: list[Sign] = dspy.OutputField()


RAIN: dict[str, Any] = {"weather": "rain"}
SAID: dict[str, Any] = {"reply": "A hat, then.", "mood": "glad", "signs": [{"text": "Hats", "size": 2}]}
OUTPUTS: dict[str, Any] = {"mood": "glad", "signs": [Sign(text="Hats", size=2)]}
AS_JSON: dict[str, Any] = {"mood": "glad", "signs": [{"text": "Hats", "size": 2}]}


@tool(risk="read_only")
def look(what: str) -> str:
    """Look for something."""
    return f"there is one {what}"


@tool(risk="write")
def hang(sign: str) -> str:
    """Hang a sign over the door."""
    return f"{sign} hangs"


def after_a_call(name: str, arguments: dict[str, Any], form: Any, **more: Any) -> ScriptedLM:
    """A model that makes one call in each turn, and then answers."""
    calls = {"calls": [{"tool": name, "arguments": arguments}], "reply": ""}
    return ScriptedLM(lambda call: SAID if call.steps else calls, form=form, **more)


def keeper(home: Path, lm: Any, **more: Any) -> WorldAgent:
    given: dict[str, Any] = {"converse": Moody, "identity": "You are Bo.", **more}
    return scripted_agent(home, lm, **given)


# --- inputs and outputs -----------------------------------------------------------------------------------------------


@FORMS
@pytest.mark.parametrize("role", [None, Role("lamp", HOW)])
async def test_instructions_inputs_and_outputs_with_tools_and_roles(tmp_path: Path, form: Any, role: Any) -> None:
    lm = after_a_call("look", {"what": "hat"}, form)
    async with keeper(tmp_path, lm, tools=[look]) as agent:
        thread = agent.thread("t")
        turn = await thread.converse("A hat?", role=role, inputs=RAIN)
        again = await thread.converse("Another?", role=role, inputs={"weather": "snow", "guests": 3})
        history = await thread.history()
    assert (turn.text, turn.outputs, again.outputs) == ("A hat, then.", OUTPUTS, OUTPUTS)
    assert turn.to_json()["outputs"] == AS_JSON
    assert turn.role_tiers == (() if role is None else ("call",))
    first, *_, last = lm.calls
    assert "You are Bo.\n" in first.system
    assert "Answer as the keeper of a tavern would." in first.system
    assert "Reply to the message." not in first.system
    assert "[[ ## weather ## ]]\nrain\n\n[[ ## guests ## ]]\n1" in first.messages[0][1]
    # The first turn is shown again as it was, with its inputs and outputs.
    assert last.messages[0][1].startswith(first.messages[0][1].partition("\n\nRespond with")[0])
    assert '[[ ## mood ## ]]\nglad\n\n[[ ## signs ## ]]\n[{"size": 2, "text": "Hats"}]' in last.text
    assert "[[ ## weather ## ]]\nsnow\n\n[[ ## guests ## ]]\n3" in last.text
    assert history[0].body == {"text": "A hat?", "inputs": {"weather": "rain", "guests": 1}}
    assert history[-1].body == {"text": "A hat, then.", "outputs": AS_JSON}
    if role is not None:
        assert_no_role_leak(tmp_path, HOW)


@FORMS
async def test_a_missing_or_wrong_output_is_reported_once_and_then_the_turn_must_answer(
    tmp_path: Path, form: Any
) -> None:
    lm = ScriptedLM([{"reply": "A hat.", "signs": []}, SAID, *[{"reply": "A hat.", "mood": "odd"}] * 3], form=form)
    async with keeper(tmp_path, lm, tools=[look]) as agent:
        thread = agent.thread("t")
        turn, events = await streamed(thread.stream("A hat?", inputs=RAIN))
        with pytest.raises(OutputInvalid):
            await thread.converse("Another?", inputs=RAIN)
    [rejected] = [event for event in events if isinstance(event, ev.PlanRejected)]
    assert rejected.reason == "the output 'mood' is missing"
    assert "the output 'mood' is missing" in lm.calls[1].text
    assert turn.outputs == OUTPUTS
    assert len(lm.calls) == 5


MISFITS = {
    "mood": ("SECRET", "the output 'mood' does not fit: Input should be 'glad' or 'sour'"),
    "signs": (
        [{"text": "Hats", "size": "SECRET"}],
        "the output 'signs' does not fit: 0.size: Input should be a valid integer",
    ),
    "kind": ("SECRET", "the output 'kind' does not fit: Input should be 'wood' or 'iron'"),
    "prices": ({"SECRET": "x"}, "the output 'prices' does not fit: ...: Input should be a valid integer"),
}


class Kind(Enum):
    WOOD = "wood"
    IRON = "iron"


class Priced(Moody):
    weather: str = dspy.InputField(default="rain")
    kind: Kind = dspy.OutputField(default=Kind.WOOD)
    prices: dict[str, int] = dspy.OutputField(default={})


@pytest.mark.parametrize("form", ["native", "chat", "json"])
@pytest.mark.parametrize("name", MISFITS)
async def test_a_wrong_output_is_named_with_what_it_must_be(tmp_path: Path, form: Any, name: str) -> None:
    value, problem = MISFITS[name]
    lm = ScriptedLM(lambda _: {**SAID, name: value}, form=form)
    async with keeper(tmp_path, lm, converse=Priced, tools=[look]) as agent:
        with pytest.raises(OutputInvalid) as caught:
            await agent.thread("t").converse("A hat?")
    assert f"gave no answer: {problem}" in str(caught.value)
    assert "SECRET" not in str(caught.value)
    [report] = [text for _, text in lm.calls[1].messages if "last answer" in text]
    assert f"Your last answer could not be used: {problem}" in report
    assert "SECRET" not in report


@FORMS
@pytest.mark.parametrize("detach", [False, True])
async def test_a_stream_has_the_text_of_the_reply_alone_and_ends_with_the_outputs(
    tmp_path: Path, form: Any, detach: bool
) -> None:
    lm = ScriptedLM([SAID], form=form, chunk=7)
    async with keeper(tmp_path, lm, tools=[look]) as agent:
        turn, events = await streamed(agent.thread("t").stream("A hat?", inputs=RAIN, detach=detach))
        deltas = [event.text for event in events if isinstance(event, ev.TextDelta)]
        if detach:
            recorded: list[Any] = [event async for event in agent.events(turn.id)]
            assert recorded[-1].outputs == AS_JSON
    assert len(deltas) > 1
    assert "".join(deltas) == turn.text == "A hat, then."
    assert isinstance(events[-1], ev.TurnEnded)
    assert events[-1].outputs == AS_JSON
    assert json.loads(events[-1].model_dump_json())["outputs"] == AS_JSON
    assert "outputs" not in json.loads(
        ev.TurnEnded(turn_id="t", seq=1, at=events[-1].at, status="done").model_dump_json()
    )


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        (None, "the input 'weather' is missing"),
        ({}, "the input 'weather' is missing"),
        (["rain"], "`inputs` must be a mapping, got a 'list'"),
        ({"weather": "rain", "wind": 1}, "the conversation has no input 'wind'"),
        ({"weather": 5}, "the input 'weather' does not fit its type"),
        ({"weather": "rain", "guests": "SECRET-VALUE"}, "the input 'guests' does not fit its type"),
        ({**RAIN, "role": "x"}, "the conversation has no input 'role'; pass role=Role(...)"),
        ({**RAIN, "memory": []}, "the conversation has no input 'memory'; pass passages with context="),
        ({**RAIN, "attachments": []}, "the conversation has no input 'attachments'; pass attachments=[...]"),
        ({**RAIN, "mood": "glad"}, "the conversation has no input 'mood'; the inputs are: weather, guests"),
    ],
)
async def test_inputs_are_checked_before_anything_is_written(tmp_path: Path, inputs: Any, problem: str) -> None:
    lm = ScriptedLM([])
    async with keeper(tmp_path, lm) as agent:
        thread = agent.thread("t")
        with pytest.raises(InvalidArgument) as caught:
            await thread.converse("A hat?", inputs=inputs)
        assert await thread.history() == ()
        assert await thread.state() is None
    assert str(caught.value).startswith(problem)
    assert "SECRET-VALUE" not in str(caught.value)


async def test_an_agent_without_a_class_takes_no_inputs(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, ScriptedLM([])) as agent:
        with pytest.raises(InvalidArgument, match=r"no input 'weather'; pass WorldAgent\(converse=...\)"):
            await agent.thread("t").converse("A hat?", inputs=RAIN)


class Nothing(dspy.Signature):
    text: str = dspy.InputField()
    reply: str = dspy.OutputField()


class Remembers(Converse):
    memory: str = dspy.InputField()


class Answers(Converse):
    calls: str = dspy.OutputField()


class Listens(Converse):
    message: dict[str, str] = dspy.InputField()  # type: ignore[assignment] # what is refused


class Asks(Converse):
    reply: str = dspy.InputField()


class Sees(Converse):
    photo: list[dspy.Image] = dspy.InputField()


class Runs(Converse):
    act: object = dspy.OutputField(default=print)
    callback: type[Any] = dspy.InputField()


class Numbered(Converse):
    role: int = dspy.InputField()  # type: ignore[assignment] # what is refused


class Configured(Converse):
    config: str = dspy.InputField()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("Moody", "converse= must be a subclass of Converse, got a 'str'"),
        (Nothing, "converse= must be a subclass of Converse, got the class 'Nothing'"),
        (Remembers, "'Remembers' must not have a field with the reserved name 'memory'"),
        (Answers, "'Answers' must not have a field with the reserved name 'calls'"),
        (Listens, "'Listens' must not change the field 'message' of Converse"),
        (Asks, "the Signature 'Asks' must have input and output fields"),
        (Sees, "the field 'photo' of 'Sees' is a type of dspy"),
        (Runs, "the field 'callback' of 'Runs' has no JSON Schema"),
        (Numbered, "the field 'role' of the Signature 'Numbered'"),
        (Configured, "the Signature 'Configured' must not have a field with the reserved name 'config'"),
    ],
)
def test_a_class_that_cannot_be_one_is_refused(tmp_path: Path, given: Any, problem: str) -> None:
    with pytest.raises(FunctionInvalid) as caught:
        scripted_agent(tmp_path, ScriptedLM([]), converse=given)
    assert str(caught.value).startswith(problem)


class Spanish(Converse):
    """Answer in Spanish."""

    reply: str = dspy.OutputField(desc="one short sentence")


class Plain(Converse):
    pass


@FORMS
async def test_a_class_without_further_fields_changes_instructions_and_descriptions_alone(
    tmp_path: Path, form: Any
) -> None:
    systems = {}
    for name, given in (("own", Spanish), ("plain", Plain), ("none", None)):
        lm = ScriptedLM([{"reply": "Hola."}], form=form)
        async with scripted_agent(tmp_path / name, lm, converse=given, tools=[look]) as agent:
            turn = await agent.thread("t").converse("Hello?")
        assert turn.outputs == {}
        systems[name] = (lm.calls[0].system, lm.calls[0].messages)
    assert systems["plain"] == systems["none"]
    assert "Answer in Spanish." in systems["own"][0]
    assert "one short sentence" in systems["own"][0]


class Guided(Converse):
    role: str | None = dspy.InputField(default=None, desc="how the keeper behaves tonight")


@pytest.mark.requirement("R18")
@FORMS
@pytest.mark.parametrize("output", [None, Sign])
async def test_a_class_can_describe_the_role_of_its_turns(tmp_path: Path, form: Any, output: Any) -> None:
    reply = {"reply": "Hats." if output is None else {"text": "Hats"}}
    prompts = {}
    for name, given in (("own", Guided), ("none", None)):
        for role in (None, Role("lamp", HOW)):
            lm = ScriptedLM([reply], form=form)
            async with scripted_agent(tmp_path / f"{name}{role is None}", lm, converse=given, tools=[look]) as agent:
                await agent.thread("t").converse("Hello?", role=role, output=output)
            prompts[name, role is None] = (lm.calls[0].system, lm.calls[0].messages)
    assert prompts["own", True] == prompts["none", True]
    system, messages = prompts["own", False]
    assert "`role` (str): how the keeper behaves tonight" in system
    assert messages == prompts["none", False][1]
    assert f"[[ ## role ## ]]\n{HOW}" in messages[-1][1]


# --- with what else a turn can do -------------------------------------------------------------------------------------


@FORMS
async def test_output_types_the_reply_and_keeps_the_further_outputs(tmp_path: Path, form: Any) -> None:
    lm = ScriptedLM([{"reply": {"text": "Hats"}, "mood": "sour", "signs": []}], form=form)
    async with keeper(tmp_path, lm, tools=[look]) as agent:
        turn = await agent.thread("t").converse("A hat?", inputs=RAIN, output=Sign)
    assert (turn.result, turn.outputs) == (Sign(text="Hats"), {"mood": "sour", "signs": []})


class Optional(Converse):
    hint: str | None = dspy.OutputField()
    score: int = dspy.OutputField(default=5, ge=0, le=10)


@FORMS
async def test_outputs_have_defaults_and_limits(tmp_path: Path, form: Any) -> None:
    lm = ScriptedLM([{"reply": "One."}, {"reply": "Two.", "score": 11}, {"reply": "Two.", "score": 9}], form=form)
    async with scripted_agent(tmp_path, lm, converse=Optional, tools=[look]) as agent:
        thread = agent.thread("t")
        first, second = await thread.converse("1"), await thread.converse("2")
    assert first.outputs == {"hint": None, "score": 5}
    assert second.outputs == {"hint": None, "score": 9}
    assert "the output 'score' does not fit" in lm.calls[2].text


@FORMS
async def test_answers_from_before_the_class_are_shown_as_they_were(tmp_path: Path, form: Any) -> None:
    async with scripted_agent(tmp_path, ScriptedLM([{"reply": "Before."}])) as agent:
        await agent.thread("t").converse("First?")
    lm = ScriptedLM([SAID], form=form)
    async with keeper(tmp_path, lm, tools=[look]) as agent:
        await agent.thread("t").converse("A hat?", inputs=RAIN)
    assert "[[ ## mood ## ]]" not in lm.calls[0].messages[1][1]
    assert "Before." in lm.calls[0].messages[1][1]
    async with scripted_agent(tmp_path, ScriptedLM([{"reply": "After."}])) as agent:  # and without the class again
        assert (await agent.thread("t").converse("Last?")).text == "After."


async def test_a_role_in_an_output_is_withheld(tmp_path: Path) -> None:
    class Repeats(Converse):
        notes: list[str] = dspy.OutputField()

    lm = ScriptedLM([{"reply": "Yes.", "notes": [HOW]}])
    async with scripted_agent(tmp_path, lm, converse=Repeats) as agent:
        turn, events = await streamed(agent.thread("t").stream("Well?", role=Role("lamp", HOW), detach=True))
    assert turn.outputs == {"notes": ["[role withheld]."]} == events[-1].outputs
    assert_no_role_leak(tmp_path, HOW)


async def test_the_judge_sees_the_reply_alone(tmp_path: Path) -> None:
    def reply(call: ScriptedCall) -> Any:
        return {"findings": "", "satisfied": True} if "answer" in call.fields else SAID

    lm = ScriptedLM(reply)
    async with keeper(tmp_path, lm, profile=CHECKED) as agent:
        turn = await agent.thread("t").converse("A hat?", inputs=RAIN)
    [judged] = [call for call in lm.calls if "answer" in call.fields]
    assert turn.outputs == OUTPUTS
    assert judged.fields["request"] == "A hat?"
    assert judged.fields["answer"] == "A hat, then."
    assert "glad" not in judged.text
    assert "rain" not in judged.text


async def test_outputs_are_kept_with_the_verdict_on_their_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that is interrupted between the verdict and its end has the answer that was judged, and its outputs."""

    def reply(call: ScriptedCall) -> Any:
        return {"findings": "", "satisfied": True} if "answer" in call.fields else SAID

    async def interrupted(*_: Any) -> Any:
        raise ModelUnavailable("the service went away", remedy="resume the turn")

    with monkeypatch.context() as patched:
        patched.setattr(Conversation, "_answered", interrupted)
        async with keeper(tmp_path, ScriptedLM(reply), profile=CHECKED) as agent:
            with pytest.raises(ModelUnavailable):
                await agent.thread("t").converse("A hat?", inputs=RAIN)
    async with keeper(tmp_path, ScriptedLM([]), profile=CHECKED) as agent:
        turn = await agent.thread("t").resume()
    assert (turn.text, turn.outputs) == ("A hat, then.", OUTPUTS)


class Moodier(Moody):
    mood: Literal["glad", "sour", "calm"] = dspy.OutputField()  # type: ignore[assignment] # a change of the type


class Described(Moody):
    """Answer as the keeper of an inn would."""

    weather: str = dspy.InputField(desc="rain, sun or snow")


@FORMS
@pytest.mark.parametrize("changed", [None, Converse, Moodier])
async def test_a_turn_resumes_only_with_the_fields_that_it_began_with(tmp_path: Path, form: Any, changed: Any) -> None:
    tools = [replace(hang, approval=True)]
    async with keeper(tmp_path, after_a_call("hang", {"sign": "Hats"}, form), tools=tools) as agent:
        paused = await agent.thread("t").converse("A sign?", inputs=RAIN)
    answers = {pause.id: Approve() for pause in paused.pauses}
    async with keeper(tmp_path, ScriptedLM([]), tools=tools, converse=changed) as agent:
        with pytest.raises(GraphChanged, match=r"the inputs or outputs of '\w+' have changed") as caught:
            await agent.thread("t").resume(answers)
        assert caught.value.turn_id == paused.id
        assert len(await open_pauses(agent.thread("t"))) == 1  # the answer was not taken
    async with keeper(tmp_path, ScriptedLM([SAID], form=form), tools=tools, converse=Described) as agent:
        turn = await agent.thread("t").resume(answers)
    assert (turn.id, turn.outputs) == (paused.id, OUTPUTS)


async def test_a_turn_from_before_the_class_does_not_resume_with_it(tmp_path: Path) -> None:
    tools = [replace(hang, approval=True)]
    async with scripted_agent(tmp_path, after_a_call("hang", {"sign": "Hats"}, "native"), tools=tools) as agent:
        paused = await agent.thread("t").converse("A sign?")
    answers = {pause.id: Approve() for pause in paused.pauses}
    async with keeper(tmp_path, ScriptedLM([]), tools=tools) as agent:
        with pytest.raises(GraphChanged):
            await agent.thread("t").resume(answers)
    async with keeper(tmp_path, ScriptedLM([SAID]), tools=tools, converse=Spanish) as agent:  # has no further fields
        assert (await agent.thread("t").resume(answers)).text == "A hat, then."


async def test_a_repeated_start_is_the_same_turn_with_its_outputs(tmp_path: Path) -> None:
    async with keeper(tmp_path, ScriptedLM([SAID])) as agent:
        first = await agent.thread("t").converse("A hat?", inputs=RAIN, key="1")
    async with keeper(tmp_path, ScriptedLM([])) as agent:
        again = await agent.thread("t").converse("A hat?", inputs=RAIN, key="1")
        with pytest.raises(KeyReused):
            await agent.thread("t").converse("A hat?", inputs={"weather": "snow"}, key="1")
    assert (again.id, again.outputs) == (first.id, OUTPUTS)
    async with scripted_agent(tmp_path, ScriptedLM([]), converse=Moodless) as agent:  # outputs of a field that is gone
        other = await agent.thread("t").converse("A hat?", inputs={**RAIN, "guests": 1}, key="1")
    assert other.outputs == {"mood": "glad", "signs": [{"text": "Hats", "size": 2}]}


class Moodless(Converse):
    weather: str = dspy.InputField()
    guests: int = dspy.InputField()


async def test_replays_edits_and_forks_carry_the_inputs(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda _: SAID)
    async with keeper(tmp_path, lm) as agent:
        thread = agent.thread("t")
        await thread.converse("A hat?", inputs={"weather": "rain", "guests": 7})
        replayed = await thread.replay()
        edited = await thread.edit("A coat?")
        changed = await thread.edit("A coat?", inputs={"weather": "hail"})
        forked = await (await thread.fork()).converse("And now?", inputs=RAIN)
        with pytest.raises(InvalidArgument, match="no input 'wind'"):
            await thread.edit("A coat?", inputs={"wind": 1})
    assert [turn.outputs for turn in (replayed, edited, changed, forked)] == [OUTPUTS] * 4
    shown = [(call.fields["message"], call.fields["weather"], call.fields["guests"]) for call in lm.calls]
    assert shown[1:4] == [("A hat?", "rain", "7"), ("A coat?", "rain", "7"), ("A coat?", "hail", "1")]
    async with scripted_agent(tmp_path, lm) as agent:  # a class without these inputs leaves them out
        assert (await agent.thread("t").replay()).outputs == {}
    assert "weather" not in lm.calls[-1].fields


async def test_a_replay_needs_the_inputs_that_the_class_requires(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, ScriptedLM([{"reply": "Yes."}])) as agent:
        await agent.thread("t").converse("A hat?")
    async with keeper(tmp_path, ScriptedLM([SAID])) as agent:
        with pytest.raises(InvalidArgument, match="the input 'weather' is missing"):
            await agent.thread("t").replay()
        assert (await agent.thread("t").edit("A hat?", inputs=RAIN)).outputs == OUTPUTS


async def test_scheduled_runs_take_inputs(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda _: SAID)
    trigger = Trigger(schedule="open", fired_at=datetime(2030, 1, 1, tzinfo=UTC))
    async with keeper(tmp_path, lm) as agent:
        thread = agent.thread("t")
        assert (await thread.run_scheduled(trigger, inputs=RAIN)).outputs == OUTPUTS
        assert (await thread.replay()).outputs == OUTPUTS
        with pytest.raises(InvalidArgument, match="the input 'weather' is missing"):
            await thread.run_scheduled(trigger)
    assert [call.fields["weather"] for call in lm.calls] == ["rain", "rain"]


# --- programs, examples, traces ---------------------------------------------------------------------------------------


@FORMS
async def test_examples_and_programs_have_the_further_fields(tmp_path: Path, form: Any) -> None:
    lm = after_a_call("look", {"what": "hat"}, form)
    async with keeper(tmp_path, lm, tools=[look], settings={"examples": "all"}) as agent:
        await agent.thread("t").converse("A hat?", inputs=RAIN)
        called, made = await agent.examples("Converse")
        assert [call.tool for call in called["calls"]] == ["look"]
        assert (made["weather"], made["mood"], made["signs"]) == ("rain", "glad", OUTPUTS["signs"])
        assert set(made.inputs().keys()) >= {"message", "weather", "guests"}
        program = agent.program("Converse")
        program.predict.demos = [{"message": "DEMO", "weather": "fog", "reply": "Yes.", "mood": "sour", "signs": []}]
        program.save(str(tmp_path / "program.json"))
        with dspy.context(lm=ScriptedLM([SAID], form=form)):
            assert program(**made.inputs()).mood == "glad"
    for given in (program, tmp_path / "program.json"):
        lm = ScriptedLM([SAID], form=form)
        async with keeper(tmp_path, lm, tools=[look], programs={"Converse": given}) as agent:
            assert (await agent.thread("u").converse("A hat?", inputs=RAIN)).outputs == OUTPUTS
        assert "[[ ## weather ## ]]\nfog" in lm.calls[0].text
        assert "[[ ## mood ## ]]\nsour" in lm.calls[0].text


async def test_traces_hold_neither_inputs_nor_outputs(tmp_path: Path) -> None:
    lm = ScriptedLM([{"reply": "A hat, then.", "mood": "glad", "signs": [{"text": "CEDAR-SIGN"}]}])
    sink = Kept()
    async with keeper(tmp_path, lm, trace=sink) as agent:
        turn = await agent.thread("t").converse("A hat?", inputs={"weather": "COPPER-RAIN"})
    home = b"".join(file.read_bytes() for file in tmp_path.rglob("*trace*") if file.is_file())
    kept = repr(sink.items) + home.decode(errors="replace")
    assert turn.id in kept
    assert "CEDAR-SIGN" not in kept
    assert "COPPER-RAIN" not in kept


async def test_a_message_with_attachments_and_memory_has_its_inputs_too(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda _: SAID)
    async with keeper(tmp_path, lm, memory=Memory()) as agent:
        thread = agent.thread("t", account="ana")
        note = await agent.attachments.add(b"A list of hats.", name="hats.txt", media_type="text/plain")
        turn = await thread.converse("A hat?", inputs=RAIN, attachments=[note], context=["Hats are red."])
        await thread.converse("Again?", inputs=RAIN)
    assert turn.outputs == OUTPUTS
    for text in ("A list of hats.", "Hats are red.", "[[ ## weather ## ]]\nrain"):
        assert text in lm.calls[0].text


async def test_long_threads_with_inputs_are_cut_to_their_bounds(tmp_path: Path) -> None:
    profile = Profile("short", memory=MemoryOverrides(compression_threshold=200, strategy="sliding_window"))
    lm = ScriptedLM(lambda _: SAID)
    async with keeper(tmp_path, lm, profile=profile) as agent:
        for number in range(6):
            await agent.thread("t").converse(f"{number}", inputs={"weather": "rain " * 50, "guests": number})
    assert len(lm.calls[-1].messages) < 7


class Sized(Converse):
    """Say something about the number."""

    unit: str = dspy.InputField()
    size: Literal["small", "large"] = dspy.OutputField()


async def test_an_optimised_program_of_a_class_can_score_its_outputs(tmp_path: Path) -> None:
    """The model gives the right size once an answer of an example shows how."""

    def reply(call: ScriptedCall) -> Any:
        shown = any(speaker == "assistant" for speaker, _ in call.messages)
        is_easy = call.fields["message"] == "1"
        return {"reply": "A number.", "size": "small" if is_easy or shown else "large"}

    lines = [{"message": str(number), "unit": "feet", "reply": "", "size": "small"} for number in range(1, 9)]
    file = tmp_path / "examples.jsonl"
    file.write_text("\n".join(map(json.dumps, [lines[0], *lines])))

    def metric(example: Any, found: Any, trace: Any = None) -> float:
        return float(example.size == found.size)

    training = Training(examples=file, metric=metric, optimizer="bootstrap")
    async with scripted_agent(tmp_path / "home", ScriptedLM(reply), converse=Sized) as agent:
        optimised = await asyncio.wait_for(optimise_program(agent, "Converse", training), 60)
        await agent.use_program("Converse", optimised.program)
        turn = await agent.thread("t").converse("12", inputs={"unit": "feet"})
    assert turn.outputs == {"size": "small"}


@pytest.mark.requirement("T10")
async def test_a_repeated_start_is_the_same_turn_though_a_default_has_changed(tmp_path: Path) -> None:
    class Dated(Converse):
        """Answer as of now."""

        number: int = dspy.InputField(default_factory=itertools.count().__next__)

    lm = ScriptedLM(lambda _: {"reply": "Now."})
    async with scripted_agent(tmp_path, lm, converse=Dated) as agent:
        first = await agent.thread("t").converse("When?", key="k")
        assert (await agent.thread("t").converse("When?", key="k")).id == first.id
        with pytest.raises(KeyReused):
            await agent.thread("t").converse("When?", key="k", inputs={"number": 7})
    assert [call.fields["number"] for call in lm.calls] == ["0"]


@pytest.mark.parametrize("name", ["self", "completions"])
async def test_a_name_that_dspy_takes_is_refused_where_the_class_is_declared(name: str, tmp_path: Path) -> None:
    taken: Any = type("Taken", (Converse,), {"__annotations__": {name: str}, name: dspy.InputField()})
    with pytest.raises(FunctionInvalid, match=f"reserved name '{name}'"):
        scripted_agent(tmp_path, ScriptedLM([]), converse=taken)


def test_dspy_alone_runs_a_class_without_a_history() -> None:
    with dspy.context(lm=ScriptedLM([SAID]), adapter=dspy.ChatAdapter()):
        made = dspy.Predict(Moody)(message="A hat?", weather="rain")
    assert (made.reply, made.mood) == ("A hat, then.", "glad")
