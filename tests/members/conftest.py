"""Databases with the tables of societies."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from support.databases import ENGINES, Engine, fresh
from support.society import tables
from worldagent.storage import Database


@pytest.fixture
async def local(tmp_path: Path) -> AsyncGenerator[Database]:
    """A database for what is decided without SQL of its own."""
    async with tables(tmp_path / "a.db") as database:
        yield database


@pytest.fixture(params=ENGINES)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Database]:
    """A database of each engine."""
    engine: Engine = request.param
    async with tables(fresh(engine, tmp_path)) as opened:
        yield opened
