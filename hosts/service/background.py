"""Work in the background of a conversation: what it has, starting more, steering it, and ending it (T17)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from ...agent.background.tasks import BackgroundStatus, cancel_task, state_of
from ...agent.requests import Task
from ...core.errors import RoleNotStorable, UnknownTask
from ...graphs.shape import SUBAGENT
from ...memory.inbox import InboxRow
from ...memory.reports import ReportMode
from ..bounds import MAX_TEXT
from .arguments import BackgroundTaskArguments, ThreadArguments, Words
from .call import Call
from .home import stores_of
from .inbox import WorkArguments
from .operation import operation
from .records import Answer, CancelAnswer
from .threads import one_thread, thread_of
from .validation import Label, Wire

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ...agent.stores import Stores
    from .home import Workspace

_ROLE_REMEDY: Final = "take it away with `thread_role_clear`, or store it for the account with `stored_role_set`"


class BackgroundStartArguments(WorkArguments):
    """Arguments of `background_start`."""

    text: Words | None = Field(
        default=None,
        max_length=MAX_TEXT,
        description="what to do: what is said in a conversation of its own or, with `worker`, to that worker",
        examples=["What is Moby Dick about?"],
    )
    worker: Label | None = Field(default=None, description="the worker that does it", examples=["reader"])
    report: ReportMode = Field(
        default="turn",
        description="what its report does if no turn of the conversation runs. turn: it begins one; next: the next "
        "turn reads it; event: it is an event of the account alone",
    )
    model: Label | list[Label] | None = Field(default=None, description="its model, as for `converse`")
    key: Label | None = Field(default=None, description="makes a repeat the same task", examples=["0b7d6c1e"])

    @model_validator(mode="after")
    def _worker(self) -> Self:
        if self.text is None and self.worker is not None:
            raise PydanticCustomError("worker", "`worker` is for `text`")
        return self


class BackgroundSteerArguments(BackgroundTaskArguments):
    """Arguments of `background_steer`."""

    text: Words = Field(max_length=MAX_TEXT, description="what the person says", examples=["Only the first chapter."])
    key: Label | None = Field(default=None, description="makes a repeat the same message", examples=["0b7d6c1e"])


class BackgroundRecord(Wire):
    """A background task of a conversation."""

    id: str
    name: str = Field(description="what was started: a worker, a shape, a skill, or `conversation`")
    thread: str = Field(
        description="its own thread: `pauses`, `resume`, `history` and the other tools of a thread take it"
    )
    account: str | None = Field(description="the account that it is for, which alone can steer it; null is none")
    report: ReportMode = Field(description="what its report does if no turn of the conversation runs")
    status: BackgroundStatus = Field(description="queued: it has not begun; else the status of its turn")
    code: str | None = Field(description="the code of the error, if it failed")
    turn_id: str | None = Field(description="its turn, whose events `events` returns; null until that begins")
    dispatched: datetime = Field(description="when it was started")
    began: datetime | None = Field(description="when its turn began")
    since: datetime | None = Field(description="when its status was written; null while it is queued")
    calls: int = Field(description="calls of models so far")
    input_tokens: int | None = Field(description="sent so far; null means unknown")
    output_tokens: int | None = Field(description="received so far; null means unknown")
    cost: float | None = Field(description="US dollars so far; null means unknown")
    doing: str | None = Field(
        description="the call that it makes now, with its progress, or made last; null if it does not run, or is "
        "before its first call"
    )
    pauses: int = Field(description="how many questions to a person wait for an answer; `pauses` has them")


class BackgroundListAnswer(Answer):
    """Answer of `background_list`."""

    tasks: list[BackgroundRecord] = Field(description="oldest first, also those that are over")


class BackgroundAnswer(Answer):
    """Answer of `background_start` and `background_steer`."""

    task: BackgroundRecord


@operation(
    "List background tasks",
    "How the background tasks of a conversation stand, oldest first. A caller sees those of its account.",
)
async def background_list(call: Call[ThreadArguments], workspace: Workspace) -> BackgroundListAnswer:
    """Return the background tasks of a conversation that the caller may see."""
    stores = stores_of(workspace)
    return BackgroundListAnswer(tasks=[await _record(stores, row) for row in await _own(call, workspace)])


@operation(
    "Start a background task",
    "Let something work in the background of a conversation, which is told when it ends, waits for a person or fails. "
    "Follow it with `background_list`.",
    effect="changes",
    idempotent=False,
    open_world=True,
)
async def background_start(call: Call[BackgroundStartArguments], agent: WorldAgent) -> BackgroundAnswer:
    """Dispatch a background task.

    Raises:
        WorldAgentError: As for `WorldAgent.background`.
    """
    given = call.given
    request = given.request(model=given.model)
    if given.worker is not None:
        request = Task(SUBAGENT, {"worker": given.worker, "request": given.text}, model=given.model)
    try:
        made = await agent.background(request, thread=thread_of(agent, call), report=given.report, key=given.key)
    except RoleNotStorable as error:
        raise RoleNotStorable(error.problem, remedy=_ROLE_REMEDY) from None
    return await _answer(call, agent, made.id)


@operation(
    "Steer a background task",
    "Say something that a background task reads before its next thought, or before its first one.",
    effect="changes",
    idempotent=False,
    open_world=True,
)
async def background_steer(call: Call[BackgroundSteerArguments], agent: WorldAgent) -> BackgroundAnswer:
    """Put in a message for a background task.

    Raises:
        UnknownTask: The caller has no such task in this conversation.
        NothingToSteer: It is over.
        NotSteerable: It runs code that reads no messages.
        KeyReused: The key was used for another message to it.
    """
    given = call.given
    await _find(call, agent, given.task)
    tasks = {each.id: each for each in await agent.background_tasks(thread_of(agent, call))}
    await tasks[given.task].steer(given.text, key=given.key)
    return await _answer(call, agent, given.task)


@operation(
    "Cancel a background task", "Cancel a background task, whether it is queued, runs or waits.", effect="changes"
)
async def background_cancel(call: Call[BackgroundTaskArguments], workspace: Workspace) -> CancelAnswer:
    """Cancel a background task.

    Raises:
        UnknownTask: The caller has no such task in this conversation.
    """
    row = await _find(call, workspace, call.given.task)
    thread = workspace.thread(row.scope.thread or "", account=row.scope.account)
    return CancelAnswer(cancelled=await cancel_task(stores_of(workspace), row.id, thread))


async def _own(call: Call[Any], workspace: Workspace) -> list[InboxRow]:
    """The messages that begin the tasks of a conversation, as far as the caller may see and change these."""
    caller = call.caller
    rows = await stores_of(workspace).background.of(one_thread(call, workspace).scope)
    return [row for row in rows if caller.grant.operator or row.scope.account in (None, caller.account)]


async def _find(call: Call[Any], workspace: Workspace, task: str) -> InboxRow:
    for row in await _own(call, workspace):
        if row.start["reports"]["task"] == task:
            return row
    raise UnknownTask(f"the conversation has no background task {task[:40]!r}", remedy="use one of `background_list`")


async def _answer(call: Call[Any], agent: WorldAgent, task: str) -> BackgroundAnswer:
    return BackgroundAnswer(task=await _record(stores_of(agent), await _find(call, agent, task)))


async def _record(stores: Stores, row: InboxRow) -> BackgroundRecord:
    to, state = row.start["reports"], await state_of(stores, row)
    return BackgroundRecord(
        id=to["task"],
        name=to["of"],
        thread=row.scope.thread or "",
        account=row.scope.account,
        report=to.get("mode", "turn"),
        status=state.status,
        code=state.code,
        turn_id=state.turn_id,
        dispatched=row.at,
        began=state.began,
        since=state.since,
        calls=state.usage.calls,
        input_tokens=state.usage.input_tokens,
        output_tokens=state.usage.output_tokens,
        cost=state.usage.cost,
        doing=state.doing,
        pauses=state.pauses,
    )
