"""Pauses over the wire: results that say what to call next, answers as JSON, and asking through the client (T4)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, ElicitResult, ErrorData

from support.role_hosts import Mode
from support.sidecar_served import CANCEL, DECLINE, MODES, Shop, accept, asked, call, task
from worldagent.hosts.sidecar import Sidecar
from worldagent.hosts.sidecar import asking as asking_module

pytestmark = pytest.mark.requirement("T4")

revisions = pytest.mark.parametrize("mode", MODES)  # they ask in ways of their own

SECRET = "vermilion-otter"


# --- results ----------------------------------------------------------------------------------------------------------


async def test_a_client_that_cannot_ask_gets_all_of_the_pause_and_what_to_call(tmp_path: Path) -> None:
    async with asked(tmp_path, "auto") as (client, said):
        found = await task(client, "buy", account="ana", channel="c")
        turn, [step] = found["turn"], found["next"]
        [pause] = turn["pauses"]
        assert (turn["status"], pause["kind"], pause["function"]) == ("paused", "approval", "pay")
        assert (pause["arguments"], pause["always"], pause["expired"]) == ({"what": "hat"}, True, False)
        assert pause["answers"] == {"approve": {"hash": pause["hash"]}, "reject": {"reason": ""}}
        assert pause["since"].endswith("Z")
        assert step["tool"] == "resume"
        ids = {"workspace": "novel", "account": "ana", "channel": "c", "thread": "t1"}
        assert step["arguments"] == {**ids, "answers": {}}
        assert pause["id"] in step["why"]
        assert "approve or reject" in step["why"]
        answer = {"approve": pause["answers"]["approve"]}
        done = await call(client, "resume", **{**step["arguments"], "answers": {pause["id"]: answer}})
        assert (done["turn"]["status"], done["next"]) == ("done", [])
        assert done["turn"]["result"] == {"text": "paid for the hat"}
    assert said.shop.done == ["hat"]


@pytest.mark.parametrize(
    ("shape", "form", "text"),
    [
        ("buy", {"approve": {}}, "paid for the hat"),
        ("buy", {"approve": {"arguments": {"what": "cap"}}}, "paid for the cap"),
        ("fit", {"answer": {"street": "Long Row", "number": 4}}, "Long Row 4 False None"),
    ],
)
async def test_each_form_of_answer_is_taken(shape: str, form: Any, text: str, tmp_path: Path) -> None:
    async with asked(tmp_path, "auto") as (client, _):
        [pause] = (await task(client, shape))["turn"]["pauses"]
        assert list(form) <= list(pause["answers"])
        done = await call(client, "resume", thread="t1", answers={pause["id"]: form})
        assert done["turn"]["result"] == {"text": text}


INVALID: list[tuple[Any, str]] = [
    ({"approve": {}, "reject": {}}, "one form of answer"),
    ({SECRET: {}}, "a form that is not valid here"),
    ({"approve": {"arguments": [SECRET]}}, "approve.arguments: It should be an object"),
    ({"approve": {"arguments": {"what": [SECRET]}}}, "what"),
    ({"approve": {"hash": SECRET}}, "other arguments"),
    ({"reject": {"reason": SECRET * 1000}}, "reject.reason"),
]


async def test_invalid_answer_is_refused_by_pause_and_field(tmp_path: Path) -> None:
    async with asked(tmp_path, "auto") as (client, said):
        [pause] = (await task(client, "buy"))["turn"]["pauses"]
        for form, field in INVALID:
            refused = await call(client, "resume", thread="t1", answers={pause["id"]: form})
            assert refused["error"]["code"] == "answer_invalid"
            assert pause["id"] in refused["error"]["problem"]
            assert field in refused["error"]["problem"]
            assert SECRET not in json.dumps(refused)
        assert (await call(client, "pauses", thread="t1"))["pauses"][0]["id"] == pause["id"]
    assert said.shop.done == []


# --- asking through the client ----------------------------------------------------------------------------------------


@revisions
async def test_an_approval_is_asked_as_a_form_and_the_call_is_made(mode: Mode, tmp_path: Path) -> None:
    async with asked(tmp_path, mode, accept(decision="approve")) as (client, said):
        found = await task(client, "buy")
    assert (found["turn"]["status"], found["turn"]["result"]) == ("done", {"text": "paid for the hat"})
    [form] = said.asked
    assert form.message.splitlines()[:3] == ["approval of a call: pay", '  what: "hat"', "risk: write, network"]
    assert "reason: " in form.message
    fields = form.requested_schema["properties"]
    assert (fields["decision"]["enum"], form.requested_schema["required"]) == (
        ["approve", "approve_always", "approve_always_any", "reject"],
        ["decision"],
    )
    assert said.shop.done == ["hat"]


@pytest.mark.parametrize("no", [accept(decision="reject", reason="too dear"), DECLINE])
@revisions
async def test_a_rejected_or_declined_call_is_not_made(no: Any, mode: Mode, tmp_path: Path) -> None:
    async with asked(tmp_path, mode, no) as (client, said):
        found = await task(client, "buy")
        assert found["error"]["code"] == "call_refused", found
        assert len(said.asked) == 1
    assert said.shop.done == []


@revisions
async def test_a_question_that_is_declined_stays_open_and_is_not_asked_again(mode: Mode, tmp_path: Path) -> None:

    def person(form: Any) -> Any:
        return DECLINE if form.message.startswith("question") else accept(decision="approve")

    async with asked(tmp_path, mode, person) as (client, said):
        found = await task(client, "side")
        assert (found["turn"]["status"], len(said.asked), said.shop.done) == ("paused", 2, ["hat"])
        [pause] = found["turn"]["pauses"]
        assert (pause["kind"], found["next"][0]["tool"]) == ("question", "resume")
        done = await call(client, "resume", thread="t1", answers={pause["id"]: {"answer": "blue"}})
        assert done["turn"]["result"] == {"text": "blue: paid for the hat"}


@revisions
async def test_cancelling_a_form_keeps_the_pause_open(mode: Mode, tmp_path: Path) -> None:
    async with asked(tmp_path, mode, CANCEL) as (client, said):
        found = await task(client, "buy")
        assert (found["turn"]["status"], len(said.asked), found["next"][0]["tool"]) == ("paused", 1, "resume")
        assert len((await call(client, "pauses", thread="t1"))["pauses"]) == 1
    assert said.shop.done == []


async def test_a_caller_that_wants_pauses_returned_is_not_asked(tmp_path: Path) -> None:
    async with asked(tmp_path, "auto", accept(decision="approve")) as (client, said):
        found = await task(client, "buy", pauses="return")
    assert (found["turn"]["status"], said.asked) == ("paused", [])


@revisions
async def test_a_nested_form_is_asked_as_json(mode: Mode, tmp_path: Path) -> None:
    wrong, fits = accept(json="[1, 2"), accept(json='{"sizes": [1, 2]}')
    async with asked(tmp_path, mode, wrong, accept(json='{"sizes": "all"}'), fits) as (client, said):
        found = await task(client, "pack")
    assert found["turn"]["result"] == {"text": "[1, 2]"}
    assert list(said.asked[0].requested_schema["properties"]) == ["json"]
    assert "sizes" in said.asked[0].message
    assert len(said.asked) == 3


@pytest.mark.parametrize("wrong", [accept(), accept(decision="approve", more="x")])
@revisions
async def test_form_that_never_fits_is_asked_three_times(wrong: Any, mode: Mode, tmp_path: Path) -> None:
    async with asked(tmp_path, mode, wrong) as (client, said):
        assert ((await task(client, "buy"))["turn"]["status"], len(said.asked)) == ("paused", 3)
    assert said.shop.done == []


@revisions
async def test_a_client_that_fails_to_ask_gets_the_paused_turn(mode: Mode, tmp_path: Path) -> None:
    failure = ErrorData(code=INVALID_PARAMS, message=SECRET)
    async with asked(tmp_path, mode, failure) as (client, said):
        if mode == "legacy":
            found = await task(client, "buy")
            assert (found["turn"]["status"], SECRET in json.dumps(found)) == ("paused", False)
        else:  # its own library fails the call, and calls no second time
            with pytest.raises(MCPError):
                await task(client, "buy")
        found = await call(client, "pauses", thread="t1")
        assert (found["status"], len(found["pauses"]), len(said.asked)) == ("paused", 1, 1)


async def test_late_form_keeps_the_pause_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking_module, "ANSWER_SECONDS", 0.05)
    gone = asyncio.Event()

    async def never(context: Any, params: Any) -> ElicitResult:
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        return CANCEL

    shop = Shop()
    async with (
        Sidecar(lambda workspace: shop.agent(tmp_path)) as sidecar,
        Client(sidecar.server, mode="legacy", elicitation_callback=never) as client,
    ):
        found = await task(client, "buy")
        assert (found["turn"]["status"], found["next"][0]["tool"]) == ("paused", "resume")
        async with asyncio.timeout(10):
            await gone.wait()  # the client was told that nobody waits any more
    assert shop.done == []


@revisions
async def test_the_answer_of_another_client_meanwhile_counts(mode: Mode, tmp_path: Path) -> None:
    shop = Shop()
    async with Sidecar(lambda workspace: shop.agent(tmp_path)) as sidecar, Client(sidecar.server) as other:

        async def slow(context: Any, params: Any) -> ElicitResult:
            [pause] = (await call(other, "pauses", thread="t1"))["pauses"]
            await call(other, "resume", thread="t1", answers={pause["id"]: {"approve": {}}})
            return accept(decision="reject")

        async with Client(sidecar.server, mode=mode, elicitation_callback=slow) as client:
            found = await task(client, "buy")
    if mode == "legacy":
        assert found["error"]["code"] == "already_answered"
    else:  # a round may be one whose answer was lost, so it is told what became of the turn
        assert (found["turn"]["status"], [step["tool"] for step in found["next"]]) == ("done", ["history"])
    assert shop.done == ["hat"]
