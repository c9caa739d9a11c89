"""The check of a home in which something else stands where a file should be: it is named, and never waited for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from worldagent.hosts.doctor import InstallationOptions, Result, check_installation

pytestmark = pytest.mark.skipif(os.name != "posix", reason="this system has no such files")


def device(place: Path) -> None:
    place.symlink_to("/dev/zero")


def dangling(place: Path) -> None:
    place.symlink_to(place.parent / "nowhere" / "file")


STRANGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe": (os.mkfifo, "is a named pipe, not a database"),
    "device": (device, "is a device, not a database"),
    "dangling": (dangling, "is a broken link"),
}


async def check(home: Path) -> dict[str, Result]:
    async with asyncio.timeout(30):
        results = await check_installation(InstallationOptions(home=home, lm="openai/gpt-4o"))
    return {result.id: result for result in results if result.id.startswith(("home", "database", "lock"))}


def bad(results: dict[str, Result]) -> list[str]:
    assert all(result.remedy for result in results.values() if result.status == "fail")
    return [name for name, result in results.items() if result.status in ("fail", "warn")]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place = tmp_path / "home"
    (place / "locks").mkdir(parents=True, mode=0o700)
    return place


@pytest.mark.parametrize(("kind", "name"), [("pipe", "agent"), ("device", "roles"), ("dangling", "roles")])
async def test_what_is_no_file_is_named_and_not_opened(kind: str, name: str, home: Path) -> None:
    make, told = STRANGE[kind]
    make(home / f"{name}.db")
    results = await check(home)
    assert bad(results) == [f"database.{name}"]
    assert f"{str(home / f'{name}.db')!r} {told}" in results[f"database.{name}"].problem
    assert "use another home" in results[f"database.{name}"].remedy
    assert results["home.private"].status == ("skip" if name == "roles" else "pass")


async def test_a_home_that_is_a_link_to_nowhere_is_named(tmp_path: Path) -> None:
    dangling(tmp_path / "link")
    results = await check(tmp_path / "link" / "home")
    assert "home.folder" in bad(results)
    assert results["home.folder"].problem == f"{str(tmp_path / 'link')!r} is a broken link"


async def test_a_lock_that_is_no_file_is_named(home: Path) -> None:
    os.mkfifo(home / "locks" / "0123.lock")
    results = await check(home)
    assert bad(results) == ["lock.files"]
    assert "0123.lock' is not a regular file" in results["lock.files"].problem
