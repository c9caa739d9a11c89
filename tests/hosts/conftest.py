"""Fixtures of several test modules: the stub of a model, a home, a chat at a terminal, and profiles of the user."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.testing

from support.chat import environment, shop, start
from support.command_line import stub

__all__ = ["environment", "shop", "start", "stub"]

# A runner makes all commands anew at each call, which takes 50 ms.
_testing: Any = typer.testing
_testing._get_command = cache(_testing._get_command)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that is not there yet."""
    return tmp_path / "home"


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of profiles."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "config" / "worldagent" / "profiles"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def server() -> Iterator[object]:
    """A Postgres server that the test can stop: an `OwnServer`."""
    from support.postgres import OwnServer  # most tests here need no Postgres

    started = OwnServer()
    yield started
    started.remove()
