"""The file of the key of role digests: whatever stands there, nobody waits for it, and the error says what to do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.agents import answering, scripted_agent
from worldagent import Role
from worldagent.core.errors import HostError, StorageInvalid, StorageUnavailable

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


@pytest.mark.requirement("R13")
@pytest.mark.skipif(os.name != "posix", reason="Windows has neither pipes nor devices among files")
@pytest.mark.parametrize("odd", ODD)
async def test_what_is_no_file_is_named_with_the_remedy_and_nobody_waits_for_it(tmp_path: Path, odd: str) -> None:
    make, error, told = ODD[odd]
    make(tmp_path / "role.key")
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent, asyncio.timeout(LIMIT):
        with pytest.raises(error, match=rf"role\.key'.*{told}$"):
            await agent.thread("t").converse("Hi", role=Role("critic", "Be harsh."))
        assert lm.calls == []
