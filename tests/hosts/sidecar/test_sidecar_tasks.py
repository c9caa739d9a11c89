"""Turns as tasks of MCP's extension: when a call is answered with one, and what its methods answer (T4, T10)."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.role_hosts import BOUND
from support.sidecar_calls import LEGACY, Refused
from support.sidecar_clients import HttpClient
from support.sidecar_served import Held, Shop, agents, served, tokens
from support.tasks import accepted, all_of, answer, begun, got, until, with_tasks
from worldagent.core.errors import UnknownTurn
from worldagent.core.scope import is_id
from worldagent.harness import Policy, Worker, tool
from worldagent.harness.gate import Rule
from worldagent.hosts.sidecar import Grant, Sidecar
from worldagent.hosts.sidecar.tasks import TaskId
from worldagent.skills import EXAMPLES
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T4", "T10")

PLACE = {"workspace": "novel", "account": "ana", "thread": "t1"}
ORDER = {**PLACE, "params": {"what": "hat"}}
MISSING, UNKNOWN, NO_METHOD, NO_HEADER = -32021, -32602, -32601, -32020
_PRINTABLE = st.characters(exclude_categories=["C", "Z"]) | st.just(" ")


@asynccontextmanager
async def shop(home: Path, **given: Any) -> AsyncGenerator[tuple[Shop, HttpClient]]:
    """A sidecar of a shop, and a client of it."""
    found = Shop()
    options = {name: given.pop(name) for name in ("elicits",) if name in given}
    async with (
        served(Sidecar(lambda workspace: found.agent(home, **given))) as url,
        with_tasks(url, **options) as client,
    ):
        yield found, client


# --- what a task comes to ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("converse", {"text": "Hello."}),
        ("converse", {"text": "Hello.", "output": {"type": "object", "properties": {"size": {"type": "integer"}}}}),
        ("task", {"shape": "subagent", "params": {"worker": "critic", "request": "Look."}}),
        ("run_skill", {"skill": "meeting-notes", "params": {"request": "Look."}}),
        ("run_scheduled", {"schedule": "nightly", "fired_at": "2030-01-01T10:00:00Z"}),
    ],
    ids=["converse", "output", "task", "run_skill", "run_scheduled"],
)
async def test_a_tasks_result_is_what_the_call_would_have_answered(
    tool: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "output" in arguments:
            return {"reply": {"size": 3}}
        return {"reply": "Fine.", "result": "Fine.", "calls": []}

    lm = ScriptedLM(reply)
    async with shop(tmp_path, lm=lm, skills=[EXAMPLES], workers=[Worker("critic", "You judge.")]) as (_, client):
        task = await begun(client, tool, **PLACE, **arguments)
        found = await until(client, task, "completed")
        client.tasks = False
        told = await client.request("tools/call", name=tool, arguments={**PLACE, "thread": "t2", **arguments})
    assert not told["isError"], told
    assert found["result"]["content"] == told["content"]
    mine, theirs = (each["structuredContent"] for each in (found["result"], told))
    assert mine.keys() == theirs.keys()
    assert mine["turn"] | {"id": "", "thread": ""} == theirs["turn"] | {"id": "", "thread": ""}
    assert found["createdAt"] <= found["lastUpdatedAt"]


async def test_a_task_asks_a_person_and_continues_with_the_answer(tmp_path: Path) -> None:
    async with shop(tmp_path) as (done, client):
        task = await begun(client, "task", **ORDER, shape="buy")
        waits = await until(client, task, "input_required")
        [(key, request)] = waits["inputRequests"].items()
        assert (request["method"], request["params"]["mode"]) == ("elicitation/create", "form")
        assert request["params"]["requestedSchema"]["properties"]["decision"]["enum"][0] == "approve"
        assert done.done == []
        await answer(client, task, {key: accepted(decision="approve")})
        await answer(client, task, {key: accepted(decision="approve")})  # it got lost, or it was sent twice
        found = await until(client, task, "completed")
    assert found["result"]["structuredContent"]["turn"]["result"] == {"text": "paid for the hat"}
    assert done.done == ["hat"]


async def test_answers_to_two_questions_are_taken_one_by_one(tmp_path: Path) -> None:
    async with shop(tmp_path) as (done, client):
        task = await begun(client, "task", **ORDER, shape="side")
        async with asyncio.timeout(BOUND):
            while len(asked := (await until(client, task, "input_required"))["inputRequests"]) < 2:
                pass
        [approval] = [
            key for key, each in asked.items() if "decision" in each["params"]["requestedSchema"]["properties"]
        ]
        [question] = asked.keys() - {approval}
        await answer(client, task, {question: accepted(answer="red"), "another": {"action": 3}})
        left = await got(client, task)
        assert (left["status"], list(left["inputRequests"])) == ("input_required", [approval])
        await answer(client, task, {question: accepted(answer="blue"), approval: accepted(decision="approve")})
        found = await until(client, task, "completed")
    assert found["result"]["structuredContent"]["turn"]["result"] == {"text": "red: paid for the hat"}
    assert done.done == ["hat"]


async def test_invalid_answers_are_refused_together_with_the_others(tmp_path: Path) -> None:
    async with shop(tmp_path) as (done, client):
        task = await begun(client, "task", **ORDER, shape="side")
        async with asyncio.timeout(BOUND):
            while len(asked := (await until(client, task, "input_required"))["inputRequests"]) < 2:
                pass
        wrongs: list[Any] = [accepted(decision="perhaps"), accepted(), {"action": "maybe"}, [], None]
        for wrong in wrongs:
            with pytest.raises(Refused) as refused:
                await answer(client, task, all_of(asked, wrong))
            assert refused.value.code == UNKNOWN
            assert "perhaps" not in str(refused.value.told)
        assert (await got(client, task))["inputRequests"] == asked
    assert done.done == []


async def test_a_declined_approval_rejects_and_a_declined_question_stays_open(tmp_path: Path) -> None:
    async with shop(tmp_path) as (done, client):
        bought = await begun(client, "task", **ORDER, shape="buy")
        asked = (await until(client, bought, "input_required"))["inputRequests"]
        await answer(client, bought, all_of(asked, {"action": "cancel"}))
        assert (await got(client, bought))["inputRequests"] == asked
        await answer(client, bought, all_of(asked, {"action": "decline"}))
        found = await until(client, bought, "completed")
        assert found["result"]["isError"]
        assert found["result"]["structuredContent"]["error"]["code"] == "call_refused"
        said = await begun(client, "task", **ORDER | {"thread": "t2"}, shape="say")
        asked = (await until(client, said, "input_required"))["inputRequests"]
        await answer(client, said, all_of(asked, {"action": "decline"}))
        assert (await got(client, said))["inputRequests"] == asked
        await answer(client, said, all_of(asked, accepted(answer="It is red.")))
        assert not (await until(client, said, "completed"))["result"]["isError"]
    assert done.done == []


async def test_a_failed_turn_is_a_result_that_says_how_to_continue(tmp_path: Path) -> None:
    def fails(call: ScriptedCall) -> dict[str, Any]:
        raise RuntimeError("vermilion-otter")

    async with shop(tmp_path, lm=ScriptedLM(fails)) as (_, client):
        task = await begun(client, "converse", **PLACE, text="Hello.")
        found = await until(client, task, "completed", "failed")
    error = found["result"]["structuredContent"]["error"]
    assert (found["status"], found["result"]["isError"], error["code"]) == ("completed", True, "model_unavailable")
    assert (error["turn_id"], [step["tool"] for step in error["next"]]) == (task.split("/")[-1], ["resume"])
    assert "vermilion-otter" not in json.dumps(found)


async def test_a_cancelled_task_ends_and_cancelling_it_again_does_nothing(tmp_path: Path) -> None:
    held = Held()
    async with served(Sidecar(agents(tmp_path, lm=ScriptedLM(held)))) as url, with_tasks(url) as client:
        task = await begun(client, "converse", **PLACE, text="Hello.")
        working = await got(client, task)
        assert working["statusMessage"].startswith("The turn is running; its last event has the number ")
        for _ in range(2):
            acked = await client.request("tasks/cancel", taskId=task)
            assert acked.keys() - {"_meta"} == {"resultType"}
            assert (await until(client, task, "cancelled"))["statusMessage"] == "The turn was cancelled."
        await asyncio.wait_for(held.left.wait(), BOUND)
        held.go.set()
        following = await begun(client, "converse", **PLACE, text="Hello again.")
        await until(client, following, "completed")
        await client.request("tasks/cancel", taskId=task)  # it is not the turn of the thread any more
        assert (await got(client, following))["status"] == "completed"
        await client.request("tasks/cancel", taskId=following)
        assert (await got(client, following))["status"] == "completed"


async def test_a_key_that_is_repeated_gives_the_same_task(tmp_path: Path) -> None:
    async with shop(tmp_path) as (_, client):
        task = await begun(client, "task", **ORDER, shape="buy", key="k1")
        waits = await until(client, task, "input_required")
        assert await begun(client, "task", **ORDER, shape="buy", key="k1") == task
        await answer(client, task, all_of(waits["inputRequests"], accepted(decision="approve")))
        await until(client, task, "completed")
        assert await begun(client, "task", **ORDER, shape="buy", key="k1") == task


async def test_a_turn_that_was_begun_without_a_task_is_resumed_as_one(tmp_path: Path) -> None:
    async with shop(tmp_path) as (done, client):
        client.tasks = False
        await client.ask("task", **ORDER, shape="buy", pauses="return")
        client.tasks = True
        [pause] = (await client.ask("pauses", **PLACE))["pauses"]
        task = await begun(client, "resume", **PLACE, answers={pause["id"]: {"approve": {}}})
        await until(client, task, "completed")
    assert done.done == ["hat"]


async def test_a_pause_that_expires_ends_the_wait_at_a_poll(tmp_path: Path) -> None:
    found = Shop()
    policy = Policy(rules=(Rule(decision="ask", function="pay", expires=0.2, name="soon"),))
    make = agents(tmp_path, lm=ScriptedLM([]), shapes=found.shapes(), tools=[tool(found.pay)], policy=policy)
    async with served(Sidecar(make)) as url, with_tasks(url) as client:
        done = await until(client, await begun(client, "task", **ORDER, shape="buy"), "completed")
    assert done["result"]["structuredContent"]["error"]["code"] == "pause_expired"
    assert found.done == []


async def test_a_turn_that_was_stopped_with_its_sidecar_continues_in_the_next_one(tmp_path: Path) -> None:
    held = Held()
    async with served(Sidecar(agents(tmp_path, lm=ScriptedLM(held)))) as url, with_tasks(url) as client:
        task = await begun(client, "converse", **PLACE, text="Hello.")
        await asyncio.wait_for(held.begun.acquire(), BOUND)
    held.go.set()
    async with served(Sidecar(agents(tmp_path, lm=ScriptedLM(held)))) as url, with_tasks(url) as client:
        found = await until(client, task, "completed")
    assert found["result"]["structuredContent"]["turn"]["text"] == "first second"


# --- clients that cannot answer ---------------------------------------------------------------------------------------


async def test_a_client_without_forms_sees_that_another_must_answer(tmp_path: Path) -> None:
    async with shop(tmp_path, elicits=False) as (done, client):
        task = await begun(client, "task", **ORDER, shape="buy")
        async with asyncio.timeout(BOUND):
            while not (waiting := (await client.ask("pauses", **PLACE))["pauses"]):
                pass
            while "waits for a person" not in (found := await got(client, task))["statusMessage"]:
                pass
        assert found["status"] == "working"
        await client.ask("resume", **PLACE, answers={waiting[0]["id"]: {"approve": {}}}, pauses="return")
        assert not (await until(client, task, "completed"))["result"]["isError"]
    assert done.done == ["hat"]


async def test_only_an_approver_is_asked(tmp_path: Path) -> None:
    found = Shop()
    known = tokens(ana=Grant({"novel"}, {"ana"}), boss=Grant({"novel"}, {"boss"}))
    sidecar = Sidecar(lambda workspace: found.agent(tmp_path, approvers=["boss"]), tokens=known)
    async with served(sidecar) as url, with_tasks(url, "ana") as client, with_tasks(url, "boss") as boss:
        task = await begun(client, "task", **ORDER, shape="buy")
        async with asyncio.timeout(BOUND):
            while not (waiting := (await client.ask("pauses", **PLACE))["pauses"]):
                pass
        await answer(client, task, {waiting[0]["id"]: accepted(decision="approve")})  # it was not asked for this
        assert (await until(client, task, "working"))["status"] == "working"
        assert found.done == []
        answers: dict[str, Any] = {waiting[0]["id"]: {"approve": {}}}
        # The turn is not theirs, so they get no task.
        told = await boss.ask("resume", **{**PLACE, "account": "boss", "answers": answers})
        assert told["turn"]["status"] == "done"
        await until(client, task, "completed")
    assert found.done == ["hat"]


# --- calls that are answered as before --------------------------------------------------------------------------------


async def test_only_a_client_with_tasks_gets_one(tmp_path: Path) -> None:
    async with shop(tmp_path) as (_, client):
        found = await client.request("server/discover")
        assert found["capabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}
        task = await begun(client, "converse", **PLACE, text="Hello.")
        client.tasks = False
        assert (await client.ask("converse", **PLACE, text="Hello."))["turn"]["status"] == "done"
        methods: dict[str, dict[str, Any]] = {"get": {}, "update": {"inputResponses": {}}, "cancel": {}}
        for method, more in methods.items():
            with pytest.raises(Refused) as refused:
                await client.request(f"tasks/{method}", taskId=task, **more)
            assert refused.value.code == MISSING
        async with HttpClient(client.url, revision=LEGACY) as old:
            old.tasks = True
            assert (await old.ask("converse", **PLACE, text="Hello."))["turn"]["status"] == "done"
            with pytest.raises(Refused) as refused:
                await old.request("tasks/get", taskId=task)
            assert refused.value.code == NO_METHOD


@pytest.mark.parametrize(
    "arguments",
    [
        {"detach": False},
        {"pauses": "return"},
        {"role": {"content": "You are terse."}},
    ],
    ids=["not detached", "paused turns are returned", "a role"],
)
async def test_a_call_that_cannot_continue_alone_is_answered_itself(arguments: dict[str, Any], tmp_path: Path) -> None:
    async with shop(tmp_path) as (_, client):
        assert (await client.ask("converse", **PLACE, text="Hello.", **arguments))["turn"]["text"] == "Fine."


async def test_a_call_that_wants_progress_gets_the_events_and_the_answer(tmp_path: Path) -> None:
    async with shop(tmp_path) as (_, client), client.call("converse", {**PLACE, "text": "Hello."}) as call:
        assert (await call.answer())["turn"]["text"] == "Fine."
    assert [event["type"] for event in call.events][-1] == "turn_ended"


async def test_a_turn_that_does_not_begin_is_an_error_of_the_tool(tmp_path: Path) -> None:
    async with shop(tmp_path) as (_, client):
        await until(client, await begun(client, "task", **ORDER, shape="buy"), "input_required")
        for tool, arguments, code in (
            ("converse", {"text": "Hello."}, "thread_paused"),
            ("converse", {"text": ""}, "invalid_argument"),
            ("task", {"shape": "sell"}, "unknown_shape"),
        ):
            with pytest.raises(Refused) as refused:
                await client.ask(tool, **PLACE, **arguments)
            assert refused.value.code == code


# --- who reaches a task -----------------------------------------------------------------------------------------------


async def test_a_task_of_another_account_thread_or_workspace_is_unknown(tmp_path: Path) -> None:
    known = tokens(
        ana=Grant({"novel"}, {"ana"}),
        bob=Grant({"novel"}, {"bob"}),
        both=Grant({"novel"}, {"ana", "bob"}),
        other=Grant({"novel"}, {"ana"}, threads={"z*"}),
        away=Grant({"shop"}, {"ana"}),
    )
    found = Shop()
    lm = ScriptedLM(lambda call: {"reply": "Fine."})
    make = agents(tmp_path, lm=lm, shapes=found.shapes(), tools=[tool(approval=True)(found.pay)])
    async with served(Sidecar(make, tokens=known)) as url, with_tasks(url, "ana") as ana:
        task = await begun(ana, "task", **ORDER, shape="buy")
        waits = await until(ana, task, "input_required")
        turn = task.split("/")[-1]
        forged = [("bob", f"novel/bob/{turn}"), ("both", f"novel/bob/{turn}"), ("away", f"shop/ana/{turn}")]
        nothing = [("ana", name) for name in ("novel/ana/turn_1", "novel/ana", turn, "", "///", f"Novel/ana/{turn}")]
        odd = [("ana", f"novel/%61na/{turn}"), ("ana", f"novel//{turn}/"), ("ana", "novel/ana/%0A")]
        told = set()
        for token, name in [*((each, task) for each in ("bob", "other", "away")), *forged, *nothing, *odd]:
            async with with_tasks(url, token) as client:
                for method, more in (
                    ("get", {}),
                    ("update", {"inputResponses": all_of(waits["inputRequests"], accepted(decision="approve"))}),
                    ("cancel", {}),
                ):
                    with pytest.raises(Refused) as refused:
                        await client.request(f"tasks/{method}", taskId=name, **more)
                    told.add((refused.value.code, json.dumps(_error(refused.value))))
        assert len(told) == 1
        assert told.pop()[0] == UNKNOWN
        async with with_tasks(url, "both") as both:
            assert (await got(both, task))["inputRequests"] == waits["inputRequests"]
    assert found.done == []


def _error(refused: Refused) -> Any:
    told = refused.told if isinstance(refused.told, dict) else json.loads(refused.told)
    return told.get("error", told)


@given(
    workspace=st.text(alphabet=_PRINTABLE, min_size=1, max_size=20).filter(is_id),
    account=st.none() | st.text(alphabet=_PRINTABLE, min_size=1, max_size=20).filter(is_id),
)
def test_an_id_names_any_workspace_and_account(workspace: str, account: str | None) -> None:
    made = TaskId(workspace, account, "turn_1")
    assert TaskId.read(str(made)) == made
    assert str(made).isascii()


@given(st.text(alphabet=st.characters(), max_size=40) | st.from_regex(r"[a-z%/0-9]{0,30}", fullmatch=True))
@example("\ud800/a/b")
@example("%ff/a/b")
@example(f"{'a' * 201}/a/b")
def test_any_other_text_is_no_id_of_a_task(text: str) -> None:
    with contextlib.suppress(UnknownTurn):
        assert str(TaskId.read(text)) == text


async def test_the_header_must_name_the_task(tmp_path: Path) -> None:
    class Unnamed(HttpClient):
        named: Mapping[str, str] = {}

        def headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
            return {name: value for name, value in super().headers(method, params).items() if name != "Mcp-Name"} | {
                **self.named
            }

    async with shop(tmp_path) as (_, client), Unnamed(client.url) as wrong:
        task = await begun(client, "converse", **PLACE, text="Hello.")
        wrong.tasks = True
        for named in ({}, {"Mcp-Name": "another"}):
            wrong.named = named
            with pytest.raises(Refused) as refused:
                await wrong.request("tasks/get", taskId=task)
            assert refused.value.code == NO_HEADER
        wrong.named = {"Mcp-Name": task}
        await got(wrong, task)


async def test_the_log_of_requests_names_the_methods_and_the_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with shop(tmp_path) as (_, client):
        task = await begun(client, "converse", **PLACE, text="Hello.")
        await until(client, task, "completed")
    fields = [vars(line).get("worldagent_fields", {}) for line in caplog.records]
    [last] = [line for line in fields if line.get("method") == "tasks/get"][-1:]
    assert {name: last[name] for name in ("workspace", "thread", "turn", "code")} == {
        "workspace": "novel",
        "thread": "t1",
        "turn": task.split("/")[-1],
        "code": "ok",
    }
