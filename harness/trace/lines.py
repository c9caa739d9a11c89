"""Traces as JSON Lines in a file: a sink that appends to the file, and a function that reads it."""

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

_LONGEST_HEADER: Final = 100  # bytes; JSON that is nested too deep for Python's parser is longer


class JsonLinesTrace:
    """Appends records of `trace/1` to a file, which is created with mode 0600. Several processes can share one file.

    Args:
        file: The file. It grows without limit; a program that rotates it can move it at any time.
    """

    def __init__(self, file: Path | str) -> None:
        self.file = Path(file)
        self._recorder = Recorder()

    async def write(self, items: Sequence[Traced]) -> None:
        """Append the records of the items."""
        records = self._recorder.records(items)
        if records:
            data = "".join(f"{record.line()}\n" for record in records).encode()
            await asyncio.to_thread(self._add, data)

    async def aclose(self) -> None:
        """Do nothing: no file is open between two writes."""

    def _add(self, data: bytes) -> None:
        problem = ""
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                size = os.fstat(handle).st_size
                if size == 0:
                    data = f"{HEADER}\n".encode() + data
                elif os.pread(handle, 1, size - 1) != b"\n":  # a killed process left half a line
                    data = b"\n" + data
                while data:
                    data = data[os.write(handle, data) :]
            finally:
                os.close(handle)
        except OSError as error:
            problem = error.strerror or type(error).__name__
        if problem:
            raise StorageUnavailable(
                f"the trace file {str(self.file)!r} cannot be written ({problem})",
                remedy="check the disk and the permissions of the file",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """The content of a file of traces.

    Attributes:
        records: The records in the order of their lines; of a record that was written twice, the last version.
        skipped: The numbers of lines that are not records, such as a line that a killed process did not finish.
    """

    records: tuple[TraceRecord, ...]
    skipped: tuple[int, ...] = ()


def read_trace(file: Path | str) -> TraceFile:
    """Read a file of traces.

    Args:
        file: A file that `JsonLinesTrace` or `worldagent trace export` wrote.

    Raises:
        TraceInvalid: The file cannot be read, or has another format.
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
            f"{str(file)!r} cannot be read as a trace: {problem}", remedy="pass a file that JsonLinesTrace wrote"
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
