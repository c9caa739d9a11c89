"""What the host's process may write to its log: never a message that a library made of what it was sent (R7).

Nor what would fill a disk: of the same line again and again, one a second.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

_OURS = "worldagent"
_PAUSE = 1.0  # seconds between two lines that are the same


class _Quiet(logging.Formatter):
    """Our own records as they are; of all others the place, the level and the type of the error."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name.partition(".")[0] == _OURS:
            return f"{record.levelname.lower()}: {record.getMessage()}"
        kind = record.exc_info[0] if record.exc_info else None
        return f"{record.levelname.lower()}: {record.name}{f' ({kind.__name__})' if kind else ''}"


class _Calm(logging.StreamHandler):  # type: ignore[type-arg]  # it cannot be subscripted when the program runs
    """Counts the lines that are the same as one in the second before, and tells the count with the next or at the end.

    There are few different ones, since none has anything of what was sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_Quiet())
        self._told: dict[str, tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line, now = self.format(record), time.monotonic()
            last, held = self._told.get(line, (-math.inf, 0))
            if now - last < _PAUSE:
                self._told[line] = (last, held + 1)
            else:
                self._told[line] = (now, 0)
                self._say(line, held)
        except Exception:  # such as a stream that nobody reads any more: a log must not fail what it tells of
            self.handleError(record)

    def flush_counts(self) -> None:
        with suppress(OSError, ValueError):  # nobody reads the stream any more, or it is closed
            for line, (_, held) in self._told.items():
                if held:
                    self._say(line, held)

    def _say(self, line: str, held: int) -> None:
        self.stream.write(line + (f" (and {held} times more)" if held else "") + self.terminator)
        self.flush()


@contextmanager
def quiet_logs() -> Generator[None, None, None]:
    """Send warnings and errors of this process to stderr without the text of libraries. For a process of one's own.

    A line that comes again within a second is counted, and the count is told later.
    """
    root, handler = logging.getLogger(), _Calm()
    before = (root.level, list(root.handlers))
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.setLevel(before[0])
        root.handlers[:] = before[1]
        handler.flush_counts()


__all__ = ["quiet_logs"]
