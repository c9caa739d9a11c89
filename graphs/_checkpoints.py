"""LangGraph's saver, wrapped so that writes are whole and the thread's owner's, and the one way graphs are run."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, TypeVar

import aiosqlite
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import NodeCancelledError

from ..core.errors import AgentClosed, ModelUnavailable, StorageInvalid, WorldAgentError
from ..storage import Lease, from_sqlite
from ._context import TurnContext

T = TypeVar("T")

Durability = Literal["sync", "async", "exit"]

DURABILITY: ContextVar[Durability] = ContextVar("worldagent_durability", default="sync")
"""When checkpoints are written. Always `sync` in the product; the leak suite runs the other modes too (design 3)."""


_KEYS = {"v", "id", "channel_values", "channel_versions", "versions_seen"}  # without which nothing can go on from it

LEASE: ContextVar[Lease | None] = ContextVar("worldagent_lease", default=None)
"""The ownership of the thread whose turn is running, which every write of a checkpoint verifies."""


class WholeSaver(AsyncSqliteSaver):
    """`AsyncSqliteSaver` whose writes are whole, fenced and fail with typed errors.

    Whole: a write cut between INSERT and COMMIT would leave a transaction open, and every other connection locked out.
    Fenced: a late writer's checkpoint would be the newest and move the thread's head back (T4).
    """

    def __init__(self, connection: aiosqlite.Connection, path: Path) -> None:
        super().__init__(connection, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        self._path = path
        self._closed = False
        # A read under way on the connection would keep its older snapshot, and a write could not begin on it.
        self._one = asyncio.Lock()

    @classmethod
    async def open(cls, path: Path) -> WholeSaver:
        """Open the checkpoint tables in the database at `path`.

        Raises:
            StorageUnavailable, StorageInvalid: The file cannot be used.
        """
        connecting = aiosqlite.connect(path, timeout=30)
        # An agent that nobody closed must not keep its process from ending.
        thread: Any = getattr(connecting, "_thread", connecting)
        thread.daemon = True
        connection = await connecting
        try:
            saver = cls(connection, path)
            with saver._translated():
                await saver.setup()
        except BaseException:  # cancelled, too: the connection has a thread
            await connection.close()
            raise
        return saver

    async def aclose(self) -> None:
        """Close the connection and join its thread."""
        self._closed = True
        await self.conn.close()

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        unreadable = None
        async with self._one:
            with self._translated():
                try:
                    found = await super().aget_tuple(config)
                    if found is None or found.checkpoint.keys() >= _KEYS:
                        return found
                    unreadable = "not a checkpoint"
                except (sqlite3.Error, WorldAgentError):
                    raise
                except Exception as error:  # bytes of strangers can fail to decode in any way
                    unreadable = type(error).__name__
        if self._closed:
            raise self._closed_error()
        raise StorageInvalid(
            f"the checkpoint of thread {config['configurable']['thread_id']!r} in {str(self._path)!r} cannot be read"
            f" ({unreadable})",
            remedy="restore the file from a copy, or go on with another thread",
        )

    async def aput(self, *args: Any, **kwargs: Any) -> Any:
        put = super().aput
        return await _whole(self._write(lambda: put(*args, **kwargs)))

    async def aput_writes(self, *args: Any, **kwargs: Any) -> None:
        put = super().aput_writes
        await _whole(self._write(lambda: put(*args, **kwargs)))

    async def _write(self, write: Callable[[], Awaitable[T]]) -> T:
        lease = LEASE.get()
        async with self._one:
            if self._closed:
                raise self._closed_error()
            with self._translated():
                await self.conn.execute("BEGIN IMMEDIATE")
                try:
                    if lease is not None:
                        lease.check(await self.conn.execute_fetchall(lease.QUERY, (lease.key,)))
                    return await write()
                except BaseException:  # cancelled, too: no transaction stays open
                    await self.conn.rollback()
                    raise

    @contextlib.contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            failure = from_sqlite(error, self._path)
            raise failure or StorageInvalid(
                f"the checkpoints in {str(self._path)!r} are not as LangGraph keeps them ({error})",
                remedy="restore the file from a copy, move it away, or use another home",
            ) from error

    def _closed_error(self) -> AgentClosed:
        return AgentClosed(f"the checkpoints in {str(self._path)!r} are closed", remedy="start the agent again")


async def _whole(write: Awaitable[T]) -> T:
    """Finish `write` before letting a cancellation through."""
    task = asyncio.ensure_future(write)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


async def run_graph(graph: Any, state: Any, *, turn: TurnContext, suffix: str | None = None) -> dict[str, Any]:
    """Run a compiled graph to its end: start and recovery are this one function (D8).

    Args:
        graph: The compiled graph.
        state: Its input; None goes on where the thread stands.
        turn: The turn it runs for, which is its context.
        suffix: Names a child thread of the turn's thread.
    """
    thread = turn.thread_key if suffix is None else f"{turn.thread_key}#{suffix}"
    config = {
        "configurable": {"thread_id": thread},
        "recursion_limit": 3 * turn.services.options.max_rounds + 10,
    }
    extra = {"durability": DURABILITY.get()} if turn.services.saver is not None else {}
    # An agent may be used inside somebody's own graph: their callbacks and checkpoints are not for ours.
    outer = var_child_runnable_config.set(None)
    owner = LEASE.set(turn.lease)
    try:
        result: dict[str, Any] = await graph.ainvoke(state, config, context=turn, **extra)
        return result
    except NodeCancelledError:
        pass  # nobody cancels the turn: what a node waited for was cancelled, and tasks have said so themselves
    finally:
        LEASE.reset(owner)
        var_child_runnable_config.reset(outer)
    raise ModelUnavailable(
        f"a call of the model {turn.services.caller.connection.name!r} was cancelled from inside", remedy="try again"
    )
