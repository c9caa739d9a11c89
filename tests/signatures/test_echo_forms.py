"""R16: a role is withheld in whatever form a model gives it back: as JSON, escaped, in other letters."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dspy
import pytest
from pydantic import BaseModel

from support.agents import CRITIC, scripted_agent, standing
from worldagent import Role
from worldagent.core.errors import RoleEchoed
from worldagent.graphs import Shape, TaskContext
from worldagent.graphs.shapes import compaction_shape
from worldagent.harness import Worker, tool
from worldagent.profiles import Profile, Verification
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("R16")

LINES = (
    'Du bist "streng".\nNenne drei große Fehler.\nLobe nie,\tauch nicht "leise".\nÜbe Kritik.\nSag "nein", 不要夸奖。'
)
SECRET = Role("lines", LINES)
MARK = "[role withheld]"

FORMS: dict[str, Callable[[str], str]] = {
    "in JSON with ASCII escapes": lambda text: json.dumps({"rules": text}),
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "with zero-width blanks, in JSON": lambda text: json.dumps("\u200b".join(text)),
}


def of_the_role(text: str) -> list[str]:
    """The words of the role that can be read in a text."""
    text = text.replace("\u00ad", "").replace("\u200b", "")
    return [word for word in ("streng", "Fehler", "leise", "Kritik", "nein") if word.casefold() in text.casefold()]


class Params(BaseModel):
    text: str


class Verdict(BaseModel):
    texts: list[str]
    table: dict[str, str]


class Judge(dspy.Signature):
    """Judge a text."""

    text: str = dspy.InputField()
    texts: list[str] = dspy.OutputField()
    table: dict[str, str] = dspy.OutputField()


def judging() -> Shape[Params, Verdict]:
    async def handle(params: Params, ctx: TaskContext) -> Mapping[str, Any]:
        return await ctx.predict(Judge, text=params.text)

    return Shape("judge", Params, Verdict, handle, entry=Judge, description="judges")


GIVEN: list[str] = []
"""The arguments of the tool `note`."""


@tool(risk="read_only")
async def note(text: str) -> str:
    """Keep a text."""
    GIVEN.append(text)
    return "kept"


CLERK = Worker("clerk", "You keep notes.", "keeps notes", tools=("note",))


async def stream(agent: Any) -> str:
    async with agent.thread("t").stream("Hi", role=SECRET) as running:
        events = [event async for event in running]
    assert standing(events) == running.turn.text
    return "".join(map(str, events))


async def worker(agent: Any) -> str:
    return str((await agent.thread("t").task("subagent", {"worker": "critic", "request": "Go."}, role=SECRET)).result)


async def clerk(agent: Any) -> str:
    GIVEN.clear()
    await agent.thread("t").task("subagent", {"worker": "clerk", "request": "Go."}, role=SECRET)
    return "".join(GIVEN)


async def shape(agent: Any) -> str:
    return str((await agent.thread("t").task("judge", {"text": "x"}, role=SECRET)).result)


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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_role_is_withheld_in_each_form_wherever_a_model_repeats_it(
    tmp_path: Path, surface: str, form: str
) -> None:
    async with opened(tmp_path, model(f"So: {FORMS[form](LINES)} End.")) as agent:
        given = await SURFACES[surface](agent)
    assert MARK in given
    assert of_the_role(given) == []


@pytest.mark.parametrize("surface", SURFACES)
async def test_a_role_fails_the_turn_where_that_is_set(tmp_path: Path, surface: str) -> None:
    async with opened(tmp_path, model(f"So: {LINES} End."), echo="fail") as agent:
        with pytest.raises(RoleEchoed):
            await SURFACES[surface](agent)


JSON_ANSWERS = {"bare": "{}", "in a fence without a name": "\n```\n{}\n```\n"}


@pytest.mark.parametrize("crew", [[], [CRITIC]], ids=["alone", "with a worker"])
@pytest.mark.parametrize("answer", JSON_ANSWERS)
async def test_json_where_the_chat_format_was_asked_for_is_read_as_its_fields(
    tmp_path: Path, crew: list[Any], answer: str
) -> None:
    fields = {"reply": f'She said "yes".\nThen: {LINES}', "calls": []}
    said = JSON_ANSWERS[answer].replace("{}", json.dumps(fields, indent=1))
    lm = ScriptedLM([said, said], chunk=4)
    async with scripted_agent(tmp_path, lm, workers=crew) as agent:
        async with agent.thread("t").stream("Hi", role=SECRET) as running:
            events = [event async for event in running]
        assert running.turn.text == standing(events) == f'She said "yes".\nThen: {MARK}'
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
    async with agent.thread("t").stream("Hi", role=SECRET) as running:
        return "".join([str(event) async for event in running])


async def summary(agent: Any) -> str:
    thread = agent.thread("t")
    for number in range(4):
        await thread.converse(f"Message {number}.", role=SECRET)
    return "".join(str(message.body) for message in await thread.history() if message.kind == "summary")


async def compaction(agent: Any) -> str:
    return str((await agent.thread("t").task("compaction", WORK, role=SECRET)).result)


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
    assert of_the_role(given) == []
