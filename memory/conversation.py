"""A conversation as a chain of messages, each pointing to its parent: the types, and the protocol of a store.

Not where a thread stands: the turn's state holds the head, the id of the last message. Not the store either; that is
`log`, and an embedder may bring another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from ..core import utc_text
from ..storage import Lease

MessageKind = Literal["message", "answer", "plan", "result", "task", "skill", "schedule", "role", "summary"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A message to append.

    Attributes:
        author: Who says it: an account, the agent, a worker.
        kind: What it is.
        body: The content, as JSON. Never role text (R7).
    """

    author: str
    kind: MessageKind
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of a conversation, as stored.

    Attributes:
        id: Follows from what it says and where it stands, so that the same append gives the same message.
        parent: The message before it; None for the first.
        depth: How many messages stand before it.
        turn_id: The turn that appended it.
        author: Who says it.
        kind: What it is.
        body: The content, as JSON.
        at: When it was first appended, in UTC.
    """

    id: str
    parent: str | None
    depth: int
    turn_id: str
    author: str
    kind: MessageKind
    body: Mapping[str, Any]
    at: datetime

    @property
    def name(self) -> str | None:
        """How the person is called who says it, where that was given; `author` alone says who they are."""
        return self.body.get("name")

    def to_json(self) -> dict[str, Any]:
        """The message as JSON, with the fields that the sidecar gives."""
        return {
            "id": self.id,
            "parent": self.parent,
            "turn_id": self.turn_id,
            "author": self.author,
            "kind": self.kind,
            "body": dict(self.body),
            "at": utc_text(self.at),
        }


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a conversation.

    Attributes:
        messages: Its last messages, oldest first.
        summary: The newest message of kind `summary` in the whole conversation, if there is one.
    """

    messages: tuple[Message, ...]
    summary: Message | None


class ConversationStore(Protocol):
    """Keeps conversations. An embedder may implement it; the head of a thread is never kept here."""

    async def append(
        self,
        parent: str | None,
        messages: Sequence[Draft],
        *,
        thread: str,
        turn_id: str,
        lease: Lease | None = None,
    ) -> str:
        """Put `messages` after `parent` and return the new head, the id of the last one.

        All of them are stored when it returns, or none. The same append again stores nothing and returns the same
        head, so a turn that crashed may repeat it.

        Args:
            parent: The head so far; None begins a conversation. May be another thread's message: that is a fork.
            messages: One or more, oldest first.
            thread: An opaque key; two threads' first messages differ by it.
            turn_id: The turn that appends.
            lease: The right to write for the thread; verified with the write. None writes without (T4).

        Raises:
            UnknownMessage: There is no message `parent`.
            LeaseLost: Another owner took the thread over; nothing is stored.
            InvalidArgument: There are no messages, or one is not as `Draft` says; the text names the field.
        """
        ...

    async def history(self, head: str | None, *, before: str | None = None, limit: int = 50) -> tuple[Message, ...]:
        """Return up to `limit` messages, oldest first: those that end with `head`, or just before `before`.

        Page back with the first message of a page as the next `before`; an empty page is the end.

        Args:
            head: The last message of the conversation; None is the empty conversation.
            before: A message of the conversation that ends with `head`.
            limit: 1 to 1000.

        Raises:
            UnknownMessage: There is no message `head`, or `before` is not one of its conversation.
            InvalidArgument: `limit` is out of bounds.
        """
        ...

    async def tail(self, head: str, *, limit: int, lease: Lease | None = None) -> Tail:
        """Return the end of the conversation that ends with `head`.

        Args:
            head: Its last message.
            limit: How many messages it has at least, 1 to 1000, if there are as many.
            lease: The ownership of the thread, which may know it.

        Raises:
            UnknownMessage, InvalidArgument: As for `history`.
        """
        ...

    async def some(self, head: str, ids: Sequence[str]) -> tuple[Message, ...]:
        """Return those of the messages `ids` that stand in the conversation that ends with `head`, oldest first."""
        ...
