"""Keeps role text and secrets out of what the MCP library and its HTTP library log and trace (R7).

At DEBUG the one logs whole messages over HTTP, and at ERROR what it could not parse; either may be a role. The other
logs addresses at INFO, with the key that may stand in a query. Inside the tasks of a connection of ours their records
below ERROR are dropped; the others keep logger, level and place and lose their text, and are dropped too where no
handler is set up, because Python would print them. The text of an error that a host answers becomes the status of a
span of OpenTelemetry, so it is dropped before the library sees it. Connections that the embedding program has of its
own are not touched.
"""

from __future__ import annotations

import contextvars
import logging
from typing import Final

from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError

_WITHHELD: Final = "the text of this record is withheld: it may hold a role"

_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("worldagent_role_host", default=False)

# The first parts of the names of the libraries' loggers: `mcp.client.session` calls its own `client`.
_NAMES: Final = ("mcp", "client", "httpx2", "httpcore2")
# Those that a library may make as late as in the middle of a call, when it is first asked for a proxy, say.
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
    """Reach the loggers that there are now. A logger does not ask those above it, so each is reached by itself."""
    names = [*_NAMES, *(f"httpcore2.{name}" for name in _LATE)]
    names += [name for name in list(logging.root.manager.loggerDict) if name.partition(".")[0] in _NAMES]
    for name in names:
        logging.getLogger(name).addFilter(_FILTER)  # a second time changes nothing


def quiet_context() -> contextvars.Context:
    """An empty context in which the libraries' log records are kept back.

    Empty, so that a connection, which outlives the call that opened it, keeps nothing of that call: no span, no
    tracer, no turn.
    """
    quieten()
    context = contextvars.Context()
    context.run(_inside.set, True)
    return context


def without_text(item: SessionMessage | Exception) -> SessionMessage | Exception:
    """What came from a host, without the text of an error; its code and data stay."""
    if isinstance(item, Exception):
        return ValueError("no message of MCP")
    if isinstance(item.message, JSONRPCError):
        item.message.error.message = ""
    return item
