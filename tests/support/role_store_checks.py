"""What every role store over MCP does alike, whatever host is behind it."""

from __future__ import annotations

from worldagent import Role, Tier
from worldagent.mcp_client import HostRoleStore
from worldagent.role_resolution import RoleStore

WHERE = {Tier.WORKSPACE: "novel", Tier.ACCOUNT: "ana", Tier.CHANNEL: "c 7/ü"}
"""A scope of each tier."""


async def check_roles(store: HostRoleStore) -> None:
    """Put, get, list, replace and delete roles of every tier in an empty store."""
    assert isinstance(store, RoleStore)
    assert await store.get(Tier.WORKSPACE, "novel") is None
    for tier, scope_id in WHERE.items():
        await store.put(tier, scope_id, Role("first", "old"))
        await store.put(tier, scope_id, Role(tier.value, f"the role of {scope_id}"))
    expected = {tier: Role(tier.value, f"the role of {scope_id}") for tier, scope_id in WHERE.items()}
    assert store.tiers == set(WHERE)
    assert await store.list(WHERE) == expected
    assert await store.get(Tier.CHANNEL, WHERE[Tier.CHANNEL]) == expected[Tier.CHANNEL]
    assert await store.delete(Tier.ACCOUNT, "ana") is True
    assert await store.delete(Tier.ACCOUNT, "ana") is False
    assert set(await store.list(WHERE)) == {Tier.WORKSPACE, Tier.CHANNEL}
    assert await store.list({}) == {}
