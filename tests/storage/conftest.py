"""A place for a database, on each engine."""

from pathlib import Path

import pytest

from support.databases import ENGINES, Engine, fresh
from worldagent.storage import PostgresAddress


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.param
    return found


@pytest.fixture
def place(engine: Engine, tmp_path: Path) -> Path | PostgresAddress:
    return fresh(engine, tmp_path)
