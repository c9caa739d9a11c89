"""How graphs run inside each other. LangGraph's private keys are used here and nowhere else."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.config import get_config
from langgraph.pregel.protocol import StreamChunk, StreamProtocol
from langgraph.runtime import Runtime

# Keys in `configurable` of the config of a node. `tests/turns/test_subgraphs.py` fails if LangGraph renames one.
CHECKPOINTER: Final = "__pregel_checkpointer"
DURABILITY: Final = "__pregel_durability"
RUNTIME: Final = "__pregel_runtime"
STREAM: Final = "__pregel_stream"
NAMESPACE: Final = "checkpoint_ns"
INTERRUPT: Final = "__interrupt__"
"""The key of interrupts in what a graph streams and returns."""

LEASE: Final = "__worldagent_lease"
"""The key in `configurable` of the lease that writes verify. LangGraph does not store keys with this prefix."""

NodeView: TypeAlias = RunnableConfig
"""What a turn gets of a node of another graph that shows it as a subgraph."""


@contextmanager
def apart() -> Generator[None]:
    """Hide the surrounding graph from the block: its callbacks, its checkpoints and the context of its nodes.

    An agent can be used inside a graph of the embedder's, and a tool can run its own graph or LangChain tool.
    """
    outer = var_child_runnable_config.set(None)
    try:
        yield
    finally:
        var_child_runnable_config.reset(outer)


def nested(within: RunnableConfig) -> RunnableConfig:
    """The config with which a node runs a graph as its subgraph.

    The stream, the callbacks and the namespace are those of the node. The context is not: LangGraph gives the node's to
    a subgraph that has none, or one that is falsy, and the role of the node would reach it (T8). Nothing is
    checkpointed, because the journal has what the subgraph does.

    Args:
        within: The config of the node.
    """
    given = {name: value for name, value in within.get("configurable", {}).items() if name != LEASE}
    own: Runtime[Any] = Runtime(stream_writer=given[RUNTIME].stream_writer)
    # With "sync", LangGraph would wait for a checkpoint that nobody writes.
    return {**within, "configurable": {**given, RUNTIME: own, CHECKPOINTER: None, DURABILITY: "async"}}


def view_of(node: RunnableConfig) -> RunnableConfig:
    """What a turn gets of the node whose graph shows it as a subgraph: its callbacks, and its stream if it has one.

    LangGraph has a stream there if a client asked for subgraphs. The turn keeps its own thread, checkpoints, context
    and metadata, except that callbacks get the id of the node's thread, by which traces are grouped. The context of the
    node is left out: it can have the role, and the turn can outlive it (R7).

    Args:
        node: The config of the node.
    """
    view: RunnableConfig = {"callbacks": node.get("callbacks")}
    given = node.get("configurable", {})
    if given.get("thread_id") is not None:
        view["metadata"] = {"thread_id": str(given["thread_id"])}
    outer: Any = given.get(STREAM)
    if outer is not None:
        place = namespace_of(node)

        def show(chunk: StreamChunk) -> None:
            where, mode, payload = chunk
            shown = _shown(mode, payload)
            if shown is not None:
                outer((place + where, mode, shown))

        own: Runtime[Any] = Runtime(stream_writer=given[RUNTIME].stream_writer)
        view["configurable"] = {STREAM: StreamProtocol(show, outer.modes), RUNTIME: own}
    return view


def _shown(mode: str, payload: Any) -> Any:
    """What a part of a turn's stream shows to the other graph; None leaves it out.

    That graph cannot read the turn's checkpoints, and their config has the lease of the thread. What it is asked is in
    the interrupt of the node: those of the turn are not questions.
    """
    match mode:
        case "checkpoints":
            return None
        case "debug" if payload["type"] == "checkpoint":
            return None
        case "debug":
            return {**payload, "payload": _shown("tasks", payload["payload"])}
        case "tasks" if "interrupts" in payload:
            return {**payload, "interrupts": []}
        case "updates" | "values" if isinstance(payload, dict) and INTERRUPT in payload:
            return {name: value for name, value in payload.items() if name != INTERRUPT} or None
        case _:
            return payload


def namespace_of(config: RunnableConfig) -> tuple[str, ...]:
    """The namespace of a config: the nodes above what it runs, each with the id of its task."""
    given: str = config.get("configurable", {}).get(NAMESPACE, "")
    return tuple(given.split("|")) if given else ()


def has_checkpointer() -> bool:
    """Whether the graph whose node runs this code can be interrupted: without a checkpointer it cannot be resumed."""
    return get_config().get("configurable", {}).get(CHECKPOINTER, True) is not None


def chain_callbacks(callbacks: Iterable[object]) -> list[BaseCallbackHandler]:
    """Return those that are callbacks of LangChain, for the config of a graph."""
    return [each for each in callbacks if isinstance(each, BaseCallbackHandler)]
