"""The tasks of MCP as they are on the wire: the extension `io.modelcontextprotocol/tasks` (SEP-2663).

A server that has it can answer a call with a task, which the client then asks for until it has ended. Types here are
those of the MCP library and of the extension; `rounds` follows a task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.types import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolResult,
    ErrorData,
    InputRequests,
    InputRequiredResult,
    InputResponses,
    Request,
    RequestParams,
    Result,
    ServerCapabilities,
)
from pydantic import Field, TypeAdapter

from .server import RemoteTask

_NAME: Final = "io.modelcontextprotocol/tasks"
# Milliseconds until the next look, if the server does not say, and the limits of what it says.
_WAIT: Final = 1000
_SHORTEST_WAIT: Final = 50
_LONGEST_WAIT: Final = 86_400_000

UNKNOWN: Final = (INVALID_PARAMS, METHOD_NOT_FOUND)
"""The codes by which a server says that it does not know a task, or no tasks at all."""


class TaskParams(RequestParams):
    """Names a task."""

    task_id: str


class TaskUpdate(TaskParams):
    """Answers to what a task asks for."""

    input_responses: InputResponses


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    """Asks for the state of a task."""

    method: Literal["tasks/get"] = "tasks/get"
    name_param = "taskId"


class UpdateTask(Request[TaskUpdate, Literal["tasks/update"]]):
    """Answers what a task asks for."""

    method: Literal["tasks/update"] = "tasks/update"
    name_param = "taskId"


class CancelTask(Request[TaskParams, Literal["tasks/cancel"]]):
    """Asks the server to cancel a task, which it need not do."""

    method: Literal["tasks/cancel"] = "tasks/cancel"
    name_param = "taskId"


class _Task(Result):
    task_id: Annotated[str, Field(min_length=1, max_length=1024)]
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str | None = None
    poll_interval_ms: int | None = None

    def remote(self) -> RemoteTask:
        """The task as a value."""
        given = _WAIT if self.poll_interval_ms is None else self.poll_interval_ms
        wait = min(max(given, _SHORTEST_WAIT), _LONGEST_WAIT) / 1000
        return RemoteTask(id=self.task_id, message=self.status_message or "", wait=wait)


class CreatedTask(_Task):
    """The answer to a call which goes on as a task."""

    result_type: Literal["task"]

    def remote(self) -> RemoteTask:
        """The task as a value. One that has more to say already is looked at immediately."""
        made = super().remote()
        return made if self.status == "working" else replace(made, wait=0.0)


class TaskState(_Task):
    """The answer to `tasks/get`: with the result, the error, or what the task asks for, according to its status."""

    result: CallToolResult | None = None
    error: ErrorData | None = None
    input_requests: InputRequests | None = None


Answer = CallToolResult | InputRequiredResult | CreatedTask

ANSWERS: Final[TypeAdapter[Answer]] = TypeAdapter(CallToolResult | InputRequiredResult)
"""The answers to a call, of a server without tasks."""

ANSWERS_OR_TASK: Final[TypeAdapter[Answer]] = TypeAdapter(
    Annotated[CreatedTask | CallToolResult | InputRequiredResult, Field(union_mode="left_to_right")]
)
"""The answers to a call, of a server with tasks."""


class Tasks(ClientExtension):
    """Tells servers of the revision 2026-07-28, with each request, that they can answer with a task."""

    identifier = _NAME

    def claims(self) -> Sequence[ResultClaim[CreatedTask]]:
        """The answer that it adds. Servers of older revisions, which cannot give it, are not told of it."""
        return (ResultClaim(result_type="task", model=CreatedTask, resolve=_unresolved),)


async def _unresolved(task: CreatedTask, context: ClaimContext) -> CallToolResult:
    raise AssertionError("`link` sends calls itself, and returns the task")


def has_tasks(offered: ServerCapabilities) -> bool:
    """Whether a server says that it can answer with tasks."""
    extensions: dict[str, Any] = offered.extensions or {}
    return _NAME in extensions
