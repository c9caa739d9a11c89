"""Traces as JSON Lines in a file of one's own choice: a sink that adds to it, and what reads it again."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...core.errors import StorageUnavailable, TraceInvalid
from .recorder import Recorder
from .records import FORMAT, HEADER, TraceRecord, read_record
from .sinks import Traced

_LONGEST_HEADER: Final = 100  # bytes; what is nested deeper than Python reads is longer


class JsonLinesTrace:
    """Adds records of `trace/1` to a file, which is made with mode 0600. Several processes may add to one file.

    Args:
        file: The file. It grows for as long as you let it; what turns it over may move it at any time.
    """

    def __init__(self, file: Path | str) -> None:
        self.file = Path(file)
        self._recorder = Recorder()

    async def write(self, items: Sequence[Traced]) -> None:
        """Add the records of what happened."""
        records = self._recorder.records(items)
        if records:
            data = "".join(f"{record.line()}\n" for record in records).encode()
            await asyncio.to_thread(self._add, data)

    async def aclose(self) -> None:
        """Nothing is held between two writes."""

    def _add(self, data: bytes) -> None:
        problem = ""
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                size = os.fstat(handle).st_size
                if size == 0:
                    data = f"{HEADER}\n".encode() + data
                elif os.pread(handle, 1, size - 1) != b"\n":  # a process that was killed left half a line
                    data = b"\n" + data
                while data:
                    data = data[os.write(handle, data) :]
            finally:
                os.close(handle)
        except OSError as error:
            problem = error.strerror or type(error).__name__
        if problem:
            raise StorageUnavailable(
                f"the trace file {str(self.file)!r} cannot be written ({problem})", remedy="look after the disk"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """What stands in a file of traces.

    Attributes:
        records: The records in the order of their lines; of one that was written again, the last.
        skipped: The numbers of lines that are no record, such as one that a kill cut off.
    """

    records: tuple[TraceRecord, ...]
    skipped: tuple[int, ...] = ()


def read_trace(file: Path | str) -> TraceFile:
    """Read a file of traces.

    Args:
        file: What `JsonLinesTrace` or `worldagent trace export` wrote.

    Raises:
        TraceInvalid: It cannot be read, or is of another format.
    """
    problem = ""
    try:
        lines = Path(file).read_bytes().split(b"\n")
    except OSError as error:
        problem, lines = error.strerror or type(error).__name__, []
    if not problem and not _is_header(lines[0]):
        problem = f"its first line is not that of {FORMAT!r}"
    if problem:
        raise TraceInvalid(
            f"{str(file)!r} cannot be read as a trace: {problem}", remedy="name a file that JsonLinesTrace wrote"
        )
    found: dict[object, TraceRecord] = {}
    skipped: list[int] = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            record = read_record(line) if line and not _is_header(line) else None
        except TraceInvalid:
            skipped.append(number)
            continue
        if record is not None:
            found[(record.turn, record.key)] = record
    return TraceFile(records=tuple(found.values()), skipped=tuple(skipped))


def _is_header(line: bytes) -> bool:
    if len(line) > _LONGEST_HEADER:
        return False
    try:
        return bool(json.loads(line) == json.loads(HEADER))
    except ValueError:
        return False


__all__ = ["JsonLinesTrace", "TraceFile", "read_trace"]
