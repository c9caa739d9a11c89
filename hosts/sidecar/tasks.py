"""Turns as tasks: the extension `io.modelcontextprotocol/tasks` of MCP (SEP-2663), for clients of revision 2026-07-28.

A task is a detached turn. Its id names the workspace, the account and the turn, and its status is that of the turn, so
nothing else is stored: any process on the database answers for it, also after the one that began it was killed.
`docs/reference/sidecar.md` says when a call is answered with a task.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, Self, TypeAlias
from urllib.parse import quote, unquote

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, Field, ValidationError

from ...agent import WorldAgent
from ...agent.runtime.inside import inside
from ...agent.runtime.keys import outcome_of
from ...agent.threads import ThreadState
from ...core import utc_text
from ...core.errors import (
    AgentClosed,
    AlreadyAnswered,
    InvalidArgument,
    NothingToResume,
    ThreadBusy,
    UnknownTurn,
    UsageError,
    WorldAgentError,
)
from ...core.pauses import Pause, PersonAnswer, call_id_of
from ...core.scope import is_id
from ...memory import TurnRecord
from ..service.arguments import ResumeArguments, SkillArgument, SkillArguments, SurfaceArguments
from ..service.call import Call, CallFacts, Grant, Refused, check_turn
from ..service.following import Following, Start
from ..service.next_steps import advised, error_record, name_turn, to_call
from ..service.pauses import is_late, takes_answer_of, unanswered, waits_for_reply
from ..service.turns import has_changes, turn_answer
from .asking import form_request, read_response, takes_forms
from .following import Context, SidecarParts, ToolCall
from .results import answered, failed

EXTENSION: Final = "io.modelcontextprotocol/tasks"
POLL_MS: Final = 1000  # milliseconds between two polls of a client
MAX_ID_CHARACTERS: Final = 2000

_ENDED: Final[Mapping[str, str]] = {
    "cancelled": "The turn was cancelled.",
    "abandoned": "The turn was interrupted, and new input took its place.",
}

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]
TaskJson: TypeAlias = dict[str, Any]
"""A result as JSON: as a model, it would lose its nulls."""


@dataclass(frozen=True, slots=True)
class TaskId:
    """The id of a task. Its turn's id cannot be guessed; the token decides what the caller reaches."""

    workspace: str
    account: str | None
    turn: str

    def __str__(self) -> str:
        return "/".join(quote(part or "", safe="") for part in (self.workspace, self.account, self.turn))

    @classmethod
    def read(cls, text: str) -> Self:
        """Read the id that a client sent.

        Raises:
            UnknownTurn: No task has such an id.
        """
        parts = [unquote(part) for part in text.split("/")]
        if len(parts) == 3 and all(map(is_id, (parts[0], parts[1] or "-", parts[2]))):
            found = cls(parts[0], parts[1] or None, parts[2])
            if str(found) == text:
                return found
        raise _unknown()


# --- a call that is answered with a task ------------------------------------------------------------------------------


def offers(call: ToolCall[SurfaceArguments] | ToolCall[ResumeArguments]) -> bool:
    """Whether a call that begins or resumes a turn is answered with a task.

    Its client must support tasks, and the turn must be able to continue without the call: it is the caller's own, it is
    detached, and has no role or composed skill, which are stored nowhere. A client that wants progress gets the turn's
    events in the call instead, since tasks send none.
    """
    given = call.given
    if call.ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS or call.wants_progress or call.is_repeated:
        return False
    capabilities = call.ctx.session.client_capabilities
    if capabilities is None or EXTENSION not in (capabilities.extensions or {}):
        return False
    if isinstance(given, ResumeArguments):
        unstored = has_changes(given)
    else:
        composed = isinstance(given, SkillArguments) and isinstance(given.skill, SkillArgument)
        unstored = given.role is not None or composed
    return bool(given.detach) and given.pauses == "elicit" and call.facts.own and not unstored


async def create(
    call: ToolCall[SurfaceArguments] | ToolCall[ResumeArguments], agent: WorldAgent, start: Start
) -> TaskJson:
    """Begin or resume a turn, and return its task once the turn is stored.

    Raises:
        WorldAgentError, Refused: The turn has not begun.
    """
    following = Following(call.parts.agents, call.caller.workspace, start, detach=True)
    del start
    try:
        await following.begun()
    finally:
        call.facts.turn, call.facts.kept = following.turn_id, following.kept
        following.stop()
    record = await _record(agent, following.turn_id or "")
    task_id = TaskId(call.caller.workspace, call.caller.account, record.id)
    return {"resultType": "task", **_fields(task_id, record, "working")}


# --- the methods of the extension -------------------------------------------------------------------------------------


class TaskParams(types.RequestParams):
    """The params of `tasks/get` and `tasks/cancel`."""

    task_id: str = Field(max_length=MAX_ID_CHARACTERS)


class UpdateParams(TaskParams):
    """The params of `tasks/update`. Responses to unknown requests are ignored, whatever they are."""

    input_responses: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task of the caller.

    Attributes:
        id: Its id.
        call: A call of `resume` for its turn.
        agent: The agent.
        record, state: The turn as it was found.
    """

    id: TaskId
    call: Call[ResumeArguments] = field(repr=False)
    agent: WorldAgent = field(repr=False)
    record: TurnRecord = field(repr=False)
    state: ThreadState = field(repr=False)

    def start(self, answers: dict[str, PersonAnswer]) -> Start:
        """Return what resumes its turn with a person's answers."""
        given = self.call.given
        thread = self.agent.thread(given.thread, account=self.call.caller.account, channel=given.channel)
        return Start.answering(given, thread, answers)

    async def pauses(self) -> Sequence[Pause]:
        """Return the pauses of its turn that wait for an answer or a reply, without those that have expired."""
        found = unanswered(await inside(self.agent).parts.threads.pauses(self.record.scope))
        return [each for each in found if not is_late(each) and call_id_of(each.id).startswith(f"{self.id.turn}/")]

    def to_json(self, at: TurnRecord | ThreadState, status: Status, message: str = "", **more: Any) -> TaskJson:
        """Return the task as JSON.

        Args:
            at: The turn, with the time of its newest status.
            status: The status of the task.
            message: What a person may read about it.
            more: The field of this status.
        """
        told = {"statusMessage": message} if message else {}
        return _fields(self.id, self.record, status, at) | told | more


class TaskMethods:
    """Answers `tasks/get`, `tasks/update` and `tasks/cancel`.

    Args:
        parts: The parts that all calls share.
        granted: Returns the grant of the current caller.
        facts: Returns what the request log takes of the current request.
    """

    def __init__(self, parts: SidecarParts, *, granted: Callable[[], Grant], facts: Callable[[], CallFacts]) -> None:
        self._parts, self._granted, self._facts = parts, granted, facts
        self._resuming: set[str] = set()  # turns that a poll resumes now; further polls need not

    def add_to(self, server: Server[Any]) -> None:
        """Make a server offer the extension."""
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, partial(self._answer, self._get))
        server.add_request_handler("tasks/update", UpdateParams, partial(self._answer, self._update))
        server.add_request_handler("tasks/cancel", TaskParams, partial(self._answer, self._cancel))

    async def _answer(
        self, run: Callable[[Context, Task, Any], Awaitable[TaskJson]], ctx: Context, params: TaskParams
    ) -> TaskJson:
        """Run a method of a task that the caller reaches.

        Raises:
            MCPError: The client has not declared the extension, the task is unknown, or the method failed.
        """
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", data=ctx.method)
        require_client_extension(ctx, EXTENSION)
        _check_header(ctx, params.task_id)
        failure: WorldAgentError | Refused
        try:
            async with self._reached(params.task_id) as task:
                return await run(ctx, task, params)
        except (WorldAgentError, Refused) as error:
            failure = error
        record = error_record(failure, {})
        raise MCPError(
            types.INVALID_PARAMS if _is_of_params(failure) else types.INTERNAL_ERROR,
            f"{record.code}: {record.problem}; {record.remedy}",
            data=record.model_dump(mode="json", exclude_none=True),
        )

    @asynccontextmanager
    async def _reached(self, text: str) -> AsyncGenerator[Task]:
        """Yield the task with this id. The caller must reach its workspace, account, thread and turn."""
        task_id, grant, facts = TaskId.read(text), self._granted(), self._facts()
        try:
            caller = grant.caller(task_id.workspace, task_id.account)
        except Refused:
            raise _unknown() from None
        facts.workspace = caller.workspace
        async with self._parts.agents.use(caller.workspace) as agent:
            record, state = await _record(agent, task_id.turn), await agent.turn(task_id.turn)
            thread = record.scope.thread or ""
            if state is None or not grant.allows_thread(thread):
                raise _unknown()
            try:
                check_turn(caller, state)
            except Refused:
                raise _unknown() from None
            facts.thread = thread
            given = ResumeArguments(
                workspace=caller.workspace,
                account=caller.account,
                thread=thread,
                channel=record.scope.channel,
                detach=True,
            )
            call = Call(given=given, caller=caller, facts=facts)
            call.note_turn(state)
            yield Task(id=task_id, call=call, agent=agent, record=record, state=state)

    async def _get(self, ctx: Context, task: Task, params: TaskParams) -> TaskJson:
        state = task.state
        if state.status in ("done", "failed"):
            return await self._over(task)
        if state.status in _ENDED:
            return task.to_json(state, "cancelled", _ENDED[state.status])
        pauses, account = await task.pauses(), task.call.caller.account
        if takes_forms(ctx.session.client_capabilities):
            asked = {each.id: _json(form_request(each)) for each in pauses if takes_answer_of(account, each)}
            if asked:
                return task.to_json(state, "input_required", "The turn waits for a person.", inputRequests=asked)
        if state.status in ("cut_off", "stopped") or (state.status == "paused" and not pauses):
            return await self._resumed(task)
        if state.status == "running":
            last = await inside(task.agent).parts.recorder.log.last(task.id.turn)
            message = f"The turn is running; its last event has the number {last or 0}."
        elif all(map(waits_for_reply, pauses)):
            message = "The turn waits for the reply of a member."
        else:
            message = "The turn waits for a person. Another client, or the tool `resume`, can give the answer."
        return task.to_json(state, "working", message)

    async def _over(self, task: Task) -> TaskJson:
        """Return a task whose turn is done or failed, with what the call would have answered."""
        record = await _record(task.agent, task.id.turn)
        if record.code == "internal":  # a mistake of this package, and so no result of a tool
            problem = "the turn failed with an internal error; look at the log of the sidecar, or ask its operator"
            return task.to_json(
                record, "failed", "The turn failed.", error={"code": types.INTERNAL_ERROR, "message": problem}
            )
        try:
            turn = await outcome_of(inside(task.agent).parts, record)
        except AgentClosed:
            raise
        except WorldAgentError as error:
            return await self._failed(task, record, error)
        result = answered(turn_answer(task.call, turn, seq=0))
        return task.to_json(record, "completed", result=_json(result))

    async def _resumed(self, task: Task) -> TaskJson:
        """Resume a turn that no process runs, and return its task."""
        turn_id = task.id.turn
        if turn_id not in self._resuming:
            self._resuming.add(turn_id)
            following = Following(self._parts.agents, task.id.workspace, task.start({}), detach=True)
            try:
                await following.begun()
            except AgentClosed:  # the sidecar ends
                raise
            except (NothingToResume, ThreadBusy):
                pass  # another caller has resumed or ended it
            except (WorldAgentError, Refused) as error:
                if not error.retryable:
                    return await self._failed(task, task.state, error)
            finally:
                self._resuming.discard(turn_id)
                following.stop()
        return task.to_json(task.state, "working", "The turn continues from its last step.")

    async def _failed(self, task: Task, at: TurnRecord | ThreadState, error: WorldAgentError | Refused) -> TaskJson:
        """Return a task whose call answers with an error, which is a result of the tool."""
        advice: dict[str, Any] = {}
        if isinstance(error, WorldAgentError):
            error.turn_id = error.turn_id or task.id.turn
            await name_turn(task.call, task.agent, error)
            advice = dict(await advised(task.call, task.agent, error))
        if isinstance(at, TurnRecord) and not advice:
            advice = {"next": to_call(task.call, at.status, at.id, ())}
        return task.to_json(at, "completed", result=_json(failed(error, advice)))

    async def _update(self, ctx: Context, task: Task, params: UpdateParams) -> TaskJson:
        account = task.call.caller.account
        open_ = {each.id: each for each in await task.pauses() if takes_answer_of(account, each)}
        given = {key: _response(value) for key, value in params.input_responses.items() if key in open_}
        read = {key: read_response(open_[key], response, account) for key, response in given.items()}
        answers = {key: answer for key, answer in read.items() if answer is not None}
        if answers:
            following = Following(self._parts.agents, task.id.workspace, task.start(answers), detach=True)
            try:
                await following.entered()
            except (AlreadyAnswered, NothingToResume):
                pass  # another caller answered, or the turn has ended: what is no longer asked is ignored
            finally:
                following.stop()
        return {}

    async def _cancel(self, ctx: Context, task: Task, params: TaskParams) -> TaskJson:
        await inside(task.agent).parts.threads.cancel(task.record.scope, only=task.id.turn)
        return {}


def _fields(
    task_id: TaskId, record: TurnRecord, status: Status, at: TurnRecord | ThreadState | None = None
) -> TaskJson:
    changed = at.since if isinstance(at, ThreadState) else (at or record).changed
    return {
        "taskId": str(task_id),
        "status": status,
        "createdAt": utc_text(record.began),
        "lastUpdatedAt": utc_text(changed),
        "ttlMs": None,  # a turn is kept as long as its thread
        "pollIntervalMs": POLL_MS,
    }


async def _record(agent: WorldAgent, turn_id: str) -> TurnRecord:
    record = await inside(agent).parts.stores.turns.get(turn_id)
    if record is None or record.scope.workspace != agent.workspace:
        raise _unknown()
    return record


def _json(model: BaseModel) -> TaskJson:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def _response(value: object) -> types.ElicitResult:
    with suppress(ValidationError):  # its message quotes the value
        return types.ElicitResult.model_validate(value, by_name=False)
    raise InvalidArgument("a response is not an answer to a form", remedy="send an ElicitResult for each request")


def _is_of_params(failure: WorldAgentError | Refused) -> bool:
    return isinstance(failure, UsageError) and not isinstance(failure, AgentClosed)


def _unknown() -> UnknownTurn:
    return UnknownTurn("the token reaches no task with this id", remedy="send the taskId of a task that you began")


def _check_header(ctx: Context, task_id: str) -> None:
    """Check the header that routes a request over HTTP; the SDK checks it for the methods of the protocol itself.

    Raises:
        MCPError: It does not name the task.
    """
    headers = getattr(ctx.request, "headers", None)
    if headers is not None and decode_header_value(headers.get(MCP_NAME_HEADER)) != task_id:
        raise MCPError(types.HEADER_MISMATCH, f"the {MCP_NAME_HEADER} header must be the taskId of the params")
