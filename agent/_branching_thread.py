"""The part of a thread's handle that branches it: fork, replay, edit. What says something new is in `_thread`.

Nothing of the past is copied, and none of it needs a role or shows one (R13).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from ..core import Scope
from ..core.errors import InvalidArgument
from ..core.validation import is_text
from ..graphs import Composed
from ..memory.bodies import check_name
from ..role_resolution import Role
from ._runs import Ask, Edit, Replay, TurnRunner
from ._stream import TurnStream
from ._turns import Turn
from .choices import TurnModel, turn_models


@dataclass(frozen=True, slots=True)
class BranchingThread:
    """A thread that can be branched.

    Attributes:
        scope: Workspace, account, channel and thread.
        name: How the person is called who speaks; None where nothing was said about that.
    """

    _runner: TurnRunner = field(repr=False)
    scope: Scope
    name: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)

    async def fork(self, *, at: str | None = None, to: str | None = None) -> Self:
        """Make a thread that goes on from a message of this one. It costs one row, however long the past is.

        The role of this thread is not that of the new one.

        Args:
            at: The message's id, as `history` gives it; None is the newest.
            to: The new thread's id; None makes one of this one's and a number.

        Returns:
            The new thread, for the same account and channel.

        Raises:
            UnknownMessage: `at` is not one of this thread's.
            InvalidArgument: The thread has no message yet, or `to` is no id.
            NameTaken, ThreadBusy: There is a thread `to`, or somebody is beginning one.
        """
        return replace(self, scope=await self._runner.fork(self.scope, at=at, to=to))

    async def replay(
        self,
        at: str | None = None,
        *,
        to: str | None = None,
        role: Role | None = None,
        skill: Composed | None = None,
        model: TurnModel = None,
    ) -> Turn:
        """Run a turn of this thread again, on a new thread that goes on from what stood before it.

        Args:
            at: The message that the turn began with; None is the newest that a turn began with.
            to: The new thread's id; None makes one of this one's and a number.
            role: How to go about it. The role of the first time is stored nowhere; stored ones count as they are now.
            skill: The skill again, where the turn ran one.
            model: The model of this one turn; see `converse`. That of the first time does not count.

        Returns:
            The turn; `turn.thread` is the new thread's id.

        Raises:
            UnknownMessage: `at` is not one of this thread's.
            InvalidArgument: No turn began with `at`, or `skill` is missing, of another shape, or does not belong there.
            NameTaken, ThreadBusy: There is a thread `to`, or somebody is beginning one.
            UnknownShape, UnknownWorker, ParamsInvalid: What a task needs is gone, or is declared otherwise.
            HostError, OutputInvalid, TaskFailed, RoleSourceUnavailable: As for `converse` and `task`.
        """
        again = Replay(at, to, skill, turn_models(model))
        async with self._runner.replay(self.scope, again, role, deltas=False) as stream:
            return await stream.wait()

    def stream_replay(
        self,
        at: str | None = None,
        *,
        to: str | None = None,
        role: Role | None = None,
        skill: Composed | None = None,
        model: TurnModel = None,
    ) -> TurnStream:
        """As `replay`, as a stream of events: `async with thread.stream_replay(...) as stream`."""
        again = Replay(at, to, skill, turn_models(model))
        return self._runner.replay(self.scope, again, role, deltas=True)

    async def edit(
        self,
        text: str,
        *,
        at: str | None = None,
        keep_as: str | None = None,
        role: Role | None = None,
        model: TurnModel = None,
    ) -> Turn:
        """Say a message of this thread otherwise and wait for the answer; the thread goes on from there.

        What came of the message as it was is kept as another thread. A turn that was cut off or failed is let go of.

        Args:
            text: What the person says instead. What else the message carries stays.
            at: The message's id, of kind `message` and this account's own; None is the newest of kind `message`.
            keep_as: The id of the thread that keeps it; None makes one of this one's and a number.
            role: How to go about this one turn.
            model: The model of this one turn; see `converse`.

        Returns:
            The turn, with the answer in `text`; `turn.kept_as` is the id of the thread that keeps what was.

        Raises:
            UnknownMessage: `at` is not one of this thread's.
            InvalidArgument: The message is of another kind or account, there is none, or `text` is empty or no text.
            NameTaken: There is a thread `keep_as`.
            ThreadPaused: A turn of the thread waits for a person, or was stopped.
            ThreadBusy, HostError, OutputInvalid, RoleSourceUnavailable: As for `converse`.
        """
        ask = said(self, text, model)
        async with self._runner.edit(ask, Edit(at, keep_as), role, deltas=False) as stream:
            return await stream.wait()

    def stream_edit(
        self,
        text: str,
        *,
        at: str | None = None,
        keep_as: str | None = None,
        role: Role | None = None,
        model: TurnModel = None,
    ) -> TurnStream:
        """As `edit`, as a stream of events: `async with thread.stream_edit(...) as stream`."""
        return self._runner.edit(said(self, text, model), Edit(at, keep_as), role, deltas=True)


def named(thread: BranchingThread, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of what a person says or asks for, with how they are called."""
    return dict(body) if thread.name is None else {**body, "name": thread.name}


def said(thread: BranchingThread, text: str, model: TurnModel) -> Ask:
    """What a person says.

    Raises:
        InvalidArgument: It is empty, or no text, or `model` names no model.
    """
    if not is_text(text):
        raise InvalidArgument("the message is empty or not a text", remedy="say something that UTF-8 can hold")
    return Ask("message", thread.scope, named(thread, {"text": text}), model=turn_models(model))
