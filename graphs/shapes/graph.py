"""Runs a compiled LangGraph graph of the embedder as a shape (T3). The graph sees no role and no state of the agent.

It is the subgraph of the node of its tasks, unless it has a checkpointer of its own: such a graph resumes by its own
thread, so it runs apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph.errors import GraphInterrupt
from langgraph.graph.state import CompiledStateGraph
from pydantic import BaseModel

from ...core.errors import FunctionInvalid, InvalidArgument
from ...core.events import CallProgress
from ...harness import CallContext
from ..nesting import INTERRUPT, apart, chain_callbacks, namespace_of, nested
from ..shape import Shape
from ..tasks import TaskContext
from .langchain import ChatModels

P = TypeVar("P", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)

_CONTEXT: Any = CallContext  # its type does not matter: it is compared with what the graph declares


def graph_shape(
    key: str,
    graph: CompiledStateGraph[Any, Any, Any, Any],
    *,
    params: type[P],
    result: type[R],
    description: str = "",
    recursion_limit: int = 100,
) -> Shape[P, R]:
    """A shape that runs a compiled graph. The params are its input, and the result's fields come from its final state.

    A graph that declares `context_schema=CallContext` gets one as the context of its runtime. The turn's journal
    records what its nodes do through `runtime.context.call()` and `.ask_person()`. Such a graph keeps no checkpoints
    and runs from its start when the turn resumes. Any other graph can have its own checkpointer, and resumes from
    there.

    The graph's chat models count as usage of the turn and against its limits. If a client streams the turn, their text
    is sent as `CallProgress` of the task. Their calls are not recorded: a graph that runs again asks them again.

    Args:
        key: The name for `task()`.
        graph: The result of `StateGraph.compile()`.
        params: The declared params; each field is a key of the graph's input.
        result: The declared result; each field is a key of the graph's state.
        description: What it is for. With one it is offered to the conversation.
        recursion_limit: The limit of its steps.

    Raises:
        FunctionInvalid: It is not a compiled graph, its checkpointer is not its own, or it stops at nodes.
        InvalidArgument: `recursion_limit` is below 1.
    """
    if not isinstance(graph, CompiledStateGraph):
        raise FunctionInvalid(
            f"the graph of shape {key!r} must be a compiled graph, got {type(graph).__name__!r}",
            remedy="pass the result of compile()",
        )
    if recursion_limit < 1:
        raise InvalidArgument(
            f"`recursion_limit` must be at least 1, got {recursion_limit!r}",
            remedy="pass the number of steps that the graph can take",
        )
    if graph.interrupt_before_nodes or graph.interrupt_after_nodes:
        raise FunctionInvalid(
            f"the graph of shape {key!r} must not stop before or after a node, because no caller could resume it",
            remedy="compile it without interrupt_before= and interrupt_after=, and ask with ctx.ask_person()",
        )
    calls = graph.context_schema is _CONTEXT
    if graph.checkpointer is True:
        raise FunctionInvalid(
            f"the graph of shape {key!r} must not use the checkpoints of a parent graph, because it has no parent",
            remedy="compile it without checkpointer=True",
        )
    if calls and graph.checkpointer:
        raise FunctionInvalid(
            f"the graph of shape {key!r} must not have a checkpointer, because it makes calls through a CallContext",
            remedy="compile it without one; its calls are in the turn's journal",
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
    """Runs the graph."""

    key: str
    graph: CompiledStateGraph[Any, Any, Any, Any]
    fields: tuple[str, ...]
    calls: bool
    recursion_limit: int

    async def __call__(self, params: BaseModel, ctx: TaskContext) -> Mapping[str, Any]:
        try:
            with apart():
                state = await self._run(params, ctx)
        except GraphInterrupt:  # a subgraph raises it
            state = {INTERRUPT: ()}
        if INTERRUPT in state:
            raise FunctionInvalid(
                f"the graph of shape {self.key!r} stopped at an interrupt, which no person can answer",
                remedy="declare context_schema=CallContext, and ask with runtime.context.ask_person()",
            )
        return {name: state[name] for name in self.fields if name in state}

    async def _run(self, params: BaseModel, ctx: TaskContext) -> Mapping[str, Any]:
        config = self._config(ctx)
        given: Any = {name: getattr(params, name) for name in type(params).model_fields}
        if self.graph.checkpointer:
            found = await self.graph.aget_state(config)
            if found.values and not found.next:  # it had finished, and only its result was not stored
                return dict(found.values)
            if found.next:
                given = None
        models = ChatModels(self.key, ctx)
        state: Any = None
        try:
            state = await self._followed(given, merge_configs(config, {"callbacks": [models]}), ctx)
        except Exception:  # broad: what the graph made of the error of a limit
            if models.failure is None:
                raise
        finally:
            await models.settled()
        if models.failure is not None:
            raise models.failure
        return state if isinstance(state, dict) else dict(state)

    def _config(self, ctx: TaskContext) -> RunnableConfig:
        """The config of its run: that of a subgraph of the node of the task, or one of its own."""
        within = None if self.graph.checkpointer else ctx.turn.node_above(ctx.id)
        config: RunnableConfig = {"callbacks": chain_callbacks(ctx.turn.services.callbacks)}
        if within is not None:
            config = nested(within)
        config["configurable"] = {**config.get("configurable", {}), "thread_id": ctx.id}
        config["recursion_limit"] = self.recursion_limit
        return config

    async def _followed(self, given: Any, config: Any, ctx: TaskContext) -> Any:
        """Run the graph as its `ainvoke` does, and send the text of its chat models to a client that streams."""
        state: Any = {}
        stopped, length = False, 0
        modes: Any = ["values", "updates", *(["messages"] if ctx.turn.stream != "none" else [])]
        context: Any = ctx.calls if self.calls else None
        depth = len(namespace_of(config))
        running = self.graph.astream(given, config, context=context, stream_mode=modes, subgraphs=True)
        async for each in running:
            path, mode, what = cast("tuple[tuple[str, ...], str, Any]", each)
            if mode == "messages":
                text = _said(*what)
                length += len(text)
                if text:
                    ctx.turn.emit(CallProgress, call_id=ctx.id, progress=length, message=text)
            elif not _is_own(path, depth):
                pass
            elif mode == "values":
                state = what
            else:
                stopped = stopped or INTERRUPT in what
        return {INTERRUPT: ()} if stopped else state


def _is_own(path: tuple[str, ...], depth: int) -> bool:
    """Whether a part of a stream is of the graph itself, and not of a graph inside it.

    Args:
        path: Its namespace.
        depth: The length of the namespace of the node that runs the graph. A further graph of the node has a number.
    """
    return not path[depth:] or (len(path) == depth + 1 and path[-1].isdecimal())


def _said(message: Any, about: Mapping[str, Any]) -> str:
    """The text of a chat model: a part of it, or all of it from a model that does not stream."""
    whole = isinstance(message, AIMessage) and about.get("ls_model_type") == "chat"  # not what a node made of it
    return str(message.text) if whole or isinstance(message, AIMessageChunk) else ""
