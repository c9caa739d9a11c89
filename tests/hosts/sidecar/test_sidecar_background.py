"""The sidecar's tools for work in the background: what a conversation has, starting, steering and ending it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.background import READER, Library
from support.sidecar_served import Caller, caller_of, served, tokens
from worldagent.harness import Policy
from worldagent.hosts.sidecar import Grant, Sidecar

pytestmark = pytest.mark.requirement("T10", "T17")

KNOWN = tokens(
    ana=Grant(("novel",), ("ana",), ("shared", "ana-*")),
    ben=Grant(("novel",), ("ben",), ("shared", "ben-*")),
    operator=Grant(("novel",), ("*",), operator=True),
)
BOUND = 60
READ: dict[str, Any] = {"thread": "shared", "worker": "reader", "text": "Read Moby Dick.", "report": "next"}


async def until(caller: Caller, status: str, **fields: Any) -> dict[str, Any]:
    """Wait until the only task of the conversation stands so."""
    async with asyncio.timeout(BOUND):
        while True:
            [task] = (await caller("background_list", thread="shared"))["tasks"]
            if task.items() >= {"status": status, **fields}.items():
                return dict(task)
            await asyncio.sleep(0.02)


async def test_a_task_is_started_steered_and_seen_by_its_account(tmp_path: Path) -> None:
    library = Library()
    async with (
        served(Sidecar(lambda _: library.agent(tmp_path), tokens=KNOWN)) as url,
        caller_of(url, "auto", "ana") as ana,
        caller_of(url, "auto", "ben") as ben,
        caller_of(url, "auto", "operator") as operator,
    ):
        task = (await ana("background_start", **READ, key="k"))["task"]
        assert (task["name"], task["report"], task["status"] in ("queued", "running")) == ("reader", "next", True)
        assert (await ana("background_start", **READ, key="k"))["task"]["id"] == task["id"]
        await asyncio.wait_for(library.begun.wait(), BOUND)
        assert (await until(ana, "running", doing="look", calls=1))["pauses"] == 0
        assert (await ben("background_list", thread="shared"))["tasks"] == []
        assert [each["id"] for each in (await operator("background_list", thread="shared"))["tasks"]] == [task["id"]]
        for refused in (
            await ben.refused("background_steer", thread="shared", task=task["id"], text="Stop."),
            await ben.refused("background_cancel", thread="shared", task=task["id"]),
            await ana.refused("background_cancel", thread="shared", task="nothing"),
        ):
            assert refused["code"] == "unknown_task"
        assert (await ben.refused("background_start", **READ, key="k"))["code"] == "key_reused"
        assert (await ben.refused("history", thread="shared~bg-mine"))["code"] == "forbidden", "no task has it"
        given: dict[str, Any] = {"thread": "shared", "task": task["id"], "text": "Only the first chapter."}
        assert (await operator.refused("background_steer", **given))["code"] == "not_steerable"
        assert (await ana("background_steer", **given))["task"]["id"] == task["id"]
        library.may.set()
        done = await until(ana, "done")
        assert "Only the first chapter." in library.read[-1]
        assert (done["calls"], done["doing"], done["thread"]) == (2, None, f"shared~bg-{task['id']}")
        said = (await ana("history", thread=done["thread"]))["messages"]
        assert [each["kind"] for each in said] == ["task", "word", "result"]
        over = await ana.refused("background_steer", **given)
        assert (over["code"], over["remedy"]) == ("nothing_to_steer", "use its result, or dispatch more")
        assert (await ana("background_cancel", thread="shared", task=task["id"]))["cancelled"] is False


async def test_a_task_that_waits_is_answered_on_its_own_thread(tmp_path: Path) -> None:
    library = Library()
    library.may.set()
    async with (
        served(Sidecar(lambda _: library.agent(tmp_path, policy=Policy()), tokens=KNOWN)) as url,
        caller_of(url, "auto", "ana") as ana,
        caller_of(url, "auto", "ben") as ben,
    ):
        await ana("background_start", **READ)
        task = await until(ana, "paused")
        assert (task["pauses"], task["doing"]) == (1, None)
        [pause] = (await ana("pauses", thread=task["thread"]))["pauses"]
        answer: dict[str, Any] = {"answers": {pause["id"]: {"approve": {}}}}
        assert (await ben.refused("resume", thread=task["thread"], **answer))["code"] == "forbidden"
        assert (await ana("resume", thread=task["thread"], **answer))["turn"]["status"] == "done"
        assert (await until(ana, "done"))["pauses"] == 0


async def test_a_task_is_cancelled_and_one_is_a_conversation_of_its_own(tmp_path: Path) -> None:
    library = Library()
    async with (
        served(Sidecar(lambda _: library.agent(tmp_path), tokens=KNOWN)) as url,
        caller_of(url, "auto", "ana") as ana,
    ):
        await ana("background_start", **READ)
        await asyncio.wait_for(library.begun.wait(), BOUND)
        [task] = (await ana("background_list", thread="shared"))["tasks"]
        assert (await ana("background_cancel", thread="shared", task=task["id"]))["cancelled"] is True
        library.may.set()
        assert (await until(ana, "cancelled"))["id"] == task["id"]
        made = (await ana("background_start", thread="ana-1", text="What is it about whales?"))["task"]
        assert (made["name"], made["report"]) == ("conversation", "turn")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "invalid_argument"),
        ({"text": "Hello.", "shape": "subagent"}, "invalid_argument"),
        ({"text": "Hello.", "params": {"a": 1}}, "invalid_argument"),
        ({"skill": "tidy", "worker": "reader"}, "invalid_argument"),
        ({"text": "Hello.", "report": "never"}, "invalid_argument"),
        ({"text": "Hello.", "worker": "nothing"}, "unknown_worker"),
        ({"shape": "nothing"}, "unknown_shape"),
        ({"skill": "nothing"}, "unknown_skill"),
    ],
)
async def test_a_task_is_one_text_task_or_skill(tmp_path: Path, given: dict[str, Any], code: str) -> None:
    library = Library()
    async with (
        served(Sidecar(lambda _: library.agent(tmp_path), tokens=KNOWN)) as url,
        caller_of(url, "auto", "ana") as ana,
    ):
        assert (await ana.refused("background_start", thread="ana-1", **given))["code"] == code


async def test_a_thread_with_a_role_of_this_process_starts_none(tmp_path: Path) -> None:
    library = Library()
    async with (
        served(Sidecar(lambda _: library.agent(tmp_path), tokens=KNOWN)) as url,
        caller_of(url, "auto", "ana") as ana,
    ):
        await ana("thread_role_set", thread="shared", role={"content": "Be brief."})
        refused = await ana.refused("background_start", **READ)
        assert (refused["code"], "`thread_role_clear`" in refused["remedy"]) == ("role_not_storable", True)


async def test_an_agent_without_it_says_so(tmp_path: Path) -> None:
    agent = Library().agent(tmp_path, background=None, workers=[READER])
    async with served(Sidecar(lambda _: agent, tokens=KNOWN)) as url, caller_of(url, "auto", "ana") as ana:
        refused = await ana.refused("background_start", **READ)
        assert (refused["code"], "in the background" in refused["problem"]) == ("invalid_argument", True)
        assert (await ana("background_list", thread="shared"))["tasks"] == []
