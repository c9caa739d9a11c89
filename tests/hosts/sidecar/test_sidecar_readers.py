"""Clients that read too slowly, and clients that are gone: what is held for them is bounded, and they are told."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from support.role_hosts import BOUND, Mode
from support.sidecar_calls import LEGACY, MODERN, Refused, Revision
from support.sidecar_clients import HttpClient
from support.sidecar_served import agents, caller_of, served
from worldagent.hosts.sidecar import Limits, Sidecar
from worldagent.role_resolution import Role
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T10")
REVISIONS = pytest.mark.parametrize("revision", [MODERN, LEGACY])
MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])

WORDS, LONG = 1000, 8000
ROLE = "You are a lighthouse keeper of few words, who speaks of nothing but the tide."


def _flood(pace: float) -> ScriptedLM:
    return ScriptedLM(lambda call: _long_words(pace))


async def _long_words(pace: float) -> AsyncGenerator[str]:
    yield "[[ ## reply ## ]]\n"
    for number in range(WORDS):
        yield f"{number:=<{LONG}} "
        await asyncio.sleep(pace)
    yield "\n\n[[ ## completed ## ]]"


async def _left_unread(client: HttpClient, ask: Any, status: str, **arguments: Any) -> tuple[list[int], dict[str, Any]]:
    """Begin a turn, read nothing but its first event until the turn stands so, then read all there is."""
    async with client.call("converse", {"workspace": "one", "thread": "t1", "text": "Well?", **arguments}) as call:
        async for _ in call:
            break
        assert client.wire is not None
        connection: Any = client.wire.writer.transport
        connection.pause_reading()
        async with asyncio.timeout(BOUND):
            while (await ask("pauses", follow=False, workspace="one", thread="t1"))["status"] != status:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        connection.resume_reading()
        with pytest.raises(Refused) as raised:
            await asyncio.wait_for(call.answer(), BOUND)
        return [event["seq"] for event in call.events], raised.value.told["structuredContent"]["error"]


@REVISIONS
async def test_a_client_that_falls_too_far_behind_is_told_and_reads_on_with_events(
    tmp_path: Path, revision: Revision
) -> None:
    sidecar = Sidecar(agents(tmp_path, lm=_flood(0)), limits=Limits(reader_lag=20))
    async with served(sidecar) as url, HttpClient(url, revision=revision) as client, caller_of(url, "auto") as ask:
        seen, error = await _left_unread(client, ask, "done", detach=True)
        assert (error["code"], error["retryable"]) == ("reader_behind", True)
        assert seen == list(range(1, len(seen) + 1))
        async with client.call(
            "events", {"workspace": "one", "turn_id": error["turn_id"], "after": seen[-1]}
        ) as reading:
            rest = await reading.answer()
        assert [event["seq"] for event in reading.events] == list(range(seen[-1] + 1, rest["seq"] + 1))
        assert rest["turn"]["status"] == "done"
    assert len(seen) < WORDS


@REVISIONS
async def test_a_turn_that_was_not_detached_ends_with_a_client_that_does_not_read(
    tmp_path: Path, revision: Revision
) -> None:
    limits = Limits(reader_stall=0.3)
    sidecar = Sidecar(agents(tmp_path, lm=_flood(0.02)), limits=limits)
    async with served(sidecar) as url, HttpClient(url, revision=revision) as client, caller_of(url, "auto") as ask:
        seen, error = await _left_unread(client, ask, "cancelled")
        assert error["code"] == "reader_behind"
        assert seen == list(range(1, len(seen) + 1))


@MODES
@pytest.mark.requirement("R7")
async def test_a_role_is_let_go_of_when_its_turn_goes_on_without_its_client(tmp_path: Path, mode: Mode) -> None:
    go, begun = asyncio.Event(), asyncio.Event()

    async def reply(call: ScriptedCall) -> dict[str, str]:
        assert ROLE in call.text
        lm.calls.clear()
        begun.set()
        await go.wait()
        return {"reply": "Tide."}

    lm = ScriptedLM(reply)
    sidecar = Sidecar(agents(tmp_path, lm=lm))
    async with served(sidecar) as url, caller_of(url, mode) as other:
        async with caller_of(url, mode) as ask:
            role = {"content": ROLE}
            call = ask("converse", workspace="one", thread="t1", text="Well?", detach=True, role=role)
            asking = asyncio.create_task(call)
            await asyncio.wait_for(begun.wait(), BOUND)
            asking.cancel()
            await asyncio.wait({asking})
        go.set()
        async with asyncio.timeout(BOUND):
            while sidecar.health()["turns"]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        history = await other("history", workspace="one", thread="t1")
        del call, asking
        gc.collect()
        held = [each for each in gc.get_objects() if isinstance(each, Role) and each.content == ROLE]
    assert [message["body"].get("text") for message in history["messages"]] == ["Well?", "Tide."]
    assert not held
