"""What the host's process may write to its log: never a message that a library made of what it was sent (R7)."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

_OURS = "worldagent"


class _Quiet(logging.Formatter):
    """Our own records as they are; of all others the place, the level and the type of the error."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name.partition(".")[0] == _OURS:
            return f"{record.levelname.lower()}: {record.getMessage()}"
        kind = record.exc_info[0] if record.exc_info else None
        return f"{record.levelname.lower()}: {record.name}{f' ({kind.__name__})' if kind else ''}"


@contextmanager
def quiet_logs() -> Generator[None, None, None]:
    """Send warnings and errors of this process to stderr without the text of libraries. For a process of one's own."""
    root, handler = logging.getLogger(), logging.StreamHandler()
    handler.setFormatter(_Quiet())
    before = (root.level, list(root.handlers))
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.setLevel(before[0])
        root.handlers[:] = before[1]


__all__ = ["quiet_logs"]
