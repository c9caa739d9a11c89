"""The answers of the tools that read or change a thread, as `structuredContent` holds them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ....agent.threads import ThreadStatus
from .turns import Answer, NextStep
from .words import Wire


class PausesAnswer(Answer):
    """Answer of `pauses`."""

    thread: str
    turn_id: str | None = None
    status: ThreadStatus | None = Field(default=None, description="null where the thread has no turn")
    pauses: list[dict[str, Any]] = Field(default_factory=list)
    next: list[NextStep] = Field(default_factory=list)


class CancelAnswer(Answer):
    """Answer of `cancel`."""

    cancelled: bool = Field(description="false where there was no turn to cancel")


class MessageRecord(Wire):
    """A message of a conversation."""

    id: str
    parent: str | None
    turn_id: str
    author: str
    kind: str
    body: dict[str, Any]
    at: str


class HistoryAnswer(Answer):
    """Answer of `history`."""

    messages: list[MessageRecord] = Field(description="oldest first")


class ForkAnswer(Answer):
    """Answer of `fork`."""

    thread: str = Field(description="the new thread")


class RoleSetAnswer(Answer):
    """Answer of `thread_role_set`."""

    set: Literal[True] = True


class RoleClearAnswer(Answer):
    """Answer of `thread_role_clear`."""

    cleared: bool = Field(description="false where there was none")


class TierRecord(Wire):
    """A tier in an explanation: a name and a length, never a content."""

    tier: str
    state: str
    name: str | None
    length: int
    signatures: list[str]


class ExplainAnswer(Answer):
    """Answer of `explain_role`."""

    policy: str
    tiers: list[TierRecord] = Field(description="all five, lowest precedence first")


class ThreadRecord(Wire):
    """The state of a thread: its newest turn."""

    thread: str
    title: str | None = Field(description="what the host set, else the first words; null without messages")
    account: str | None
    channel: str | None
    turn_id: str | None = Field(description="null where none has run on the thread")
    kind: str | None
    status: ThreadStatus
    since: str
    pauses: int
    answers: int
    resumable: bool
    page_key: str = Field(description="`before` takes it: the threads behind this one")


class RenameAnswer(Answer):
    """Answer of `thread_rename`."""

    title: str | None = Field(description="what the thread is called now; null without messages")


class ThreadsAnswer(Answer):
    """Answer of `threads`."""

    threads: list[ThreadRecord] = Field(description="the one with the newest turn first")


__all__ = [
    "CancelAnswer",
    "ExplainAnswer",
    "ForkAnswer",
    "HistoryAnswer",
    "MessageRecord",
    "PausesAnswer",
    "RenameAnswer",
    "RoleClearAnswer",
    "RoleSetAnswer",
    "ThreadRecord",
    "ThreadsAnswer",
    "TierRecord",
]
