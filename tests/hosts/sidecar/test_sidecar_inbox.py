"""The sidecar's tools for messages beside a turn: steering, the queue, and who may change what waits."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.agents import Thinking, answering
from support.inbox import Painting
from support.sidecar_served import Caller, agents, caller_of, served, tokens
from worldagent.core.events import MessageTaken
from worldagent.hosts.sidecar import Grant, Sidecar
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T10", "T15", "T16")

KNOWN = tokens(
    ana=Grant(("novel",), ("ana",), ("shared", "ana-*")),
    ben=Grant(("novel",), ("ben",), ("shared", "ben-*")),
    operator=Grant(("novel",), ("*",), operator=True),
)
BOUND = 60


async def until(caller: Caller, thread: str, texts: list[str]) -> None:
    """Wait until the person has said these on a thread, and all of it is answered."""
    async with asyncio.timeout(BOUND):
        while True:
            messages = (await caller("history", thread=thread))["messages"]
            said = [each["body"]["text"] for each in messages if each["kind"] in ("message", "word")]
            if said == texts and messages[-1]["kind"] == "answer":
                return
            await asyncio.sleep(0.02)


async def test_a_running_turn_is_steered_and_the_events_say_so(tmp_path: Path) -> None:
    painting = Painting()
    async with (
        served(Sidecar(lambda _: painting.agent(tmp_path), tokens=KNOWN)) as url,
        caller_of(url, "auto", "ana") as ana,
        caller_of(url, "auto", "ben") as ben,
    ):
        error = await ana.refused("thread_steer", thread="shared", text="rather in blue")
        assert (error["code"], "set `begin` to true" in error["remedy"]) == ("nothing_to_steer", True)
        running = asyncio.ensure_future(ana("converse", thread="shared", text="Paint the door."))
        await asyncio.wait_for(painting.begun.wait(), BOUND)
        error = await ben.refused("thread_steer", thread="shared", text="to me")
        assert (error["code"], "`thread_queue`" in error["remedy"]) == ("not_steerable", True)
        word = (await ana("thread_steer", thread="shared", text="rather in blue", name="Ana", key="k"))["message"]
        again = (await ana("thread_steer", thread="shared", text="rather in blue", name="Ana", key="k"))["message"]
        assert (word["kind"], word["waits_for"], word["id"]) == ("steer", "turn", again["id"])
        assert [each["id"] for each in (await ben("thread_queued", thread="shared"))["messages"]] == [word["id"]]
        painting.may.set()
        assert (await running)["turn"]["text"] == "in blue"
        [read] = (await ben("thread_queued", thread="shared", message=word["id"]))["messages"]
        assert (read["id"], read["turn_id"]) == (word["id"], (await running)["turn"]["id"])
        [taken] = [each for each in ana.events if isinstance(each, MessageTaken)]
        assert (taken.id, taken.author, taken.name, taken.text) == (word["id"], "ana", "Ana", word["text"])
        [said] = [each for each in (await ana("history", thread="shared"))["messages"] if each["kind"] == "word"]
        assert (said["id"], said["body"]) == (taken.message_id, {"text": "rather in blue", "name": "Ana"})


async def test_queued_messages_are_listed_moved_and_withdrawn_by_those_who_sent_them(tmp_path: Path) -> None:
    model = Thinking()
    async with (
        served(Sidecar(agents(tmp_path, lm=model.lm), tokens=KNOWN)) as url,
        caller_of(url, "auto", "ana") as ana,
        caller_of(url, "auto", "ben") as ben,
        caller_of(url, "auto", "operator") as operator,
    ):
        running = asyncio.ensure_future(ana("converse", thread="shared", text="1"))
        await asyncio.wait_for(model.asked.wait(), BOUND)
        two, three, four = [
            (await ana("thread_queue", thread="shared", text=text))["message"]["id"] for text in ("2", "3", "4")
        ]
        for refused in (
            await ben.refused("thread_withdraw", thread="shared", message=two),
            await ben.refused("thread_reorder", thread="shared", messages=[four]),
            await ben.refused("thread_release", thread="shared", message=two),
            await ben.refused("thread_queue", thread="shared", text="mine", interrupt=True),
            await ben.refused("converse", thread="shared", text="mine", interrupt=True),
            await ben.refused("thread_queued", thread="ana-1"),
        ):
            assert refused["code"] == "forbidden"
        moved = await ana("thread_reorder", thread="shared", messages=[four])
        assert [each["text"] for each in moved["messages"]] == ["4", "2", "3"]
        assert (await ana.refused("thread_reorder", thread="shared", messages=["nothing"]))["code"] == "unknown_message"
        assert (await ana("thread_withdraw", thread="shared", message=two))["withdrawn"] is True
        assert (await operator("thread_withdraw", thread="shared", message=two))["withdrawn"] is False
        model.may.set()
        await running
        await until(ana, "shared", ["1", "4", "3"])
        assert (await ana("thread_queued", thread="shared"))["messages"] == []
        assert (await ana.refused("thread_release", thread="shared", message=two))["code"] == "unknown_message"
        assert (await ana("thread_release", thread="shared", message=three))["message"]["turn_id"]


@pytest.mark.parametrize("tool", ["converse", "thread_queue"])
async def test_a_message_that_interrupts_ends_the_running_turn(tmp_path: Path, tool: str) -> None:
    model = Thinking()
    async with (
        served(Sidecar(agents(tmp_path, lm=model.lm), tokens=KNOWN)) as url,
        caller_of(url, "auto", "ana") as ana,
    ):
        running = asyncio.ensure_future(ana("converse", thread="ana-1", text="1"))
        await asyncio.wait_for(model.asked.wait(), BOUND)
        second = asyncio.ensure_future(ana(tool, thread="ana-1", text="2", interrupt=True))
        assert (await running)["turn"]["status"] == "cancelled"
        model.may.set()
        await second
        await until(ana, "ana-1", ["1", "2"])


async def test_a_queued_message_has_its_role_as_long_as_the_process_stays(tmp_path: Path) -> None:
    roles: list[Any] = []

    def reply(call: ScriptedCall) -> dict[str, Any]:
        roles.append(call.role)
        return {"reply": "Fine."}

    make = agents(tmp_path, lm=ScriptedLM(reply))
    async with served(Sidecar(make, tokens=KNOWN)) as url, caller_of(url, "auto", "ana") as ana:
        role = {"name": "pirate", "content": "Speak as a pirate of the lower river."}
        message = (await ana("thread_queue", thread="ana-1", text="Hello.", role=role))["message"]
        assert message["role_tiers"] == ["call"]
        await until(ana, "ana-1", ["Hello."])
        assert ["pirate" in str(each) for each in roles] == [True]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"text": "Hello.", "shape": "subagent"},
        {"text": "Hello.", "params": {"a": 1}},
        {"skill": "tidy", "inputs": {"a": 1}},
    ],
)
async def test_a_queued_message_is_one_text_task_or_skill(tmp_path: Path, given: dict[str, Any]) -> None:
    async with (
        served(Sidecar(agents(tmp_path, lm=answering()), tokens=KNOWN)) as url,
        caller_of(url, "auto", "ana") as ana,
    ):
        assert (await ana.refused("thread_queue", thread="ana-1", **given))["code"] == "invalid_argument"


async def test_a_task_is_queued_and_errors_of_it_are_passed_on(tmp_path: Path) -> None:
    async with (
        served(Sidecar(agents(tmp_path, lm=answering()), tokens=KNOWN)) as url,
        caller_of(url, "auto", "ana") as ana,
    ):
        for given in ({"shape": "nothing"}, {"skill": "nothing"}):
            assert (await ana.refused("thread_queue", thread="ana-1", **given))["code"].startswith("unknown_")
