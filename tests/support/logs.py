"""Every log record of the process, whatever loggers say about levels and propagation."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Generator, Iterator

import pytest


class CapturedLogs(logging.Handler):
    """The records, and the text that a handler would have written, tracebacks included."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []
        self._text = io.StringIO()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self._text.write(self.format(record) + "\n")

    @property
    def text(self) -> str:
        return self._text.getvalue()

    @property
    def scannable(self) -> list[object]:
        """What to hand to the scan for roles."""
        return [*self.records, self.text]


def _loggers() -> list[logging.Logger]:
    known = [one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    return [logging.root, *known]


@contextlib.contextmanager
def capture_logs() -> Generator[CapturedLogs, None, None]:
    """Record everything that any logger says at DEBUG and above; then put all loggers back as they were."""
    captured = CapturedLogs()
    before = [(one, one.level, one.disabled) for one in _loggers()]
    disabled = logging.root.manager.disable
    holders = [one for one in _loggers() if one is logging.root or not one.propagate]
    logging.disable(logging.NOTSET)
    for one, _, _ in before:
        one.setLevel(logging.DEBUG)
        one.disabled = False
    for one in holders:
        one.addHandler(captured)
    try:
        yield captured
    finally:
        for one in holders:
            one.removeHandler(captured)
        for one, level, was_disabled in before:
            one.setLevel(level)
            one.disabled = was_disabled
        logging.disable(disabled)


@pytest.fixture
def all_logs() -> Iterator[CapturedLogs]:
    """Import this name into a test module to use the fixture."""
    with capture_logs() as captured:
        yield captured
