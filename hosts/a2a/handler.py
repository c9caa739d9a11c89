"""Answers the methods of A2A from the workspace's own database, so that a process after a restart answers alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

from a2a.server.context import ServerCallContext
from a2a.server.events import Event
from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    InternalError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from ...agent import WorldAgent
from ...core.errors import LifecycleError, ModelFacing, UnknownTask, UsageError, WorldAgentError
from ...members.mail.messages import MAX_CONTENT
from ...members.remote.client import text_of
from ...members.remote.offers import MAX_LISTED, OVER, OfferedTask, Offers
from ...members.remote.stopping import cancel_turn
from ..service.call import Caller, Refused
from ..sidecar.following import SidecarParts

T = TypeVar("T")

WAIT_SECONDS: Final = 300.0
"""How long a call that waits for the end of its task waits at most. The answer then says how far the task is."""

STATES: Final = {
    "submitted": pb.TASK_STATE_SUBMITTED,
    "working": pb.TASK_STATE_WORKING,
    "asking": pb.TASK_STATE_INPUT_REQUIRED,
    "done": pb.TASK_STATE_COMPLETED,
    "failed": pb.TASK_STATE_FAILED,
    "cancelled": pb.TASK_STATE_CANCELED,
}
_FIRST_PAUSE: Final = 0.05
_MOST_PAUSE: Final = 1.0
_FAILED: Final = "The agent gave no answer."
_PASSED: Final = 20  # messages of a task that its history has, if the caller names no number


@dataclass(frozen=True, slots=True)
class Asked:
    """Who asks which member.

    Attributes:
        caller: The caller.
        member: The member.
    """

    caller: Caller
    member: str


class OfferedMembers(RequestHandler):
    """The methods of A2A for the members that an app offers.

    Args:
        parts: The agents and limits of the app.
    """

    def __init__(self, parts: SidecarParts) -> None:
        self._parts = parts

    @validate_request_params
    async def on_message_send(self, params: pb.SendMessageRequest, context: ServerCallContext) -> pb.Task:
        task = await self._sent(params, context)
        if not params.configuration.return_immediately:
            async for state in self._states(task, context):
                task = state
        return _task(task, _history(params.configuration))

    @validate_request_params
    async def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        task = await self._sent(params, context)
        async for event in self._events(task, context, _history(params.configuration)):
            yield event

    @validate_request_params
    async def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        task = await self._found(params.id, context)
        if task.state in OVER:
            raise UnsupportedOperationError("the task is over")
        async for event in self._events(task, context, _PASSED):
            yield event

    @validate_request_params
    async def on_get_task(self, params: pb.GetTaskRequest, context: ServerCallContext) -> pb.Task:
        return _task(await self._found(params.id, context), _history(params))

    @validate_request_params
    async def on_list_tasks(self, params: pb.ListTasksRequest, context: ServerCallContext) -> pb.ListTasksResponse:
        size = params.page_size or 50
        if not 1 <= size <= MAX_LISTED or not (params.page_token or "0").isdecimal():
            raise InvalidParamsError(f"pageSize must be 1 to {MAX_LISTED}, and pageToken one that was given")
        before = int(params.page_token) if params.page_token else None

        async def look(offers: Offers, asked: Asked) -> tuple[tuple[OfferedTask, ...], int]:
            given: dict[str, Any] = {"context": params.context_id, "before": before, "limit": size}
            return await offers.list(asked.member, asked.caller.account, **given)

        found, count = await self._with(context, look)
        since = params.status_timestamp_after.ToDatetime() if params.HasField("status_timestamp_after") else None
        shown = [_task(each, _history(params), artifacts=params.include_artifacts) for each in found]
        if params.status:
            shown = [each for each in shown if each.status.state == params.status]
        if since is not None:
            shown = [each for each in shown if each.status.timestamp.ToDatetime() >= since]
        return pb.ListTasksResponse(
            tasks=shown,
            next_page_token=str(found[-1].place) if len(found) == size else "",
            page_size=size,
            total_size=count,
        )

    @validate_request_params
    async def on_cancel_task(self, params: pb.CancelTaskRequest, context: ServerCallContext) -> pb.Task:
        asked = _asked(context)
        with _worded(LifecycleError, TaskNotCancelableError):
            async with self._parts.agents.use(asked.caller.workspace) as agent:
                task = await agent.society.offers.cancel(asked.member, asked.caller.account, params.id)
                if task.runs:  # where a kill comes first, a gateway does it
                    await cancel_turn(agent, asked.member, task.id)
        return _task(task, _PASSED)

    # --- what is not offered ------------------------------------------------------------------------------------------

    async def on_create_task_push_notification_config(
        self, params: pb.TaskPushNotificationConfig, context: ServerCallContext
    ) -> NoReturn:
        raise PushNotificationNotSupportedError

    async def on_get_task_push_notification_config(
        self, params: pb.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> NoReturn:
        raise PushNotificationNotSupportedError

    async def on_list_task_push_notification_configs(
        self, params: pb.ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> NoReturn:
        raise PushNotificationNotSupportedError

    async def on_delete_task_push_notification_config(
        self, params: pb.DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> NoReturn:
        raise PushNotificationNotSupportedError

    async def on_get_extended_agent_card(
        self, params: pb.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> NoReturn:
        raise ExtendedAgentCardNotConfiguredError

    # --- parts --------------------------------------------------------------------------------------------------------

    async def _sent(self, params: pb.SendMessageRequest, context: ServerCallContext) -> OfferedTask:
        if params.configuration.HasField("task_push_notification_config"):
            raise PushNotificationNotSupportedError
        message = params.message
        if any(part.WhichOneof("content") in ("raw", "url") for part in message.parts):
            raise ContentTypeNotSupportedError("the agent takes no files; send text")
        text = text_of(message.parts, most=MAX_CONTENT + 1)
        if not text or len(text) > MAX_CONTENT:
            raise InvalidParamsError(f"a message must have a text of 1 to {MAX_CONTENT:,} characters")

        async def ask(offers: Offers, asked: Asked) -> OfferedTask:
            given = {"context": message.context_id, "task": message.task_id}
            return await offers.ask(asked.member, asked.caller.account, message.message_id, text, **given)

        return await self._with(context, ask)

    async def _found(self, task: str, context: ServerCallContext) -> OfferedTask:
        async def look(offers: Offers, asked: Asked) -> OfferedTask:
            return await offers.task(asked.member, asked.caller.account, task)

        return await self._with(context, look)

    async def _states(self, task: OfferedTask, context: ServerCallContext) -> AsyncGenerator[OfferedTask]:
        """A task in each state that it is seen in, until it is over, or waits for its caller."""
        asked, pause = _asked(context), _FIRST_PAUSE
        end = asyncio.get_running_loop().time() + WAIT_SECONDS
        yield task
        with _worded(), self._parts.agents.reader(asked.caller.workspace, asked.caller.account):
            while task.state not in (*OVER, "asking"):
                if asyncio.get_running_loop().time() >= end or self._parts.ending.is_set():
                    return
                await asyncio.sleep(pause)
                before, task = task, await self._found(task.id, context)
                pause = min(2 * pause, _MOST_PAUSE) if before.state == task.state else _FIRST_PAUSE
                if before.state != task.state:
                    yield task

    async def _events(self, task: OfferedTask, context: ServerCallContext, passed: int | None) -> AsyncGenerator[Event]:
        """The task, and what changes of it."""
        about: dict[str, Any] = {"task_id": task.id, "context_id": task.context}
        first = True
        async for each in self._states(task, context):
            if first:
                first = False
                yield _task(each, passed)
                continue
            if each.state == "done":
                yield pb.TaskArtifactUpdateEvent(**about, artifact=_artifact(each), last_chunk=True)
            yield pb.TaskStatusUpdateEvent(**about, status=_status(each))

    async def _with(self, context: ServerCallContext, work: Callable[[Offers, Asked], Awaitable[T]]) -> T:
        """Do something with the offers of the workspace that a request is about."""
        asked = _asked(context)
        with _worded():
            async with self._parts.agents.use(asked.caller.workspace) as agent:
                return await work(_offers(agent), asked)


def _offers(agent: WorldAgent) -> Offers:
    found: Offers = agent.society.offers
    return found


def _asked(context: ServerCallContext) -> Asked:
    found: Asked = context.state["asked"]
    return found


def _history(params: Any) -> int | None:
    return params.history_length if params.HasField("history_length") else _PASSED


@contextmanager
def _worded(
    kind: type[WorldAgentError] = LifecycleError, error: type[A2AError] = UnsupportedOperationError
) -> Generator[None]:
    """Reword the errors of this package as those of A2A; one kind as the error given."""
    failure: A2AError
    try:
        yield
        return
    except UnknownTask:
        failure = TaskNotFoundError()
    except kind as refused:
        failure = error(refused.problem)
    except (UsageError, ModelFacing) as refused:
        failure = InvalidParamsError(f"{refused.problem}; {refused.remedy}")
    except (WorldAgentError, Refused) as refused:
        failure = InternalError(f"{refused.problem}; {refused.remedy}")
    raise failure


# --- records ----------------------------------------------------------------------------------------------------------


def _task(task: OfferedTask, passed: int | None, *, artifacts: bool = True) -> pb.Task:
    """A task as A2A writes it, with so many of its messages."""
    told = task.messages[-passed:] if passed else ()
    return pb.Task(
        id=task.id,
        context_id=task.context,
        status=_status(task),
        artifacts=[_artifact(task)] if task.state == "done" and artifacts else [],
        history=[_message(task, id_, text, is_callers=is_callers) for id_, is_callers, text in told],
    )


def _status(task: OfferedTask) -> pb.TaskStatus:
    status = pb.TaskStatus(state=STATES[task.state])
    if task.changed is not None:
        status.timestamp.FromDatetime(task.changed)
    said = {"asking": task.text, "failed": _FAILED}.get(task.state, "")
    if said:
        status.message.CopyFrom(_message(task, f"{task.id}.{task.state}", said, is_callers=False))
    return status


def _artifact(task: OfferedTask) -> pb.Artifact:
    return pb.Artifact(artifact_id=f"{task.id}.answer", name="answer", parts=[pb.Part(text=task.text)])


def _message(task: OfferedTask, id_: str, text: str, *, is_callers: bool) -> pb.Message:
    return pb.Message(
        message_id=id_,
        context_id=task.context,
        task_id=task.id,
        role=pb.ROLE_USER if is_callers else pb.ROLE_AGENT,
        parts=[pb.Part(text=text)],
    )
