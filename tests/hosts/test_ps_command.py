"""`worldagent ps`: the sidecars of a home and the turns that run, out of files and the database (T10)."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.command_line import APP, BOUND, Done, Run, command, home, run, started
from support.hat_shop import agent, effects
from support.processes import eventually, start_script
from worldagent.hosts.cli.sidecars import RunningSidecar, SidecarFile, running_sidecars

__all__ = ["home", "run"]  # fixtures

SECRET = "a hat for the keeper of the seventh lighthouse"
_SERVES = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from worldagent.hosts.cli.sidecars import RunningSidecar, SidecarFile
record = RunningSidecar(pid=7, transport="stdio", address=None, workspaces=("novel",), since=datetime.now(UTC),
                      state="ready", version="1")
file = SidecarFile(record)
file.add(Path(sys.argv[1]))
print("there", flush=True)
sys.stdin.read()
"""


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


def found(done: Done) -> Any:
    assert done.code == 0, done.told
    return json.loads(done.out)


async def test_without_sidecars_and_turns_it_says_so_and_makes_no_home(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    done = await command(tmp_path, "ps", "--home", str(nowhere))
    assert (done.code, done.out) == (0, "")
    assert done.told.splitlines() == ["no sidecar of this home runs", "no turn runs"]
    assert found(await command(tmp_path, "ps", "--home", str(nowhere), "--json")) == {"sidecars": [], "turns": []}
    assert not nowhere.exists()


@pytest.mark.requirement("T10")
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


@pytest.mark.requirement("T10")
async def test_files_of_a_killed_sidecar_are_not_listed_and_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "sidecars"
    process = await start_script(_SERVES, folder)
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), BOUND) == b"there\n"
        assert [each.workspaces for each in running_sidecars(folder)] == [("novel",)]
        assert len(list(folder.iterdir())) == 2
    finally:
        process.kill()
        await process.wait()
    assert len(list(folder.iterdir())) == 2
    assert running_sidecars(folder) == ()
    assert list(folder.iterdir()) == []


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


@asynccontextmanager
async def delivering(home: Path, thread: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A turn that runs in another process, in the middle of a call."""
    words = ("task", "send", "-p", f"what={SECRET}", *APP, "--thread", thread, "--account", "ana")
    before = len(effects(home))
    async with started(home, *words) as process:
        assert await eventually(lambda: len(effects(home)) > before, BOUND)
        yield process


@pytest.mark.requirement("T10")
async def test_running_and_interrupted_turns_of_all_workspaces_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("WORLDAGENT_HOME", str(home))
    async with delivering(home, "t1") as process:
        async with agent() as shop:
            await shop.thread("talk").converse("Hello")
            waiting = await shop.thread("hats").task("pick", {"what": "hat"})
        assert waiting.status == "paused"
        running = found(await command(home, "ps", "--json"))["turns"]
        process.kill()
        await asyncio.wait_for(process.wait(), BOUND)
    done = await command(home, "ps", "--json")
    [turn] = running
    assert {name: turn[name] for name in ("workspace", "thread", "account", "kind", "status")} == {
        "workspace": "shop",
        "thread": "t1",
        "account": "ana",
        "kind": "task",
        "status": "running",
    }
    assert datetime.fromisoformat(turn["since"]) <= datetime.now(UTC)
    assert found(done)["turns"] == [turn | {"status": "cut_off"}]
    assert SECRET not in done.out
    shown = await command(home, "ps")
    head, line = shown.out.splitlines()
    assert head.split() == ["WORKSPACE", "THREAD", "STATUS", "SINCE", "ACCOUNT", "TURN"]
    assert (line.split()[:3], line.split()[5:]) == (["shop", "t1", "cut_off"], ["ana", turn["turn"]])
