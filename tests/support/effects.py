"""Effects that outlive the process: lines of a file, which a killed process leaves whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def add(file: Path, line: str) -> None:
    """Add a line; it is on the disk when this returns."""
    with file.open("a") as out:
        out.write(f"{line}\n")
        out.flush()
        os.fsync(out.fileno())


def lines(file: Path) -> list[str]:
    """All lines so far."""
    return file.read_text().splitlines() if file.exists() else []
