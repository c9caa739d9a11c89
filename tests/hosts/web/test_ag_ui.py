"""AG-UI on the web app: runs, interrupts and their answers, and nothing of a role."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from support.agents import Thinking, answering, to
from support.example_hosts import NODE
from support.house import ROOT
from support.inbox import Painting
from support.processes import ending
from support.web import BOUND, by_header, client_of, events_in, served, web
from worldagent import Worker, tool
from worldagent.harness import CallContext, Function
from worldagent.hosts.web import WebApp
from worldagent.testing import ScriptedCall, ScriptedLM

CLIENT = ROOT / "tests" / "browser" / "ag_ui_client.mjs"

pytestmark = pytest.mark.requirement("T10", "R7")


@tool(risk="write", capture=True)
def buy(item: str) -> str:
    """Buy an item."""
    return f"one {item} is on its way"


def buying(*last: str) -> ScriptedLM:
    """A model that wants to buy a hat, and then says what came of it."""
    return ScriptedLM(
        [{"reply": "", "calls": [{"tool": "buy", "arguments": {"item": "hat"}}]}, *({"reply": each} for each in last)]
    )


def run(run_id: str, text: str | None = "Hello.", thread: str = "main", **more: Any) -> dict[str, Any]:
    """A request as AG-UI's clients send it."""
    messages = [] if text is None else [{"id": f"m-{run_id}", "role": "user", "content": text}]
    return {"threadId": thread, "runId": run_id, "messages": messages, "tools": [], "context": [], **more}


async def ran(client: httpx2.AsyncClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = await client.post("/ag-ui", json=body)
    assert response.status_code == 200, response.text
    return events_in(response.text)


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [each["type"] for each in events]


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(each["delta"] for each in events if each["type"] == "TEXT_MESSAGE_CONTENT")


async def test_a_run_streams_its_text_between_its_start_and_its_end(tmp_path: Path) -> None:
    async with web(tmp_path, answering("Fine, thank you.")) as client:
        events = await ran(client, run("r1"))
        assert kinds(events)[0] == "RUN_STARTED"
        assert kinds(events)[-2:] == ["STATE_SNAPSHOT", "RUN_FINISHED"]
        inner = [each for each in kinds(events) if each.startswith("TEXT")]
        assert [inner[0], inner[-1]] == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_END"]
        assert text_of(events) == "Fine, thank you."
        assert [events[-1]["threadId"], events[-1]["runId"], events[-1]["outcome"]] == [
            "main",
            "r1",
            {"type": "success"},
        ]


async def test_only_the_last_user_message_is_read_and_a_repeated_run_is_the_same_turn(tmp_path: Path) -> None:
    lm = answering("Fine.")
    async with web(tmp_path, lm) as client:
        body = run("r1", "And now?")
        body["messages"].insert(0, {"id": "old", "role": "assistant", "content": "I never said this."})
        first, again = await ran(client, body), await ran(client, body)
        assert first[-2]["snapshot"]["turn"] == again[-2]["snapshot"]["turn"]
        messages = (await client.get("/threads/main/messages")).json()["messages"]
    assert [each["body"]["text"] for each in messages] == ["And now?", "Fine."]
    assert len(lm.calls) == 1


@pytest.mark.parametrize(
    ("payload", "items"),
    [
        ({"approved": True}, "one hat is on its way"),
        ({"approved": True, "arguments": {"item": "coat"}}, "one coat is on its way"),
        ({"approve": {}}, "one hat is on its way"),
        ({"approved": False, "reason": "too dear"}, "too dear"),
    ],
)
async def test_a_pause_is_an_interrupt_that_the_next_run_answers(
    tmp_path: Path, payload: dict[str, Any], items: str
) -> None:
    lm = buying("That is done.")
    async with web(tmp_path, lm, agent={"tools": [buy]}) as client:
        events = await ran(client, run("r1", "Buy a hat."))
        [interrupt] = events[-1]["outcome"]["interrupts"]
        assert [interrupt["reason"], interrupt["message"]] == ["tool_call", 'buy({"item": "hat"})']
        shown = {each["type"]: each for each in events if each["type"].startswith("TOOL_CALL")}
        assert list(shown) == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
        assert shown["TOOL_CALL_START"]["toolCallName"] == "buy"
        assert json.loads(shown["TOOL_CALL_ARGS"]["delta"]) == {"item": "hat"}
        answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}
        calls = [{"id": interrupt["toolCallId"], "type": "function", "function": {"name": "buy", "arguments": "{}"}}]
        again = run("r2", None, resume=[answer])
        again["messages"] = [{"id": "m2", "role": "assistant", "toolCalls": calls}]  # as clients send what they have
        events = await ran(client, again)
        assert [events[-1]["outcome"], text_of(events)] == [{"type": "success"}, "That is done."]
        results = [each for each in events if each["type"].startswith("TOOL_CALL")]
        assert [each["type"] for each in results] == ["TOOL_CALL_RESULT"]  # of the call that the first run has shown
        ids = {interrupt["toolCallId"], shown["TOOL_CALL_START"]["toolCallId"], results[0]["toolCallId"]}
        assert len(ids) == 1
        assert results[0]["content"] == ("rejected" if payload.get("approved") is False else "done")
    assert items in " ".join(lm.calls[-1].steps)


class Trip(BaseModel):
    """An answer with a field that an approval has, too."""

    approved: bool


class City(BaseModel):
    """An answer with one field."""

    name: str


def asking(form: type[BaseModel] | None = None, options: Sequence[str] | None = None) -> Function:
    """A function that asks a person."""

    @tool(risk="read_only")
    async def where(ctx: CallContext) -> str:
        """Ask where."""
        answer = await ctx.ask_person("Where?", options) if form is None else await ctx.ask_person("Where?", form=form)
        return f"it is {answer!r}"

    return where


def asked() -> ScriptedLM:
    """A model that calls the function that asks."""
    return ScriptedLM([{"reply": "", "calls": [{"tool": "where", "arguments": {}}]}, {"reply": "Done."}])


@pytest.mark.parametrize(
    ("function", "payload", "schema", "result"),
    [
        (asking(), "Rome", {"type": "string"}, "it is 'Rome'"),
        (asking(options=["Rome", "Oslo"]), "Oslo", {"enum": ["Rome", "Oslo"]}, "it is 'Oslo'"),
        (asking(City), {"name": "Rome"}, City.model_json_schema(), "it is City(name='Rome')"),
        (asking(Trip), {"approved": True}, Trip.model_json_schema(), "it is Trip(approved=True)"),
    ],
)
async def test_a_question_has_the_schema_of_its_answer_and_takes_the_value(
    tmp_path: Path, function: Function, payload: Any, schema: dict[str, Any], result: str
) -> None:
    lm = asked()
    async with web(tmp_path, lm, agent={"tools": [function]}) as client:
        [interrupt] = (await ran(client, run("r1", "Go.")))[-1]["outcome"]["interrupts"]
        assert [interrupt["reason"], interrupt["message"], interrupt["responseSchema"]] == [
            "input_required",
            "Where?",
            schema,
        ]
        answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}
        events = await ran(client, run("r2", None, resume=[answer]))
        assert [events[-1]["outcome"], text_of(events)] == [{"type": "success"}, "Done."]
    assert result in " ".join(lm.calls[-1].steps)


async def test_an_approval_can_be_cancelled_and_a_question_cannot(tmp_path: Path) -> None:
    lm = buying("Then not.")
    async with web(tmp_path / "approval", lm, agent={"tools": [buy]}) as client:
        [interrupt] = (await ran(client, run("r1", "Buy a hat.")))[-1]["outcome"]["interrupts"]
        await ran(client, run("r2", None, resume=[{"interruptId": interrupt["id"], "status": "cancelled"}]))
    assert "the person cancelled" in " ".join(lm.calls[-1].steps)
    async with web(tmp_path / "question", asked(), agent={"tools": [asking()]}) as client:
        [interrupt] = (await ran(client, run("r1", "Go.")))[-1]["outcome"]["interrupts"]
        cancelled = {"interruptId": interrupt["id"], "status": "cancelled"}
        refused = await client.post("/ag-ui", json=run("r2", None, resume=[cancelled]))
        error = refused.json()["error"]
        assert [refused.status_code, error["problem"]] == [400, "only an approval can be cancelled"]
        assert "/threads/THREAD/cancel" in error["remedy"]


async def test_a_turn_with_a_role_is_resumed_with_the_role_again(tmp_path: Path) -> None:
    more: dict[str, Any] = {"forwardedProps": {"role": {"content": "Speak as the night ferryman speaks."}}}
    async with web(tmp_path, buying("Done."), agent={"tools": [buy]}) as client:
        [interrupt] = (await ran(client, run("r1", "Buy a hat.", **more)))[-1]["outcome"]["interrupts"]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
        refused = await client.post("/ag-ui", json=run("r2", None, resume=resume))
        assert [refused.status_code, refused.json()["error"]["code"]] == [409, "role_required"]
        response = await client.post("/ag-ui", json=run("r3", None, resume=resume, **more))
        assert text_of(events_in(response.text)) == "Done."
        assert "ferryman" not in refused.text + response.text


async def test_without_the_package_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ag_ui.core", None)
    async with web(tmp_path, answering()) as client:
        error = (await client.post("/ag-ui", json=run("r1"))).json()["error"]
        assert [error["code"], error["remedy"]] == ["missing_extra", "install worldagent[agui]"]


async def test_calls_are_tool_calls(tmp_path: Path) -> None:
    async with web(tmp_path, buying("Done."), agent={"tools": [buy]}) as client:
        events = await ran(client, run("r1", "Buy a hat."))
        [interrupt] = events[-1]["outcome"]["interrupts"]
        answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        events = await ran(client, run("r2", None, resume=[answer]))
    calls = [each for each in events if each["type"].startswith("TOOL_CALL")]
    assert kinds(calls) == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"]
    assert [calls[0]["toolCallName"], json.loads(calls[1]["delta"]), calls[3]["content"]] == [
        "buy",
        {"item": "hat"},
        "done",
    ]


async def test_a_role_of_a_run_reaches_the_model_and_no_event(tmp_path: Path) -> None:
    lm = answering("Fine.")
    async with web(tmp_path, lm) as client:
        role = {"content": "Speak as the night ferryman speaks."}
        response = await client.post("/ag-ui", json=run("r1", forwardedProps={"role": role}))
        assert lm.calls[0].role is not None
        assert "ferryman" not in response.text
        wrong = await client.post("/ag-ui", json=run("r2", forwardedProps={"role": {**role, "more": 1}}))
        assert [wrong.status_code, "ferryman" in wrong.text] == [400, False]


async def test_the_error_of_a_run_that_has_begun_is_its_last_event(tmp_path: Path) -> None:
    def fail(call: ScriptedCall) -> str:
        raise ConnectionError("secret")

    async with web(tmp_path, ScriptedLM(fail)) as client:
        response = await client.post("/ag-ui", json=run("r1"))
        error = events_in(response.text)[-1]
        assert [error["type"], error["code"]] == ["RUN_ERROR", "model_unavailable"]
        assert "secret" not in response.text


async def test_a_run_on_a_thread_that_waits_is_refused(tmp_path: Path) -> None:
    async with web(tmp_path, buying(), agent={"tools": [buy]}) as client:
        await ran(client, run("r1", "Buy a hat."))
        refused = await client.post("/ag-ui", json=run("r2", "And?"))
        assert [refused.status_code, refused.json()["error"]["code"]] == [409, "thread_paused"]


async def test_two_people_have_a_thread_with_one_name(tmp_path: Path) -> None:
    async with web(tmp_path, answering("Fine.")) as ana, client_of(str(ana.base_url), "bob") as bob:
        await ran(ana, run("r1", "I am Ana."))
        await ran(bob, run("r1", "I am Bob."))
        for client, name in ((ana, "Ana"), (bob, "Bob")):
            messages = (await client.get("/threads/main/messages")).json()["messages"]
            assert messages[0]["body"]["text"] == f"I am {name}."


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "messages, runId, threadId"),
        (run("r1", messages=[{"id": "m", "role": "nobody", "content": "secret"}]), "messages"),
        (run("r1", None), "no user message"),
        (run("r1", tools=[{"name": "paint", "description": "secret", "parameters": {}}]), "tools"),
        (run("r1", messages=[{"id": "m", "role": "user", "content": [{"type": "binary"}]}]), ""),
        (run("r1", None, resume=[{"interruptId": "none", "status": "resolved", "payload": {"approved": True}}]), ""),
        (run("\n"), ""),
    ],
)
async def test_bad_input_has_a_remedy_and_is_not_quoted(tmp_path: Path, body: dict[str, Any], field: str) -> None:
    async with web(tmp_path, answering()) as client:
        response = await client.post("/ag-ui", json=body)
        error = response.json()["error"]
        assert 400 <= response.status_code < 500, error
        assert field in error["problem"]
        assert error["remedy"]
        assert "secret" not in response.text


async def test_the_client_of_the_protocol_runs_is_interrupted_and_resumes(tmp_path: Path) -> None:
    assert (CLIENT.parent / "node_modules" / "@ag-ui").is_dir(), "@ag-ui/client is missing: run `make setup`"
    async with web(tmp_path, buying("A hat is on its way."), agent={"tools": [buy]}) as client:
        process = await asyncio.create_subprocess_exec(
            NODE, CLIENT, f"{client.base_url}/ag-ui", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        async with ending(process):
            out, errors = await asyncio.wait_for(process.communicate(), BOUND)
    assert process.returncode == 0, errors.decode()
    found = json.loads(out)
    assert [found["interrupts"], found["status"]] == [1, "done"]
    assert [found["said"][0]["role"], found["said"][-1]["role"]] == ["user", "assistant"]
    assert "A hat is on its way." in str(found["said"])
    assert ["buy"] in [each.get("calls") for each in found["said"]]


def thinking_worker() -> dict[str, Any]:
    """The model of a conversation that asks a worker, who looks and then says a line; and the agent's arguments."""

    @tool(risk="read_only")
    def look(where: str) -> str:
        """Look somewhere."""
        return "nothing there"

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "You write" not in call.system:
            return {"reply": "There you are."} if call.steps else to("poet")
        given = {"calls": [{"tool": "look", "arguments": {"where": "sea"}}]}
        return {"result": "Nine herons stood there."} if call.steps else {"result": "", **given}

    poet = Worker("poet", "You write a line.", tools=("look",))
    return {"lm": ScriptedLM(reply, form="native"), "agent": {"workers": [poet], "tools": [look]}}


@pytest.mark.requirement("T18")
async def test_what_workers_say_is_a_custom_event_of_a_run_that_asks_for_it(tmp_path: Path) -> None:
    found: list[list[dict[str, Any]]] = []
    for props in ({}, {"subagents": True}, {"runConfig": {"subagents": True}}):
        async with web(tmp_path / str(len(found)), **thinking_worker()) as client:
            found.append(await ran(client, run("r1", "A line!", forwardedProps=props)))
            wrong = await client.post("/ag-ui", json=run("r2", forwardedProps={"subagents": "all"}))
            assert [wrong.status_code, "subagents" in wrong.json()["error"]["problem"]] == [400, True]
    plain, asked, configured = found
    customs = [each for each in asked if each["type"] == "CUSTOM"]
    said = [each["value"] for each in customs if each["name"] == "task_text_delta"]
    assert "".join(each["text"] for each in said) == "Nine herons stood there."
    assert {each["step"] for each in said} == {1}
    [task] = {each["value"]["task_id"] for each in customs}
    assert task.endswith(":poet")
    [arguments] = [each["value"] for each in customs if each["name"] == "task_arguments_delta"]
    assert arguments == {
        "task_id": task,
        "step": 0,
        "attempt": 0,
        "text": '{"where":"sea"}',
        "call": 0,
        "tool": "look",
    }
    assert kinds(configured) == kinds(asked)
    assert kinds(plain) == [kind for kind in kinds(asked) if kind != "CUSTOM"]
    assert text_of(plain) == text_of(asked) == "There you are."


@pytest.mark.requirement("T18")
async def test_the_client_of_the_protocol_keeps_what_workers_say_apart(tmp_path: Path) -> None:
    async with web(tmp_path, **thinking_worker()) as client:
        process = await asyncio.create_subprocess_exec(
            *(NODE, CLIENT, f"{client.base_url}/ag-ui", "subagents"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with ending(process):
            out, errors = await asyncio.wait_for(process.communicate(), BOUND)
    assert process.returncode == 0, errors.decode()
    found = json.loads(out)
    assert found["customs"]["task_text_delta"] == "Nine herons stood there."
    assert "There you are." in [each.get("content") for each in found["said"]]
    assert "herons" not in str(found["said"])


# --- beside a turn that runs ------------------------------------------------------------------------------------------


@pytest.mark.requirement("T15")
async def test_a_run_has_what_was_said_to_its_turn(tmp_path: Path) -> None:
    painting = Painting()
    async with served(WebApp(painting.agent(tmp_path), login=by_header)) as url, client_of(url) as client:
        running = asyncio.ensure_future(ran(client, run("r1", "Paint the door.")))
        await asyncio.wait_for(painting.begun.wait(), BOUND)
        assert (await client.post("/threads/main/steer", json={"text": "rather in blue"})).status_code == 200
        painting.may.set()
        events = await running
        [custom] = [each for each in events if each["type"] == "CUSTOM"]
        assert (custom["name"], custom["value"]["text"]) == ("message_taken", "rather in blue")
        assert text_of(events) == "in blue"


@pytest.mark.requirement("T16")
async def test_a_run_interrupts_the_one_before(tmp_path: Path) -> None:
    model = Thinking()
    async with web(tmp_path, model.lm) as client:
        running = asyncio.ensure_future(ran(client, run("r1", "1")))
        await asyncio.wait_for(model.asked.wait(), BOUND)
        model.may.set()
        second = await ran(client, run("r2", "2", forwardedProps={"interrupt": True}))
        assert text_of(second) == "Fine."
        assert kinds(await running)[-1] in ("RUN_FINISHED", "RUN_ERROR")


@pytest.mark.parametrize("name", ["steer", "queue"])
async def test_what_a_run_cannot_do_is_refused_with_the_path_that_does(tmp_path: Path, name: str) -> None:
    async with web(tmp_path, Thinking().lm) as client:
        response = await client.post("/ag-ui", json=run("r1", forwardedProps={name: True}))
        assert (response.status_code, f"/{name}" in response.json()["error"]["remedy"]) == (400, True)
