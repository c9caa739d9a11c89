"""What an answer says that refuses a request before any handler sees it. Nothing of what was sent is in it (R7)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ExceptionHandler, Message

_JSON: Final = "application/json"
_CUT: Final = ("Parse error", "Validation error")
"""Errors of the library's that go on with what was sent."""

_BEARER: Final = "send the header `Authorization: Bearer TOKEN`, with a token that this server was given"
_ACCEPT: Final = "send the header `Accept: application/json, text/event-stream`"


def not_found(paths: Sequence[str]) -> ExceptionHandler:
    """What answers a request for a path that there is not.

    Args:
        paths: Those that there are.
    """
    remedy = f"correct the path of the address: this server has {', '.join(paths)} and no other"

    def answer(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": "not_found", "remedy": remedy}, status_code=404)

    return answer


def is_reworded(start: Message) -> bool:
    """Whether `reworded` has another body for the answer that begins like this."""
    is_json = Headers(raw=start["headers"]).get("content-type") == _JSON
    match start["status"]:
        case 400 | 401:
            return is_json
        case 405 | 406:
            return not is_json  # one in JSON says what is missing
        case _:
            return False


def reworded(start: Message, body: bytes) -> bytes:
    """Give such an answer its body, and make its headers fit.

    Args:
        start: How it begins; its headers are changed.
        body: What the library says.
    """
    headers = MutableHeaders(scope=start)
    match start["status"]:
        case 400:
            body = _without_input(body)
        case 401:
            body = json.dumps(json.loads(body) | {"remedy": _BEARER}).encode()
        case 405:
            allowed = sorted(each.strip() for each in headers.get("allow", "POST").split(","))
            body = _error("method_not_allowed", f"use {' or '.join(allowed)}")
        case _:
            body = _error("not_acceptable", _ACCEPT)
    headers["content-type"] = _JSON
    headers["content-length"] = str(len(body))
    return body


def _error(code: str, remedy: str) -> bytes:
    return json.dumps({"error": code, "remedy": remedy}).encode()


def _without_input(body: bytes) -> bytes:
    """Cut what the library quotes of a request that it cannot read: a role may stand in it, and clients log errors."""
    told: Any = json.loads(body)
    error = told.get("error") if isinstance(told, dict) else None
    if not isinstance(error, dict):
        return body
    kind = str(error.get("message", "")).partition(":")[0]
    return json.dumps(told | {"error": error | {"message": kind}}).encode() if kind in _CUT else body


__all__ = ["is_reworded", "not_found", "reworded"]
