"""Tasks of sidecars that are killed between the steps of a task, and tasks that several processes answer for (T10)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.example_hosts import node_client
from support.processes import eventually
from support.sidecars import TOKEN, Sidecar, bought, let, over_http
from support.tasks import accepted, all_of, answer, begun, got, until, with_tasks

pytestmark = [pytest.mark.requirement("T4", "T10"), pytest.mark.timeout(180)]

PLACE = {"account": "ana", "thread": "t1"}
ORDER = {**PLACE, "shape": "buy", "params": {"what": "hat"}}
BOUND = 60  # seconds


def client_of(sidecar: Sidecar) -> Any:
    """A client of a sidecar that supports tasks, to be opened."""
    return with_tasks(sidecar.url, TOKEN)


async def held(home: Path, name: str) -> None:
    """Wait until a model is kept waiting under this name."""
    assert await eventually((home / f"{name}.held").exists, BOUND)


async def test_a_task_that_was_killed_while_it_worked_continues_at_the_next_poll(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with over_http(home) as sidecar, client_of(sidecar) as client:
        task = await begun(client, "converse", **PLACE, text="hold=one words=3")
        await held(home, "one")
        assert (await got(client, task))["status"] == "working"
        await sidecar.killed()
    (home / "one.held").unlink()
    async with over_http(home) as sidecar, client_of(sidecar) as client:
        assert (await got(client, task))["status"] == "working"
        await held(home, "one")
        await asyncio.gather(*(got(client, task) for _ in range(5)))
        let([home], "one")
        found = await until(client, task, "completed")
        await sidecar.killed()
    assert found["result"]["structuredContent"]["turn"]["text"] == "word0 word1 word2"
    async with over_http(home) as sidecar, client_of(sidecar) as client:
        again = await got(client, task)
    assert {**again, "_meta": None} == {**found, "_meta": None}


async def test_a_task_is_killed_before_and_after_each_step_of_an_approval(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with over_http(home) as sidecar, client_of(sidecar) as client:
        task = await begun(client, "task", **ORDER)
        await sidecar.killed()
    async with over_http(home) as sidecar, client_of(sidecar) as client:
        asked = (await until(client, task, "input_required"))["inputRequests"]
        await sidecar.killed()
    async with over_http(home) as sidecar, client_of(sidecar) as client:
        assert (await until(client, task, "input_required"))["inputRequests"] == asked
        await answer(client, task, all_of(asked, accepted(decision="approve")))
        await sidecar.killed()
    async with over_http(home) as sidecar, client_of(sidecar) as client:
        found = await until(client, task, "completed", "input_required")
        if found["status"] == "input_required":  # it was killed while it paid, so only a person knows whether it did
            [(key, request)] = found["inputRequests"].items()
            assert key not in asked
            assert "outcome" in request["params"]["requestedSchema"]["properties"]
            done = {"outcome": "happened", "result": '"paid for the hat"'} if bought(home) else {"outcome": "run_again"}
            await answer(client, task, {key: accepted(**done)})
            found = await until(client, task, "completed")
    assert found["result"]["structuredContent"]["turn"]["result"] == {"text": "paid for the hat"}
    assert bought(home) == ["hat"]


async def test_a_task_that_was_killed_is_cancelled_by_the_next_sidecar(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with over_http(home) as sidecar, client_of(sidecar) as client:
        working = await begun(client, "converse", **PLACE, text="hold=one")
        waiting = await begun(client, "task", **{**ORDER, "thread": "t2"})
        await held(home, "one")
        await until(client, waiting, "input_required")
        await sidecar.killed()
    async with over_http(home) as sidecar, client_of(sidecar) as client:
        for task in (working, waiting):
            await client.request("tasks/cancel", taskId=task)
            await until(client, task, "cancelled")
        await sidecar.killed()
    async with over_http(home) as sidecar, client_of(sidecar) as client:
        assert {(await got(client, task))["status"] for task in (working, waiting)} == {"cancelled"}
    assert bought(home) == []


async def test_another_process_answers_for_a_task_that_runs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with over_http(home) as one, over_http(home) as two, client_of(one) as here, client_of(two) as there:
        working = await begun(here, "converse", **PLACE, text="hold=one words=2")
        await held(home, "one")
        assert (await got(there, working))["status"] == "working"
        let([home], "one")
        found = await until(there, working, "completed")
        assert found["result"]["structuredContent"]["turn"]["text"] == "word0 word1"
        waiting = await begun(here, "task", **ORDER)
        asked = (await until(there, waiting, "input_required"))["inputRequests"]
        await answer(there, waiting, all_of(asked, accepted(decision="approve")))
        await until(here, waiting, "completed")
        ended = await begun(here, "converse", **PLACE, text="hold=two")
        await held(home, "two")
        await there.request("tasks/cancel", taskId=ended)
        await until(here, ended, "cancelled")
    assert bought(home) == ["hat"]


async def test_a_task_whose_role_was_in_memory_ends_and_says_what_resumes_it(tmp_path: Path) -> None:
    home, role = tmp_path / "home", {"content": "You are terse."}
    async with over_http(home) as sidecar, client_of(sidecar) as client:
        await client.ask("thread_role_set", **PLACE, role=role)
        task = await begun(client, "converse", **PLACE, text="hold=one")
        await held(home, "one")
        await sidecar.killed()
    async with over_http(home) as sidecar, client_of(sidecar) as client:
        for _ in range(2):
            found = await got(client, task)
            error = found["result"]["structuredContent"]["error"]
            assert (found["status"], found["result"]["isError"]) == ("completed", True)
            assert error["code"] in ("role_required", "role_changed")
            assert [step["tool"] for step in error["next"]] == ["resume"]
        await client.ask("thread_role_set", **PLACE, role=role)
        let([home], "one")
        found = await until(client, task, "completed")
    assert found["result"]["structuredContent"]["turn"]["text"] == "word0"


async def test_the_official_client_of_tasks_goes_on_with_a_task_after_a_kill(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with over_http(home) as sidecar, node_client(sidecar.url, TOKEN, "task_client.mjs") as client:
        begins = {"tool": "task", "arguments": ORDER}
        reference = (await client.step(**begins))["reference"]
        other = (await client.step(tool="task", arguments={**ORDER, "thread": "t2"}))["reference"]
        assert (reference["generation"], reference["originalOperation"]) == ("v2", "tools/call")
        await sidecar.killed()
    async with over_http(home) as sidecar, node_client(sidecar.url, TOKEN, "task_client.mjs") as client:
        settled = await client.step(reference=reference, answer={"decision": "approve"})
        cancelled = await client.step(reference=other, answer={}, cancel=True)
        told = await client.step(tool="converse", arguments={**PLACE, "text": "Hello.", "pauses": "return"})
    assert settled["status"] == "completed", settled
    assert settled["result"]["structuredContent"]["turn"]["result"] == {"text": "paid for the hat"}
    [message] = settled["asked"]
    assert "pay" in message
    assert cancelled["status"] == "cancelled", cancelled
    assert told["immediate"]["result"]["structuredContent"]["turn"]["text"] == "word0"
    assert bought(home) == ["hat"]
