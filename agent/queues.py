"""What a queue of submitted turns offers, and an agent's connection to its queue (D10)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ..core.errors import InvalidArgument
from ..storage import Storage


@dataclass(frozen=True, slots=True)
class Queued:
    """A start in a queue.

    Attributes:
        state: `waiting` for a worker, `taken` by one, `cancelled`, or `over`.
        request: The digest of its request.
        code: The code of the error because of which a worker could not run it; None if there was none.
    """

    state: Literal["waiting", "taken", "cancelled", "over"]
    request: str
    code: str | None = None


class QueueClient(Protocol):
    """The connection to the queue of a workspace."""

    async def put(self, id: str, start: Mapping[str, Any], *, priority: int | None) -> bool:
        """Store a start; returns False if one with this id exists.

        Raises:
            StorageUnavailable: The queue cannot be reached.
        """
        ...

    async def find(self, id: str) -> Queued | None:
        """Return the result of a start; None if there is none.

        Raises:
            StorageUnavailable: The queue cannot be reached.
        """
        ...

    async def cancel(self, id: str) -> None:
        """Take a start out of the queue, or tell its worker to cancel it.

        Raises:
            StorageUnavailable: The queue cannot be reached.
        """
        ...

    async def aclose(self) -> None:
        """Close the connection."""
        ...


class TurnQueue(Protocol):
    """What `WorldAgent(queue=...)` takes: a `worldagent.scheduling.Queue`."""

    def connect(self, storage: Storage, workspace: str) -> Awaitable[QueueClient]:
        """Connect to the queue of a workspace.

        Args:
            storage: The agent's storage.
            workspace: The workspace.
        """
        ...


class Submissions:
    """The connection of an agent to its queue. It is made when it is first needed.

    Args:
        queue: The queue; None if the agent has none.
        storage: The agent's storage.
        workspace: The agent's workspace.
    """

    def __init__(self, queue: TurnQueue | None, storage: Storage, workspace: str) -> None:
        self._queue, self._storage, self._workspace = queue, storage, workspace
        self._client: QueueClient | None = None
        self._connecting = asyncio.Lock()

    async def client(self) -> QueueClient:
        """Return the connection.

        Raises:
            InvalidArgument: The agent has no queue.
            MissingExtra: The extra `durable` is not installed.
            StorageUnavailable: The queue cannot be reached.
        """
        if self._queue is None:
            raise InvalidArgument(
                "the agent has no queue", remedy="pass WorldAgent(queue=Queue()), with Queue from worldagent.scheduling"
            )
        async with self._connecting:
            if self._client is None:
                self._client = await self._queue.connect(self._storage, self._workspace)
            return self._client

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        if self._client is not None:
            await self._client.aclose()
