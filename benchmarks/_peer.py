"""The same by LangGraph alone: a recorded task, an interrupt and a resume, on its own saver in a SQLite file."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from worldagent.benchmarks._measure import Cost, Stopwatch, Work


class _State(TypedDict):
    value: int


async def _ask(state: _State) -> dict[str, int]:
    return {"value": state["value"] + int(interrupt("May I?"))}


@task
async def _add(value: int) -> int:
    return value


class Peer:
    """Turns by LangGraph alone. Each pause has its own thread, and resumes take the oldest first.

    Args:
        saver: Where checkpoints go.
    """

    def __init__(self, saver: AsyncSqliteSaver) -> None:
        graph = StateGraph(_State)
        graph.add_node("ask", _ask)
        graph.add_edge(START, "ask")
        self._graph: Any = graph.compile(checkpointer=saver)
        self._paused: deque[Any] = deque()
        self._numbers = itertools.count()
        self.calls_cost = Cost(0.0, 0.0)

        @entrypoint(checkpointer=saver)
        async def calls(count: int) -> int:
            watch = Stopwatch(inside=True)
            total = 0
            for value in range(count):
                total += await _add(value)
            self.calls_cost = watch.read(max(1, count))
            return total + int(interrupt("May I?"))

        self._calls: Any = calls

    async def pause(self) -> object:
        """Run a graph until it interrupts."""
        return await self._run(self._graph, {"value": 1})

    async def resume(self) -> object:
        """Answer the oldest interrupt."""
        graph, config = self._paused.popleft()
        return await graph.ainvoke(Command(resume="1"), config, durability="sync")

    def with_calls(self, count: int) -> Work:
        """Run `count` recorded tasks one after the other, then interrupt."""
        return lambda: self._run(self._calls, count)

    async def _run(self, graph: Any, state: Any) -> object:
        config = {"configurable": {"thread_id": f"t{next(self._numbers)}"}}
        self._paused.append((graph, config))
        values = await graph.ainvoke(state, config, durability="sync")
        assert "__interrupt__" in values
        return values


@asynccontextmanager
async def peer(folder: Path) -> AsyncGenerator[Peer]:
    """LangGraph over a SQLite file in `folder`, in WAL mode and with every commit synced, which is the default."""
    async with AsyncSqliteSaver.from_conn_string(str(folder / "langgraph.db")) as saver:
        await saver.setup()
        yield Peer(saver)
