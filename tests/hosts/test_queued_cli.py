"""`worldagent threads steer`, `queue`, `queued`, `withdraw`, `reorder` and `release`: a command runs no other turn."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from support.command_line import APP, BOUND, Run, as_json, home, refusal, run, started
from support.hat_shop import agent
from support.inbox import ended, texts

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("T10", "T15", "T16")

SHOP = ("--workspace", "shop")


async def queued(run: Run) -> list[str]:
    return [each["text"] for each in (await as_json(run, "threads", "queued", "t1", *SHOP))["messages"]]


async def test_a_message_that_a_command_queues_waits_for_a_process_that_stays(home: Path, run: Run) -> None:
    added = await run("threads", "queue", "t1", "Good night.", *APP)
    assert (added.exit_code, "waits for a process that stays" in added.stderr) == (0, True)
    assert await queued(run) == ["Good night."]
    shown = (await run("threads", "queued", "t1", *SHOP)).stdout.splitlines()
    assert (shown[0].split()[:2], "Good night." in shown[1]) == (["ID", "KIND"], True)
    assert "its turn" in shown[1], "no other turn runs that it could wait for"
    assert (await run("ask", "Hello", "--thread", "other", *APP)).exit_code == 0
    assert await queued(run) == ["Good night."], "a command runs its own turn alone"
    async with agent() as shop:
        await ended(shop.thread("t1"))
        assert await texts(shop.thread("t1")) == [("message", "Good night."), ("answer", "Welcome to the shop.")]
    assert await queued(run) == []
    assert "of the workspace 'shop'" in (await run("threads", "queued", "t1", *SHOP)).stderr


async def test_a_turn_that_waits_is_steered_and_what_is_queued_is_moved_and_withdrawn(home: Path, run: Run) -> None:
    refused = await refusal(run, "threads", "steer", "t1", "in blue", *APP)
    assert (refused["code"], "`worldagent ask`" in refused["remedy"]) == ("nothing_to_steer", True)
    async with agent() as shop:
        await shop.thread("t1").task("buy", {"what": "hat"})
    refused = await refusal(run, "threads", "steer", "t1", "in blue", *APP)
    assert (refused["code"], "`worldagent threads queue`" in refused["remedy"]) == ("not_steerable", True)
    ids = [(await as_json(run, "threads", "queue", "t1", text, *APP))["message"]["id"] for text in ("2", "3", "4")]
    same = [(await as_json(run, "threads", "queue", "t1", "5", "--key", "k", *APP))["message"]["id"] for _ in "ab"]
    assert same[0] == same[1]
    assert await queued(run) == ["2", "3", "4", "5"]
    moved = await as_json(run, "threads", "reorder", "t1", ids[2], same[0], *SHOP)
    assert [each["text"] for each in moved["messages"]] == ["4", "5", "2", "3"]
    assert (await run("threads", "withdraw", "t1", ids[0], *SHOP)).exit_code == 0
    assert (await refusal(run, "threads", "withdraw", "t1", ids[0], *SHOP, code=1))["code"] == "not_found"
    assert (await as_json(run, "threads", "release", "t1", ids[1], *APP))["message"]["waits_for"] == "turn"
    assert (await refusal(run, "threads", "release", "t1", "no", *APP))["code"] == "unknown_message"
    task = await as_json(run, "threads", "queue", "t1", "--task", "buy", "--params", '{"what": "coat"}', *APP)
    assert task["message"]["text"] == ""
    told = await run("threads", "queue", "t1", "6", *APP)
    assert "it is number 5 of those that wait" in told.stderr


async def test_an_interrupting_message_cancels_a_turn_that_waits(home: Path, run: Run) -> None:
    async with agent() as shop:
        await shop.thread("t1").task("buy", {"what": "hat"})
    made = await as_json(run, "threads", "queue", "t1", "Stop.", "--interrupt", *APP)
    assert made["message"]["kind"] == "queue"
    found = json.loads((await run("threads", "show", "t1", *SHOP, "--json")).stdout)["thread"]
    assert found["status"] == "cancelled"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("steer", "t1", "x", "--role", "Be terse."), "role_not_storable"),
        (("queue", "t1", "x", "--role", "Be terse."), "role_not_storable"),
        (("release", "t1", "x", "--role", "Be terse."), "role_not_storable"),
        (("queue", "t1", "x", "--task", "buy"), "invalid_argument"),
        (("queue", "t1", "x", "--params", "{}"), "invalid_argument"),
        (("queue", "t1", "--task", "nothing"), "unknown_shape"),
    ],
)
async def test_what_a_command_cannot_queue_is_refused(home: Path, run: Run, words: Any, code: str) -> None:
    assert (await refusal(run, "threads", *words, *APP))["code"] == code
    assert await queued(run) == []


async def test_model_of_a_queued_message_must_exist(home: Path, run: Run) -> None:
    refused = await refusal(run, "threads", "queue", "t1", "x", "--turn-model", "nothing", *APP, code=1)
    assert refused["code"] == "model_not_configured"
    assert await queued(run) == []


async def test_a_worker_begins_what_is_queued_while_it_runs(home: Path, run: Run) -> None:
    async with started(home, "worker", *APP) as process:
        assert process.stderr is not None
        line = await asyncio.wait_for(process.stderr.readline(), BOUND)
        assert b"queued messages" in line
        assert (await run("threads", "queue", "t1", "Good night.", *APP)).exit_code == 0
        async with asyncio.timeout(BOUND):
            while await queued(run):
                pass
    messages = (await as_json(run, "threads", "show", "t1", *SHOP))["thread"]["messages"]
    assert messages[0]["body"]["text"] == "Good night."
