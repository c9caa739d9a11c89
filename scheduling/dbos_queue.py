"""The queue over DBOS, which no other module imports. `queue` is the value that hosts use, `worker` runs what waits."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import dbos
import dbos._dbos
from dbos import DBOS, DBOSClient, EnqueueOptions, Serializer, WorkflowStatus
from dbos._error import DBOSException, DBOSWorkflowIDInUseError
from dbos._sys_db import SystemDatabase
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from ..agent.queues import QueueClient, Queued
from ..core.errors import InvalidArgument, StorageUnavailable
from ..storage import Storage
from ..storage.database import GIVE_UP_SECONDS
from .connections import POOL, Connections
from .queue import Queue

T = TypeVar("T")

APPLICATION: Final = "worldagent"
SCHEMA: Final = "worldagent_queue"
"""The schema of the tables on Postgres."""

VERSION: Final = "1"
"""The version of what a start holds. A worker takes no starts of another version."""

WORKFLOW: Final = "submitted_turn"
POLL_SECONDS: Final = 0.1
"""How often a worker looks for starts."""

_STATES: Final[Mapping[str, Any]] = {
    "ENQUEUED": "waiting",
    "DELAYED": "waiting",
    "PENDING": "taken",
    "CANCELLED": "cancelled",
}
_PRUNED: Final = 1000
_REMEDY: Final = "check that the database is up, and try again"

Outcome = Mapping[str, str | None]
"""What a workflow returns: the turn's id and status, or the code of an error."""

Runner = Callable[[Mapping[str, Any]], Awaitable[Outcome]]


class JsonSerializer(Serializer):
    """Stores JSON. DBOS's own serializer would unpickle what is in the table, and so run any code that is put there."""

    def serialize(self, data: Any) -> str:
        """Return a value as JSON. Of an exception only the type is kept, since its text can be anything."""
        return json.dumps(data, ensure_ascii=False, allow_nan=False, default=lambda other: type(other).__name__)

    def deserialize(self, serialized_data: str) -> Any:
        """Return the value."""
        return json.loads(serialized_data)

    def name(self) -> str:
        """Its name in the rows."""
        return "worldagent_json"


def queue_name(workspace: str) -> str:
    """Return the name of a workspace's queue."""
    return f"workspace:{workspace}"


# --- submitting -------------------------------------------------------------------------------------------------------


async def connect(storage: Storage, workspace: str) -> DbosClient:
    """Open the tables, which are made if there are none.

    Raises:
        StorageUnavailable: They cannot be reached.
    """
    connections, made = Connections(storage), list[DbosClient]()

    def make() -> None:
        with _failures(), ExitStack() as failed:
            failed.callback(connections.close)
            _prepare(storage, connections)
            made.append(DbosClient(_client(connections), queue_name(workspace), connections))
            failed.pop_all()

    try:
        await connections.opened(make)
    except asyncio.CancelledError:
        for client in made:
            await client.aclose()
        raise
    return made[0]


def _client(connections: Connections) -> DBOSClient:
    return DBOSClient(
        system_database_url=connections.url,
        system_database_engine=connections.engine,
        dbos_system_schema=SCHEMA,
        serializer=JsonSerializer(),
        system_database_pool_size=POOL,
        application_name=APPLICATION,
        retry_connection_errors=False,
    )


class DbosClient(QueueClient):
    """The connection to the queue of a workspace, over DBOS's client.

    Args:
        client: DBOS's client.
        queue: The name of the queue.
        connections: The client's connections.
    """

    def __init__(self, client: DBOSClient, queue: str, connections: Connections) -> None:
        self._client, self._queue, self._connections = client, queue, connections
        self._under_way: set[asyncio.Task[Any]] = set()

    async def put(self, id: str, start: Mapping[str, Any], *, priority: int | None) -> bool:
        options: EnqueueOptions = {
            "workflow_name": WORKFLOW,
            "queue_name": self._queue,
            "workflow_id": id,
            "workflow_id_reuse_policy": "reject",
            "app_version": VERSION,
        }
        if priority is not None:
            options["priority"] = priority

        async def enqueue() -> bool:
            try:
                await self._client.enqueue_async(options, dict(start))
            except DBOSWorkflowIDInUseError:
                return False
            return True

        return await self._done(enqueue())

    async def find(self, id: str) -> Queued | None:
        found = await self._done(self._client.list_workflows_async(workflow_ids=[id]))
        return _queued(found[0]) if found else None

    async def cancel(self, id: str) -> None:
        await self._done(self._client.cancel_workflow_async(id))

    async def aclose(self) -> None:
        try:
            if self._under_way:
                await asyncio.wait(self._under_way, timeout=GIVE_UP_SECONDS)
        finally:
            await asyncio.to_thread(self._connections.close, self._client.destroy)

    async def _done(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work that continues in its thread if the caller is cancelled, so `aclose` waits for it."""
        doing = asyncio.ensure_future(work)
        self._under_way.add(doing)
        doing.add_done_callback(self._under_way.discard)
        with _failures():
            return await asyncio.shield(doing)


def _queued(found: WorkflowStatus) -> Queued:
    [start] = found.input["args"] if found.input else [{}]
    outcome = found.output if isinstance(found.output, dict) else {}
    code = "host_error" if found.status in ("ERROR", "MAX_RECOVERY_ATTEMPTS_EXCEEDED") else outcome.get("code")
    return Queued(_STATES.get(found.status, "over"), start.get("request", ""), code)


# --- running ----------------------------------------------------------------------------------------------------------


class _Process:
    """The runner of this process's worker: DBOS calls functions of a module, and has one instance in a process."""

    runner: Runner | None = None


@DBOS.step(name="run_turn", preemptible=True)
async def _run_turn(start: dict[str, Any]) -> dict[str, str | None]:
    assert _Process.runner is not None, "DBOS was launched here"
    return dict(await _Process.runner(start))


@DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)
async def _submitted_turn(start: dict[str, Any]) -> dict[str, str | None]:
    return await _run_turn(start)


def _register(connections: Connections, name: str, queue: Queue) -> None:
    """Store the limits of a queue."""
    client, limit = _client(connections), queue.rate_limit
    try:
        client.register_queue(
            name,
            worker_concurrency=min(queue.worker_concurrency, queue.concurrency or queue.worker_concurrency),
            global_concurrency=queue.concurrency,
            limiter=None if limit is None else {"limit": limit.turns, "period": limit.seconds},
            polling_interval_sec=POLL_SECONDS,
        )
    finally:
        client.destroy()


class Takes:
    """Takes starts from the queue of a workspace and runs them, in this process. It blocks: call it in a thread.

    DBOS then runs in a thread with an event loop of its own, so it does not touch the loop of the agent.

    Args:
        storage: The agent's storage.
        workspace: The workspace.
        queue: The limits.
        connections: Its connections to the queue, which end with it.
        executor: The id of this worker.
        runner: Runs a start, in DBOS's loop.

    Attributes:
        connections: Its connections to the queue.

    Raises:
        InvalidArgument: The process has a worker already, or uses DBOS itself.
        StorageUnavailable: The queue cannot be reached.
    """

    def __init__(
        self,
        storage: Storage,
        workspace: str,
        queue: Queue,
        connections: Connections,
        *,
        executor: str,
        runner: Runner,
    ) -> None:
        if dbos._dbos._dbos_global_instance is not None:
            raise InvalidArgument(
                "this process runs a worker already, or uses DBOS itself", remedy="run the worker in its own process"
            )
        self._name, self.connections = queue_name(workspace), connections
        with _failures(), ExitStack() as failed:
            failed.callback(connections.close, DBOS.destroy)  # the process must not keep half an instance
            _prepare(storage, connections)
            _register(connections, self._name, queue)  # first, since DBOS looks for new queues once a second
            DBOS(
                config={
                    "name": APPLICATION,
                    "system_database_url": connections.url,
                    "system_database_engine": connections.engine,
                    "dbos_system_schema": SCHEMA,
                    "executor_id": executor,
                    "application_version": VERSION,
                    "serializer": JsonSerializer(),
                    "sys_db_pool_size": POOL,
                    "log_level": "WARNING",
                }
            )
            _Process.runner = runner
            DBOS.listen_queues([self._name])
            DBOS.launch()
            failed.pop_all()

    def holders(self) -> frozenset[str]:
        """Return the ids of the workers that have taken starts which are not over."""
        with _failures():
            found = DBOS.list_workflows(status="PENDING", queue_name=self._name, load_input=False, load_output=False)
        return frozenset(each.executor_id for each in found if each.executor_id)

    def take_over(self, executor: str) -> int:
        """Put the starts of a worker that has died back into the queue; returns how many.

        It does nothing for a start that another worker has taken, or that was cancelled.
        """
        with _failures():
            return len(DBOS._recover_pending_workflows([executor]))

    def waiting(self) -> dict[str, int]:
        """Return how many starts wait, by their version. Those of another version are not taken."""
        with _failures():
            system = dbos._dbos._get_dbos_instance()._sys_db
            table = system.tables.workflow_status
            counted = select(table.c.application_version, func.count()).group_by(table.c.application_version)
            waits = counted.where(table.c.queue_name == self._name, table.c.status.in_(("ENQUEUED", "DELAYED")))
            with system.engine.begin() as connection:
                return {str(version): int(count) for version, count in connection.execute(waits)}

    def prune(self, before: datetime) -> int:
        """Delete starts that left the queue before a time, with the texts in them; returns how many, 1000 at most."""
        with _failures():
            found = DBOS.list_workflows(
                status=["SUCCESS", "ERROR", "CANCELLED"],
                name=WORKFLOW,
                completed_before=before.isoformat(),
                limit=_PRUNED,
                load_input=False,
                load_output=False,
            )
            if found:
                DBOS.delete_workflows([each.workflow_id for each in found])
        return len(found)

    def close(self, seconds: int) -> None:
        """Take no more starts, wait for the running ones, and end.

        Args:
            seconds: How long to wait. What has not ended by then is left to the next worker.
        """
        self.connections.close(partial(DBOS.destroy, workflow_completion_timeout_sec=seconds))
        _Process.runner = None


# --- the tables -------------------------------------------------------------------------------------------------------


@contextmanager
def _failures() -> Generator[None]:
    """Raise errors of the database as ours. Their text can hold a statement with its values, so it is left out."""
    try:
        yield
        return
    except (SQLAlchemyError, sqlite3.Error, DBOSException, OSError) as error:
        problem = type(error).__name__
    raise StorageUnavailable(f"the queue of submitted turns failed ({problem})", remedy=_REMEDY)


def _prepare(storage: Storage, connections: Connections) -> None:
    """Make the tables if there are none."""
    _quiet()
    if connections.engine is None:
        _make(storage.queue)
    tables = SystemDatabase.create(
        system_database_url=connections.url,
        engine_kwargs={"pool_timeout": 30, "max_overflow": 0, "pool_size": 2},
        engine=connections.engine,
        schema=SCHEMA,
        serializer=JsonSerializer(),
        executor_id=None,
    )
    try:
        tables.run_migrations()
    finally:
        tables.destroy()


def _make(file: Path) -> None:
    """Make an empty database that only this user can read, and that can be read while it is written."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    with closing(sqlite3.connect(file, timeout=30)) as database:
        database.execute("PRAGMA journal_mode=WAL").fetchall()


def _quiet() -> None:
    """Let DBOS's log go where the logs of the process go, instead of to standard error."""
    logger = logging.getLogger("dbos")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logger.setLevel(max(logger.level, logging.WARNING))
