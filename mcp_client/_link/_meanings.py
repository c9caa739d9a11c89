"""What the errors of the MCP library mean, told apart by their types and numbers. Nothing of their texts is kept.

`_link` knows what it was doing when one came; the failures themselves are in `_failures`, which knows no library.
"""

from __future__ import annotations

from typing import Final

from mcp.types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
)

from .. import _failures as failures
from .._failures import Failure
from .._hosts import Host, HttpHost

_MISUSED: Final = (INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, HEADER_MISMATCH)
# The library has no type of its own for this; a host that speaks such a revision is among the tests.
_OF_REVISIONS: Final = ("Unsupported protocol version", "No mutually supported modern protocol version")


def of_status(host: Host, code: int, data: object) -> Failure:
    """What an error means that was made on this side, as a rule of a status of HTTP; the connection is as it was."""
    return failures.failed(host.label, code, data) if code in range(100, 600) else of_code(host, code)


def of_code(host: Host, code: int) -> Failure:
    """What an error of MCP means that leaves the connection as it is."""
    if code == PARSE_ERROR:
        return failures.garbled(host.label)
    if code == UNSUPPORTED_PROTOCOL_VERSION:
        return failures.foreign(host.label)
    if code in _MISUSED:
        what = "the address is perhaps not its MCP endpoint" if isinstance(host, HttpHost) else "it is perhaps none"
        return failures.invalid(host.label, f"did not take a request of the contract (MCP error {code}); {what}")
    return failures.errored(host.label, code)


def of_connecting(host: Host, error: BaseException) -> Failure:
    """What an error means that is none of MCP and came before calls could be made."""
    if isinstance(error, RuntimeError) and str(error).startswith(_OF_REVISIONS):
        return failures.foreign(host.label)
    return failures.unopened(host.label, error)
