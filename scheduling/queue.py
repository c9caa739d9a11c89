"""The queue of submitted turns: a value that the host gives to its agent, and the connection to DBOS's tables.

The tables are in `queue.db` beside `agent.db`, or in a schema of their own on Postgres. Everything in them is JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import ClassVar, Final, Self

from ..agent import WorldAgent
from ..agent.queues import QueueClient
from ..agent.runtime.inside import inside
from ..core.capability import Capability, Runtime
from ..core.errors import InvalidArgument, MissingExtra
from ..core.validation import check_integer
from ..storage import Storage

MAX_CONCURRENCY: Final = 10_000
MAX_PERIOD_SECONDS: Final = 86400.0


@dataclass(frozen=True, slots=True)
class RateLimit:
    """How many submitted turns begin in a period, in all workers together.

    Attributes:
        turns: How many, 1 to 10,000.
        seconds: The length of the period, up to a day.

    Raises:
        InvalidArgument: A field is out of range.
    """

    turns: int
    seconds: float

    def __post_init__(self) -> None:
        check_integer("turns", self.turns, MAX_CONCURRENCY, remedy="leave `rate_limit` out for no limit")
        seconds = self.seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_PERIOD_SECONDS:
            raise InvalidArgument(
                f"`seconds` must be a number up to {MAX_PERIOD_SECONDS:g}, got {str(seconds)[:40]!r}",
                remedy="pass the length of the period in seconds",
            )


class Connection:
    """The connection of an agent to its queue, which is made when it is first needed."""

    def __init__(self, queue: Queue, runtime: Runtime) -> None:
        self._queue, self._runtime = queue, runtime
        self._client: QueueClient | None = None
        self._connecting = asyncio.Lock()

    async def client(self) -> QueueClient:
        """Return the connection.

        Raises:
            MissingExtra: The extra `durable` is not installed.
            StorageUnavailable: The queue cannot be reached.
        """
        async with self._connecting:
            if self._client is None:
                self._client = await self._queue.connect(self._runtime.storage, self._runtime.workspace)
            return self._client

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        if self._client is not None:
            await self._client.aclose()


@dataclass(frozen=True, kw_only=True)
class Queue(Capability[Connection]):
    """Where an agent keeps submitted turns: `WorldAgent(..., queue=Queue())`. It needs the extra `durable`.

    The limits are stored with the queue when a worker starts, so those of the worker that started last count.

    Attributes:
        concurrency: How many submitted turns run at once in all workers together; None sets no limit.
        worker_concurrency: How many of them one worker runs at once.
        rate_limit: How many of them begin in a period; None sets no limit.

    Raises:
        InvalidArgument: A field is out of range.
    """

    name: ClassVar[str] = "queue"

    concurrency: int | None = None
    worker_concurrency: int = 10
    rate_limit: RateLimit | None = None

    def __post_init__(self) -> None:
        remedy = f"pass a number up to {MAX_CONCURRENCY}"
        check_integer("worker_concurrency", self.worker_concurrency, MAX_CONCURRENCY, remedy=remedy)
        if self.concurrency is not None:
            check_integer("concurrency", self.concurrency, MAX_CONCURRENCY, remedy=remedy)
        if self.rate_limit is not None and not isinstance(self.rate_limit, RateLimit):
            raise InvalidArgument("`rate_limit` must be a RateLimit", remedy="pass RateLimit(turns, seconds)")

    @classmethod
    def of(cls, given: object) -> Self:
        if not isinstance(given, cls):
            raise InvalidArgument(
                f"`queue` must be a Queue, got {type(given).__name__!r}",
                remedy="pass Queue() from worldagent.scheduling, or omit it",
            )
        return given

    @asynccontextmanager
    async def opened(self, runtime: Runtime) -> AsyncGenerator[Connection]:
        async with aclosing(Connection(self, runtime)) as connection:
            yield connection

    async def connect(self, storage: Storage, workspace: str) -> QueueClient:
        """Connect to the queue of a workspace, and make its tables if there are none.

        Args:
            storage: The agent's storage.
            workspace: The workspace.

        Raises:
            MissingExtra: The extra `durable` is not installed.
            StorageUnavailable: The queue cannot be reached.
        """
        module = await asyncio.to_thread(load)
        client: QueueClient = await module.connect(storage, workspace)
        return client


def load() -> ModuleType:
    """Import the part that uses dbos, which takes half a second.

    Raises:
        MissingExtra: The extra `durable` is not installed.
    """
    if find_spec("dbos") is None:
        raise MissingExtra(
            "submitted turns need the package 'dbos', which is not installed",
            remedy="install it: pip install 'worldagent[durable]'",
        )
    from . import dbos_queue

    return dbos_queue


def queue_of(agent: WorldAgent) -> Queue | None:
    """The queue of submitted turns that an agent was created with, if it has one."""
    return next((each for each in inside(agent).spec.capabilities if isinstance(each, Queue)), None)


def check_shared(agent: WorldAgent) -> WorldAgent:
    """Return this agent if other machines can resume its turns, as far as it is configured for them (D10).

    On Postgres, its stored roles must be at a role host or in a store of the embedder, and it must have been given the
    role key: as the setting `role_key`, or as a file in its home. Call it before the agent opens, which creates the
    file.

    Args:
        agent: An agent that is not open yet.

    Raises:
        SettingsInvalid: Stored roles are in this home alone, or the role key would be a new one.
    """
    spec = inside(agent).spec
    if spec.storage.url is not None:
        spec.roles.check_shared(spec.settings, spec.storage)
    return agent
