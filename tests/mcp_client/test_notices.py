"""Change notices: a role that somebody else changed is seen before its time in memory is over."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path

import pytest

from support.mcp_hosts import Kind, opened
from support.processes import eventually
from support.role_host_stub import StubHost, over_http
from support.stores import reference
from worldagent import Role, Tier
from worldagent.mcp_client import HttpHost


def listening(stub: StubHost) -> int:
    return sum(method == "subscriptions/listen" for _, method in stub.requests)


def has(told: list[object], number: int) -> bool:
    return len(told) == number


@pytest.mark.requirement("R9")
async def test_a_change_in_the_host_is_told_for_the_scopes_that_were_asked_for() -> None:
    stub, told = StubHost(), list[object]()
    with over_http(stub) as url:
        async with opened(HttpHost(url)) as store:
            store.on_change(lambda tier, scope_id: told.append((tier, scope_id)))
            await store.list({Tier.WORKSPACE: "w"})
            assert await eventually(lambda: bool(stub.bus._listeners))
            for change in (("workspace", "w"), ("workspace", "other"), ("account", "ana")):
                await asyncio.to_thread(stub.change, *change, "new")
            assert await eventually(lambda: told == [(Tier.WORKSPACE, "w")])
            await store.list({Tier.WORKSPACE: "w"})
            assert listening(stub) == 1
            await store.list({Tier.WORKSPACE: "w", Tier.ACCOUNT: "ana"})
            assert await eventually(lambda: listening(stub) == 2)
            # The second stream may not be open yet; a change before it is told to nobody.
            async with asyncio.timeout(10):
                while (Tier.ACCOUNT, "ana") not in told:
                    await asyncio.to_thread(stub.change, "account", "ana", "newer")


@pytest.mark.requirement("R9")
async def test_a_host_that_ends_the_stream_is_listened_to_again_with_the_next_question() -> None:
    stub, told = StubHost(), list[object]()
    with over_http(stub) as url:
        async with opened(HttpHost(url)) as store:
            store.on_change(lambda tier, scope_id: told.append((tier, scope_id)))
            for number in (1, 2, 3):
                await store.list({Tier.WORKSPACE: "w"})
                assert await eventually(lambda: len(stub.bus._listeners) == 1)
                await asyncio.to_thread(stub.change, "workspace", "w", "new")
                assert await eventually(functools.partial(has, told, number))
                stub.end_streams()
                assert await eventually(lambda: not stub.bus._listeners)
    assert listening(stub) == 3


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("kind", ["http", "stdio"])
async def test_the_reference_host_tells_of_each_kind_of_change(tmp_path: Path, kind: Kind) -> None:
    told: list[object] = []
    with reference(kind, tmp_path) as given:
        async with opened(given) as store:
            store.on_change(lambda tier, scope_id: told.append((tier, scope_id)))
            await store.list({Tier.WORKSPACE: "w", Tier.CHANNEL: "c 7/ü"})
            async with asyncio.timeout(30):
                while not told:  # the stream may not be open yet; a change before it is told to nobody
                    await store.put(Tier.WORKSPACE, "w", Role("x", "y"))
                    await asyncio.sleep(0.02)
            told.clear()
            await store.put(Tier.CHANNEL, "c 7/ü", Role("x", "y"))
            assert await eventually(lambda: (Tier.CHANNEL, "c 7/ü") in told)
            told.clear()
            await store.delete(Tier.CHANNEL, "c 7/ü")
            assert await eventually(lambda: told == [(Tier.CHANNEL, "c 7/ü")])


async def test_an_older_revision_is_not_asked_for_notices() -> None:
    stub = StubHost()
    with over_http(stub) as url:
        async with opened(HttpHost(url, mode="legacy")) as store:
            await store.list({Tier.WORKSPACE: "w"})
            await store.list({Tier.WORKSPACE: "w"})
    assert not stub.bus._listeners
