"""Marks on messages of a thread. The model sees marked messages word for word, even in a thread with summaries."""

from __future__ import annotations

from ...core import Scope
from ...core.errors import InvalidArgument
from ...memory import Message, thread_key
from ...memory.kept import KeptMessages
from .work import RunnerParts


async def keep(parts: RunnerParts, scope: Scope, message_id: str) -> None:
    """Mark a message.

    Raises:
        UnknownMessage: The thread has no such message.
        InvalidArgument: Models do not see messages of this kind, too many are marked, or the id is not a string.
    """
    _check(message_id)
    found = await parts.branching.find(scope, message_id)
    await _marks(parts).keep(thread_key(scope), found.id, found.kind)


async def unkeep(parts: RunnerParts, scope: Scope, message_id: str) -> bool:
    """Remove a mark; returns False if there was none.

    Raises:
        InvalidArgument: `message_id` is not a string.
    """
    _check(message_id)
    return await _marks(parts).unkeep(thread_key(scope), message_id)


async def kept(parts: RunnerParts, scope: Scope) -> tuple[Message, ...]:
    """The marked messages of a thread, oldest first."""
    key = thread_key(scope)
    head = await parts.engine.head(key)
    return () if head is None else await parts.engine.services.log.some(head, await _marks(parts).of(key))


def _check(message_id: object) -> None:
    if not isinstance(message_id, str):
        raise InvalidArgument("`message_id` must be a string", remedy="use an id from history() or kept()")


def _marks(parts: RunnerParts) -> KeptMessages:
    found = parts.engine.services.kept
    assert found is not None, "an agent's engine has marks"
    return found


__all__ = ["keep", "kept", "unkeep"]
