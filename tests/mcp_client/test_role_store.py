"""The roles of a host over MCP: both transports, both protocol revisions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.mcp_hosts import Kind, Mode, host, opened
from support.role_host_stub import StubHost, over_http
from support.role_store_checks import WHERE, check_roles
from worldagent import Role, Tier
from worldagent.core.errors import RoleNotStorable, UnknownTier
from worldagent.mcp_client import HttpHost


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("kind", ["http", "stdio"])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_roles_are_put_got_listed_replaced_and_deleted(tmp_path: Path, kind: Kind, mode: Mode) -> None:
    with host(kind, tmp_path, mode=mode, timeout=20) as given:
        async with opened(given) as store:
            await check_roles(store)


@pytest.mark.requirement("R9")
async def test_one_round_trip_lists_all_tiers() -> None:
    stub = StubHost()
    with over_http(stub) as url:
        async with opened(HttpHost(url)) as store:
            await store.connect()
            before = len(stub.calls)
            await store.list(WHERE)
    assert stub.calls[before:] == [("role_list", {"scope_ids": {tier.value: id_ for tier, id_ in WHERE.items()}})]


@pytest.mark.requirement("R9")
async def test_what_the_host_offers_is_learned_when_it_is_connected() -> None:
    stub = StubHost(tiers=("workspace", "account"))
    stub.kept["channel", "c"] = ("x", "of a tier that it does not offer")
    with over_http(stub) as url:
        async with opened(HttpHost(url)) as store:
            assert await store.list({Tier.CHANNEL: "c"}) == {}
            assert store.tiers == {Tier.WORKSPACE, Tier.ACCOUNT}
            with pytest.raises(
                UnknownTier, match="channel role is not kept by this host; use one of account, workspace"
            ):
                await store.put(Tier.CHANNEL, "c", Role("x", "y"))
    assert stub.calls == []


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("tier", [Tier.CALL, Tier.THREAD])
async def test_a_role_of_a_call_or_a_thread_has_no_way_to_the_host(tier: Tier) -> None:
    stub = StubHost(tiers=[tier.value for tier in Tier])
    with over_http(stub) as url:
        async with opened(HttpHost(url)) as store:
            for attempt in (
                store.put(tier, "s", Role("x", "y")),
                store.get(tier, "s"),
                store.delete(tier, "s"),
                store.list({Tier.WORKSPACE: "w", tier: "s"}),
            ):
                with pytest.raises(UnknownTier, match=f"{tier} role cannot be stored"):
                    await attempt
            await store.connect()
            assert store.tiers == {Tier.WORKSPACE, Tier.ACCOUNT, Tier.CHANNEL}
    assert stub.calls == []


@pytest.mark.requirement("R9")
async def test_a_role_with_applicability_of_its_own_is_not_sent() -> None:
    stub = StubHost()
    with over_http(stub) as url:
        async with opened(HttpHost(url)) as store:
            for role in (Role("x", "y", applies_to="critic"), Role("x", "y", exclusive=True)):
                with pytest.raises(RoleNotStorable, match="'x'"):
                    await store.put(Tier.WORKSPACE, "w", role)
    assert stub.calls == []


@pytest.mark.requirement("R9")
async def test_tools_may_have_other_names() -> None:
    stub = StubHost(prefix="my_")
    names = {tool: f"my_{tool}" for tool in ("role_list", "role_get", "role_put", "role_delete")}
    with over_http(stub) as url:
        async with opened(HttpHost(url, tools=names)) as store:
            await store.put(Tier.WORKSPACE, "w", Role("x", "y"))
            assert await store.list({Tier.WORKSPACE: "w"}) == {Tier.WORKSPACE: Role("x", "y")}
            assert await store.get(Tier.WORKSPACE, "w") == Role("x", "y")
            assert await store.delete(Tier.WORKSPACE, "w")


async def test_a_host_cannot_have_arguments_copied_into_headers() -> None:
    stub = StubHost(broken="copies content into headers")
    with over_http(stub) as url:
        async with opened(HttpHost(url)) as store:
            await store.connect()
            await asyncio.gather(store.put(Tier.WORKSPACE, "w", Role("x", "y")), return_exceptions=True)
    assert not [name for name in stub.headers if name.startswith("mcp-param")]
