"""Further inputs and outputs of the conversation on the wire: the sidecar, the web app, AG-UI and OpenAI's API."""

from pathlib import Path
from typing import Any

import dspy
import pytest

from support.sidecar_served import agents, caller_of, served, tokens
from support.web import events_in, say, web
from worldagent.hosts.sidecar import Grant, Sidecar
from worldagent.signatures import Converse
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("T20")


class Tidal(Converse):
    """Say what the tide does."""

    harbour: str = dspy.InputField(default="south")
    levels: list[int] = dspy.OutputField()


NORTH = {"harbour": "north"}
LEVELS = {"levels": [1, 3]}


def tide() -> ScriptedLM:
    return ScriptedLM(lambda _: {"reply": "It rises.", "levels": [1, 3]})


async def test_the_sidecars_tools_take_inputs_and_answer_with_outputs(tmp_path: Path) -> None:
    lm, known = tide(), tokens(ana=Grant(("novel",), ("ana",)))
    sidecar = Sidecar(agents(tmp_path, lm=lm, converse=Tidal), tokens=known)
    async with served(sidecar) as url, caller_of(url, "auto", "ana") as ana:
        said = (await ana("converse", thread="t", text="Tide?", inputs=NORTH))["turn"]
        fired: dict[str, Any] = {"schedule": "s", "fired_at": "2030-01-01T00:00:00Z"}
        ran = (await ana("run_scheduled", thread="u", **fired, inputs=NORTH))["turn"]
        read = await ana("events", turn_id=said["id"])
        [asked, answer] = (await ana("history", thread="t"))["messages"]
        starts = {"message": "Tide?", "inputs": NORTH}
        added = await ana("schedule_add", schedule="daily", when={"every": 3600}, starts=starts)
        for name, arguments, problem in (
            ("converse", {"thread": "t", "text": "Tide?", "inputs": {"moon": 1}}, "has no input 'moon'"),
            ("converse", {"thread": "t", "text": "Tide?", "inputs": {"harbour": 7}}, "input 'harbour' does not fit"),
            ("schedule_add", {"schedule": "x", "when": {"every": 60}, "starts": {"message": "?", "inputs": {"a": 1}}},
             "has no input 'a'"),
        ):  # fmt: skip
            refused = await ana.refused(name, **arguments)
            assert (refused["code"], problem in refused["problem"]) == ("invalid_argument", True)
    assert said["outputs"] == ran["outputs"] == read["turn"]["outputs"] == LEVELS
    assert (asked["body"]["inputs"], answer["body"]["outputs"]) == (NORTH, LEVELS)
    assert added["schedule"]["starts"] == starts
    assert [call.fields["harbour"] for call in lm.calls] == ["north", "north"]


async def test_the_web_app_takes_inputs_and_answers_with_outputs(tmp_path: Path) -> None:
    lm = tide()
    async with web(tmp_path, lm, agent={"converse": Tidal}) as client:
        *events, last = await say(client, "Tide?", inputs=NORTH)
        turn = (await client.post("/threads/main/messages", json={"text": "Tide?", "inputs": NORTH})).json()["turn"]
        refused = await client.post("/threads/main/messages", json={"text": "Tide?", "inputs": {"moon": 1}})
    assert last["turn"]["outputs"] == turn["outputs"] == events[-1]["outputs"] == LEVELS
    assert "".join(each["text"] for each in events if each["type"] == "text_delta") == "It rises."
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_argument")
    assert [call.fields["harbour"] for call in lm.calls] == ["north", "north"]


async def test_ag_ui_takes_inputs_as_a_property_and_has_outputs_in_its_state(tmp_path: Path) -> None:
    lm = tide()
    body = {"threadId": "main", "runId": "r1", "tools": [], "context": [], "forwardedProps": {"inputs": NORTH}}
    async with web(tmp_path, lm, agent={"converse": Tidal}) as client:
        messages = [{"id": "m1", "role": "user", "content": "Tide?"}]
        events = events_in((await client.post("/ag-ui", json={**body, "messages": messages})).text)
    [state] = [each["snapshot"] for each in events if each["type"] == "STATE_SNAPSHOT"]
    assert state["outputs"] == LEVELS
    assert "".join(each["delta"] for each in events if each["type"] == "TEXT_MESSAGE_CONTENT") == "It rises."
    assert lm.calls[0].fields["harbour"] == "north"


@pytest.mark.parametrize("stream", [False, True])
async def test_clients_of_openais_api_get_the_reply_and_pass_no_inputs(tmp_path: Path, stream: bool) -> None:
    lm = tide()
    body: dict[str, Any] = {"model": "novel", "stream": stream, "messages": [{"role": "user", "content": "Tide?"}]}
    async with web(tmp_path, lm, agent={"converse": Tidal}) as client:
        found = await client.post("/v1/chat/completions", json=body, headers={"X-Worldagent-Thread": "main"})
    assert found.status_code == 200, found.text
    if not stream:
        assert found.json()["choices"][0]["message"]["content"] == "It rises."
    assert "levels" not in found.text
    assert lm.calls[0].fields["harbour"] == "south"


async def test_answers_of_other_agents_have_no_key_for_outputs(tmp_path: Path) -> None:
    async with web(tmp_path, ScriptedLM([{"reply": "Yes."}])) as client:
        *events, last = await say(client, "Tide?")
    assert "outputs" not in last["turn"]
    assert all("outputs" not in each for each in events)
