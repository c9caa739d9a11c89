"""`worldagent storage`, and the command line and the check of an installation where turns are kept in Postgres."""

import json
from pathlib import Path

import psycopg
import pytest

from support.agents import answering, scripted_agent
from support.command_line import APP, command
from support.postgres import new_database
from support.processes import killed, start_script
from worldagent.harness.journal import JOURNAL
from worldagent.hosts.doctor import InstallationOptions, Result, check_installation

pytestmark = [pytest.mark.requirement("T4", "T5"), pytest.mark.timeout(300)]

COPYING = """
import asyncio, sys
from pathlib import Path
from worldagent import Storage
from worldagent.agent.copying import copy_storage

def told(part, done, total):
    print(part, flush=True)
    if part == sys.argv[3]:
        sys.stdin.readline()  # until it is killed

place = sys.argv[2]
target = Storage(url=place) if "://" in place else Storage(home=Path(place))
asyncio.run(copy_storage(Storage(home=Path(sys.argv[1])), target, progress=told))
"""


async def talked(home: Path) -> None:
    async with scripted_agent(home, answering()) as agent:
        for number in range(3):
            await agent.thread(f"t{number}").converse("Hi")


async def test_a_home_moves_to_the_server_of_the_settings_and_back(tmp_path: Path) -> None:
    home, url = tmp_path / "home", new_database().replace("postgres:@", "postgres:secret-word@")
    await talked(home)
    shared = {"WORLDAGENT_DATABASE_URL": url}
    done = await command(home, "storage", "copy", "--json", stdin=b"", **shared)
    assert done.code == 0, done.told
    told = json.loads(done.out)["copied"]
    assert (told["from"], told["restarted"]) == (str(home / "agent.db"), False)
    assert told["parts"]["wa_turn"]["count"] == 3
    assert f"roles, the role key and attachments stay in {str(home)!r}" in done.told
    assert "wa_turn: 3 of 3" in done.told
    listed = await command(
        tmp_path / "elsewhere", "threads", "list", "--workspace", "novel", "--json", stdin=b"", **shared
    )
    assert {item["thread"] for item in json.loads(listed.out)["threads"]} == {"t0", "t1", "t2"}
    back = await command(home, "storage", "copy", "--from", url, "--to", str(tmp_path / "back"))
    assert back.code == 0, back.told
    assert back.out.splitlines()[-1].endswith("both hold the same.")
    assert (tmp_path / "back" / "agent.db").exists()
    again = await command(home, "storage", "copy", "--json", stdin=b"", **shared)
    assert (again.code, json.loads(again.out)["error"]["code"]) == (2, "invalid_argument")
    assert "secret-word" not in "".join(one.out + one.told for one in (done, listed, back, again))


@pytest.mark.parametrize(("engine", "at"), [("postgres", "checkpoints"), ("sqlite", "wa_message")])
async def test_killed_copy_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, at: str) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    target = new_database() if engine == "postgres" else str(other)
    shared = {"WORLDAGENT_DATABASE_URL": target} if engine == "postgres" else {}
    await talked(home)
    process = await start_script(COPYING, home, target, at)
    await killed(process, at=at)
    listed = await command(other, "threads", "list", "--json", stdin=b"", **shared)
    assert (listed.code, json.loads(listed.out)["error"]["code"]) == (1, "storage_half_copied")
    for name, value in shared.items():
        monkeypatch.setenv(name, value)
    result = await checked(other, "database.agent")
    assert (result.status, "is not finished" in result.problem) == ("fail", True)
    words = ("copy", "--to", target) if engine == "postgres" else ("drop", target)
    done = await command(home, "storage", *words, "--json")
    assert done.code == 0, done.told
    listed = await command(other, "threads", "list", "--workspace", "novel", "--json", stdin=b"", **shared)
    assert len(json.loads(listed.out)["threads"]) == (3 if engine == "postgres" else 0)


async def test_what_cannot_be_copied_is_refused_with_a_remedy(tmp_path: Path) -> None:
    home, url = tmp_path / "home", new_database()
    for words, problem in (
        (("copy",), "--to is not given, and the setting database_url is not set"),
        (("copy", "--to", url), "there is no storage"),
        (("copy", "--to", "postgresql://ana:secret-word@b:x/c"), "the database's url is not a URL"),
        (("drop", url), "does not hold an incomplete copy"),
    ):
        done = await command(home, "storage", *words)
        assert done.code == 2, done.told
        assert problem in done.told
        assert "remedy: " in done.told
        assert "secret-word" not in done.told


async def checked(home: Path, point: str) -> Result:
    [result] = [found for found in await check_installation(InstallationOptions(home=home)) if found.id == point]
    return result


async def test_doctor_reports_the_database_and_creates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
