"""The client of the connection: updates and questions to it, and errors in its form.

An error has the number of JSON-RPC, and in `data` the fields of the package's errors. No text of an unexpected
exception, no value that the client sent, and no role is part of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from acp.connection import Connection
from acp.exceptions import RequestError
from acp.helpers import SessionUpdate
from acp.meta import CLIENT_METHODS
from acp.schema import (
    AllowedOutcome,
    PermissionOption,
    RequestPermissionRequest,
    RequestPermissionResponse,
    SessionNotification,
    ToolCallUpdate,
)
from acp.utils import notify_model, request_model
from pydantic import ValidationError

from ...core.errors import UsageError, WorldAgentError
from ..service.call import Refused
from ..service.next_steps import error_record

INVALID_REQUEST: Final = -32600
NO_METHOD: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
NOT_FOUND: Final = -32002


class Client:
    """The client of a connection.

    Args:
        connection: The connection.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def update(self, session_id: str, update: SessionUpdate) -> None:
        """Send an update of a session. Nothing is sent to a client that is gone."""
        with suppress(ConnectionError):
            await notify_model(
                self._connection,
                CLIENT_METHODS["session_update"],
                SessionNotification(session_id=session_id, update=update),
            )

    async def choose(self, session_id: str, call: ToolCallUpdate, options: Sequence[PermissionOption]) -> str | None:
        """Let the person choose.

        Args:
            session_id: The session.
            call: What the choice is about.
            options: The options.

        Returns:
            The id of an option; None if the client cancelled the prompt.

        Raises:
            RequestError: The client did not answer, or with something else.
        """
        request = RequestPermissionRequest(session_id=session_id, tool_call=call, options=list(options))
        method = CLIENT_METHODS["session_request_permission"]
        with suppress(RequestError, ValidationError, ConnectionError):
            answer = await request_model(self._connection, method, request, RequestPermissionResponse)
            if not isinstance(answer.outcome, AllowedOutcome):
                return None
            if any(option.option_id == answer.outcome.option_id for option in options):
                return answer.outcome.option_id
        raise refused(
            "client_failed",
            "the client did not answer session/request_permission with one of the options",
            "send the next prompt to be asked again; the turn waits",
            number=INTERNAL_ERROR,
        )


def refused(code: str, problem: str, remedy: str, *, number: int = INVALID_PARAMS) -> RequestError:
    """Make the error of a request that this host itself refuses.

    Args:
        code: The code for programs.
        problem: What is wrong, without any value that the client sent.
        remedy: What the reader can do about it.
        number: The number of the error in JSON-RPC.
    """
    data = {"code": code, "problem": problem, "remedy": remedy, "retryable": False}
    return RequestError(number, f"{problem}; {remedy}", data)


def request_error(failure: WorldAgentError | Refused) -> RequestError:
    """Make the error of a request from an error of the package."""
    record = error_record(failure, {})
    number = INVALID_PARAMS if isinstance(failure, UsageError) else INTERNAL_ERROR
    return RequestError(number, f"{record.problem}; {record.remedy}", record.model_dump(exclude_none=True))
