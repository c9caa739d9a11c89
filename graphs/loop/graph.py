"""The graphs of turns and tasks. Their nodes work with an object of `Run`, which is the context of the graph.

The graph of a conversation has a node for the model, one for plain tools, and one for each kind of task, whose loop is
the subgraph of the node. The nodes of one step run at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal, Protocol, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.errors import NodeCancelledError
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command
from typing_extensions import TypedDict

from ...core.errors import FunctionInvalid, ModelUnavailable
from ...core.events import TurnKind
from ..checkpoints.saver import DURABILITY
from ..context import TurnContext
from ..nesting import LEASE, apart, chain_callbacks, nested
from ..shape import SKILL, SUBAGENT, Work

THINK: Final = "think"
ACT: Final = "act"
COMPOSER: Final = "skill_composer"


class LoopState(TypedDict, total=False):
    """The position of a loop. A turn has all fields but `worker`; a worker has `worker`, `round` and `status`."""

    turn: str
    kind: TurnKind
    asked: str
    head: str
    round: int
    step: int
    work: list[Work]
    rejections: int
    fault: str | None
    status: Literal["open", "done", "think", "act", "waiting"]
    worker: str


LoopGraph: TypeAlias = CompiledStateGraph[LoopState, Any, LoopState, LoopState]
_Builder: TypeAlias = StateGraph[LoopState, Any, LoopState, LoopState]

Subgraphs: TypeAlias = Mapping[str, Any]
"""The nodes for tasks, each with the graph that is its subgraph, or None if its handler is plain code."""


class Run(Protocol):
    """The object that the nodes work with. A graph has only the nodes that its run knows."""

    async def compose(self, state: LoopState) -> Command[str]:
        """Make a skill ready."""
        ...

    async def think(self, state: LoopState) -> Command[str]:
        """Let a model think."""
        ...

    async def act(self, node: str, state: LoopState) -> Command[str]:
        """Make the calls of a node."""
        ...


def node_of(shape: str) -> str:
    """The name of the node of a shape's tasks: its key, as far as LangGraph and this graph leave it free."""
    taken = shape in (THINK, ACT, COMPOSER) or shape in LoopState.__annotations__  # a node and a channel share no name
    return COMPOSER if shape == SKILL else ACT if taken else shape


def turn_graph() -> LoopGraph:
    """The graph of a conversation's turn with workers alone: `turn_graph().get_graph().draw_mermaid()` draws it."""
    return conversation_graph(None, {SUBAGENT: worker_graph()})


def conversation_graph(saver: Any, tasks: Subgraphs) -> LoopGraph:
    """Compile the graph of a conversation.

    Args:
        saver: The checkpointer; None stores nothing.
        tasks: The nodes for tasks.
    """
    graph = _builder()
    # Nodes name the next nodes; a separate router would be one more runnable per step.
    graph.add_node(THINK, _think, destinations=(THINK, ACT, *tasks, END))
    for node, subgraph in {ACT: None, **tasks}.items():
        graph.add_node(node, _task_node(node, subgraph), destinations=(THINK,))
    graph.add_edge(START, THINK)
    return graph.compile(checkpointer=saver, name="turn")


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
    graph.add_node("compose", _compose, destinations=(THINK, ACT, END))
    graph.add_edge(START, "compose")
    return graph.compile(name=COMPOSER)


async def run_graph(
    graph: LoopGraph,
    state: LoopState | Command[Any] | None,
    *,
    turn: TurnContext,
    context: Any,
    steps: int | None = None,
    within: RunnableConfig | None = None,
) -> dict[str, Any]:
    """Run a compiled graph to its end. Start and recovery both use this function (D8).

    Args:
        graph: The compiled graph.
        state: Its input; None resumes the thread from its checkpoint.
        turn: The turn it runs for.
        context: The context that its nodes get.
        steps: The limit of its steps; None derives it from the turn's rounds and the checks of its answers.
        within: The config of the node that runs it as its subgraph; None runs it on its own.
    """
    options = turn.services.options
    config: RunnableConfig = {
        "configurable": {"thread_id": turn.thread_key, LEASE: turn.lease},
        "callbacks": chain_callbacks(turn.services.callbacks),
    }
    if within is not None:
        config = nested(within)
    config["recursion_limit"] = 3 * options.max_rounds + 2 * options.verifications + 10 if steps is None else steps
    mode = DURABILITY.get()
    extra: dict[str, Any] = {"durability": mode} if graph.checkpointer else {}
    if graph.checkpointer and mode != "sync" and turn.lease is not None:
        await turn.lease.flush()  # no checkpoint precedes the first node, so the beginning of the turn is written now
    try:
        with apart():
            return dict(await graph.ainvoke(state, config, context=context, **extra))
    except NodeCancelledError:
        pass  # the turn was not cancelled: only what a node awaited was, and tasks report that themselves
    raise ModelUnavailable(
        f"a call of the model {turn.services.caller.connection.name!r} was cancelled from within", remedy="try again"
    )


def _builder() -> _Builder:
    return StateGraph[LoopState, Any, LoopState, LoopState](LoopState)


def _with_loop(graph: _Builder) -> _Builder:
    graph.add_node(THINK, _think, destinations=(THINK, ACT, END))
    graph.add_node(ACT, _task_node(ACT, None), destinations=(THINK, END))
    return graph


def _task_node(name: str, subgraph: Any) -> Any:
    """The function of a node for calls. LangGraph finds the subgraph of a node in the closure of its function."""

    async def act(state: LoopState, runtime: Runtime[Any]) -> Command[str]:
        return await _run_of(runtime).act(name, state)

    async def task(state: LoopState, runtime: Runtime[Any]) -> Command[str]:
        assert subgraph is not None, "the handler of the task runs it"
        return await _run_of(runtime).act(name, state)

    return act if subgraph is None else task


async def _think(state: LoopState, runtime: Runtime[Any]) -> Command[str]:
    return await _run_of(runtime).think(state)


async def _compose(state: LoopState, runtime: Runtime[Any]) -> Command[str]:
    return await _run_of(runtime).compose(state)


def _run_of(runtime: Runtime[Any]) -> Run:
    run: Run | None = runtime.context
    if run is None:
        raise FunctionInvalid(
            "the graph of a turn runs only in a turn of an agent, and is here for a drawing",
            remedy="begin a turn with agent.thread(...).converse(...)",
        )
    return run


# A plain function would cost two thread hops.
async def _first(state: LoopState) -> str:
    return ACT if state["status"] == ACT else THINK
