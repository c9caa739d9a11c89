"""After a lost key of role digests: what can still resume, `doctor --rekey`, and what `doctor` reports (R13)."""

import asyncio
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.chat import ENTER, Terminal
from support.command_line import doctor
from support.noted_turns import HOUSE, contents, opened, pause_all, resumed
from support.processes import environment
from worldagent.core.errors import RoleKeyMismatch, StorageUnavailable
from worldagent.hosts.doctor import InstallationOptions, check_installation
from worldagent.hosts.doctor import Result as PointResult
from worldagent.role_resolution.keys import RoleKey

KEY = "one key of some length"
ANOTHER = "another key of some length"


def resume(home: Path, name: str, how: str = "fail") -> str:
    """Resume a turn with an agent of its own, as after a restart."""

    async def use() -> str:
        async with opened(home) as agent:
            return await resumed(agent, name, how)

    return asyncio.run(use())


def point(home: Path) -> PointResult:
    options = InstallationOptions(home=home, lm="local")
    return next(result for result in asyncio.run(check_installation(options)) if result.id == "role.key")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with four turns that wait."""

    async def use() -> None:
        async with opened(tmp_path / "home") as agent:
            await pause_all(agent)

    asyncio.run(use())
    return tmp_path / "home"


# --- the whole way --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R13", "T4")
def test_after_a_lost_key_turns_resume_as_the_errors_say(home: Path) -> None:
    (home / "role.key").unlink()
    with pytest.raises(RoleKeyMismatch) as refused:
        resume(home, "roled")
    for told in ("role_key", "`worldagent doctor --rekey`", "resume with `on_role_change` as `refresh`"):
        assert told in str(refused.value)

    # The agent that resumed has made a key meanwhile.
    unasked = doctor("--rekey", "--home", home)
    assert (unasked.exit_code, unasked.stdout) == (2, "")
    told = "3 unfinished turns were recorded with another: novel/nested (paused), novel/roled (paused)"
    assert told in " ".join(unasked.stderr.split())
    done = doctor("--rekey", "--home", home, "--yes", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["key"] != found["replaced"]) == (0, True)
    turns = [(turn["workspace"], turn["thread"], turn["status"]) for turn in found["turns"]]
    assert turns == [("novel", name, "paused") for name in ("nested", "roled", "skill")]
    with pytest.raises(RoleKeyMismatch):
        resume(home, "roled")
    assert (resume(home, "roled", "refresh"), resume(home, "plain")) == ("done", "done")


# --- making a key ---------------------------------------------------------------------------------------------------


def test_a_key_that_is_gone_is_made_unasked_and_nothing_else_changes(home: Path) -> None:
    before = contents(home)
    lost = before.pop("role.key")
    (home / "role.key").unlink()
    result = doctor("--rekey", "--home", home)
    assert result.exit_code == 0, result.output
    after = contents(home)
    made = after.pop("role.key")
    assert after == before
    assert made != lost
    assert len(made.decode().strip()) == 64
    assert (home / "role.key").stat().st_mode & 0o777 == 0o600
    lines = result.stdout.splitlines()
    assert any(line.split() == ["novel", "roled", "paused"] for line in lines)
    assert all(len(line) <= 80 for line in lines if "role.key" not in line)
    assert made.decode().strip() not in result.output


async def test_at_a_terminal_a_person_is_asked(tmp_path: Path) -> None:
    async with opened(tmp_path) as agent:
        await pause_all(agent)
    key = (tmp_path / "role.key").read_bytes()
    argv = [sys.executable, "-P", "-m", "worldagent.hosts.cli", "doctor", "--rekey", "--home", str(tmp_path)]
    for typed, code, replaced in (("", 1, False), ("y", 0, True)):
        async with Terminal(argv, env=environment(), columns=100) as terminal:
            await terminal.until(lambda: "Replace it?" in terminal.text, 120)
            assert "3 unfinished turns were recorded with it" in terminal.text
            terminal.write(typed + ENTER)
            assert await asyncio.wait_for(terminal.process.wait(), 60) == code
        assert ((tmp_path / "role.key").read_bytes() != key) is replaced


def test_homes_whose_key_is_kept_are_refused(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(home)
    cases: list[tuple[tuple[Any, ...], dict[str, str], str]] = [
        (("--home", home), {"WORLDAGENT_ROLE_KEY": KEY}, "on all machines, and restart agents"),
        (("--home", tmp_path / "none"), {}, "does not exist"),
        (("--home", home, "--model"), {}, "--model is not used with --rekey"),
    ]
    for words, env, told in cases:
        result = doctor("--rekey", "--yes", *words, **env)
        assert result.exit_code == 2, told
        assert told in " ".join(result.output.split())
        assert KEY not in result.output
    assert contents(home) == before
    assert not (tmp_path / "none").exists()
    (home / "role.key").rename(tmp_path / "shared.key")
    (home / "role.key").symlink_to(tmp_path / "shared.key")
    assert "must not be a link" in " ".join(doctor("--rekey", "--yes", "--home", home).output.split())
    (home / "role.key").unlink()
    (home / "role.key").mkdir()
    assert (point(home).status, "role.key' is not a regular file" in point(home).problem) == ("fail", True)
    monkeypatch.setattr(os, "geteuid", lambda: -1)
    assert "belongs to another user" in " ".join(doctor("--rekey", "--yes", "--home", home).output.split())


def test_a_key_is_made_whole_or_not_at_all(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(home)

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, full)
            with pytest.raises(StorageUnavailable, match="No space left"):
                RoleKey.renew(home / "role.key", replace=True)
        assert contents(home) == before


def test_concurrent_makers_of_a_key_all_use_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: RoleKey.open(tmp_path / "home" / "role.key").id, range(32)))
    assert len(set(keys)) == 1
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["role.key"]


# --- what `doctor` reports ------------------------------------------------------------------------------------------


def test_doctor_lists_turns_that_were_recorded_with_another_key_and_changes_nothing(home: Path) -> None:
    assert point(home).status == "pass"
    (home / "role.key").unlink()
    before = contents(home)
    found = point(home)
    assert found.status == "warn"
    assert found.problem == (
        "3 unfinished turns were recorded with another key: "
        "novel/nested (paused), novel/roled (paused), novel/skill (paused)"
    )
    assert "doctor --rekey" in found.remedy
    assert contents(home) == before
    shown = doctor("--home", home, "--lm", "local", "--json")
    assert shown.exit_code == 0
    assert HOUSE.content not in shown.output


def test_doctor_looks_at_the_key_of_the_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = (home / "role.key").read_text().strip()
    monkeypatch.setenv("WORLDAGENT_ROLE_KEY", key)
    (home / "role.key").unlink()
    found = point(home)
    assert found.status == "pass"
    assert "setting role_key" in found.detail
    assert key not in found.detail
    monkeypatch.setenv("WORLDAGENT_ROLE_KEY", ANOTHER)
    assert point(home).status == "warn"
