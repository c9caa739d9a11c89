"""Files of exported threads, read as values, changed, and written with the checksum that belongs to them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from worldagent.memory import Draft
from worldagent.memory.log import rows_of

Line = dict[str, Any]


def read(file: Path) -> list[Line]:
    """The lines of an export."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def write(file: Path, lines: list[Line]) -> None:
    """Write lines with the checksum that belongs to them; the last one has a place for it."""
    body = "".join(f"{json.dumps(line)}\n" for line in lines[:-1])
    end = {**lines[-1], "sha256": hashlib.sha256(body.encode()).hexdigest()} if "sha256" in lines[-1] else lines[-1]
    file.write_text(f"{body}{json.dumps(end)}\n", encoding="utf-8")


def renamed(lines: list[Line]) -> list[Line]:
    """The lines with the ids that follow from what the messages say now, wherever one is named.

    Raises:
        Exception: A message is such that no id follows from it.
    """
    names: dict[str, str] = {}
    said: list[Line] = []
    for each in lines[1:]:
        line = _with(each, names)
        if "author" in line or "turn" in line:
            draft = Draft(line["author"], line["kind"], line["body"])
            [row] = rows_of(line["parent"], [draft], thread=lines[0]["root"], turn_id=line["turn"])
            names[str(line["id"])] = row.id
            line["id"] = row.id
        said.append(line)
    return [_with(lines[0], names), *said]


def _with(line: Line, names: Mapping[str, str]) -> Line:
    text = json.dumps(line)
    for old, new in names.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    found: Line = json.loads(text)
    return found


__all__ = ["Line", "read", "renamed", "write"]
