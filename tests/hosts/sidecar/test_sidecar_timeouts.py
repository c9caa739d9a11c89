"""Clients with a time-out: their turns continue, and heartbeats let them wait longer. The SDK in TypeScript, too."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from support.example_hosts import node_client
from support.processes import eventually
from support.role_hosts import BOUND, Mode, http_host
from support.sidecar_served import Held, agents, caller_of, served
from support.sidecars import TOKEN, over_http
from worldagent.hosts.sidecar import Limits, Sidecar
from worldagent.testing import ScriptedLM

MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])
REQUEST_TIMEOUT = -32001


@pytest.mark.requirement("T10")
async def test_turn_outlives_the_time_out_of_the_typescript_client(tmp_path: Path) -> None:
    async with over_http(tmp_path / "home") as sidecar, node_client(sidecar.url, TOKEN) as client:
        for thread, end in (("a", "done"), ("b", "cancelled")):
            told = {"thread": thread, "text": f"hold={thread} words=3"}
            said = await client.said("converse", told, timeout=300)
            assert said["thrown"]["code"] == REQUEST_TIMEOUT
            assert await eventually((sidecar.home / f"{thread}.held").exists)
            running = await client.call("pauses", thread=thread)
            assert running["status"] == "running"
            if end == "cancelled":
                assert (await client.call("cancel", thread=thread))["cancelled"] is True
            else:
                (sidecar.home / thread).touch()
            [step] = running["next"]
            followed = await client.call(step["tool"], **step["arguments"])
            while followed["turn"]["status"] == "running":
                [step] = followed["next"]
                followed = await client.call(step["tool"], **step["arguments"])
            assert followed["turn"]["status"] == end


@pytest.mark.requirement("T10")
@MODES
async def test_heartbeats_are_sent_while_a_model_thinks(tmp_path: Path, mode: Mode) -> None:
    held = Held()
    sidecar = Sidecar(agents(tmp_path, lm=ScriptedLM(held)), limits=Limits(heartbeat=0.05))
    async with served(sidecar) as url, caller_of(url, mode) as ask:
        asking = asyncio.create_task(ask("converse", workspace="novel", thread="t", text="Well?"))
        async with asyncio.timeout(BOUND):
            while len(ask.heartbeats) < 3:  # noqa: ASYNC110 - they come from another task of the client's
                await asyncio.sleep(0.01)
        held.go.set()
        done = await asyncio.wait_for(asking, BOUND)
    assert [event.seq for event in ask.events] == [*range(1, done["seq"] + 1)]
    first = ask.events[0].seq
    numbers = [number for number, _ in ask.heartbeats]
    assert numbers == sorted(set(numbers))
    assert all(told["seq"] <= number < told["seq"] + 1 for number, told in ask.heartbeats)
    assert first == 1
    assert {told["turn_id"] for _, told in ask.heartbeats} <= {None, done["turn"]["id"]}
    assert "second" not in json.dumps([told for _, told in ask.heartbeats])


@pytest.mark.requirement("T10")
async def test_client_that_restarts_its_time_out_at_progress_receives_the_answer(tmp_path: Path) -> None:
    held = Held()
    sidecar = Sidecar(agents(tmp_path, lm=ScriptedLM(held)), limits=Limits(heartbeat=0.1))
    async with served(sidecar) as url, node_client(url) as client:
        arguments = {"workspace": "novel", "thread": "t", "text": "Well?"}
        asking = asyncio.create_task(client.said("converse", arguments, timeout=1000, resetTimeoutOnProgress=True))
        done, _ = await asyncio.wait({asking}, timeout=2)  # twice the client's time-out
        assert not done
        held.go.set()
        said = await asyncio.wait_for(asking, BOUND)
    assert said["result"]["structuredContent"]["turn"]["text"] == "first second"


@MODES
async def test_text_block_of_a_result_says_what_to_do(tmp_path: Path, mode: Mode) -> None:
    lm = ScriptedLM([{"reply": "Yes."}])
    async with served(Sidecar(agents(tmp_path, lm=lm))) as url, caller_of(url, mode) as ask:
        place: dict[str, Any] = {"workspace": "novel", "thread": "t"}
        said = await ask.raw("converse", **place, text="Well?")
        assert [block.text for block in said.content] == ["Yes."]
        for tool in ("pauses", "history", "threads", "fork"):
            given: dict[str, Any] = {"workspace": "novel"} if tool == "threads" else place
            result = await ask.raw(tool, **given)
            assert json.loads(result.content[0].text) == result.structured_content


@pytest.mark.requirement("R9")
async def test_errors_of_the_role_host_reach_the_client_with_their_code(tmp_path: Path) -> None:
    with http_host(tmp_path / "roles.db") as (url, _):
        async with node_client(url) as client:
            missing = await client.call("role_get", tier="account", scope_id="ana")
            assert missing == {"contract": 1, "code": "not_found"}
            assert (await client.call("role_get", tier="call", scope_id="ana"))["code"] == "invalid"
