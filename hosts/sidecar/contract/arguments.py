"""The arguments of the other tools, which read events and read or change a thread. `calls` has the tools."""

from __future__ import annotations

from pydantic import Field

from ....agent.threads import ThreadStatus
from .words import Label, RoleArgument, Seq, ThreadArguments, Title, Words, WorkspaceArguments


class EventsArguments(WorkspaceArguments):
    """Arguments of `events`."""

    turn_id: Label = Field(description="the turn", examples=["3f2a9c0d11be"])
    after: Seq = Field(default=0, description="the number of the last event that the client has")
    wait: float = Field(
        default=30.0, ge=0, le=300, allow_inf_nan=False, description="seconds to wait for the first event"
    )
    limit: int = Field(default=1000, ge=1, le=1000, description="events in one answer, at most")


class HistoryArguments(ThreadArguments):
    """Arguments of `history`."""

    before: Label | None = Field(default=None, description="a message's id; the page ends just before it")
    limit: int = Field(default=50, ge=1, le=1000, description="messages in one answer, at most")


class ForkArguments(ThreadArguments):
    """Arguments of `fork`."""

    at: Label | None = Field(default=None, description="the message to continue from; left out, the newest")
    to: Label | None = Field(default=None, description="the new thread's id; left out, one is made")


class RoleSetArguments(ThreadArguments):
    """Arguments of `thread_role_set`."""

    role: RoleArgument
    ttl: float | None = Field(
        default=None, gt=0, le=366 * 86_400, allow_inf_nan=False, description="seconds after which it ends"
    )


class ExplainArguments(ThreadArguments):
    """Arguments of `explain_role`."""

    role: RoleArgument | None = Field(default=None, description="a call role to explain along")


class ThreadsArguments(WorkspaceArguments):
    """Arguments of `threads`."""

    limit: int = Field(default=100, ge=1, le=1000, description="threads in the answer, at most")
    status: ThreadStatus | None = Field(default=None, description="only those with this status", examples=["paused"])
    of_account: Label | None = Field(
        default=None, description="only those on which a turn has run for this account", examples=["ana"]
    )
    channel: Label | None = Field(default=None, description="only those whose newest turn is of this channel")
    query: Words | None = Field(
        default=None, max_length=200, description="only those whose title or messages say this, in capitals or not"
    )
    before: Words | None = Field(
        default=None, max_length=1000, description="the next page: the `page_key` of the last thread that you have"
    )


class RenameArguments(ThreadArguments):
    """Arguments of `thread_rename`."""

    title: Title | None = Field(
        default=None, description="left out, the first words of the first message", examples=["Dragons of Vell"]
    )


__all__ = [
    "EventsArguments",
    "ExplainArguments",
    "ForkArguments",
    "HistoryArguments",
    "RenameArguments",
    "RoleSetArguments",
    "ThreadsArguments",
]
