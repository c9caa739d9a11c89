"""Clients that read too slowly, and clients that are gone: what is held for them is bounded, and they are told."""

import asyncio
import gc
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from support.processes import eventually
from support.role_hosts import BOUND, Mode
from support.sidecar_calls import LEGACY, MODERN, Call, Refused, Revision
from support.sidecar_clients import HttpClient
from support.sidecar_served import Caller, agents, caller_of, served
from support.sidecars import numbers, until
from worldagent.hosts.sidecar import Limits, Sidecar
from worldagent.role_resolution import Role
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T10")
REVISIONS = pytest.mark.parametrize("revision", [MODERN, LEGACY])

WORDS, LONG = 120, 1000  # an answer may have 131,072 characters
BUFFER = 4096  # bytes that the operating system holds for one who does not read, of either side; it may take some more
ROLE = "You are a lighthouse keeper of few words, who speaks of nothing but the tide."


@pytest.fixture(autouse=True)
def _small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the operating system would hold all of an answer for a client that does not read."""
    connection_made = H11Protocol.connection_made

    def made(self: H11Protocol, transport: Any) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        connection_made(self, transport)

    monkeypatch.setattr(H11Protocol, "connection_made", made)


def _flood(pace: float) -> ScriptedLM:
    return ScriptedLM(lambda call: _long_words(pace))


async def _long_words(pace: float) -> AsyncGenerator[str]:
    yield "[[ ## reply ## ]]\n"
    for number in range(WORDS):
        yield f"{number:=<{LONG}} "
        await asyncio.sleep(pace)
    yield "\n\n[[ ## completed ## ]]"


Until = Callable[[], Awaitable[bool]]


@asynccontextmanager
async def _left_unread(client: HttpClient, condition: Until, **arguments: Any) -> AsyncGenerator[Call]:
    """Begin a turn, read nothing but its first event until something holds, and go on to read."""
    async with client.call("converse", {"workspace": "one", "thread": "t1", "text": "Well?", **arguments}) as call:
        async for _ in call:
            break
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        await until(condition)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        yield call


async def _refused(call: Call) -> dict[str, Any]:
    with pytest.raises(Refused) as raised:
        await asyncio.wait_for(call.answer(), BOUND)
    return dict(raised.value.told["structuredContent"]["error"])


def _stands(ask: Caller, *statuses: str) -> Until:
    async def stands() -> bool:
        return (await ask("pauses", follow=False, workspace="one", thread="t1"))["status"] in statuses

    return stands


@REVISIONS
async def test_a_client_too_far_behind_a_turn_without_events_is_refused(tmp_path: Path, revision: Revision) -> None:
    sidecar = Sidecar(agents(tmp_path, lm=_flood(0)), limits=Limits(reader_lag=20))
    async with served(sidecar) as url, HttpClient(url, revision=revision) as client, caller_of(url, "auto") as ask:
        async with _left_unread(client, _stands(ask, "cancelled", "done"), detach=False) as call:
            error = await _refused(call)
        assert (error["code"], error["retryable"]) == ("reader_behind", True)
        assert 0 < len(call.events) < WORDS
        assert numbers(call.events) == list(range(1, len(call.events) + 1))


async def test_a_client_far_behind_sees_every_event_of_a_turn_that_keeps_them(tmp_path: Path) -> None:
    sidecar = Sidecar(agents(tmp_path, lm=_flood(0)), limits=Limits(reader_lag=20))
    async with served(sidecar) as url, HttpClient(url) as client, caller_of(url, "auto") as ask:
        async with _left_unread(client, _stands(ask, "done"), key="k") as call:
            done = await asyncio.wait_for(call.answer(), BOUND)
        assert done["turn"]["status"] == "done"
        assert numbers(call.events) == list(range(1, done["seq"] + 1))
        assert done["seq"] > WORDS
        assert sidecar.health()["turns"] == 0


async def test_a_client_that_left_a_turn_unread_lets_go_of_it(tmp_path: Path) -> None:
    sidecar = Sidecar(agents(tmp_path, lm=_flood(0)), limits=Limits(reader_lag=20))
    async with served(sidecar) as url, HttpClient(url) as client, caller_of(url, "auto") as ask:
        async with (
            HttpClient(url) as leaving,
            _left_unread(leaving, _stands(ask, "done"), detach=True),
        ):
            assert sidecar.health()["turns"] == 1  # it is being read
        assert await eventually(lambda: not sidecar.health()["turns"], BOUND)
        assert (await client.ask("pauses", workspace="one", thread="t1"))["status"] == "done"


async def test_a_turn_that_was_not_detached_ends_with_a_client_that_does_not_read(tmp_path: Path) -> None:
    limits = Limits(reader_stall=0.3)
    sidecar = Sidecar(agents(tmp_path, lm=_flood(0.02)), limits=limits)
    async with served(sidecar) as url, HttpClient(url) as client, caller_of(url, "auto") as ask:
        async with _left_unread(client, _stands(ask, "cancelled"), detach=False) as call:
            error = await _refused(call)
        assert error["code"] == "reader_behind"
        assert numbers(call.events) == list(range(1, len(call.events) + 1))


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_role_is_released_when_its_turn_outlives_its_client(tmp_path: Path, mode: Mode) -> None:
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
        assert await eventually(lambda: not sidecar.health()["turns"], BOUND)
        history = await other("history", workspace="one", thread="t1")
        del call, asking
        gc.collect()
        held = [each for each in gc.get_objects() if isinstance(each, Role) and each.content == ROLE]
    assert [message["body"].get("text") for message in history["messages"]] == ["Well?", "Tide."]
    assert not held
