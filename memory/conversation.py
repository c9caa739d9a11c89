"""A conversation as a chain of messages, each pointing to its parent: the types, and the protocol of a store.

The head of a thread, the id of its last message, is in the turn's state. The store is in `log`, and an embedder can
supply another one.
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
        author: Who says it: an account, the agent or a worker.
        kind: The kind of message.
        body: The content, as JSON. It never has role text (R7).
    """

    author: str
    kind: MessageKind
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of a conversation, as stored.

    Attributes:
        id: A digest of its content and place, so that the same append gives the same message.
        parent: The message before it; None for the first.
        depth: How many messages are before it.
        turn_id: The turn that appended it.
        author: Who says it.
        kind: The kind of message.
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
        """The name of the person who says it, if one was given. Only `author` identifies the person."""
        return self.body.get("name")

    def to_json(self) -> dict[str, Any]:
        """The message as JSON, with the fields that the sidecar uses."""
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
        summary: The newest message of kind `summary` in the conversation, if there is one.
    """

    messages: tuple[Message, ...]
    summary: Message | None


class ConversationStore(Protocol):
    """Stores conversations. An embedder can implement it. It does not store the head of a thread."""

    async def append(
        self,
        parent: str | None,
        messages: Sequence[Draft],
        *,
        thread: str,
        turn_id: str,
        lease: Lease | None = None,
    ) -> str:
        """Append `messages` after `parent` and return the new head, the id of the last one.

        All of them are stored when it returns, or none. A repeated append stores nothing and returns the same head, so
        a turn can repeat it after a crash.

        Args:
            parent: The head so far; None begins a conversation. A message of another thread makes a fork.
            messages: One or more, oldest first.
            thread: An opaque key, which makes the first messages of two threads different.
            turn_id: The turn that appends.
            lease: The lease of the thread, verified with the write; None writes without one (T4).

        Raises:
            UnknownMessage: The message `parent` does not exist.
            LeaseLost: Another owner took over the thread; nothing is stored.
            InvalidArgument: `messages` is empty, or one does not match `Draft`; the text names the field.
        """
        ...

    async def history(self, head: str | None, *, before: str | None = None, limit: int = 50) -> tuple[Message, ...]:
        """Return up to `limit` messages, oldest first: those that end with `head`, or just before `before`.

        Page back with the first message of a page as the next `before`; an empty page is the end.

        Args:
            head: The last message of the conversation; None is the empty conversation.
            before: A message of the conversation ending with `head`.
            limit: The most messages to return, 1 to 1000.

        Raises:
            UnknownMessage: The message `head` does not exist, or `before` is not in its conversation.
            InvalidArgument: `limit` is out of bounds.
        """
        ...

    async def tail(self, head: str, *, limit: int, lease: Lease | None = None) -> Tail:
        """Return the end of the conversation ending with `head`.

        Args:
            head: Its last message.
            limit: The least messages to return, 1 to 1000, unless the conversation is shorter.
            lease: The lease of the thread, which may have the messages in memory.

        Raises:
            UnknownMessage, InvalidArgument: As for `history`.
        """
        ...

    async def some(self, head: str, ids: Sequence[str]) -> tuple[Message, ...]:
        """Return those of the messages `ids` that are in the conversation ending with `head`, oldest first."""
        ...
