"""Which tiers a host keeps, as its schemas say, however they are written and whatever they are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.mcp_hosts import opened
from support.role_host_stub import StubHost, over_http
from worldagent.core import Tier
from worldagent.core.errors import RoleSourceInvalid
from worldagent.mcp_client import HttpHost

USUAL = {Tier.WORKSPACE, Tier.ACCOUNT}


async def tiers_of(schema: Any, definitions: dict[str, Any]) -> frozenset[Tier]:
    """Connect a host whose schemas say this of a tier; what it is taken to keep."""
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
        ({"anyOf": [{"const": "account"}, {"oneOf": [{"$ref": "#/$defs/Tier"}]}]}, USUAL),
        (True, USUAL),
    ],
)
async def test_the_tiers_are_read_from_the_schema_of_role_get(tier: Any, offered: set[Tier]) -> None:
    assert await tiers_of(tier, {"Tier": {"enum": ["workspace", "account"]}}) == offered


async def test_a_host_that_keeps_none_of_the_tiers_is_of_no_use() -> None:
    with pytest.raises(RoleSourceInvalid, match="keeps none of the tiers"):
        await tiers_of({"enum": ["call", "thread", 5, None, []]}, {})


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
