"""Keeps role text and secrets out of the logs and traces of the MCP library and its HTTP library (R7).

At DEBUG the MCP library logs complete messages over HTTP, and at ERROR it logs what it could not parse; either can be a
role. The HTTP library logs addresses at INFO, and their query can hold a key. Inside the tasks of our connections their
records below ERROR are dropped. The other records keep logger, level and place and lose their text. They are dropped
too if no handler is set up, because Python would print them. The text of an error that a host answers would become the
status of an OpenTelemetry span, so it is removed before the library sees it. Connections that the embedding program
opens itself are not affected.
"""

from __future__ import annotations

import contextvars
import logging
from typing import Final

from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError

_WITHHELD: Final = "the text of this record is withheld: it may hold a role"

_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("worldagent_role_host", default=False)

# First parts of the logger names of these libraries. The logger of `mcp.client.session` is called `client`.
_NAMES: Final = ("mcp", "client", "httpx2", "httpcore2")
# Loggers that a library creates late, for example when a call first uses a proxy.
_LATE: Final = ("connection", "http11", "http2", "proxy", "socks")


class _Withhold(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if not _inside.get():
            return True
        record.msg, record.args = _WITHHELD, None
        record.exc_info = record.exc_text = record.stack_info = None
        return record.levelno >= logging.ERROR and logging.getLogger(record.name).hasHandlers()


_FILTER: Final = _Withhold()


def quieten() -> None:
    """Add the filter to each existing logger. Filters are not inherited, so every logger needs its own."""
    names = [*_NAMES, *(f"httpcore2.{name}" for name in _LATE)]
    names += [name for name in list(logging.root.manager.loggerDict) if name.partition(".")[0] in _NAMES]
    for name in names:
        logging.getLogger(name).addFilter(_FILTER)  # adding it twice has no effect


def quiet_context() -> contextvars.Context:
    """An empty context in which log records of the libraries are withheld.

    It is empty because a connection outlives the call that opened it. So it keeps no span, tracer or turn of that call.
    """
    quieten()
    context = contextvars.Context()
    context.run(_inside.set, True)
    return context


def without_text(item: SessionMessage | Exception) -> SessionMessage | Exception:
    """Return what a host sent without the text of an error. The code and data of the error remain."""
    if isinstance(item, Exception):
        return ValueError("not an MCP message")
    if isinstance(item.message, JSONRPCError):
        item.message.error.message = ""
    return item
