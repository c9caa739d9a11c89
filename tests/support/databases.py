"""The two engines of databases (D10): tests of what both must do run on both."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from worldagent.storage import PostgresAddress

Engine = Literal["sqlite", "postgres"]
ENGINES: tuple[Engine, ...] = ("sqlite", "postgres")
on_every_database = pytest.mark.parametrize("engine", ENGINES)
"""For a test that takes `engine`, directly or through the fixture `place`."""


def fresh(engine: Engine, folder: Path) -> Path | PostgresAddress:
    """Where a new database of this engine is."""
    if engine == "sqlite":
        return folder / "home" / "agent.db"
    from support.postgres import new_database  # it starts a server

    return PostgresAddress(new_database())


def word(place: Path | PostgresAddress) -> str:
    """`place` as an argument for a child process; `named` reads it."""
    return place.url if isinstance(place, PostgresAddress) else str(place)


def named(text: str) -> Path | PostgresAddress:
    """The place that `word` stands for."""
    return PostgresAddress(text) if text.startswith("postgresql:") else Path(text)
