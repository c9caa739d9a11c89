"""What dspy logs during a call of the agent: it goes to this package's log, without its text, instead of to stderr."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import dspy  # gives its log a handler, which writes to stderr
from dspy.utils.logging_utils import DSPY_LOGGING_STREAM

_LOG: Final = logging.getLogger("worldagent.models")
_DURING_A_CALL: Final[ContextVar[bool]] = ContextVar("worldagent_dspy_log", default=False)


class _Redirect(logging.Filter):
    """Drops dspy's records of a call of the agent, and logs where they came from. Their text can quote the prompt."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not _DURING_A_CALL.get():
            return True
        _LOG.info("dspy logged a message (%s) at %s:%d", record.levelname, record.filename, record.lineno)
        return False


# At dspy's own handler. A filter of its logger would not see what the loggers below log; other handlers are the host's.
for _handler in logging.getLogger(dspy.__name__).handlers:
    if getattr(_handler, "stream", None) is DSPY_LOGGING_STREAM:
        _handler.addFilter(_Redirect())


@contextmanager
def redirected() -> Generator[None]:
    """Keep what dspy logs in this block off stderr. It holds for this task and its threads alone."""
    token = _DURING_A_CALL.set(True)
    try:
        yield
    finally:
        _DURING_A_CALL.reset(token)
