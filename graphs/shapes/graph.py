"""A compiled LangGraph graph of the embedder's as a shape (T3). It is theirs: it sees no role and no state of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from langgraph.graph.state import CompiledStateGraph
from pydantic import BaseModel

from ...core.errors import FunctionInvalid, InvalidArgument
from ...harness import CallContext
from ..apart import apart
from ..shape import Shape
from ..tasks import TaskContext

P = TypeVar("P", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)

_INTERRUPTED = "__interrupt__"
_CONTEXT: Any = CallContext  # compared with what the graph declares, which is of any type


def graph_shape(
    key: str,
    graph: CompiledStateGraph[Any, Any, Any, Any],
    *,
    params: type[P],
    result: type[R],
    description: str = "",
    recursion_limit: int = 100,
) -> Shape[P, R]:
    """A shape that runs a compiled graph: the params are its input, and its state at the end has the result's fields.

    A graph that declares `context_schema=CallContext` gets one as its runtime's context: what its nodes do through
    `runtime.context.call()` and `.ask_person()` is in the turn's journal. Such a graph runs from its start when the
    turn goes on, and keeps no checkpoints. Any other graph may have a checkpointer of its own, and goes on from there.

    Args:
        key: What `task()` finds it by.
        graph: What `StateGraph.compile()` gave.
        params: The declared params; each field is a key of the graph's input.
        result: The declared result; each field is a key of the graph's state.
        description: What it is for. With one it is offered to the conversation.
        recursion_limit: How many steps it may take.

    Raises:
        FunctionInvalid: It is no compiled graph, its checkpointer is not its own, or it stops at nodes.
        InvalidArgument: `recursion_limit` is below 1.
    """
    if not isinstance(graph, CompiledStateGraph):
        raise FunctionInvalid(
            f"the graph of shape {key!r} is of type {type(graph).__name__!r}", remedy="pass what compile() gives"
        )
    if recursion_limit < 1:
        raise InvalidArgument(f"recursion_limit {recursion_limit!r} is below 1", remedy="let the graph take some steps")
    if graph.interrupt_before_nodes or graph.interrupt_after_nodes:
        raise FunctionInvalid(
            f"the graph of shape {key!r} is compiled to stop before or after a node, and nobody could let it go on",
            remedy="compile it without interrupt_before= and interrupt_after=, and ask with ctx.ask_person()",
        )
    calls = graph.context_schema is _CONTEXT
    if graph.checkpointer is True:
        raise FunctionInvalid(
            f"the graph of shape {key!r} wants the checkpoints of a graph around it, and there is none for it",
            remedy="compile it without checkpointer=True",
        )
    if calls and graph.checkpointer:
        raise FunctionInvalid(
            f"the graph of shape {key!r} makes calls through a CallContext and has a checkpointer, too",
            remedy="compile it without: what it called is in the turn's journal",
        )
    return Shape(
        key,
        params,
        result,
        _Handler(key, graph, tuple(result.model_fields), calls, recursion_limit),
        description=description,
    )


@dataclass(frozen=True, slots=True)
class _Handler:
    """What runs the graph."""

    key: str
    graph: CompiledStateGraph[Any, Any, Any, Any]
    fields: tuple[str, ...]
    calls: bool
    recursion_limit: int

    async def __call__(self, params: BaseModel, ctx: TaskContext) -> Mapping[str, Any]:
        with apart():
            state = await self._run(params, ctx)
        if _INTERRUPTED in state:
            raise FunctionInvalid(
                f"the graph of shape {self.key!r} stopped at an interrupt, which nobody can answer",
                remedy="declare context_schema=CallContext, and ask with runtime.context.ask_person()",
            )
        return {name: state[name] for name in self.fields if name in state}

    async def _run(self, params: BaseModel, ctx: TaskContext) -> Mapping[str, Any]:
        config: Any = {"configurable": {"thread_id": ctx.id}, "recursion_limit": self.recursion_limit}
        given: Any = {name: getattr(params, name) for name in type(params).model_fields}
        if self.graph.checkpointer:
            found = await self.graph.aget_state(config)
            if found.values and not found.next:  # it was over, and only its result was not kept
                return dict(found.values)
            if found.next:
                given = None
        context = ctx.calls if self.calls else None
        state = await self.graph.ainvoke(given, config, context=context)
        return state if isinstance(state, dict) else dict(state)


__all__ = ["graph_shape"]
