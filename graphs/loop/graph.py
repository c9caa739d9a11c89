"""The graphs of turns and tasks. Their nodes work with a `Run`, the object in the context of the graph.

The graph of a conversation has a node for the model, one for plain tools, and one for each kind of task, whose loop is
the subgraph of the node. The nodes of one step run at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from functools import lru_cache
from typing import Any, Final, TypeAlias

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from ..shape import SKILL
from .loop import LoopState, compose, run_of, think

THINK: Final = "think"
ACT: Final = "act"
COMPOSER: Final = "skill_composer"


LoopGraph: TypeAlias = CompiledStateGraph[LoopState, Any, LoopState, LoopState]
_Builder: TypeAlias = StateGraph[LoopState, Any, LoopState, LoopState]

Subgraphs: TypeAlias = Mapping[str, Any]
"""The nodes for tasks, each with the graph that is its subgraph, or None if its handler is plain code."""


def node_of(shape: str) -> str:
    """The name of the node of a shape's tasks: its key, as far as LangGraph and this graph leave it free."""
    # LangGraph keeps names with `__` to itself, and a node and a channel share no name.
    taken = shape in (THINK, ACT, COMPOSER) or shape.startswith("__") or shape in LoopState.__annotations__
    return COMPOSER if shape == SKILL else ACT if taken else shape


def conversation_graph(saver: Any, tasks: Subgraphs) -> LoopGraph:
    """Compile the graph of a conversation.

    Args:
        saver: The checkpointer; None stores nothing.
        tasks: The nodes for tasks.
    """
    # Compiling takes three milliseconds, so what all agents of a process have is compiled once.
    shared = all(each is None or each is worker_graph() or each is composer_graph() for each in tasks.values())
    compiled = copy((_compiled_once if shared else _compiled)(tuple(tasks.items())))
    compiled.checkpointer = saver
    return compiled


def _compiled(tasks: tuple[tuple[str, Any], ...]) -> LoopGraph:
    graph = _builder()
    # Nodes name the next nodes; a separate router would be one more runnable per step.
    graph.add_node(THINK, think, destinations=(THINK, ACT, *(node for node, _ in tasks), END))
    for node, subgraph in ((ACT, None), *tasks):
        graph.add_node(node, _task_node(node, subgraph), destinations=(THINK,))
    graph.add_edge(START, THINK)
    return graph.compile(name="turn")


_compiled_once: Final = lru_cache(_compiled)


def task_graph(saver: Any, node: str, subgraph: Any) -> LoopGraph:
    """Compile the graph of a turn that is one task.

    Args:
        saver: The checkpointer; None stores nothing.
        node: The node for the task.
        subgraph: Its subgraph, if any.
    """
    graph = _builder()
    graph.add_node(node, _task_node(node, subgraph), destinations=(END,))
    graph.add_edge(START, node)
    return graph.compile(checkpointer=saver, name="turn")


@lru_cache
def worker_graph() -> LoopGraph:
    """The graph of a worker's loop, which can resume at either of its nodes."""
    graph = _with_loop(_builder())
    graph.add_conditional_edges(START, _first, [THINK, ACT])
    return graph.compile(name="worker")


@lru_cache
def composer_graph() -> LoopGraph:
    """The graph of the Skill Composer: it makes a skill ready, and then runs it in the loop of a worker (T6)."""
    graph = _with_loop(_builder())
    graph.add_node("compose", compose, destinations=(THINK, ACT, END))
    graph.add_edge(START, "compose")
    return graph.compile(name=COMPOSER)


def _builder() -> _Builder:
    return StateGraph[LoopState, Any, LoopState, LoopState](LoopState)


def _with_loop(graph: _Builder) -> _Builder:
    graph.add_node(THINK, think, destinations=(THINK, ACT, END))
    graph.add_node(ACT, _task_node(ACT, None), destinations=(THINK, END))
    return graph


def _task_node(name: str, subgraph: Any) -> Any:
    """The function of a node for calls. LangGraph finds the subgraph of a node in the closure of its function."""

    async def act(state: LoopState, runtime: Runtime[Any]) -> Command[str]:
        _ = subgraph  # the handler of the task runs it
        return await run_of(runtime).act(name, state)

    return act


# A plain function would cost two thread hops.
async def _first(state: LoopState) -> str:
    return ACT if state["status"] == ACT else THINK
