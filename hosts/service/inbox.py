"""The messages that wait on a thread: steering, which its running turn reads, and the queue of what comes after it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from ...agent import UNSET
from ...agent.requests import Say, Skill, Task
from ...agent.runtime.pending import PendingMessage
from ...core.errors import UnknownMessage
from ..bounds import MAX_TEXT
from .arguments import JsonObject, PersonName, RoleArgument, ThreadArguments, Words
from .call import Call, Refused
from .operation import operation
from .records import Answer
from .threads import check_open_turn, one_thread, role_of, thread_of
from .validation import Label, Wire

if TYPE_CHECKING:
    from ...agent import Thread, WorldAgent
    from .home import OneThread, Workspace

_LOOK_SECONDS: Final = 0.05  # between two looks whether a message has begun its turn


class SteerArguments(ThreadArguments):
    """Arguments of `thread_steer`."""

    text: Words = Field(max_length=MAX_TEXT, description="what the person says", examples=["rather in blue"])
    name: PersonName | None = Field(
        default=None, description="how the person is called in messages; it gives no right", examples=["Ana"]
    )
    begin: bool = Field(default=False, description="whether it begins a turn if none runs or waits")
    key: Label | None = Field(default=None, description="makes a repeat the same message", examples=["0b7d6c1e"])


class WorkArguments(ThreadArguments):
    """The arguments of tools that begin a turn beside the caller: with a text, a task or a skill."""

    text: Words | None = Field(
        default=None, max_length=MAX_TEXT, description="what the person says", examples=["and then the window"]
    )
    shape: Label | None = Field(default=None, description="in place of `text`: the shape of a task")
    skill: Label | None = Field(default=None, description="in place of `text`: the name of a skill")
    params: JsonObject = Field(default_factory=dict, description="of the task or the skill")

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [each for each in (self.text, self.shape, self.skill) if each is not None]
        if len(given) != 1:
            raise PydanticCustomError("one_of", "It needs one of `text`, `shape` and `skill`")
        if self.text is not None and self.params:
            raise PydanticCustomError("params", "`params` is for `shape` and `skill`")
        return self

    def request(self, inputs: Mapping[str, Any] | None = None, **how: Any) -> Say | Task | Skill:
        """What begins the turn, with its options."""
        if self.text is not None:
            return Say(self.text, inputs=inputs, **how)
        if self.shape is not None:
            return Task(self.shape, self.params, **how)
        assert self.skill is not None, "the arguments have one of them"
        return Skill(self.skill, self.params, **how)


class QueueArguments(WorkArguments):
    """Arguments of `thread_queue`."""

    inputs: JsonObject | None = Field(
        default=None, description="of `text`: the further inputs that the agent's `Converse` declares, by name"
    )
    name: PersonName | None = Field(
        default=None, description="how the person is called in messages; it gives no right", examples=["Ana"]
    )
    role: RoleArgument | None = Field(
        default=None,
        description="how to go about that turn; the process keeps it in memory, and if it ends first, the message "
        "waits until `thread_release`",
    )
    model: Label | list[Label] | None = Field(default=None, description="the model of that turn, as for `converse`")
    key: Label | None = Field(default=None, description="makes a repeat the same message", examples=["0b7d6c1e"])
    unattended: Literal["refuse", "pause"] | None = Field(
        default=None, description="what its turn does where a person would be asked; null: it pauses and notifies"
    )
    guard: bool | None = Field(default=None, description="as for `converse`")
    interrupt: bool = Field(
        default=False,
        description="whether it comes before all others, and the turn that runs or waits is cancelled for it: at once "
        "while its model thinks, else after the calls under way",
    )

    @model_validator(mode="after")
    def _inputs(self) -> Self:
        if self.text is None and self.inputs is not None:
            raise PydanticCustomError("inputs", "`inputs` is for `text`")
        return self


class WaitingArguments(ThreadArguments):
    """Arguments of `thread_withdraw`."""

    message: Label = Field(description="the id of a message that waits", examples=["inbox-3f2a9c0d"])


class QueuedArguments(ThreadArguments):
    """Arguments of `thread_queued`."""

    message: Label | None = Field(
        default=None,
        description="the id of one message, waiting or not; null: all that wait",
        examples=["inbox-3f2a9c0d"],
    )


class ReleaseArguments(WaitingArguments):
    """Arguments of `thread_release`."""

    role: RoleArgument | None = Field(default=None, description="the role of its turn; null: the stored ones alone")


class ReorderArguments(ThreadArguments):
    """Arguments of `thread_reorder`."""

    messages: list[Label] = Field(
        max_length=1000, description="ids of queued messages in their new order; the others come after them"
    )


class PendingRecord(Wire):
    """A message that came beside a turn."""

    id: str
    kind: Literal["steer", "queue", "report"] = Field(
        description="steer: the running turn reads it before its next thought; queue: it begins a turn of its own; "
        "report: work in the background says how it stands"
    )
    text: str = Field(description="empty if it starts a task or a skill")
    author: str = Field(description="who says it")
    name: str | None = Field(default=None, description="the display name of the person")
    at: datetime = Field(description="when it was sent")
    turn_id: str | None = Field(description="the turn that read it or that it began; null if it waits")
    waits_for: Literal["turn", "role", "error"] | None = Field(
        description="turn: the end or the next step of another turn; role: the role that it was queued under, which "
        "no process has any more; error: it could not begin, see `code`; null: it does not wait"
    )
    role_tiers: list[str] = Field(description="the tiers of the role that it was queued under")
    code: str | None = Field(default=None, description="why it could not begin")


class PendingAnswer(Answer):
    """Answer of `thread_steer`, `thread_queue` and `thread_release`."""

    message: PendingRecord


class QueuedAnswer(Answer):
    """Answer of `thread_queued` and `thread_reorder`."""

    messages: list[PendingRecord] = Field(description="in the order in which they are read; steering comes first")


class WithdrawAnswer(Answer):
    """Answer of `thread_withdraw`."""

    withdrawn: bool = Field(description="false if it was read already, or does not exist")


@operation(
    "Steer a turn",
    "Say something that the thread's running turn reads before its next thought; a turn that waits for a person reads "
    "it when it resumes. If the turn ends first, it begins the next one.",
    effect="changes",
    idempotent=False,
    open_world=True,
)
async def thread_steer(call: Call[SteerArguments], agent: WorldAgent) -> PendingAnswer:
    """Put in a message for the running turn.

    Raises:
        NothingToSteer: No turn runs or waits, and `begin` is false.
        NotSteerable: The turn belongs to another account or member, or it runs code that reads no messages.
    """
    given = call.given
    thread = thread_of(agent, call, name=given.name)
    return _answer(await thread.steer(given.text, begin=given.begin, key=given.key))


@operation(
    "Queue a message",
    "Say something for after the thread's running turn: it begins a turn of its own, after those queued before it. On "
    "an idle thread that begins at once. Follow it with `thread_queued` and `events`.",
    effect="changes",
    idempotent=False,
    open_world=True,
)
async def thread_queue(call: Call[QueueArguments], agent: WorldAgent) -> PendingAnswer:
    """Put in a message, a task or a skill that begins a turn of its own.

    Raises:
        Refused: `interrupt` would end a turn of another account.
        WorldAgentError: As for `Thread.queue`.
    """
    given = call.given
    thread = thread_of(agent, call, name=given.name)
    if given.interrupt:
        await check_open_turn(call, thread)
    how: dict[str, Any] = {"model": given.model, "key": given.key, "unattended": given.unattended, "guard": given.guard}
    request, role = given.request(given.inputs, **how), role_of(given.role)
    putting = thread.queue(request, role=UNSET if role is None else role, interrupt=given.interrupt)
    return _answer(await putting)


@operation(
    "List queued messages",
    "The messages that wait on a thread, in the order in which they are read; or one message, with the turn that it "
    "began or steered.",
)
async def thread_queued(call: Call[QueuedArguments], workspace: Workspace) -> QueuedAnswer:
    """Return the messages that wait on a thread, or one.

    Raises:
        UnknownMessage: The thread has no such message, or it was withdrawn.
    """
    thread, message = one_thread(call, workspace), call.given.message
    found = await thread.queued() if message is None else [await thread.pending(message)]
    return QueuedAnswer(messages=list(map(_record, found)))


@operation("Withdraw a message", "Delete a message that waits on a thread.", effect="changes")
async def thread_withdraw(call: Call[WaitingArguments], workspace: Workspace) -> WithdrawAnswer:
    """Delete a message that waits.

    Raises:
        Refused: It is another account's.
    """
    thread = one_thread(call, workspace)
    await _check_own(call, thread, call.given.message)
    return WithdrawAnswer(withdrawn=await thread.withdraw(call.given.message))


@operation("Reorder queued messages", "Put the queued messages of a thread in another order.", effect="changes")
async def thread_reorder(call: Call[ReorderArguments], workspace: Workspace) -> QueuedAnswer:
    """Put the queued messages in another order.

    Raises:
        Refused: One of them is another account's.
        UnknownMessage: One that is named is not queued.
    """
    thread = one_thread(call, workspace)
    await _check_own(call, thread)
    await thread.reorder(call.given.messages)
    return QueuedAnswer(messages=list(map(_record, await thread.queued())))


@operation(
    "Release a message",
    "Let a queued message begin that waits for its role, or that could not begin.",
    effect="changes",
    idempotent=False,
    open_world=True,
)
async def thread_release(call: Call[ReleaseArguments], agent: WorldAgent) -> PendingAnswer:
    """Let a message begin, under a role or without one.

    Raises:
        Refused: It is another account's.
        UnknownMessage: The thread has no such message.
    """
    thread = thread_of(agent, call)
    await _check_own(call, thread, call.given.message)
    return _answer(await thread.release(call.given.message, role=role_of(call.given.role)))


async def begun(thread: Thread, put: list[str], followed: set[str]) -> PendingMessage | None:
    """Wait until a message has begun a turn that is not followed yet.

    Args:
        thread: The thread.
        put: The ids of messages, oldest first. Those that have begun a turn, were read, or cannot begin are taken out.
        followed: The ids of turns that are followed. That of the returned message is put in.

    Returns:
        The first such message; None if none is left, or the thread's turn waits, failed or was interrupted.
    """
    while put:
        found: PendingMessage | None = None
        with suppress(UnknownMessage):  # it was withdrawn
            found = await thread.pending(put[0])
        if found is None or found.waits_for in ("role", "error"):
            del put[0]
        elif found.turn_id is not None:
            del put[0]
            if found.turn_id not in followed:
                followed.add(found.turn_id)
                return found
        else:
            state = await thread.state()
            if state is not None and state.resumable:
                return None
            await asyncio.sleep(_LOOK_SECONDS)
    return None


async def _check_own(call: Call[Any], thread: OneThread, message: str | None = None) -> None:
    """Refuse to change the messages of other accounts.

    Args:
        call: The call.
        thread: The thread.
        message: The id of the message that is changed; None changes the order of all queued ones.

    Raises:
        Refused: A message is another account's.
    """
    if call.caller.grant.operator:
        return
    for each in await thread.queued():
        changed = each.kind == "queue" if message is None else each.id == message
        if changed and each.account not in (None, call.caller.account):
            raise Refused(
                "forbidden",
                "a message of another account waits there",
                remedy="let that account change it, or use a token with `operator = true`",
            )


def _answer(message: PendingMessage) -> PendingAnswer:
    return PendingAnswer(message=_record(message))


def _record(message: PendingMessage) -> PendingRecord:
    return PendingRecord.model_validate(message, from_attributes=True, strict=False)
