"""Change notices: a role that somebody else changed is seen before its time in memory is over."""

from __future__ import annotations

import asyncio
import functools

import pytest

from support.processes import eventually
from support.role_host_stub import StubHost, over_http
from support.role_hosts import opened
from worldagent import Tier
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
