"""Exports whose values were changed and whose ids and checksum fit again: refused, or as good as any other thread."""

from __future__ import annotations

import copy
import random
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support.agents import answering, scripted_agent
from support.exports import Line, read, renamed, write
from support.tables import rows
from worldagent import WorldAgent
from worldagent.core.errors import AttachmentMissing, ExportInvalid
from worldagent.memory import Draft

SEED = 20261122
EACH = 2  # odd values for one place
ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1.0,
    -1,
    10**400,
    float("nan"),
    float("inf"),
    "",
    "x",
    " ",
    "a\0b",
    "half a pair \ud83d",
    "0" * 32,
    "x" * 5000,
    "novel/other",
    "1960-01-01T00:00:00+00:00",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "9999-12-31T23:59:59+00:00",
    "2026-01-01T00:00:00",
    [],
    ["x"],
    [None],
    [{}],
    {},
    {"text": 5},
    {"status": "done"},
    {"a\ud83d": {"b": [1]}},
    [[[[]]]] * 3,
)
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


def places(value: Any, *above: Any) -> Iterator[Place]:
    """Where something stands, at any depth."""
    for name, each in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*above, name)
        if isinstance(each, dict | list):
            yield from places(each, *above, name)


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


async def written(agent: WorldAgent) -> list[int]:
    """How many rows there are of what an import writes."""
    return [await rows(agent, table) for table in ("wa_message", "wa_branch", "wa_kept", "wa_attachment", "wa_turn")]


async def goes_on(agent: WorldAgent, name: str, folder: Path) -> None:
    """Read a thread in every way, and go on with it."""
    thread = agent.thread(name, account="ana")
    for message in await thread.history(limit=100):
        for hours in (-23, 23):
            message.at.astimezone(timezone(timedelta(hours=hours)))
        for one in agent.attachments.of(message):
            if one.sha256 is not None:
                with suppress(AttachmentMissing):  # an export tells what it lacks, and has no line for it
                    await agent.attachments.read(one)
    await thread.kept()
    assert (await thread.converse("and on")).status == "done"
    await agent.upkeep.export(name, folder / "again")
    assert not (await agent.upkeep.import_thread(folder / "again", to=name)).made


@pytest.mark.requirement("T4")
@pytest.mark.on_every_database
async def test_one_odd_value_is_refused_or_does_no_harm(agent: WorldAgent, tmp_path: Path) -> None:
    lines = await exported(agent, tmp_path / "t1.jsonl")
    chosen, before, taken = random.Random(SEED), await written(agent), 0
    for place in places(lines):
        for value in (DELETED, *chosen.sample(ODD, EACH)):
            changes = changed(lines, place, value)
            with suppress(Exception):  # none follows: then the ids are those of before
                changes = renamed(changes)
            write(tmp_path / "odd", changes)
            told = f"seed {SEED}: {place} of line {lines[place[0]]} is {str(value)[:60]!r}"
            try:
                imported = await agent.upkeep.import_thread(tmp_path / "odd", to=f"t{taken}")
            except ExportInvalid:
                assert await written(agent) == before, told
                continue
            except Exception as error:
                raise AssertionError(told) from error
            taken += 1
            try:
                await goes_on(agent, imported.thread, tmp_path)
            except Exception as error:
                raise AssertionError(told) from error
            await agent.upkeep.remove(imported.thread)
    assert taken > 10, "what is merely another text is taken"


@pytest.mark.requirement("T4")
@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ((1, "at"), "1960-01-01T00:00:00+00:00", "line 2 of .* cannot be read: at: "),
        ((1, "body", "text"), 5, r"line 2 of .* cannot be read: body\.text"),
        ((1, "body", "attachments"), "x", "line 2 of .* cannot be read: attachments"),
        ((1, "body", "attachments", 0, "sha256"), "../../../etc/passwd", r"line 2 of .* cannot be read: body\.attach"),
        ((3, "body", "status"), "lost", r"line 4 of .* cannot be read: body\.status"),
        ((9, "body", "last"), "0" * 32, r"line 10 of .* cannot be read: body\.last"),
        ((1, "turn"), "a\0b", "line 2 of .* cannot be read: turn: must be a valid id"),
        ((0, "root"), "a/b/c", "line 1 of .* root"),
        ((11, "data"), "bmFtZQ==", "line 12 of .* begins a content with another hash"),
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
