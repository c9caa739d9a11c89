"""The key of role digests: whatever its file is, stretched once, and compared with what 0.1.0 noted (R13)."""

import asyncio
import hashlib
import hmac
import json
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.noted_turns import HOUSE, opened, pause_all, resumed
from worldagent import Role, Tier
from worldagent.core import canonical_json
from worldagent.core.errors import (
    HostError,
    InvalidArgument,
    RoleChanged,
    RoleKeyMismatch,
    StorageInvalid,
    StorageUnavailable,
)
from worldagent.role_resolution.keys import RoleKey

pytestmark = pytest.mark.requirement("R13")
CHOSEN = "correct horse battery staple"
RANDOM = "0123456789abcdef" * 4


def noted(home: Path, thread: str) -> dict[str, Any]:
    with closing(sqlite3.connect(home / "agent.db")) as database:
        [(role,)] = database.execute("SELECT role FROM wa_turn WHERE name=?", (thread,)).fetchall()
    return dict(json.loads(role))


def plain_id(secret: str) -> str:
    """The id of a key as one hash gives it, which a dictionary of keys can be tried against."""
    return hashlib.blake2b(secret.encode(), digest_size=6, person=b"worldagent key").hexdigest()


async def write_as_before(home: Path, monkeypatch: pytest.MonkeyPatch, key: str = CHOSEN) -> None:
    """Leave paused turns whose roles are noted as version 0.1.0 did: with the key as it is."""
    with monkeypatch.context() as patched:
        patched.setattr("worldagent.role_resolution.keys._stretched", lambda secret: secret)
        async with opened(home, role_key=key) as agent:
            await pause_all(agent)


async def test_database_alone_does_not_let_a_chosen_key_be_tried_with_one_hash(tmp_path: Path) -> None:
    async with opened(tmp_path, role_key=CHOSEN) as agent:
        await pause_all(agent)
    found = noted(tmp_path, "roled")
    texts = canonical_json([["workspace", HOUSE.content]])
    cheap = hmac.new(CHOSEN.encode(), texts.encode(), "sha256").hexdigest()[:32]
    assert found["key"] != plain_id(CHOSEN)
    assert not found["digest"].startswith(plain_id(CHOSEN))
    assert not found["digest"].endswith(cheap)
    stretched = hashlib.scrypt(CHOSEN.encode(), salt=b"worldagent role key", n=2**14, r=8, p=1, maxmem=2**26, dklen=32)
    assert found["key"] == hashlib.blake2b(stretched, digest_size=6, person=b"worldagent key").hexdigest()


@pytest.mark.parametrize("where", ["setting", "file"])
async def test_chosen_key_is_stretched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    threads: list[threading.Thread] = []
    scrypt = hashlib.scrypt

    def counted(*given: Any, **more: Any) -> bytes:
        threads.append(threading.current_thread())
        return scrypt(*given, **more)

    monkeypatch.setattr(hashlib, "scrypt", counted)
    if where == "file":
        (tmp_path / "role.key").write_text(CHOSEN)
    async with opened(tmp_path, **({"role_key": CHOSEN} if where == "setting" else {})) as agent:
        await pause_all(agent)
        assert await resumed(agent, "roled") == "done"
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_random_key_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashlib, "scrypt", None)
    async with opened(tmp_path, role_key=RANDOM) as agent:
        await pause_all(agent)
        assert await resumed(agent, "roled") == "done"
    assert noted(tmp_path, "skill")["key"] == plain_id(RANDOM)


@pytest.mark.parametrize("name", ["nested", "roled"])
async def test_turns_under_an_earlier_key_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    await write_as_before(tmp_path, monkeypatch)
    assert noted(tmp_path, "roled")["key"] == plain_id(CHOSEN)
    async with opened(tmp_path, role_key=CHOSEN) as agent:
        assert await resumed(agent, name) == "done"


async def test_role_under_an_unstretched_key_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await write_as_before(tmp_path, monkeypatch)
    async with opened(tmp_path, role_key="another key of some length") as agent:
        for name, says in (("roled", "noted its role"), ("skill", "noted its skill")):
            with pytest.raises(RoleKeyMismatch, match=says):
                await resumed(agent, name)
    async with opened(tmp_path, role_key=CHOSEN) as agent:
        await agent.roles.put(Tier.WORKSPACE, Role("house", "Answer at length."))
        with pytest.raises(RoleChanged):
            await resumed(agent, "roled")


def test_key_shows_nothing_of_its_secret() -> None:
    secret = secrets.token_hex(20)
    key = RoleKey(secret)
    assert key.earlier is not None
    for shown in (repr(key), str(key), key.id, repr(key.earlier)):
        assert secret not in shown


def test_what_is_not_a_key_is_refused_and_an_existing_file_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "role.key"
    file.write_bytes(b"\xff\x00")
    with pytest.raises(StorageInvalid, match="does not contain a role key"):
        RoleKey.read(file)
    with pytest.raises(InvalidArgument, match=r"role\.key' exists already"):
        RoleKey.renew(file, replace=False)
    assert file.read_bytes() == b"\xff\x00"


LIMIT = 20
FILE = "must be a regular file; move it away, or set role_key"
ODD: dict[str, tuple[Callable[[Path], object], type[HostError], str]] = {
    "a pipe": (os.mkfifo, StorageInvalid, FILE),
    "a folder": (Path.mkdir, StorageInvalid, FILE),
    "an endless device": (lambda path: path.symlink_to("/dev/zero"), StorageInvalid, FILE),
    "a link to nothing": (
        lambda path: path.symlink_to(path.with_name("gone")),
        StorageUnavailable,
        r"\(it is a link to a file that does not exist\); make it readable, or set role_key",
    ),
}


@pytest.mark.skipif(os.name != "posix", reason="Windows has neither pipes nor devices among files")
@pytest.mark.parametrize("odd", ODD)
async def test_key_that_is_not_a_file_is_named_with_a_remedy(tmp_path: Path, odd: str) -> None:
    make, error, told = ODD[odd]
    make(tmp_path / "role.key")
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent, asyncio.timeout(LIMIT):
        with pytest.raises(error, match=rf"role\.key'.*{told}$"):
            await agent.thread("t").converse("Hi", role=Role("critic", "Be harsh."))
        assert lm.calls == []
