"""LangGraph's saver, wrapped so that a cancelled turn cannot cut a write in two, and the one way graphs are run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, TypeVar

import aiosqlite
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from ._context import TurnContext

T = TypeVar("T")

Durability = Literal["sync", "async", "exit"]

DURABILITY: ContextVar[Durability] = ContextVar("worldagent_durability", default="sync")
"""When checkpoints are written. Always `sync` in the product; the leak suite runs the other modes too (design 3)."""


class WholeSaver(AsyncSqliteSaver):
    """`AsyncSqliteSaver` whose writes are finished even when the turn is cancelled.

    A write cut between INSERT and COMMIT would leave a transaction open, and every other connection locked out.
    """

    @classmethod
    async def open(cls, path: Path) -> WholeSaver:
        """Open the checkpoint tables in the database at `path`."""
        connection = await aiosqlite.connect(path, timeout=30)
        try:
            saver = cls(connection, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
            await saver.setup()
        except BaseException:
            await connection.close()
            raise
        return saver

    async def aclose(self) -> None:
        """Close the connection and join its thread."""
        await self.conn.close()

    async def aput(self, *args: Any, **kwargs: Any) -> Any:
        return await _whole(super().aput(*args, **kwargs))

    async def aput_writes(self, *args: Any, **kwargs: Any) -> None:
        await _whole(super().aput_writes(*args, **kwargs))


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
    try:
        result: dict[str, Any] = await graph.ainvoke(state, config, context=turn, **extra)
    finally:
        var_child_runnable_config.reset(outer)
    return result
