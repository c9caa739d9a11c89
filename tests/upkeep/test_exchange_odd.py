"""Exports whose values were changed and whose ids and checksum fit again: refused by line and field."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support.agents import answering, scripted_agent
from support.homes import Line, read, renamed, write
from worldagent import WorldAgent
from worldagent.core.errors import ExportInvalid
from worldagent.memory import Draft

DELETED = object()
Place = tuple[Any, ...]


@pytest_asyncio.fixture
async def agent(tmp_path: Path) -> AsyncGenerator[WorldAgent]:
    async with scripted_agent(tmp_path / "home", answering(), settings={"history_limit": 50}) as opened:
        yield opened


async def exported(agent: WorldAgent, file: Path) -> list[Line]:
    """The export of a thread with a message of each kind, of which no other thread has one."""
    parts = agent._runner.parts
    log, thread = parts.upkeep.log, "novel/t1"
    attached = await agent.attachments.add(b"name,size\nhat,7\n")
    address = await agent.attachments.add("https://example.org/a.png")
    drafts = (
        Draft("ana", "message", {"text": "Look", "attachments": [attached.to_json(), address.to_json()]}),
        Draft("agent", "plan", {"text": "", "calls": [{"tool": "w", "arguments": {"request": "r"}}]}),
        Draft("agent", "result", {"to": "w", "status": "done", "result": {"worker": "w", "text": "found"}}),
        Draft("agent", "result", {"to": "w", "status": "failed", "error": {"code": "x", "message": "no"}}),
        Draft("agent", "answer", {"text": "Fine."}),
        Draft("ana", "schedule", {"schedule": "s", "fired_at": "noon", "payload": {"a": [1, 2.5]}}),
        Draft("ana", "task", {"shape": "map", "params": {"a": 1}}),
        Draft("ana", "role", {"change": "c", "at": "2026-01-01T00:00:00+00:00"}),
    )
    head, ids = None, list[str]()
    for place, draft in enumerate(drafts):
        head = await log.append(head, [draft], thread=thread, turn_id=f"turn_{place}")
        ids.append(head)
    body = {"text": "Said.", "first": ids[0], "last": ids[4], "messages": 4, "results": [ids[2]]}
    head = await log.append(head, [Draft("agent", "summary", body)], thread=thread, turn_id="turn_8")
    head = await log.append(head, [Draft("ana", "message", {"text": "On"})], thread=thread, turn_id="turn_9")
    async with parts.leases.hold(thread, wait=1) as lease:
        await parts.branches.add(parts.branches.branch(thread, head, origin=thread), lease=lease)
    await agent.thread("t1").keep(ids[0])
    await agent.upkeep.export("t1", file)
    await agent.upkeep.remove("t1")
    return read(file)


def changed(lines: list[Line], place: Place, value: Any) -> list[Line]:
    found = copy.deepcopy(lines)
    at: Any = found
    for step in place[:-1]:
        at = at[step]
    if value is DELETED:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    return found


@pytest.mark.requirement("T4")
@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ((1, "at"), "1960-01-01T00:00:00+00:00", "line 2 of .* cannot be read: at: "),
        ((1, "at"), "9999-12-31T23:59:59+00:00", "line 2 of .* cannot be read: at: "),
        ((1, "at"), "9999-12-31T23:59:59-14:00", "line 2 of .* at: value error"),
        ((1, "at"), 12345, "line 2 of .* at: "),
        ((1, "body", "text"), 5, r"line 2 of .* cannot be read: body\.text"),
        ((1, "body", "text"), DELETED, r"line 2 of .* cannot be read: body\.text"),
        ((1, "body", "attachments"), "x", "line 2 of .* cannot be read: attachments"),
        ((1, "body", "attachments", 0, "sha256"), "../../../etc/passwd", r"line 2 of .* cannot be read: body\.attach"),
        ((3, "body", "status"), "lost", r"line 4 of .* cannot be read: body\.status"),
        ((9, "body", "last"), "0" * 32, r"line 10 of .* cannot be read: body\.last"),
        ((9, "body", "results"), ["0" * 32], r"line 10 of .* cannot be read: body\.last and body\.results"),
        ((1, "turn"), "a\0b", "line 2 of .* cannot be read: turn: must be a valid id"),
        ((1, "author"), "", "line 2 of .* cannot be read: author: must be a valid id"),
        ((0, "version"), True, "line 1 of .* version"),
        ((0, "version"), 1.0, "line 1 of .* version"),
        ((0, "thread"), "a\nb", "line 1 of .* thread"),
        ((0, "root"), "a/b/c", "line 1 of .* root"),
        ((11, "data"), "bmFtZQ==", "line 12 of .* begins a content with another hash"),
        ((11, "data"), "%%%", "line 12 of .* data"),
        ((12, "kept"), ["x"], "line 13 of .* keeps messages that are missing"),
    ],
)
async def test_what_cannot_be_read_again_is_named_by_its_line_and_field(
    agent: WorldAgent, tmp_path: Path, place: Place, value: Any, said: str
) -> None:
    lines = changed(await exported(agent, tmp_path / "t1.jsonl"), place, value)
    with suppress(Exception):
        lines = renamed(lines)
    write(tmp_path / "odd", lines)
    with pytest.raises(ExportInvalid, match=said):
        await agent.upkeep.import_thread(tmp_path / "odd", to="t2")
    assert await agent.threads() == ()
