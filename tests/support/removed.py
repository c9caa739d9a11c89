"""What is said on a thread, and what is left of it once it is removed: in bytes of home and database."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from worldagent.harness import tool
from worldagent.testing import scan_for_roles


def word(place: str) -> str:
    """A text that is said in a place; no 40 letters of one are in another."""
    return (f"the {place} " * 8).strip()


PLACES = ("message", "answer", "request", "verdict", "argument", "result", "question")
WORDS = {place: word(place) for place in PLACES}


@tool
async def look(what: str) -> str:
    return WORDS["result"]


async def pay(what: str) -> str:
    return WORDS["result"]


def found(home: Path, texts: Sequence[str]) -> list[str]:
    """Where one of `texts` stands: in a file of the home, or a table of its database."""
    things: list[object] = [home]
    if url := os.environ.get("WORLDAGENT_DATABASE_URL"):
        from support.postgres import table_bytes

        things.append(table_bytes(url))
    return [str(finding) for finding in scan_for_roles(things, texts).findings]
