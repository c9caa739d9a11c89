"""What every host says of a guarded turn: where its answer and the arguments of a waiting call come from."""

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from support.chat import COMMAND, piped
from support.sidecar_served import agents, caller_of, served, tokens
from support.web import STREAM, events_in, say, web
from worldagent import tool
from worldagent.hosts.sidecar import Grant, Sidecar
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("H9")


class Mail(BaseModel):
    sender: str
    body: str


@tool(risk="read_only", untrusted=True, fields=("sender",))
async def search() -> list[Mail]:
    """Search the mail."""
    return [Mail(sender="bob@corp.com", body="Hello.")]


@tool(risk="write")
async def send(to: str, text: str) -> str:
    """Send a mail."""
    return "sent"


READ: dict[str, Any] = {"reply": "", "calls": [{"tool": "search", "arguments": {}}]}
SENT = {"tool": "send", "arguments": {"to": {"$": "r0[0].sender"}, "text": {"$": "r0[0].body"}}}
SENDER = {"origins": ["search.sender"], "form": "value"}
BODY = {"origins": ["search.body"], "form": "words"}
ANSWER = {"text": BODY}
ARGUMENTS = {"to": SENDER, "text": BODY}
TOOLS: dict[str, Any] = {"tools": [search, send]}


def clerk(call: ScriptedCall) -> dict[str, Any]:
    """A model that reads the mail, and sends what the message asks it to send."""
    if not call.steps:
        return READ
    if "Send" in call.fields["message"] and len(call.steps) == 1:
        return {"reply": "", "calls": [SENT]}
    return {"reply": 'He writes {"$": "r0[0].body"}'}


async def test_the_sidecar_says_where_an_answer_and_arguments_come_from(tmp_path: Path) -> None:
    known = tokens(ana=Grant(("novel",), ("ana",)))
    sidecar = Sidecar(agents(tmp_path, lm=ScriptedLM(clerk), **TOOLS), tokens=known)
    async with served(sidecar) as url, caller_of(url, "auto", "ana") as ana:
        said = (await ana("converse", thread="t", text="What is new?", guard=True))["turn"]
        read = await ana("events", follow=False, turn_id=said["id"])
        again = (await ana("converse", thread="u", text="What is new?", guard=True, key="k"))["turn"]
        repeated = (await ana("converse", thread="u", text="What is new?", guard=True, key="k"))["turn"]
        waits = (await ana("converse", thread="v", text="Send it.", guard=True))["turn"]
        [opened] = [event for event in ana.events if event.type == "pause_opened"]
        [pause] = waits["pauses"]
        done = (await ana("resume", thread="v", answers={pause["id"]: {"approve": {}}}))["turn"]
    turns = (said, read["turn"], again, repeated, done)
    assert [turn["labels"] for turn in turns] == [ANSWER] * 5
    assert [turn["text"] for turn in turns] == ["He writes `Hello.`"] * 5
    assert pause["labels"] == opened.labels == ARGUMENTS
    assert "labels" not in waits


async def test_the_web_app_says_it_in_json_in_streams_and_in_its_schema(tmp_path: Path) -> None:
    async with web(tmp_path, ScriptedLM(clerk), agent=TOOLS) as client:
        *events, last = await say(client, "What is new?", guard=True)
        body = {"text": "What is new?", "guard": True}
        turn = (await client.post("/threads/main/messages", json=body)).json()["turn"]
        again = events_in((await client.get(f"/turns/{turn['id']}/events", headers=STREAM)).text)
        *asking, waits = await say(client, "Send it.", guard=True)
        await client.post("/threads/main/cancel", json={})
        *plain, spoken = await say(client, "What is new?", thread="other", guard=False)
        schema = (await client.get("/openapi.json")).json()["components"]["schemas"]
    assert last["turn"]["labels"] == turn["labels"] == again[-1]["turn"]["labels"] == events[-1]["labels"] == ANSWER
    [opened] = [each for each in asking if each["type"] == "pause_opened"]
    assert opened["labels"] == waits["turn"]["pauses"][0]["labels"] == ARGUMENTS
    assert "labels" in schema["TurnRecord"]["properties"]
    assert "labels" not in spoken["turn"]
    assert all("labels" not in each for each in plain)


async def test_the_state_of_ag_ui_has_it(tmp_path: Path) -> None:
    asked = {"messages": [{"id": "m1", "role": "user", "content": "What is new?"}], "tools": [], "context": []}
    body = {"threadId": "main", "runId": "r1", "forwardedProps": {"guard": True}, **asked}
    async with web(tmp_path, ScriptedLM(clerk), agent=TOOLS) as client:
        events = events_in((await client.post("/ag-ui", json=body)).text)
    [state] = [each["snapshot"] for each in events if each["type"] == "STATE_SNAPSHOT"]
    assert (state["status"], state["labels"]) == ("done", ANSWER)


APP = """
from worldagent import WorldAgent, tool
from worldagent.testing import ScriptedLM


@tool(risk="read_only", untrusted=True)
async def search() -> str:
    return "Hello."


def answer(call):
    if not call.steps:
        return {"reply": "", "calls": [{"tool": "search", "arguments": {}}]}
    return {"reply": "Hello." if "Hello." in call.text else 'Not read: {"$": "r0"}'}


def agent():
    return WorldAgent("desk", lm=ScriptedLM(answer), tools=[search])
"""


@pytest.mark.parametrize(("option", "reply"), [("--guard", "Not read: `Hello.`\n"), ("--no-guard", "Hello.\n")])
async def test_a_chat_is_guarded_by_its_option(
    tmp_path: Path, environment: dict[str, str], option: str, reply: str
) -> None:
    (tmp_path / "desk.py").write_text(APP)
    path = {"PYTHONPATH": os.pathsep.join((environment["PYTHONPATH"], str(tmp_path)))}
    argv = (*COMMAND, "--app", "desk:agent", option)
    assert await piped(environment | path, b"What is new?\n", argv=argv) == (0, reply, "")
