"""Turns over the web app: streams, reconnection, pauses and their answers, attachments, JSON instead of a stream."""

import asyncio
import base64
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from support.agents import answering, calls, to
from support.homes import PNG
from support.openai_stub import openai_stub
from support.sidecar_served import Held
from support.web import BOUND, STREAM, by_header, client_of, events_in, say, served, web
from traces.test_flows import ANSWERED, SENT, desk
from worldagent import Storage, Worker, WorldAgent, tool
from worldagent.core.errors import InvalidArgument
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import Policy
from worldagent.harness.gate import Rule
from worldagent.hosts.web import Grant, Limits, WebApp
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T4", "T10")


@tool(risk="write")
def buy(item: str) -> str:
    """Buy an item."""
    return f"one {item} is on its way"


def buying() -> ScriptedLM:
    """A model that wants to buy a hat, and then says what came of it."""
    return ScriptedLM(
        [{"reply": "", "calls": [{"tool": "buy", "arguments": {"item": "hat"}}]}, {"reply": "A hat is on its way."}]
    )


async def test_a_turn_comes_as_events_with_their_numbers_and_then_the_answer(tmp_path: Path) -> None:
    async with web(tmp_path, answering("Fine, thank you.")) as client:
        *events, last = await say(client, "How are you?")
        assert [each["id"] for each in events] == [str(number) for number in range(1, len(events) + 1)]
        assert [each["type"] for each in (events[0], events[-1])] == ["turn_started", "turn_ended"]
        assert [last["type"], last["turn"]["status"], last["turn"]["text"]] == ["turn", "done", "Fine, thank you."]
        messages = (await client.get("/threads/main/messages")).json()["messages"]
        assert [each["body"]["text"] for each in messages] == ["How are you?", "Fine, thank you."]


async def test_a_client_that_wants_json_gets_the_turn_at_its_end(tmp_path: Path) -> None:
    async with web(tmp_path, answering("Fine.")) as client:
        turn = (await client.post("/threads/main/messages", json={"text": "Hello."})).json()["turn"]
        assert [turn["status"], turn["text"], turn["thread"]] == ["done", "Fine.", "ana:main"]


async def test_a_broken_stream_is_taken_up_after_the_last_event_and_ends_for_good(tmp_path: Path) -> None:
    async with web(tmp_path, answering("Fine.")) as client:
        *events, last = await say(client, "Hello.", key="k1")
        path = f"/turns/{last['turn']['id']}/events"
        rest = events_in((await client.get(path, headers={**STREAM, "Last-Event-ID": "2"})).text)
        assert [each["type"] for each in rest] == [each["type"] for each in events[2:]] + ["turn"]
        over = await client.get(path, headers={**STREAM, "Last-Event-ID": str(len(events))})
        assert over.status_code == 204  # a browser's EventSource stops at this
        page = (await client.get(path, params={"after": 1, "wait": 1})).json()
        assert [each["seq"] for each in page["events"]] == list(range(2, len(events) + 1))


async def test_who_has_all_events_of_a_turn_that_can_continue_is_told_how(tmp_path: Path) -> None:
    async def last_of(events: list[dict[str, Any]]) -> dict[str, Any]:
        turn, seen = events[-1]["turn"], events[-2]["id"]
        response = await client.get(f"/turns/{turn['id']}/events", headers={**STREAM, "Last-Event-ID": seen})
        assert response.status_code == 200
        [found] = events_in(response.text)
        assert found["turn"]["status"] == turn["status"]
        return found

    async with web(tmp_path, buying(), agent={"tools": [buy]}) as client:
        events = await say(client, "Buy a hat.")
        found = await last_of(events)
        assert found["turn"]["pauses"] == events[-1]["turn"]["pauses"]
        assert [each["tool"] for each in found["next"]] == ["resume"]
        turn_id = events[-1]["turn"]["id"]
        await client.post("/threads/main/cancel", json={})
        page = (await client.get(f"/turns/{turn_id}/events")).json()
        assert page["turn"]["status"] == "cancelled"
        headers = {**STREAM, "Last-Event-ID": str(page["seq"])}
        assert (await client.get(f"/turns/{turn_id}/events", headers=headers)).status_code == 204


@pytest.mark.parametrize("after", [None, 0, 3])
async def test_resume_with_after_also_sends_later_events_of_earlier_runs(tmp_path: Path, after: int | None) -> None:
    async with web(tmp_path, buying(), agent={"tools": [buy]}) as client:
        *first, paused = await say(client, "Buy a hat.")
        body: dict[str, Any] = {"answers": {paused["turn"]["pauses"][0]["id"]: {"approve": {}}}}
        more = {} if after is None else {"after": after}
        response = await client.post("/threads/main/resume", json={**body, **more}, headers=STREAM)
        *events, last = events_in(response.text)
        assert last["turn"]["status"] == "done"
        seen = len(first) if after is None else after
        assert [each["seq"] for each in events] == list(range(seen + 1, last["seq"] + 1))
        assert events[: len(first) - seen] == first[seen:]


async def test_a_pause_is_listed_answered_and_answered_once(tmp_path: Path) -> None:
    async with web(tmp_path, buying(), agent={"tools": [buy]}) as client:
        last = (await say(client, "Buy a hat."))[-1]
        assert last["turn"]["status"] == "paused"
        [pause] = (await client.get("/threads/main/pauses")).json()["pauses"]
        assert [pause["function"], pause["arguments"]] == ["buy", {"item": "hat"}]
        answers: dict[str, Any] = {"answers": {pause["id"]: {"approve": {}}}}
        response = await client.post("/threads/main/resume", json=answers, headers=STREAM)
        assert events_in(response.text)[-1]["turn"]["text"] == "A hat is on its way."
        again = await client.post("/threads/main/resume", json=answers, headers=STREAM)
        assert [again.status_code, again.json()["error"]["code"]] == [409, "already_answered"]


async def test_the_error_of_a_turn_that_has_begun_is_the_last_event_and_says_what_to_do(tmp_path: Path) -> None:
    async with web(tmp_path, buying(), agent={"tools": [buy]}) as client:
        await say(client, "Buy a hat.")
        error = (await say(client, "And?"))[-1]
        assert [error["type"], error["error"]["code"], len(error["error"]["pauses"])] == ["error", "thread_paused", 1]
        response = await client.post("/threads/main/messages", json={"text": "And?"})
        assert [response.status_code, response.json()["error"]["code"]] == [409, "thread_paused"]


async def test_a_turn_whose_trace_is_not_kept_is_found_and_its_trace_is_not(tmp_path: Path) -> None:
    async with web(tmp_path, answering(), agent={"settings": {"trace": False}}) as client:
        turn = (await say(client, "Hello."))[-1]["turn"]
        found = await client.get(f"/turns/{turn['id']}/trace")
        assert [found.status_code, found.json()["error"]["code"]] == [404, "trace_invalid"]


async def test_a_trace_says_where_values_went_by_the_nodes_of_calls(tmp_path: Path) -> None:
    agent = desk(tmp_path, *ANSWERED)
    async with served(WebApp(agent, login=by_header)) as url, client_of(url) as client:
        turn = await agent.thread("ana:main", account="ana").converse("Answer Bob.", guard=True)
        trace = (await client.get(f"/turns/{turn.id}/trace")).json()["trace"]
    assert [(each["target"], each["says"]) for each in trace["flows"]] == [each[:2] for each in SENT]
    assert trace["ways"][-2] == ["search_mail.body", "reader", "send_mail.body (words), approve by rule:reply"]
    nodes = {node["id"]: node for node in trace["nodes"]}
    assert {nodes[flow["record"]]["name"] for flow in trace["flows"]} == {"search_mail", "send_mail"}


async def test_an_attachment_is_stored_named_in_a_message_and_read_again(tmp_path: Path) -> None:
    seen: list[Any] = []

    def reply(call: Any) -> dict[str, Any]:
        seen.append(call.text)
        return {"reply": "Read."}

    async with web(tmp_path, ScriptedLM(reply)) as client:
        sent = await client.post(
            "/attachments",
            params={"name": "notes.txt"},
            content=b"The hat is red.",
            headers={"Content-Type": "text/plain"},
        )
        stored = sent.json()["attachment"]
        await say(client, "What colour is it?", attachments=[stored])
        assert "The hat is red." in str(seen)
        read = await client.get(f"/attachments/{stored['sha256']}")
        assert [read.content, read.headers["content-disposition"]] == [b"The hat is red.", "attachment"]


async def test_who_knows_the_hash_of_a_file_cannot_read_or_attach_it(tmp_path: Path) -> None:
    async with web(tmp_path, answering("Read.")) as ana, client_of(str(ana.base_url), "bob") as bob:
        stored = (await ana.post("/attachments", content=b"The hat is red.")).json()["attachment"]
        path, none = f"/attachments/{stored['sha256']}", f"/attachments/{'0' * 64}"

        async def statuses() -> list[int]:
            named = {"text": "What colour is it?", "attachments": [stored]}
            sent = await bob.post("/threads/main/messages", json=named)
            return [(await bob.get(path)).status_code, sent.status_code, (await ana.get(path)).status_code]

        assert await statuses() == [404, 404, 200]
        texts = [(await bob.get(one)).json()["error"]["problem"] for one in (path, none)]
        assert texts[0].replace(stored["sha256"], "0" * 64) == texts[1]  # it does not say what is stored
        await say(ana, "What colour is it?", attachments=[stored])
        assert await statuses() == [404, 404, 200]
        assert (await bob.post("/attachments", content=b"The hat is red.")).status_code == 200
        assert await statuses() == [200, 200, 200]


async def test_a_file_is_read_on_every_thread_that_has_its_message(tmp_path: Path) -> None:
    async with web(tmp_path, answering("Read.")) as ana, client_of(str(ana.base_url), "bob") as bob:
        stored = (await ana.post("/attachments", content=b"The hat is red.")).json()["attachment"]
        path = f"/attachments/{stored['sha256']}"
        agent = WorldAgent("novel", lm=answering("Seen."), storage=Storage(home=tmp_path))
        await say(ana, "Before it.", thread="early")
        await say(ana, "What colour is it?", attachments=[stored])
        async with agent:
            await agent.thread("ana:early").fork(to="bob:early")
            assert (await bob.get(path)).status_code == 404
            fork = await agent.thread("ana:main").fork(to="bob:main")
            assert (await bob.get(path)).status_code == 200
            await fork.converse("And now?")
            await agent.upkeep.remove_account("ana", cancel=True)
            assert (await bob.get(path)).status_code == 200


class Named(BaseModel):
    sha256: str


class Content(BaseModel):
    text: str


async def read_file(params: Named, ctx: TaskContext) -> Content:
    return Content(text=(await ctx.attachments.read(params.sha256)).decode())


READS: dict[str, Any] = {
    "shapes": [Shape("read_file", Named, Content, read_file, description="reads a file")],
    "policy": Policy(rules=(Rule(decision="approve", function="*"),)),
}


@pytest.mark.on_every_database
async def test_a_hash_in_params_is_read_only_if_the_account_of_the_turn_reaches_the_file(tmp_path: Path) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        found = re.search("[0-9a-f]{64}", call.fields.get("message", ""))
        if found is None or "hat is red" in call.text or "attachment_missing" in call.text:
            return {"reply": "It is red." if "hat is red" in call.text else "It is gone."}
        return {"reply": "", "calls": [{"tool": "read_file", "arguments": {"sha256": found[0]}}]}

    async with web(tmp_path, ScriptedLM(reply), agent=READS) as ana, client_of(str(ana.base_url), "bob") as bob:
        stored = (await ana.post("/attachments", content=b"The hat is red.")).json()["attachment"]["sha256"]

        async def read(client: Any, sha256: str = stored, thread: str = "main") -> Any:
            asked = {"shape": "read_file", "params": {"sha256": sha256}}
            answer = (await client.post(f"/threads/{thread}/tasks", json=asked)).json()
            return answer["error"]["problem"] if "error" in answer else answer["turn"]["result"]["text"]

        async def called(client: Any) -> str:
            return str((await say(client, f"Read {stored}."))[-1]["turn"]["text"])

        missing = (await read(bob, "0" * 64)).replace("0" * 64, stored)
        assert [await read(ana), await called(ana)] == ["The hat is red.", "It is red."]
        assert [await read(bob), await called(bob)] == [missing, "It is gone."]
        assert "is gone, or is not what was stored" in missing
        assert (await bob.post("/attachments", content=b"The hat is red.")).status_code == 200
        assert [await read(bob), await called(bob)] == ["The hat is red.", "It is red."]


async def test_callers_without_an_account_reach_files_by_their_threads(tmp_path: Path) -> None:
    def threads_of(request: Any) -> Grant:
        return Grant(("novel",), (), (f"{by_header(request)}-*",))

    async with (
        web(tmp_path, answering(), agent=READS, login=threads_of) as ana,
        client_of(str(ana.base_url), "bob") as bob,
    ):
        stored = (await ana.post("/attachments", content=b"The hat is red.")).json()["attachment"]["sha256"]
        asked = {"shape": "read_file", "params": {"sha256": stored}}
        assert (await ana.post("/threads/ana-1/tasks", json=asked)).json()["turn"]["result"][
            "text"
        ] == "The hat is red."
        refused = await bob.post("/threads/bob-1/tasks", json=asked)
        assert [refused.status_code, refused.json()["error"]["code"]] == [404, "attachment_missing"]


async def test_a_fork_gets_the_prefix_of_its_account(tmp_path: Path) -> None:
    async with web(tmp_path, answering("Fine.")) as client:
        await say(client, "Hello.")
        made = await client.post("/threads/main/fork", json={"to": "copy"})
        assert [made.status_code, made.json()["thread"]] == [200, "ana:copy"]
        messages = (await client.get("/threads/copy/messages")).json()["messages"]
        assert [each["body"]["text"] for each in messages] == ["Hello.", "Fine."]


async def test_two_accounts_can_both_call_a_thread_main_and_do_not_see_each_other(tmp_path: Path) -> None:
    async with web(tmp_path, answering("Fine.")) as ana, client_of(str(ana.base_url), "bob") as bob:
        turn = (await say(ana, "I am Ana."))[-1]["turn"]
        assert (await bob.get("/threads/main/messages")).json()["messages"] == []
        await say(bob, "I am Bob.")
        assert [each["thread"] for each in (await bob.get("/threads")).json()["threads"]] == ["bob:main"]
        assert (await bob.get(f"/threads/{turn['thread']}/messages")).json()["messages"] == []
        missing = await bob.get(f"/turns/{turn['id']}/events", headers=STREAM)
        assert [missing.status_code, missing.json()["error"]["code"]] == [404, "unknown_turn"]


async def test_an_account_runs_and_follows_so_many_turns_and_the_others_are_not_held_up(tmp_path: Path) -> None:
    gate, limits = Held(), Limits(account_turns=1, account_readers=2)
    async with web(tmp_path, ScriptedLM(gate), limits=limits) as ana, client_of(str(ana.base_url), "bob") as bob:
        first = asyncio.create_task(say(ana, "Well?"))
        await asyncio.wait_for(gate.begun.acquire(), BOUND)
        second = await ana.post("/threads/other/messages", json={"text": "And?"}, headers=STREAM)
        error = second.json()["error"]
        assert [second.status_code, second.headers["retry-after"], error["code"]] == [429, "1", "too_many_turns"]
        assert error["problem"] == "the account has 1 running turns, which is its limit"

        async with ana.stream("GET", "/live") as live:  # the second call that waits
            turn_id = (await ana.get("/threads")).json()["threads"][0]["turn_id"]
            for path in ("/live", f"/turns/{turn_id}/events"):
                refused = await ana.get(path, headers=STREAM)
                assert [refused.status_code, refused.json()["error"]["code"]] == [429, "too_many_turns"]
            assert live.status_code == 200
            others = asyncio.create_task(say(bob, "Well?"))
            await asyncio.wait_for(gate.begun.acquire(), BOUND)
        gate.go.set()
        assert [(await each)[-1]["turn"]["status"] for each in (first, others)] == ["done", "done"]
        assert (await say(ana, "And?", thread="other"))[-1]["turn"]["status"] == "done"


@pytest.mark.requirement("T16")
async def test_turns_of_queued_messages_count_and_wait_until_their_account_has_room(tmp_path: Path) -> None:
    gates = {text: asyncio.Event() for text in ("1", "2", "3")}
    begun: asyncio.Queue[str] = asyncio.Queue()

    async def reply(call: ScriptedCall) -> dict[str, str]:
        text = str(call.fields["message"])
        begun.put_nowait(text)
        await gates[text].wait()
        return {"reply": "Fine."}

    async with web(tmp_path, ScriptedLM(reply), limits=Limits(account_turns=2)) as ana:
        for text in gates:
            await ana.post(f"/threads/t{text}/queue", json={"text": text})
        async with asyncio.timeout(BOUND):
            first = {await begun.get(), await begun.get()}
            refused = await ana.post("/threads/other/messages", json={"text": "4"}, headers=STREAM)
            assert refused.json()["error"]["problem"] == "the account has 2 running turns, which is its limit"
            [last] = gates.keys() - first
            assert [each["text"] for each in (await ana.get(f"/threads/t{last}/queue")).json()["messages"]] == [last]
            assert begun.empty()
            gates[first.pop()].set()
            assert await begun.get() == last
            for gate in gates.values():
                gate.set()


async def test_a_reader_that_waits_for_a_silent_turn_has_its_stream_and_frees_its_place(tmp_path: Path) -> None:
    gate, limits = Held(), Limits(account_readers=2)
    async with web(tmp_path, ScriptedLM(gate), limits=limits) as client:
        first = asyncio.create_task(say(client, "Well?"))
        await asyncio.wait_for(gate.begun.acquire(), BOUND)
        turn_id = (await client.get("/threads")).json()["threads"][0]["turn_id"]
        path, last = f"/turns/{turn_id}/events", (await client.get(f"/turns/{turn_id}/events")).json()["seq"]

        async def follow() -> int:
            async with client.stream("GET", path, headers={**STREAM, "Last-Event-ID": str(last)}) as response:
                return response.status_code

        assert await follow() == 200
        async with asyncio.timeout(BOUND):
            while await follow() != 200:  # until the server has noticed that the first one has left
                pass
        gate.go.set()
        assert (await first)[-1]["turn"]["status"] == "done"


async def test_notices_of_an_agent_that_cannot_open_are_an_error(tmp_path: Path) -> None:
    def make(workspace: str) -> WorldAgent:
        raise InvalidArgument("there is no such workspace", remedy="name another")

    async with served(WebApp(make, grant=Grant(workspaces=("*",), accounts=("*",)))) as url, client_of(url) as client:
        refused = await client.get("/live", params={"workspace": "none"})
        assert [refused.status_code, refused.json()["error"]["code"]] == [400, "invalid_argument"]


async def test_a_query_beside_a_body_is_read_and_a_file_of_curl_has_the_type_of_its_name(tmp_path: Path) -> None:
    async with web(tmp_path, answering("Fine."), login=None, grant=Grant(("novel",), ("*",))) as client:
        role = {"role": {"content": "Be terse."}}
        assert (await client.put("/roles/account", params={"account": "ana"}, json=role)).json()["role"][
            "scope_id"
        ] == "ana"
        typed = {"Content-Type": "application/x-www-form-urlencoded"}  # what curl sends by default
        sent = await client.post(
            "/attachments", params={"name": "notes.txt"}, content=b"The hat is red.", headers=typed
        )
        assert sent.json()["attachment"]["media_type"] == "text/plain"


@pytest.mark.requirement("T18")
async def test_a_client_is_told_how_long_the_service_of_the_model_asks_to_wait(tmp_path: Path) -> None:
    async with openai_stub() as stub:
        given = {"settings": {"api_base": stub.url, "model_attempts": 1}}
        async with web(tmp_path, "openai/limited-429", agent=given) as client:
            answer = await client.post("/threads/main/messages", json={"text": "Hello."})
    assert [answer.status_code, answer.headers["retry-after"]] == [429, "7"], answer.text


@pytest.mark.requirement("H4")
async def test_an_account_uploads_so_many_bytes_a_day(tmp_path: Path) -> None:
    limits = {"settings": {"account_limits": {"bytes": 5000}}}
    async with web(tmp_path, answering("Fine."), agent=limits) as client:
        stored = [await client.post("/attachments", content=b"x" * size) for size in (4000, 4001, 999)]
        assert [each.status_code for each in stored] == [200, 429, 200]
        assert "retry-after" not in stored[1].headers  # a client would repeat it each second of the day
        picture = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
        image = {"type": "image_url", "image_url": {"url": picture}}
        body = {"model": "novel", "messages": [{"role": "user", "content": [image]}]}
        refused = await client.post("/v1/chat/completions", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "limit_reached")


@pytest.mark.requirement("T18")
async def test_what_workers_say_is_sent_without_a_number_where_the_body_asks_for_it(tmp_path: Path) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "You write" in call.system:
            return {"result": "Paid. Nine herons."} if call.steps else {"result": "", **calls(("buy", {"item": "pen"}))}
        return {"reply": "There you are."} if call.steps else to("poet")

    poet = Worker("poet", "You write a line.", tools=("buy",))
    agent = {"workers": [poet], "tools": [buy]}
    seen, ways = list[Any](), list[dict[str, Any]]([{}, {"subagents": True}])
    for asked in ways:
        async with web(tmp_path / str(bool(asked)), ScriptedLM(reply), agent=agent) as client:
            *first, paused = await say(client, "A line!", key="k", **asked)
            [pause] = paused["turn"]["pauses"]
            answer = {"answers": {pause["id"]: {"approve": {}}}, **asked}
            *rest, last = events_in((await client.post("/threads/main/resume", json=answer, headers=STREAM)).text)
            replayed = events_in((await client.get(f"/turns/{last['turn']['id']}/events", headers=STREAM)).text)
            task = {"shape": "subagent", "params": {"worker": "poet", "request": "Go."}, **asked}
            *third, _ = events_in((await client.post("/threads/two/tasks", json=task, headers=STREAM)).text)
        assert last["turn"]["text"] == "There you are."
        assert not [each for each in replayed if each["type"].startswith("task_text")]
        assert bool([each for each in third if each["type"] == "task_arguments_delta"]) == bool(asked)
        seen.append([*first, *rest])
    plain, more = seen
    deltas = [each for each in more if each["type"] in ("task_text_delta", "task_arguments_delta")]
    assert {(each["type"], each["step"]) for each in deltas} == {("task_arguments_delta", 0), ("task_text_delta", 1)}
    assert "".join(each["text"] for each in deltas if each["step"] == 1) == "Paid. Nine herons."
    assert not any("id" in each or "seq" in each for each in deltas)
    numbered = [each for each in more if each not in deltas]
    assert [(each["id"], each["type"]) for each in numbered] == [(each["id"], each["type"]) for each in plain]
