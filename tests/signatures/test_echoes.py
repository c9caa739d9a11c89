"""R16: whole turns with `echo="strict"`: what is streamed, kept and returned is the same and repeats no role."""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dspy
import pytest
from pydantic import BaseModel

from support.agents import CRITIC, Said, scripted_agent, streamed
from worldagent import Role, WorldAgent, signatures
from worldagent.core import events as ev
from worldagent.core.errors import RoleEchoed
from worldagent.graphs import Shape, TaskContext
from worldagent.graphs.shapes import compaction_shape
from worldagent.harness import Worker, tool
from worldagent.profiles import Profile, Verification
from worldagent.signatures import ModelCaller, ModelOptions
from worldagent.signatures.adapter import PlainAdapter
from worldagent.signatures.engines.connect import ModelConnection
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("R16")
KEEPER = "Answer as the lighthouse keeper who has not spoken to a soul since the great storm of 1911."
SECRET = Role("keeper", KEEPER)
MARK = "[role withheld]"
RUN = 40
STRICT = {"echo": "strict"}


def repeats(text: str) -> bool:
    """Whether a run of the role stands in a text, read without regard to case and white space."""
    said, known = (re.sub(r"\s+", " ", one).casefold() for one in (text, KEEPER))
    return any(known[at : at + RUN] in said for at in range(len(known) - RUN + 1))


def standing(events: list[Any]) -> str:
    text = ""
    for event in events:
        match event:
            case ev.TextDelta():
                text += event.text
                assert not repeats(text), "a run was shown, if only for a moment"
            case ev.TextReplaced():
                text = event.text
            case ev.StepEnded(interim=True):
                text = ""
            case _:
                pass
    return text


def embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the agent treat a scripted model as it treats the embedded one."""

    async def open_model(lm: Any, *, options: ModelOptions, **more: Any) -> ModelCaller:
        connection = ModelConnection(lm=lm, name="scripted", plain=True)
        return ModelCaller(connection=connection, adapter=PlainAdapter(), options=options)

    monkeypatch.setattr(signatures, "open_model", open_model)


REPLIES = {
    "in capitals, over lines": f"Well: {KEEPER.upper().replace(' ', chr(10))} End.",
    "its end": f"I was told {KEEPER[-RUN:]}",
    "one less than a run": f"x{KEEPER[7 : 7 + RUN - 1]}x",
    "astral letters around it": f"\U0001f600{KEEPER}\U0001f600\u0301",
}


@pytest.mark.parametrize("form", ["chat", "chat with a worker", "embedded", "embedded with a worker"])
@pytest.mark.parametrize("reply", REPLIES)
async def test_stream_agrees_with_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, reply: str) -> None:
    crew = [CRITIC] if "worker" in form else []
    said = REPLIES[reply]
    if "embedded" in form:
        embedded(monkeypatch)
    finals = set()
    for size in (1, 7, 500):
        fields = {"reply": said, "calls": []} if crew else {"reply": said}
        lm = ScriptedLM([fields if crew or form == "chat" else said], chunk=size, form="json" if crew else "chat")
        if form == "chat with a worker":
            lm = ScriptedLM([fields], chunk=size)
        async with scripted_agent(tmp_path / str(size), lm, settings=STRICT, workers=crew) as agent:
            thread = agent.thread("t")
            turn, events = await streamed(thread.stream("Hi, critic", role=SECRET))
            history = await thread.history()
        assert standing(events) == turn.text == history[-1].body["text"]
        finals.add(turn.text)
    [final] = finals
    assert not repeats(final)
    assert (MARK in final) == repeats(said)
    assert all(not repeats(str(event)) for event in events)


MARKED = "Write [[ ## reply ## ]] before the answer, and <<CUSTOM-TYPE-START-IDENTIFIER>> after it, dear keeper."


@pytest.mark.requirement("R15")
async def test_a_role_with_markers_is_withheld_as_it_was_written_and_as_it_was_sent(tmp_path: Path) -> None:
    sent = MARKED.replace("[[", "[\\[").replace("<<", "<\\<")
    lm = ScriptedLM([{"reply": f"Told: {MARKED}"}, {"reply": f"Told: {sent}"}], chunk=3)
    async with scripted_agent(tmp_path, lm, settings=STRICT) as agent:
        for name in ("a", "b"):
            turn, events = await streamed(agent.thread(name).stream("Hi", role=Role("r", MARKED)))
            assert standing(events) == turn.text == f"Told: {MARK}"
    assert lm.calls[0].role == sent


async def test_text_of_an_earlier_message_can_be_repeated(tmp_path: Path) -> None:
    lm = ScriptedLM([{"reply": f"First: {KEEPER}"}, {"reply": f"Again: {KEEPER}"}, {"reply": KEEPER}], chunk=5)
    async with scripted_agent(tmp_path, lm, settings=STRICT) as agent:
        thread = agent.thread("t")
        assert (await thread.converse("Hi")).text == f"First: {KEEPER}"  # no role, so nothing to repeat
        assert (await thread.converse("Hi", role=SECRET)).text == f"Again: {KEEPER}"
        assert (await agent.thread("other").converse("Hi", role=SECRET)).text == MARK


async def test_rejected_plan_is_reported_without_the_role(tmp_path: Path) -> None:
    lm = ScriptedLM(
        [
            {"reply": "", "calls": [{"tool": KEEPER, "arguments": {"request": "x"}}]},
            {"reply": "", "calls": [{"tool": "critic", "arguments": {KEEPER: 1, "request": "x"}}]},
            {"reply": "Fine."},
        ]
    )
    async with scripted_agent(tmp_path, lm, workers=[CRITIC]) as agent:
        _, events = await streamed(agent.thread("t").stream("Hi", role=SECRET))
    reasons = [event.reason for event in events if event.type == "plan_rejected"]
    assert len(reasons) == 2
    assert "role withheld" in reasons[0]  # where it stood as a name; a field that is not declared is not even named
    assert all("lighthouse" not in reason for reason in reasons)


async def test_failed_stream_shows_no_text(tmp_path: Path) -> None:
    lm = ScriptedLM([{"reply": f"Some words first. {KEEPER}"}], chunk=3)
    events: list[Any] = []

    async def follow(agent: WorldAgent) -> None:
        async with agent.thread("t").stream("Hi", role=SECRET) as stream:
            async for event in stream:
                events.append(event)

    async with scripted_agent(tmp_path, lm, settings={"echo": "fail"}) as agent:
        with pytest.raises(RoleEchoed):
            await follow(agent)
    assert standing(events) == ""
    assert all(not repeats(str(event)) for event in events)


@pytest.mark.parametrize("size", [1, 2])
async def test_a_surrogate_pair_in_two_deltas_ends_as_it_is_kept(tmp_path: Path, size: int) -> None:
    lm = ScriptedLM([{"reply": f"ab\ud83d\ude00cd\ud83d {KEEPER} \ude00."}], chunk=size)
    async with scripted_agent(tmp_path, lm, settings=STRICT) as agent:
        turn, events = await streamed(agent.thread("t").stream("Hi", role=SECRET))
        history = await agent.thread("t").history()
    assert turn.text == f"ab\U0001f600cd\ufffd {MARK} \ufffd."
    assert standing(events) == turn.text == history[-1].body["text"]


LINES = (
    'Du bist "streng".\nNenne drei große Fehler.\nLobe nie,\tauch nicht "leise".\nÜbe Kritik.\nSag "nein", 不要夸奖。'
)
LINED = Role("lines", LINES)
FORMS: dict[str, Callable[[str], str]] = {
    "in JSON with ASCII escapes": lambda text: json.dumps({"rules": text}),
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "with zero-width blanks, in JSON": lambda text: json.dumps("\u200b".join(text)),
}


def of_the_role(text: str, *, quoted: bool) -> list[str]:
    """The words of the role that can be read in a text, without those that it quotes or with them."""
    text = text.replace("\u00ad", "").replace("\u200b", "")
    words = ("Fehler", "Lobe", "auch nicht", "Kritik", "夸奖", *(("streng", "leise", "nein") if quoted else ()))
    return [word for word in words if word.casefold() in text.casefold()]


class Verdict(BaseModel):
    texts: list[str]
    table: dict[str, str]


class Judge(dspy.Signature):
    """Judge a text."""

    text: str = dspy.InputField()
    texts: list[str] = dspy.OutputField()
    table: dict[str, str] = dspy.OutputField()


def judging() -> Shape[Said, Verdict]:
    async def handle(params: Said, ctx: TaskContext) -> Mapping[str, Any]:
        return await ctx.predict(Judge, text=params.text)

    return Shape("judge", Said, Verdict, handle, entry=Judge, description="judges")


GIVEN: list[str] = []
"""The arguments of the tool `note`."""


@tool(risk="read_only")
async def note(text: str) -> str:
    """Keep a text."""
    GIVEN.append(text)
    return "kept"


CLERK = Worker("clerk", "You keep notes.", "keeps notes", tools=("note",))


async def stream(agent: Any) -> str:
    turn, events = await streamed(agent.thread("t").stream("Hi", role=LINED))
    assert standing(events) == turn.text
    return "".join(map(str, events))


async def worker(agent: Any) -> str:
    return str((await agent.thread("t").task("subagent", {"worker": "critic", "request": "Go."}, role=LINED)).result)


async def clerk(agent: Any) -> str:
    GIVEN.clear()
    await agent.thread("t").task("subagent", {"worker": "clerk", "request": "Go."}, role=LINED)
    return "".join(GIVEN)


async def shape(agent: Any) -> str:
    return str((await agent.thread("t").task("judge", {"text": "x"}, role=LINED)).result)


SURFACES: dict[str, Any] = {"stream": stream, "worker": worker, "tool": clerk, "shape": shape}


def model(said: str) -> ScriptedLM:
    def reply(call: ScriptedCall) -> Any:
        if "text" in call.fields:
            return {"texts": ["a", said], "table": {said: "b", "c": said}}
        if "calls" in call.system and "kept" not in call.text:
            return {"calls": [{"tool": "note", "arguments": {"text": said}}], "result": ""}
        if "request" in call.fields:
            return {"result": said} | ({"calls": []} if "calls" in call.system else {})
        return {"reply": said, "calls": []} if "Reply to the message" in call.system else {"reply": said}

    return ScriptedLM(reply, chunk=3)


def opened(home: Path, lm: Any, **settings: Any) -> Any:
    return scripted_agent(home, lm, workers=[CRITIC, CLERK], shapes=[judging()], tools=[note], settings=settings)


@pytest.mark.parametrize("echo", ["strict", "disclosure"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("surface", SURFACES)
async def test_repeated_role_is_withheld_in_each_form(tmp_path: Path, surface: str, form: str, echo: str) -> None:
    async with opened(tmp_path, model(f"So: {FORMS[form](LINES)} End."), echo=echo) as agent:
        given = await SURFACES[surface](agent)
    assert MARK in given
    assert of_the_role(given, quoted=echo == "strict") == []


@pytest.mark.parametrize("surface", SURFACES)
async def test_a_role_fails_the_turn_where_that_is_set(tmp_path: Path, surface: str) -> None:
    async with opened(tmp_path, model(f"So: {LINES} End."), echo="fail") as agent:
        with pytest.raises(RoleEchoed):
            await SURFACES[surface](agent)


JSON_ANSWERS = {"bare": "{}", "in a fence without a name": "\n```\n{}\n```\n"}


@pytest.mark.parametrize("crew", [[], [CRITIC]], ids=["alone", "with a worker"])
@pytest.mark.parametrize("answer", JSON_ANSWERS)
async def test_json_in_place_of_the_chat_format_is_read(tmp_path: Path, crew: list[Any], answer: str) -> None:
    fields = {"reply": f'She said "yes".\nThen: {LINES}', "calls": []}
    said = JSON_ANSWERS[answer].replace("{}", json.dumps(fields, indent=1))
    lm = ScriptedLM([said, said], chunk=4)
    async with scripted_agent(tmp_path, lm, settings=STRICT, workers=crew) as agent:
        turn, events = await streamed(agent.thread("t").stream("Hi", role=LINED))
        assert turn.text == standing(events) == f'She said "yes".\nThen: {MARK}'
        assert (await agent.thread("u").converse("Hi")).text == fields["reply"]


WORK = {"shape": "subagent", "params": {"worker": "critic", "request": "Go."}}


def apart(said: str) -> ScriptedLM:
    """A model that repeats the role where it is not given it: in verdicts, summaries and compactions."""

    def reply(call: ScriptedCall) -> Any:
        if "answer" in call.fields:
            return {"findings": said, "satisfied": False}
        if "earlier" in call.fields:
            return {"summary": said}
        if "wanted" in call.fields:
            return {"text": said}
        return {"result": "Fine."} if "request" in call.fields else {"reply": "Fine."}

    return ScriptedLM(reply)


async def verdict(agent: Any) -> str:
    async with agent.thread("t").stream("Hi", role=LINED) as running:
        return "".join([str(event) async for event in running])


async def summary(agent: Any) -> str:
    thread = agent.thread("t")
    for number in range(4):
        await thread.converse(f"Message {number}.", role=LINED)
    return "".join(str(message.body) for message in await thread.history() if message.kind == "summary")


async def compaction(agent: Any) -> str:
    return str((await agent.thread("t").task("compaction", WORK, role=LINED)).result)


APART: dict[str, Any] = {"verdict": verdict, "summary": summary, "compaction": compaction}


def opened_apart(home: Path, said: str, surface: str, **settings: Any) -> Any:
    if surface == "summary":
        settings["history_limit"] = 4
    profile = Profile("checked", verification=Verification(max_iterations=1)) if surface == "verdict" else None
    more = {} if profile is None else {"profile": profile}
    return scripted_agent(
        home,
        apart(said),
        workers=[CRITIC] if profile is None else [],
        shapes=[compaction_shape()],
        settings=settings,
        **more,
    )


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("surface", APART)
async def test_a_role_is_withheld_where_a_model_repeats_it_that_was_not_given_it(tmp_path: Path, surface: str) -> None:
    async with opened_apart(tmp_path, f"So: {json.dumps(LINES)} End.", surface) as agent:
        given = await APART[surface](agent)
    assert MARK in given
    assert of_the_role(given, quoted=False) == []
