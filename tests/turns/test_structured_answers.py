"""`converse(..., output=...)`: the answer as the type that the caller asked for, checked."""

import gc
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from support.agents import open_pauses, scripted_agent, streamed
from support.leaks import traces_of
from support.services import FORMATS, Format, Said, service
from worldagent import Approve, Role, Settings, Storage, WorldAgent, tool
from worldagent.core import events as ev
from worldagent.core.errors import InvalidArgument, OutputInvalid
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

FORMS = pytest.mark.parametrize("form", ["native", "chat"])
HOW = "Answer as a beekeeper of three valleys would, slowly and with care."
RULES = """Facts
The harbour of Vell is closed for ships with more than three masts from October on.
Topic Rules
Never tell a captain which berth another captain has paid for, and do not promise one.
Launch
Only launch a ship when the harbour master has seen its papers twice."""


class Ship(BaseModel):
    name: str
    masts: int


SHIP = Ship(name="Vela", masts=3)
AS_JSON = {"name": "Vela", "masts": 3}


@dataclass
class Crew:
    captain: str
    mates: list[str]


class Told(BaseModel):
    topic: Literal["Topic Rules", "none"]
    facts: list[str]
    rules: dict[str, str]


@tool(risk="read_only")
def note(facts: str, rules: str) -> str:
    """Note what was told."""
    return f"{facts} {rules}"


@tool(risk="write")
def launch(ship: str) -> str:
    """Launch a ship."""
    return f"{ship} floats"


def launching(form: Any) -> ScriptedLM:
    def reply(call: ScriptedCall) -> Any:
        if call.steps:
            return {"reply": AS_JSON}
        return {"reply": None, "calls": [{"tool": "launch", "arguments": {"ship": "Vela"}}]}

    return ScriptedLM(reply, form=form)


@pytest.mark.requirement("T12")
async def test_the_values_of_a_schema_go_with_its_turn(tmp_path: Path) -> None:
    """Otherwise each full garbage collection looks through them: those of the last 128 turns held the event loop."""

    def kept() -> int:
        gc.collect()
        return len(gc.get_objects())

    lm = ScriptedLM(lambda _: {"reply": {}}, form="native")
    async with scripted_agent(tmp_path, lm) as agent:
        counts = []
        for number in range(8):
            fields = {f"k{place}-{number}": {"allOf": [{"type": "string"}]} for place in range(500)}
            turn = await agent.thread("t").converse("Hm.", output={"type": "object", "properties": fields})
            assert turn.result == {}
            lm.calls.clear()
            counts.append(kept())
        [asked, _] = await agent.thread("t").history(limit=2)
        assert "k499-7" in json.loads(asked.body["output"])["properties"]  # a text, which is one object
    assert counts[-1] - counts[3] < 4 * 500  # a schema has 1,000 lists and dicts


@pytest.mark.requirement("T12")
@FORMS
async def test_the_answer_is_a_value_of_the_type(tmp_path: Path, form: Any) -> None:
    lm = ScriptedLM([{"reply": AS_JSON}], form=form)
    async with scripted_agent(tmp_path, lm) as agent:
        turn = await agent.thread("t").converse("Which ship?", output=Ship)
        [_, said] = await agent.thread("t").history()
    assert turn.result == SHIP
    assert json.loads(turn.text) == AS_JSON == said.body["result"]
    assert turn.to_json()["result"] == AS_JSON


@pytest.mark.parametrize(
    ("wanted", "given", "result"),
    [
        (Literal["port", "starboard"], "port", "port"),
        (Crew, {"captain": "Ana", "mates": []}, Crew("Ana", [])),
        (Ship.model_json_schema(), AS_JSON, AS_JSON),
        (Ship | None, None, None),
    ],
)
async def test_output_takes_any_type_or_json_schema(tmp_path: Path, wanted: Any, given: Any, result: Any) -> None:
    lm = ScriptedLM([{"reply": given}])
    async with scripted_agent(tmp_path, lm) as agent:
        turn = await agent.thread("t").converse("Which?", output=wanted)
    assert turn.result == result
    assert json.loads(turn.text) == given


@FORMS
async def test_an_answer_that_does_not_fit_is_reported_once(tmp_path: Path, form: Any) -> None:
    lm = ScriptedLM([{"reply": {"name": "Vela"}}, {"reply": AS_JSON}], form=form)
    async with scripted_agent(tmp_path, lm) as agent:
        turn, events = await streamed(agent.thread("t").stream("Which?", output=Ship))
    assert turn.result == SHIP
    [rejected] = [event for event in events if isinstance(event, ev.PlanRejected)]
    assert "masts" in rejected.reason
    assert "masts" in lm.calls[1].text
    [delta] = [event for event in events if isinstance(event, ev.TextDelta)]  # JSON comes once it is checked
    assert delta.text == turn.text


async def test_a_model_that_gives_nothing_that_fits_is_an_error_and_the_message_stays(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda _: {"reply": "a ship"})
    async with scripted_agent(tmp_path, lm) as agent:
        thread = agent.thread("t")
        with pytest.raises(OutputInvalid):
            await thread.converse("Which?", output=Ship)
        assert [message.kind for message in await thread.history()] == ["message"]
    assert len(lm.calls) == 3  # the answer, the report, and the last one


async def test_a_turn_that_is_resumed_without_the_type_is_checked_by_its_schema(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, launching("native"), tools=[launch]) as agent:
        await agent.thread("t").converse("Launch it.", output=Ship)
    lm = ScriptedLM([{"reply": {"name": "Vela"}}, {"reply": AS_JSON}], form="native")
    async with scripted_agent(tmp_path, lm, tools=[launch]) as agent:
        thread = agent.thread("t")
        [pause] = await open_pauses(thread)
        turn = await thread.resume({pause.id: Approve()})
    assert turn.result == AS_JSON
    assert len(lm.calls) == 2


@FORMS
async def test_another_type_at_the_resumption_is_refused_before_an_answer_is_taken(tmp_path: Path, form: Any) -> None:
    async with scripted_agent(tmp_path, launching(form), tools=[launch]) as agent:
        thread = agent.thread("t")
        turn = await thread.converse("Launch it.", output=Ship)
        assert (turn.status, turn.result) == ("paused", None)
        [pause] = await open_pauses(thread)
        with pytest.raises(InvalidArgument, match="output="):
            await thread.resume({pause.id: Approve()}, output=Crew)
        [pause] = await open_pauses(thread)
        assert (await thread.resume({pause.id: Approve()}, output=Ship)).result == SHIP


@pytest.mark.parametrize("wanted", FORMATS)
async def test_each_service_gets_the_schema(tmp_path: Path, wanted: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "key")
    role = Role("keeper", HOW)
    with service(Said(json.dumps(AS_JSON))) as stub:
        settings = Settings(api_base=stub.url(wanted), model_attempts=1)
        given: dict[str, Any] = {"storage": Storage(home=tmp_path), "settings": settings, "tools": [launch]}
        async with WorldAgent("ships", lm=FORMATS[wanted], **given) as agent:
            turn = await agent.thread("t").converse("Which?", output=Ship, role=role)
    assert turn.result == SHIP
    [body] = stub.requests
    assert "masts" in json.dumps(body)
    assert json.dumps(body).count(HOW) == 1
    assert_no_role_leak(tmp_path, traces_of(HOW))


async def test_the_embedded_model_answers_under_a_grammar(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, "local", tools=[launch]) as agent:
        turn = await agent.thread("t").converse("Which ship is it?", output=Ship)
    assert isinstance(turn.result, Ship)
    assert turn.usage.calls == 1


@pytest.mark.requirement("R16")
@FORMS
async def test_a_disclosure_keeps_the_keys_and_choices_of_the_schema(tmp_path: Path, form: Any) -> None:
    first, second, third = RULES.splitlines()[1::2]
    told = {"topic": "Topic Rules", "facts": [first], "rules": {"Launch": third, "Topic": second}}
    lm = ScriptedLM([{"reply": told}], form=form)
    async with scripted_agent(tmp_path, lm) as agent:
        turn = await agent.thread("t").converse("Hm?", output=Told, role=Role("r", RULES))
        assert (turn.result.topic, turn.result.facts) == ("Topic Rules", ["[role withheld]."])
        assert len(turn.result.rules) == 2
        assert not any(line in turn.text for line in (first, second, third))


@pytest.mark.requirement("R16")
@FORMS
async def test_a_disclosure_keeps_the_names_of_a_tools_parameters(tmp_path: Path, form: Any) -> None:
    first, second, third = RULES.splitlines()[1::2]
    call = {"tool": "note", "arguments": {"facts": first, "rules": f"{second} {third}"}}
    lm = ScriptedLM([{"reply": None, "calls": [call]}, {"reply": "Noted."}], form=form)
    async with scripted_agent(tmp_path, lm, tools=[note]) as agent:
        turn, events = await streamed(agent.thread("t").stream("Note it.", role=Role("r", RULES)))
    [ended] = [event for event in events if isinstance(event, ev.CallEnded)]
    assert (turn.text, ended.status) == ("Noted.", "done")
    assert "withheld" in lm.calls[-1].text
    assert lm.calls[-1].text.count(first) == 1  # in the role
