"""The command line and the check of an installation where turns are kept in Postgres."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from support.command_line import APP, command
from support.postgres import new_database
from worldagent.harness.journal import JOURNAL
from worldagent.hosts.doctor import InstallationOptions, Result, check_installation

NOBODY = "postgresql://ana:secret-word@127.0.0.1:1/novel"


@pytest.mark.requirement("T4")
async def test_a_turn_is_asked_for_here_and_answered_there(tmp_path: Path) -> None:
    shared = {"WORLDAGENT_DATABASE_URL": new_database(), "WORLDAGENT_ROLE_KEY": "the same key everywhere"}
    here, there = tmp_path / "here", tmp_path / "there"
    asked = await command(here, "task", "pick", "-p", "what=hat", *APP, "--thread", "t1", "--json", stdin=b"", **shared)
    assert asked.code == 3, asked.told
    pauses = json.loads(asked.out)["pauses"]
    listed = await command(there, "threads", "list", "--workspace", "shop", "--json", stdin=b"", **shared)
    assert listed.code == 0, listed.told
    assert [(item["thread"], item["status"]) for item in json.loads(listed.out)["threads"]] == [("t1", "paused")]
    assert not (there / "agent.db").exists()
    cancelled = await command(there, "threads", "cancel", "t1", "--workspace", "shop", "--json", stdin=b"", **shared)
    assert cancelled.code == 0, cancelled.told
    assert pauses
    assert not list(here.glob("agent.db*"))


async def checked(home: Path, point: str) -> Result:
    [result] = [found for found in await check_installation(InstallationOptions(home=home)) if found.id == point]
    return result


async def test_the_check_tells_what_is_in_the_database_and_makes_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_database()
    monkeypatch.setenv("WORLDAGENT_DATABASE_URL", url)
    result = await checked(tmp_path, "database.agent")
    assert (result.status, "does not exist yet" in result.detail) == ("pass", True)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname='public'").fetchall() == [(0,)]
    await command(tmp_path, "task", "pick", "-p", "what=hat", *APP, WORLDAGENT_DATABASE_URL=url)
    result = await checked(tmp_path, "database.agent")
    assert result.status == "pass"
    assert "Postgres 18" in result.detail
    assert f"journal {len(JOURNAL.migrations)}" in result.detail
    assert (await checked(tmp_path, "role.key")).status == "pass"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE wa_schema SET version=99 WHERE name='journal'")
    result = await checked(tmp_path, "database.agent")
    assert result.status == "fail"
    assert "has version 99 of 'journal'" in result.problem


async def test_a_server_that_is_not_there_is_told_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = await command(tmp_path, "threads", "list", "--json", WORLDAGENT_DATABASE_URL=NOBODY)
    assert (done.code, json.loads(done.out)["error"]["code"]) == (1, "storage_unavailable")
    assert "secret" not in done.out + done.told
