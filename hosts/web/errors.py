"""Errors as HTTP responses: the record of the error as JSON, and a status that proxies and clients understand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import JSONResponse
from starlette.types import Scope

from ...core import errors
from ...core.errors import HostError, ModelFacing, WorldAgentError
from ..service.call import Refused
from ..service.next_steps import error_record
from ..service.records import ErrorAnswer

_REFUSALS: Final[Mapping[str, int]] = {
    "forbidden": 403,
    "too_many_turns": 429,
    "draining": 503,
    "reader_behind": 503,
    "internal": 500,
}

_STATUSES: Final[Mapping[type[WorldAgentError], int]] = {
    errors.AgentClosed: 503,
    errors.AlreadyAnswered: 409,
    errors.AttachmentMissing: 404,
    errors.EntryChanged: 409,
    errors.EventsGone: 410,
    errors.HostForbidden: 403,
    errors.KeyReused: 409,
    errors.LeaseLost: 409,
    errors.LifecycleError: 409,
    errors.LimitReached: 429,
    errors.MailboxFull: 429,
    errors.MissingExtra: 500,
    errors.ModelNotConfigured: 500,
    errors.ModelRateLimited: 429,
    errors.NameTaken: 409,
    errors.NotAnApprover: 403,
    errors.NotSteerable: 409,
    errors.NothingToResume: 409,
    errors.NothingToSteer: 409,
    errors.RoleChanged: 409,
    errors.RoleRequired: 409,
    errors.ThreadBusy: 409,
    errors.ThreadPaused: 409,
    errors.TraceInvalid: 404,
    errors.TurnTimeout: 504,
}


_OPENAI_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    409: "conflict_error",
    429: "rate_limit_error",
}


def openai_error(record: Mapping[str, Any], status: int) -> dict[str, Any]:
    """Return the record of an error as OpenAI's error object, with what else the record has."""
    kind = "server_error" if status >= 500 else _OPENAI_TYPES.get(status, "invalid_request_error")
    rest = {name: value for name, value in record.items() if name not in ("code", "problem", "retryable")}
    message = f"{record['problem']}; {record['remedy']}"
    return {"error": {"message": message, "type": kind, "code": record["code"], "param": None, **rest}}


class HttpRefused(Exception):
    """A request that is refused before it reaches a call.

    Args:
        status: The status of the response.
        code: The code for programs.
        problem: What is wrong, without any value that the client sent.
        remedy: What the reader can do about it.
        more: Other fields of the record.

    Attributes:
        record: The refusal as JSON.
    """

    def __init__(self, status: int, code: str, problem: str, remedy: str, **more: Any) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.status, self.code, self.problem, self.remedy = status, code, problem, remedy
        self.record = {"code": code, "problem": problem, "remedy": remedy, "retryable": False, **more}

    def response(self, scope: Scope | None = None) -> JSONResponse:
        """Return it as a response.

        Args:
            scope: The request, if no endpoint answers it: clients of OpenAI's API get its error object.
        """
        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        if "retry_after" in self.record:
            headers["Retry-After"] = str(self.record["retry_after"])
        content = {"contract": 1, "error": self.record}
        if scope is not None and scope["path"].removeprefix(scope.get("root_path", "")).startswith("/v1/"):
            content, headers["x-should-retry"] = openai_error(self.record, self.status), "false"
        return JSONResponse(content, status_code=self.status, headers=headers)


def not_logged_in(*, accepts_tokens: bool) -> HttpRefused:
    """Return the refusal of a request whose sender is unknown."""
    token_remedy = "log in, or send the header `Authorization: Bearer TOKEN` with a token that this server accepts"
    return HttpRefused(
        401,
        "not_logged_in",
        "the request does not say who sends it",
        token_remedy if accepts_tokens else "log in to the app that has these pages, then try again",
        accepts_tokens=accepts_tokens,
    )


def internal() -> Refused:
    """Return the refusal of a call that failed with an error that is not ours."""
    return Refused(
        "internal", "the server failed with an internal error", remedy="look at its log, or ask its operator"
    )


def status_of(failure: WorldAgentError | Refused) -> int:
    """Return the HTTP status of an error."""
    if isinstance(failure, Refused):
        return _REFUSALS[failure.code]
    known = next((status for kind, status in _STATUSES.items() if isinstance(failure, kind)), None)
    if known is not None:
        return known
    if failure.code.startswith("unknown_"):
        return 404
    if isinstance(failure, HostError):
        return 503 if failure.retryable else 502
    return 422 if isinstance(failure, ModelFacing) else 400


def error_content(failure: WorldAgentError | Refused, advice: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error as JSON, as `ErrorAnswer` describes it.

    Args:
        failure: The error.
        advice: Fields that replace or extend its record, from `advised`.
    """
    return ErrorAnswer(error=error_record(failure, advice)).model_dump(mode="json", exclude_none=True)


def error_response(
    failure: WorldAgentError | Refused, advice: Mapping[str, Any], *, status: int | None = None
) -> JSONResponse:
    """Return an error as a response; without a `status` with that of the error."""
    status = status_of(failure) if status is None else status
    content = error_content(failure, advice)
    seconds = math.ceil(getattr(failure, "retry_after", None) or 1)  # a model's service can say how long
    headers = {"Retry-After": str(seconds)} if status in (429, 503) and content["error"]["retryable"] else None
    return JSONResponse(content, status_code=status, headers=headers)
