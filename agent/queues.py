"""What a queue of submitted turns offers (D10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol


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


class Connecting(Protocol):
    """The connection of an agent to its queue, which is made when it is first needed."""

    async def client(self) -> QueueClient:
        """Return the connection.

        Raises:
            MissingExtra: The extra `durable` is not installed.
            StorageUnavailable: The queue cannot be reached.
        """
        ...
