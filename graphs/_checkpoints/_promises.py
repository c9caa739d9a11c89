"""What every saver promises beyond LangGraph's: writes are whole and the owner's, what is read is checked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, Literal, TypeVar

from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR
from pydantic import ValidationError

from ...core.errors import AgentClosed, StorageInvalid, WorldAgentError
from ...core.validation import describe_failure
from ...storage import Lease
from ._known import check

T = TypeVar("T")

Durability = Literal["sync", "async", "exit"]

DURABILITY: ContextVar[Durability] = ContextVar("worldagent_durability", default="sync")
"""When checkpoints are written. Always `sync` in the product; the leak suite runs the other modes too (design 3)."""

LEASE: ContextVar[Lease | None] = ContextVar("worldagent_lease", default=None)
"""The ownership of the thread whose turn is running, which every write of a checkpoint verifies."""


def passing(writes: Sequence[tuple[str, Any]]) -> bool:
    """Whether these writes of a node are not kept: the checkpoint that comes once it is through holds what they say.

    The graphs here run one node at a time, so there is no other whose work would be done again for the lack of them.
    A node that is cut off before that checkpoint is done again, as it is when cut off before its writes, and one that
    failed is done again whatever is kept of its error: a turn that is cancelled would write one for each of its tasks.
    Interrupts, after which no checkpoint comes, are kept, and all of one who copies and runs no turn.
    """
    return LEASE.get() is not None and all(channel == ERROR or channel not in WRITES_IDX_MAP for channel, _ in writes)


async def checked(
    read: Callable[[], Awaitable[CheckpointTuple | None]], config: Any, name: str, driver: type[Exception]
) -> CheckpointTuple | None:
    """Read a checkpoint and compare it with what the graphs here write.

    Args:
        read: Reads it.
        config: LangGraph's, for the thread's name.
        name: The database's.
        driver: The errors of the database, which are for the caller to translate.

    Raises:
        StorageInvalid: It is something else; nothing of it was made or called.
    """
    try:
        found = await read()
        if found is not None:
            check(found)
        return found
    except (driver, WorldAgentError):
        raise
    except ValidationError as error:
        unreadable = describe_failure(error)
    except Exception as error:  # bytes of strangers can fail to decode in any way
        unreadable = type(error).__name__
    raise StorageInvalid(
        f"the checkpoint of thread {config['configurable']['thread_id']!r} in {name!r} cannot be read ({unreadable})",
        remedy="restore the database from a copy, or go on with another thread",
    )


def closed(name: str) -> AgentClosed:
    """The error for a use after the end."""
    return AgentClosed(f"the checkpoints in {name!r} are closed", remedy="start the agent again")


async def whole(write: Awaitable[T]) -> T:
    """Finish `write` before letting a cancellation through."""
    task = asyncio.ensure_future(write)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
