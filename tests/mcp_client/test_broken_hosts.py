"""Hosts that break the contract: each way has an error with a remedy, and none shows what the host said."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from support.mcp_hosts import Kind, host, opened
from worldagent import Role, Tier
from worldagent.core.errors import (
    HostForbidden,
    HostUnavailable,
    RoleInvalid,
    RoleSourceInvalid,
    RoleTooLong,
    WorldAgentError,
)
from worldagent.mcp_client import HostRoleStore, StdioHost

LISTED = {Tier.WORKSPACE: "w"}

BROKEN: list[tuple[Kind, str, type[WorldAgentError], str]] = [
    ("http", "no role_list", RoleSourceInvalid, "has no tool 'role_list'"),
    ("http", "no structure", RoleSourceInvalid, "no structured content"),
    ("http", "no code", RoleSourceInvalid, "an error that has no code"),
    ("http", "contract 2", RoleSourceInvalid, "version 1 of the contract"),
    ("http", "two roles", RoleSourceInvalid, "two roles of the workspace tier"),
    ("http", "foreign tier", RoleSourceInvalid, "not one of the requested roles"),
    ("http", "no list", RoleSourceInvalid, "something that is not a list"),
    ("http", "code surprise", RoleSourceInvalid, "an error code that the contract does not define"),
    ("http", "code forbidden", HostForbidden, "refused access"),
    ("http", "code unavailable", HostUnavailable, "cannot reach the workspace role now"),
    ("http", "code invalid", RoleInvalid, "rejected the workspace role or its scope as invalid"),
    ("http", "code too_long", RoleTooLong, "longer than role host"),
    ("stdio", "crashes", HostUnavailable, "failed"),
]


@pytest.mark.requirement("R9", "R14")
@pytest.mark.parametrize(("kind", "broken", "error", "says"), BROKEN, ids=[f"{row[0]} {row[1]}" for row in BROKEN])
async def test_a_broken_host_is_named_with_what_it_did_and_without_what_it_said(
    tmp_path: Path, kind: Kind, broken: str, error: type[WorldAgentError], says: str
) -> None:
    with host(kind, tmp_path, broken=broken, timeout=0.5) as given:
        async with opened(given) as store:
            with pytest.raises(error, match=says) as caught:
                await store.list(LISTED)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert str(caught.value).endswith(caught.value.remedy)


@pytest.mark.parametrize("tool", ["role_get", "role_put", "role_delete"])
async def test_a_missing_tool_is_missed_when_it_is_needed(tmp_path: Path, tool: str) -> None:
    def attempt(store: HostRoleStore) -> Any:
        if tool == "role_put":
            return store.put(Tier.WORKSPACE, "w", Role("x", "y"))
        return (store.get if tool == "role_get" else store.delete)(Tier.WORKSPACE, "w")

    with host("http", tmp_path, broken=f"no {tool}") as given:
        async with opened(given) as store:
            assert await store.list(LISTED) == {}
            with pytest.raises(RoleSourceInvalid, match=f"has no tool '{tool}'"):
                await attempt(store)


@pytest.mark.requirement("R14")
async def test_a_program_that_is_no_host_is_late_and_gone_afterwards(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    async with opened(StdioHost([sys.executable, "-c", script], connect_timeout=1.5)) as store:
        with pytest.raises(HostUnavailable, match=r"did not answer within 1\.5 s"):
            await store.list(LISTED)
    assert not Path(f"/proc/{pid.read_text()}").exists()
