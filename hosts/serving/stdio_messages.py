"""Parses lines of standard input as messages, or refuses them.

A refusal quotes nothing of the line except its id.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCRequest, RequestId
from mcp_types import jsonrpc_message_adapter
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from .address import MIB
from .handlers import without_text

MAX_LINE_BYTES: Final = 4 * MIB
"""The same limit as for the body of a request over HTTP."""

_MAX_ID_CHARACTERS: Final = 200  # of an id that a refusal repeats
_MAX_EXACT: Final = 1 << 53  # above this, a float can differ from the integer that the client wrote
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")  # the escape of half a surrogate pair; the other half can follow
_REQUEST: Final = TypeAdapter(JSONRPCRequest)

_PARSE_ERROR: Final = ErrorData(code=PARSE_ERROR, message="Parse error")
_INVALID_MESSAGE: Final = ErrorData(code=INVALID_REQUEST, message="Invalid Request")
_INVALID_ID: Final = ErrorData(
    code=INVALID_REQUEST,
    message="Invalid Request: the id must be a string or an integer; send one, or a notification without an id",
)
_TOO_LONG: Final = ErrorData(
    code=INVALID_REQUEST,
    message=f"Invalid Request: the line is longer than {MAX_LINE_BYTES} bytes ({MAX_LINE_BYTES // MIB} MiB); "
    "send less in one message",
)


class Refused(Exception):
    """A line was refused.

    Args:
        error: The error that the sender receives.
        request_id: The id of the refusal; None if the line has no valid id.

    Attributes:
        answer: The refusal as a message.
    """

    def __init__(self, error: ErrorData = _TOO_LONG, request_id: RequestId | None = None) -> None:
        super().__init__(error.message)
        short = not isinstance(request_id, str) or len(request_id) <= _MAX_ID_CHARACTERS
        self.answer = JSONRPCError(jsonrpc="2.0", id=request_id if short else None, error=error)


def parse(line: bytes) -> JSONRPCMessage:
    """Parse one line.

    A line with a method and an id counts as a request, even if it is invalid otherwise, because its sender waits for an
    answer. The SDK would treat a request with an invalid id as a notification and not answer.

    Args:
        line: The line. U+FFFD replaces bytes that are not UTF-8 and halves of surrogate pairs. So a call whose text was
            cut in the middle of a character still gets an answer under its id.

    Raises:
        Refused: The line is not a message.
    """
    value = _json(line.decode("utf-8", "replace"))
    if not _is_request(value):
        return _message(jsonrpc_message_adapter, value, None)
    request_id = _request_id(value["id"])
    if request_id is None:
        raise Refused(_INVALID_ID)
    return _message(_REQUEST, value | {"id": request_id}, request_id)


def _json(text: str) -> Any:
    try:
        if _HALF.search(text):  # `from_json` rejects halves; decoding UTF-16 replaces them
            text = json.dumps(json.loads(text), ensure_ascii=False)
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return from_json(text)
    except (ValueError, RecursionError):
        pass
    raise Refused(_PARSE_ERROR)


def _is_request(value: Any) -> bool:
    """Whether the sender waits for an answer.

    Clients that write every field send `"method": null` in answers and `"id": null` in notifications.
    """
    if not isinstance(value, dict) or "id" not in value or value.get("method") is None:
        return False
    return value["id"] is not None or not str(value["method"]).startswith("notifications/")


def _request_id(given: object) -> RequestId | None:
    """Return the id if an answer can have it, else None. 1.0 is 1, since JSON has one kind of number."""
    match given:
        case bool():
            return None
        case int() | str():
            return given
        case float() if given.is_integer() and abs(given) < _MAX_EXACT:
            return int(given)
        case _:
            return None


def _message(kind: TypeAdapter[Any], value: Any, request_id: RequestId | None) -> JSONRPCMessage:
    try:
        message: JSONRPCMessage = kind.validate_python(value, by_name=False)
        return without_text(message)
    except ValidationError:
        pass
    raise Refused(_INVALID_MESSAGE, request_id)


__all__ = ["MAX_LINE_BYTES", "Refused", "parse"]
