"""The roles of a host over MCP: where a host is, both transports, both protocol revisions."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.processes import run_script
from support.role_host_stub import StubHost, over_http
from support.role_hosts import Kind, Mode, check_roles, host, opened
from worldagent import Role, Tier
from worldagent.core.errors import (
    HostForbidden,
    HostUnavailable,
    RoleInvalid,
    RoleNotStorable,
    RoleSourceInvalid,
    RoleTooLong,
    UnknownTier,
    WorldAgentError,
)
from worldagent.mcp_client import HttpHost, StdioHost

pytestmark = pytest.mark.requirement("R9")


@pytest.mark.parametrize("kind", ["http", "stdio"])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_roles_are_put_got_listed_replaced_and_deleted(tmp_path: Path, kind: Kind, mode: Mode) -> None:
    with host(kind, tmp_path, mode=mode, timeout=20) as given:
        async with opened(given) as store:
            await check_roles(store)


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


async def test_a_role_with_applicability_of_its_own_is_not_sent() -> None:
    stub = StubHost()
    with over_http(stub) as url:
        async with opened(HttpHost(url)) as store:
            for role in (Role("x", "y", applies_to="critic"), Role("x", "y", exclusive=True)):
                with pytest.raises(RoleNotStorable, match="'x'"):
                    await store.put(Tier.WORKSPACE, "w", role)
    assert stub.calls == []


async def test_tools_can_have_other_names() -> None:
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


USUAL = {Tier.WORKSPACE, Tier.ACCOUNT}


async def tiers_of(schema: Any, definitions: dict[str, Any]) -> frozenset[Tier]:
    """What a host is taken to keep whose schemas say this of a tier."""
    stub = StubHost()
    stub.tier_schema, stub.definitions = schema, definitions
    with over_http(stub) as url:
        async with opened(HttpHost(url)) as store, asyncio.timeout(20):
            await store.connect()
            return store.tiers


@pytest.mark.parametrize(
    ("tier", "offered"),
    [
        ({"enum": ["workspace", "account", "channel"]}, {*USUAL, Tier.CHANNEL}),
        ({"$ref": "#/$defs/Tier"}, USUAL),
        (True, USUAL),
    ],
)
async def test_the_tiers_are_read_from_the_schema_of_role_get(tier: Any, offered: set[Tier]) -> None:
    assert await tiers_of(tier, {"Tier": {"enum": ["workspace", "account"]}}) == offered


@pytest.mark.parametrize(
    "definitions",
    [
        {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 200}},
        {f"a{place}" if place else "a": {"allOf": [{"$ref": f"#/$defs/a{place + 1}"}] * 2} for place in range(60)},
    ],
)
@pytest.mark.timeout(30)
async def test_a_schema_that_refers_to_itself_without_end_is_read_at_once(definitions: dict[str, Any]) -> None:
    assert await tiers_of({"$ref": "#/$defs/a"}, definitions) == USUAL


BROKEN: list[tuple[str, type[WorldAgentError], str]] = [
    ("no role_list", RoleSourceInvalid, "has no tool 'role_list'"),
    ("no structure", RoleSourceInvalid, "no structured content"),
    ("contract 2", RoleSourceInvalid, "version 1 of the contract"),
    ("two roles", RoleSourceInvalid, "two roles of the workspace tier"),
    ("code surprise", RoleSourceInvalid, "an error code that the contract does not define"),
    ("code forbidden", HostForbidden, "refused access"),
    ("code unavailable", HostUnavailable, "cannot reach the workspace role now"),
    ("code invalid", RoleInvalid, "rejected the workspace role or its scope as invalid"),
    ("code too_long", RoleTooLong, "longer than role host"),
]


@pytest.mark.requirement("R14")
@pytest.mark.parametrize(("broken", "error", "says"), BROKEN)
async def test_broken_host_is_named_and_not_quoted(broken: str, error: type[WorldAgentError], says: str) -> None:
    with over_http(StubHost(broken=broken)) as url:
        async with opened(HttpHost(url)) as store:
            with pytest.raises(error, match=says) as caught:
                await store.list({Tier.WORKSPACE: "w"})
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert str(caught.value).endswith(caught.value.remedy)


URL = "https://host.example/mcp"


def test_tokens_and_variables_are_not_shown() -> None:
    assert "s3cret" not in repr(HttpHost(URL, "s3cret"))
    assert "s3cret" not in repr(StdioHost(["host"], {"TOKEN": "s3cret"}))
    assert HttpHost(f"{URL}?key=s3cret").label == URL
    assert StdioHost(["/opt/bin/host", "--key=s3cret"]).label == "host"


async def test_the_mcp_library_is_loaded_by_the_first_connection() -> None:
    script = """
import sys
from worldagent import Roles, WorldAgent
from worldagent.mcp_client import HostRoleStore, HttpHost
HostRoleStore(Roles(host=HttpHost("http://127.0.0.1:1/mcp")).host)
assert "mcp" not in sys.modules
"""
    assert await run_script(script, fresh=True) == ""
