"""`worldagent ps`: the sidecars of a home and the turns that run, out of files and the database (T10)."""

import asyncio
import json
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.command_line import APP, BOUND, Run, home, run, started
from support.hat_shop import agent, effects
from support.processes import eventually
from worldagent.core.errors import StorageUnavailable
from worldagent.hosts.service.running import RunningSidecar, SidecarFile, running_sidecars

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("T10")

SECRET = "a hat for the keeper of the seventh lighthouse"


def sidecar(address: str | None = "http://127.0.0.1:8200/mcp", **more: Any) -> RunningSidecar:
    given: dict[str, Any] = {
        "pid": os.getpid(),
        "transport": "stdio" if address is None else "http",
        "address": address,
        "workspaces": ("novel", "shop"),
        "since": datetime.now(UTC),
        "state": "ready",
        "version": "1",
    }
    return RunningSidecar(**given | more)


async def test_where_nothing_runs_it_says_so_and_makes_no_home(tmp_path: Path, run: Run) -> None:
    words = ("ps", "--home", str(tmp_path / "nowhere"))
    done = await run(*words)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.splitlines() == ["no sidecar of this home runs", "no turn runs"]
    assert json.loads((await run(*words, "--json")).stdout) == {"sidecars": [], "workers": [], "turns": []}
    assert not (tmp_path / "nowhere").exists()


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "sidecars").write_text("")
    with pytest.raises(StorageUnavailable, match="sidecars' cannot be written: File exists"):
        SidecarFile(sidecar()).add(tmp_path / "sidecars")


async def test_sidecars_are_listed_with_how_they_are_reached_the_newest_first(home: Path, run: Run) -> None:
    old = SidecarFile(sidecar(None, since=datetime.now(UTC) - timedelta(hours=2), workspaces=("*",)))
    new = SidecarFile(sidecar())
    for file in (old, new):
        file.add(home / "sidecars")
    old.set(state="draining")
    try:
        shown = await run("ps")
        listed = json.loads((await run("ps", "--json")).stdout)["sidecars"]
    finally:
        old.remove()
        new.remove()
    assert (shown.exit_code, shown.stderr) == (0, "no turn runs\n")
    head, first, second = shown.stdout.splitlines()
    assert head.split() == ["ADDRESS", "STATE", "SINCE", "WORKSPACES", "PID"]
    pid = str(os.getpid())
    assert (first.split()[1], first.split()[4:]) == ("ready", ["novel,", "shop", pid])
    assert (second.split()[:2], second.split()[4:]) == (["stdio", "draining"], ["*", pid])
    assert [each.keys() for each in listed] == [set(RunningSidecar.model_fields)] * 2
    assert [(each["transport"], each["state"]) for each in listed] == [("http", "ready"), ("stdio", "draining")]
    assert list((home / "sidecars").iterdir()) == []


def test_only_its_owner_can_read_the_file_of_a_sidecar(tmp_path: Path) -> None:
    file = SidecarFile(sidecar())
    file.add(tmp_path / "home" / "sidecars")
    written = list((tmp_path / "home" / "sidecars").iterdir())
    assert sorted(each.suffix for each in written) == [".json", ".lock"]
    assert {stat.S_IMODE(each.stat().st_mode) for each in written} == {0o600}
    assert stat.S_IMODE((tmp_path / "home" / "sidecars").stat().st_mode) == 0o700
    file.remove()


def test_files_without_a_record_are_skipped(tmp_path: Path) -> None:
    ours = SidecarFile(sidecar())
    ours.add(tmp_path)
    [file] = tmp_path.glob("*.json")
    for text in ("", "[]", '{"pid": "seven"}', "\ud800", '{"pid": 1'):
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        assert running_sidecars(tmp_path) == ()
        assert file.exists()  # the process that holds its lock still runs
    later = json.loads(sidecar().model_dump_json()) | {"more": "of a later version"}
    file.write_text(json.dumps(later))
    assert len(running_sidecars(tmp_path)) == 1
    (tmp_path / "notes.txt").write_text("not ours")
    ours.remove()
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


async def test_running_and_interrupted_turns_are_listed_over_all_workspaces(home: Path, run: Run) -> None:
    words = ("task", "send", "-p", f"what={SECRET}", *APP, "--thread", "t1", "--account", "ana")
    async with started(home, *words) as process:
        assert await eventually(lambda: bool(effects(home)), BOUND)
        async with agent() as shop:
            await shop.thread("talk").converse("Hello")
            waiting = await shop.thread("hats").task("pick", {"what": "hat"})
        assert waiting.status == "paused"
        [turn] = json.loads((await run("ps", "--json")).stdout)["turns"]
        process.kill()
        await asyncio.wait_for(process.wait(), BOUND)
    done = await run("ps", "--json")
    said = {"workspace": "shop", "thread": "t1", "account": "ana", "kind": "task", "status": "running"}
    assert {name: turn[name] for name in said} == said
    assert datetime.fromisoformat(turn["since"]) <= datetime.now(UTC)
    assert json.loads(done.stdout)["turns"] == [turn | {"status": "cut_off"}]
    assert SECRET not in done.output
    head, line = (await run("ps")).stdout.splitlines()
    assert head.split() == ["WORKSPACE", "THREAD", "STATUS", "SINCE", "ACCOUNT", "TURN"]
    assert (line.split()[:3], line.split()[5:]) == (["shop", "t1", "cut_off"], ["ana", turn["turn"]])
