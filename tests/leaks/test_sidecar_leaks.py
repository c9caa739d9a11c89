"""Whatever clients do with a sidecar, over whichever transport: a role that they gave it is nowhere but in the call."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.leaks import on_the_server
from support.sidecar_app import digest
from support.sidecar_clients import BOUND
from support.sidecar_leaks import Looked, SidecarCase, every_case, looked
from support.sidecar_outcomes import Asking, try_all
from support.sidecars import TOKEN

SAMPLE = every_case()[::5]  # each transport, revision, source and length
REST = [case for case in every_case() if case not in SAMPLE]
_BYTES = 21  # that `COPY` gives of a table without rows


def events_kept(home: Path) -> int:
    """How many batches of events the database holds."""
    if tables := on_the_server():
        return len(tables["wa_event"]) - _BYTES
    with closing(sqlite3.connect(home / "agent.db", timeout=30)) as connection:
        return int(connection.execute("SELECT count(*) FROM wa_event").fetchone()[0])


async def check(case: SidecarCase, folder: Path) -> None:
    async with looked(case, folder) as found:
        async with found.running() as sidecar:
            await try_all(found)
            assert events_kept(found.home) > 0, "no event was kept, so this shows nothing of them"
            held = await killed_in_mid_call(found)
        async with found.running():
            await resumed_later(found, held)
            await found.look()
        assert sidecar.process.returncode is not None
        await found.look()
        log = sidecar.errors.read_text()
        assert log.count("tool=converse") > 5, "the log has no requests, so it shows nothing"
        assert ": mcp" in log, "the libraries logged nothing, so the log shows little"


async def killed_in_mid_call(found: Looked) -> Asking:
    """Kill the sidecar while a model has the role."""
    asking = Asking(found, "killed in mid-call")
    async with found.client() as client:
        await asking.place(client)
        async with asking.says(client, "hold=later", key="k1", detach=True) as call:
            waiting = asyncio.create_task(call.answer())
            await found.reached(asking.content)
            await found.sidecar.killed()
            await asyncio.wait([waiting], timeout=BOUND)
            assert waiting.exception() is not None
        await found.look([asking.content, asking.label])
    return asking


async def resumed_later(found: Looked, asking: Asking) -> None:
    """Resume the turn in another process."""
    (found.home / "later").touch()
    async with found.client() as client:
        await asking.place(client)
        done = await asking.resumed(client)
    assert done["turn"]["status"] == "done"
    assert found.digests.count(digest(asking.content)) == 2


@pytest.mark.requirement("R7", "R9", "R10", "T10")
@pytest.mark.parametrize("case", SAMPLE, ids=str)
async def test_a_role_that_a_client_gave_is_nowhere_afterwards(tmp_path: Path, case: SidecarCase) -> None:
    await check(case, tmp_path)


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("case", SAMPLE[:1], ids=str)
@pytest.mark.parametrize("database_engine", ["postgres"], indirect=True)
async def test_a_role_that_a_client_gave_is_in_no_table(tmp_path: Path, case: SidecarCase) -> None:
    await check(case, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", REST, ids=str)
async def test_a_role_that_any_client_gave_is_nowhere_afterwards(tmp_path: Path, case: SidecarCase) -> None:
    await check(case, tmp_path)


@pytest.mark.requirement("R7")
async def test_the_command_line_of_a_process_has_no_token_and_no_role(tmp_path: Path) -> None:
    case = SidecarCase("http", "2026-07-28", "call", 400)
    from support.sidecars import over_http

    async with over_http(tmp_path / "home", fresh=True) as sidecar, sidecar.client() as client:
        await client.ask("converse", thread="t", text="Hi", role={"content": case.content("ps"), "name": "x"})
        told: list[Any] = sidecar.arguments
        assert "serve" in told
        assert TOKEN not in " ".join(told)
        assert case.content("ps") not in " ".join(told)
