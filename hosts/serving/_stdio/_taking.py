"""What a line is to us: a message that the library is given, or a request that is none and is refused.

What is refused is told without anything of what stood in it but its id, which is its sender's own. How a refusal gets
to the client is not known here.
"""

from __future__ import annotations

from typing import Any, Final

from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    RequestId,
)
from pydantic import BaseModel, ValidationError

from .._options import MIB
from ._lines import LIMIT, Line, TooLong

_TELLS: Final = "notifications/"  # what methods begin with that nobody waits for
_LONGEST_ID = 200  # characters; what is refused is told under a longer one no more than under none
_EXACT = 1 << 53  # below it, a whole number that is written with a fraction or an exponent is read as it was meant

_NO_JSON: Final = ErrorData(code=PARSE_ERROR, message="Parse error")
_NO_MESSAGE: Final = ErrorData(code=INVALID_REQUEST, message="Invalid Request")
_NO_ID: Final = ErrorData(
    code=INVALID_REQUEST,
    message="Invalid Request: the id is no string and no whole number; send one, or a notification without an id",
)
_TOO_LONG: Final = ErrorData(
    code=INVALID_REQUEST,
    message=f"Invalid Request: the line is longer than {LIMIT} bytes ({LIMIT // MIB} MiB); send less in one message",
)


class _Head(BaseModel):
    """What of a line says whether it asks for an answer: it does where it has both. An id may be anything here."""

    id: Any = None
    method: Any = None


def taken(item: SessionMessage | Exception, line: Line) -> SessionMessage | JSONRPCError:
    """What becomes of a line.

    Who sends a method and an id waits for an answer. Where the id is none to the library, it takes such a line for a
    notification, or for an answer, and gives none.

    Args:
        item: What the library made of it.
        line: It.

    Returns:
        The message, as the library is to have it, or the error that its sender is told.
    """
    if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCRequest):
        return item
    head = _head(line)
    under = None if head is None else _usable(head.id)
    if isinstance(item, Exception):
        return _refusal(_problem(item), under)
    message = item.message
    if head is None:
        return item
    if isinstance(message, JSONRPCNotification) and head.id is None and message.method.startswith(_TELLS):
        return item  # from such a client
    if isinstance(message, JSONRPCNotification) and under is not None:
        item.message = JSONRPCRequest(jsonrpc="2.0", id=under, method=message.method, params=message.params)
        return item
    return _refusal(_NO_ID if under is None else _NO_MESSAGE, under)


def _head(line: Line) -> _Head | None:
    """That of a line that asks for an answer; None for any other. It is read as the library reads lines.

    A method of null is none: a client that writes every field of its messages has it in its answers, too.
    """
    if isinstance(line, TooLong):
        return None
    try:
        head = _Head.model_validate_json(line)
    except ValidationError:
        return None
    return None if head.method is None or "id" not in head.model_fields_set else head


def _usable(given: object) -> RequestId | None:
    """An id that an answer can have: 1.0 is 1, as JSON has one kind of numbers."""
    match given:
        case bool():
            return None
        case int():
            return given
        case float() if given.is_integer() and abs(given) < _EXACT:
            return int(given)
        case str() if len(given) <= _LONGEST_ID:
            return given
        case _:
            return None


def _problem(found: Exception) -> ErrorData:
    if isinstance(found, ValidationError):
        errors = found.errors(include_input=False, include_url=False, include_context=False)
        kinds = {each["type"] for each in errors}
        if "json_type" in kinds:  # it was given no text, but a `TooLong`
            return _TOO_LONG
        if "json_invalid" in kinds:
            return _NO_JSON
    return _NO_MESSAGE


def _refusal(error: ErrorData, under: RequestId | None) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=under, error=error)


__all__ = ["taken"]
