"""The annotations of published tools say what the tools do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import Tool

from support.role_hosts import BOUND
from support.sidecar_calls import Calling, least_arguments
from support.sidecars import over_http
from worldagent.core import STORED_TIERS, Tier
from worldagent.hosts.role_host import RoleHost
from worldagent.role_resolution import Role, SqliteRoleStore

EXAMPLE = "t1"  # the thread that the examples of the published schemas name


async def seen(client: Calling) -> dict[str, Any]:
    """All of a workspace that can be read, by what it is about."""
    listed = (await client.ask("threads"))["threads"]
    found: dict[str, Any] = {each["thread"]: each for each in listed}
    for name in list(found):
        read = [await client.ask(tool, thread=name) for tool in ("pauses", "history", "explain_role")]
        found[name] = [found[name], *read]
    return found


@pytest.mark.requirement("T10")
async def test_annotations_of_the_sidecar_say_what_each_tool_does(tmp_path: Path) -> None:
    async with over_http(tmp_path / "home") as sidecar, sidecar.client() as client:
        tools = [Tool.model_validate(tool) for tool in (await client.request("tools/list"))["tools"]]
        assert len({tool.title for tool in tools}) == len(tools)
        checked = set()
        for tool in tools:
            hints = tool.annotations
            assert hints is not None
            assert tool.title
            given = least_arguments(tool.input_schema)
            await client.ask("converse", thread=EXAMPLE, text="Hi")
            if tool.name == "cancel":
                await client.ask("task", thread=EXAMPLE, shape="buy", params={"what": "hat"})
            if tool.name == "thread_role_clear":
                await client.ask("thread_role_set", thread=EXAMPLE, role={"content": "Be brief."})
            if tool.name == "thread_rename":
                await client.ask("thread_rename", thread=EXAMPLE, title="A title")
            if tool.name == "events":
                given["turn_id"] = (await client.ask("pauses", thread=EXAMPLE))["turn_id"]
            before = await seen(client)
            if hints.open_world_hint:  # the agent runs, and its tools may do anything
                assert (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint) == (False, True, False)
                assert "text" in given or tool.name != "converse"
                continue
            await client.ask(tool.name, **given)
            after = await seen(client)
            kept = {name: after.get(name) for name in before} == before
            assert hints.read_only_hint == (after == before), tool.name
            assert hints.destructive_hint == (not kept), tool.name
            await client.ask(tool.name, **given)
            assert hints.idempotent_hint == (await seen(client) == after), tool.name
            checked.add(tool.name)
        assert {tool.name for tool in tools} - checked == {"converse", "task", "run_skill", "run_scheduled", "resume"}


@pytest.mark.requirement("R9")
async def test_annotations_of_the_role_host_say_what_each_tool_does(tmp_path: Path) -> None:
    store = await SqliteRoleStore.open(tmp_path / "roles.db")
    place = {"tier": "account", "scope_id": "ana", "name": "French", "content": "Answer in French."}
    given = {"scope_ids": {"account": "ana"}, **place}

    async def kept() -> list[str]:
        found = await store.list(dict.fromkeys(STORED_TIERS, "ana"))
        return [json.dumps([tier, role.name, role.content]) for tier, role in found.items()]

    async with Client(RoleHost(store).server, read_timeout_seconds=BOUND) as client:
        for tool in (await client.list_tools()).tools:
            hints = tool.annotations
            assert hints is not None
            assert tool.title
            await store.put(Tier.ACCOUNT, "ana", Role("English", "Answer in English."))
            before = await kept()
            arguments = {name: given[name] for name in tool.input_schema["required"]}
            await client.call_tool(tool.name, arguments)
            after = await kept()
            assert hints.read_only_hint == (after == before), tool.name
            assert hints.destructive_hint == (not set(before) <= set(after)), tool.name
            await client.call_tool(tool.name, arguments)
            assert hints.idempotent_hint == (await kept() == after), tool.name
            assert hints.open_world_hint is False
    await store.aclose()
