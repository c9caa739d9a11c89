"""What is left of a thread that is removed: in the bytes of its home and database, and in the rows of a table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from worldagent import WorldAgent
from worldagent.testing import scan_for_roles


def found(home: Path, texts: Sequence[str]) -> list[str]:
    """Where one of `texts` stands: in a file of the home, or a table of its database."""
    things: list[object] = [home]
    if url := os.environ.get("WORLDAGENT_DATABASE_URL"):
        from support.postgres import table_bytes

        things.append(table_bytes(url))
    return [str(finding) for finding in scan_for_roles(things, texts).findings]


def rows(agent: WorldAgent, table: str, where: str = "1=1") -> Any:
    """How many rows a table has; to be awaited."""
    database = agent._runner.parts.upkeep.database
    return database.read(lambda tx: tx.execute(f"SELECT COUNT(*) FROM {table} WHERE {where}")[0][0])
