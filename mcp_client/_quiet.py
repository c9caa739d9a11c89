"""Keeps role text out of what the MCP library logs and traces (R7).

At DEBUG the library logs whole messages over HTTP, and at ERROR it logs what it could not parse; either may be a role.
Inside the tasks of a connection of ours its records keep logger, level and place and lose their text. The text of an
error that a host answers becomes the status of a span of OpenTelemetry, so it is dropped before the library sees it.
Connections that the embedding program has of its own are not touched.
"""

from __future__ import annotations

import contextvars
import logging
from typing import Final

from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError

_WITHHELD: Final = "the text of this record is withheld: it may hold a role"

_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("worldagent_role_host", default=False)

# The first parts of the names of the library's loggers: `mcp.client.session` calls its own `client`.
_NAMES: Final = ("mcp", "client")


class _Withhold(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if _inside.get():
            record.msg, record.args = _WITHHELD, None
            record.exc_info = record.exc_text = record.stack_info = None
        return True


_FILTER: Final = _Withhold()


def quiet_context() -> contextvars.Context:
    """An empty context in which the library's log records lose their text.

    Empty, so that a connection, which outlives the call that opened it, keeps nothing of that call: no span, no
    tracer, no turn.
    """
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in _NAMES:
            logging.getLogger(name).addFilter(_FILTER)  # a second time changes nothing
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
