"""The worker's loop as a compiled graph: think, act, think again until there is a result (H3).

State says where the loop stands. What was thought and what was called is in the journal, and `_run` finds it there.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from ._run import Node, WorkerRun

_END: Literal["__end__"] = "__end__"  # langgraph declares its END as any text


class WorkerState(TypedDict):
    """Where a worker's loop stands. Never a text."""

    worker: str
    round: int
    status: Literal["think", "act", "waiting", "done"]


WorkerGraph = CompiledStateGraph[WorkerState, WorkerRun, WorkerState, WorkerState]


def build_worker_graph(saver: Any) -> WorkerGraph:
    """Compile the loop over a checkpointer, or over none."""
    graph = StateGraph(WorkerState, context_schema=WorkerRun)
    graph.add_node("think", think, destinations=("think", "act", _END))
    graph.add_node("act", act, destinations=("think", _END))
    graph.add_conditional_edges(START, _first, ["think", "act"])
    return graph.compile(checkpointer=saver if saver is not None else False)


async def think(state: WorkerState, runtime: Runtime[WorkerRun]) -> Command[Node]:
    """Let the model call tools, or give its result. An answer that cannot be used is told so."""
    run = runtime.context
    return _goto(run, await run.think())


async def act(state: WorkerState, runtime: Runtime[WorkerRun]) -> Command[Node]:
    """Make the calls that the model asked for."""
    run = runtime.context
    return _goto(run, await run.act())


def _goto(run: WorkerRun, node: Node | None) -> Command[Node]:
    status = {"think": "think", "act": "act", _END: "done", None: "waiting"}[node]
    return Command(update={"round": run.round, "status": status}, goto=node or _END)


async def _first(state: WorkerState) -> str:
    return state["status"]


__all__ = ["WorkerGraph", "WorkerState", "build_worker_graph"]
