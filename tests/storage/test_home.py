"""Where an agent keeps its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from worldagent.core.errors import InvalidArgument
from worldagent.storage import Storage


def test_a_home_has_a_place_for_each_thing_and_is_not_made_by_asking(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "home")
    assert storage.resolve() == tmp_path / "home"
    assert storage.database == tmp_path / "home" / "agent.db"
    assert storage.roles == tmp_path / "home" / "roles.db"
    assert storage.locks == tmp_path / "home" / "locks"
    assert list(tmp_path.iterdir()) == []


def test_a_home_may_be_relative_or_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "ana"))
    assert Storage(Path("here")).resolve() == tmp_path / "here"
    if os.name == "posix":
        assert Storage(Path("~/there")).resolve() == tmp_path / "ana" / "there"


def test_a_home_that_is_no_path_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"`home` must be a pathlib\.Path or None, got int"):
        Storage(3)  # type: ignore[arg-type]  # what a caller without a type checker may do
