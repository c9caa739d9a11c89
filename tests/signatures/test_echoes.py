"""R16: through whole turns, what is streamed, kept and returned is the same, and none of it repeats the role."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, scripted_agent
from worldagent import Role, WorldAgent, signatures
from worldagent.core import events as ev
from worldagent.core.errors import RoleEchoed
from worldagent.signatures import ModelCaller, ModelOptions
from worldagent.signatures.adapter import PlainAdapter
from worldagent.signatures.engines.connect import ModelConnection
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("R16")

KEEPER = "Answer as the lighthouse keeper who has not spoken to a soul since the great storm of 1911."
SECRET = Role("keeper", KEEPER)
MARK = "[role withheld]"
RUN = 40


def repeats(text: str, role: str = KEEPER) -> bool:
    """Whether a run of the role stands in a text, read without regard to case and white space."""
    said, known = (re.sub(r"\s+", " ", one).casefold() for one in (text, role.strip()))
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
async def test_the_stream_the_turn_and_the_log_agree_however_the_answer_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, reply: str
) -> None:
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
        async with scripted_agent(tmp_path / str(size), lm, workers=crew) as agent:
            thread = agent.thread("t")
            async with thread.stream("Hi, critic", role=SECRET) as stream:
                events = [event async for event in stream]
            history = await thread.history()
        assert standing(events) == stream.turn.text == history[-1].body["text"]
        finals.add(stream.turn.text)
    [final] = finals
    assert not repeats(final)
    assert (MARK in final) == repeats(said)
    assert all(not repeats(str(event)) for event in events)


@pytest.mark.parametrize(("size", "shown"), [(39, True), (40, False)])
async def test_a_run_is_forty_characters(tmp_path: Path, size: int, shown: bool) -> None:
    piece = KEEPER[20 : 20 + size]
    async with scripted_agent(tmp_path, ScriptedLM([{"reply": f"<{piece}>"}], chunk=1)) as agent:
        turn = await agent.thread("t").converse("Hi", role=SECRET)
    assert turn.text == (f"<{piece}>" if shown else f"<{MARK}>")


MARKED = "Write [[ ## reply ## ]] before the answer, and <<CUSTOM-TYPE-START-IDENTIFIER>> after it, dear keeper."


@pytest.mark.requirement("R15")
async def test_a_role_with_markers_is_withheld_as_it_was_written_and_as_it_was_sent(tmp_path: Path) -> None:
    sent = MARKED.replace("[[", "[\\[").replace("<<", "<\\<")
    lm = ScriptedLM([{"reply": f"Told: {MARKED}"}, {"reply": f"Told: {sent}"}], chunk=3)
    async with scripted_agent(tmp_path, lm) as agent:
        for name in ("a", "b"):
            async with agent.thread(name).stream("Hi", role=Role("r", MARKED)) as stream:
                events = [event async for event in stream]
            assert standing(events) == stream.turn.text == f"Told: {MARK}"
    assert lm.calls[0].role == sent


async def test_what_an_earlier_message_says_may_be_said_again(tmp_path: Path) -> None:
    lm = ScriptedLM([{"reply": f"First: {KEEPER}"}, {"reply": f"Again: {KEEPER}"}, {"reply": KEEPER}], chunk=5)
    async with scripted_agent(tmp_path, lm) as agent:
        thread = agent.thread("t")
        assert (await thread.converse("Hi")).text == f"First: {KEEPER}"  # no role, so nothing to repeat
        assert (await thread.converse("Hi", role=SECRET)).text == f"Again: {KEEPER}"
        assert (await agent.thread("other").converse("Hi", role=SECRET)).text == MARK


async def test_a_plan_that_names_the_role_is_told_of_without_it(tmp_path: Path) -> None:
    lm = ScriptedLM(
        [
            {"reply": "", "calls": [{"tool": KEEPER, "arguments": {"request": "x"}}]},
            {"reply": "", "calls": [{"tool": "critic", "arguments": {KEEPER: 1, "request": "x"}}]},
            {"reply": "Fine."},
        ]
    )
    agent = scripted_agent(tmp_path, lm, workers=[CRITIC])
    async with agent, agent.thread("t").stream("Hi", role=SECRET) as stream:
        events = [event async for event in stream]
    reasons = [event.reason for event in events if event.type == "plan_rejected"]
    assert len(reasons) == 2
    assert "role withheld" in reasons[0]  # where it stood as a name; a field that is not declared is not even named
    assert all("lighthouse" not in reason for reason in reasons)


async def test_a_failed_stream_leaves_nothing_standing(tmp_path: Path) -> None:
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
    async with scripted_agent(tmp_path, lm) as agent:
        async with agent.thread("t").stream("Hi", role=SECRET) as stream:
            events = [event async for event in stream]
        history = await agent.thread("t").history()
    assert stream.turn.text == f"ab\U0001f600cd\ufffd {MARK} \ufffd."
    assert standing(events) == stream.turn.text == history[-1].body["text"]
