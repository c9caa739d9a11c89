"""The loop as a compiled graph, for turns and workers. Each step is a node, at which a run can resume (T1, H3).

A task or skill that the host dispatches begins and ends at `act`. The state holds the position of a loop: the head of
the log, counters and a task's params. It never holds the text of a message or a role.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt

from ...core.events import TurnKind
from ...harness.journal import SUSPENDED, Frame
from ...memory import Draft
from ..apart import apart
from ..context import WAITING, TurnContext
from ..shape import Work
from ..tasks import Dispatched, calls_of, dispatched
from .loop import Node


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
    role: str | None
    worker: str


class Run(Protocol):
    """The object that the nodes work with."""

    async def think(self, state: LoopState) -> Command[Node]:
        """Let a model think."""
        ...

    async def act(self, state: LoopState) -> Command[Node]:
        """Make the calls."""
        ...


LoopGraph = CompiledStateGraph[LoopState, Any, LoopState, LoopState]


def build_graph(saver: Any, first: Literal["think", "act"] | None = None) -> LoopGraph:
    """Compile the loop.

    Args:
        saver: The checkpointer. None, or False inside another graph, stores nothing.
        first: The first node; None chooses it by the state, which costs LangGraph one more step.
    """
    graph = StateGraph[LoopState, Any, LoopState, LoopState](LoopState)
    # Nodes name the next node; a separate router would be one more runnable per step.
    graph.add_node("think", _think, destinations=("think", "act", "__end__"))
    graph.add_node("act", _act, destinations=("think", "__end__"))
    if first is None:
        graph.add_conditional_edges(START, _first, ["think", "act"])
    else:
        graph.add_edge(START, first)
    return graph.compile(checkpointer=saver)


def first_state(turn: TurnContext, kind: TurnKind, head: str, work: Work | None) -> LoopState:
    """The input of a new turn. It resets every channel that a turn uses."""
    return {
        "turn": turn.turn_id,
        "kind": kind,
        "asked": head,
        "role": turn.noted,
        "head": head,
        "round": 0,
        "step": 0,
        "work": [] if work is None else [work],
        "rejections": 0,
        "fault": None,
        "status": "open",
    }


class HostTask:
    """One run of a task or skill that the host dispatched.

    It has the turn's role, and its failure is the turn's failure.

    Args:
        turn: The turn.
    """

    def __init__(self, turn: TurnContext) -> None:
        self._turn = turn
        self.outcome: Mapping[str, Any] | None = None  # the body of its result, set when it is in the log

    async def think(self, state: LoopState) -> Command[Node]:
        """A task does not think."""
        raise AssertionError("a task ends at its act node")

    async def act(self, state: LoopState) -> Command[Node]:
        """Run the task, and append its result to the log."""
        turn, [item] = self._turn, state["work"]
        turn.check_role(state["role"])
        shape = turn.services.shapes.get(item["shape"])
        params = shape.read_params(item["params"])
        ctx = calls_of(turn, Frame(turn.drive, turn.turn_id, turn.depth), turn.caller)
        how = Dispatched(shape=shape, role=turn.role, prompted=True, raw=True)
        with apart():
            result = await dispatched(how, params, ctx, path=f"{turn.turn_id}/task:{item['shape']}", waits=False)
        if result is SUSPENDED:
            interrupt(WAITING)
        body = {"to": item["to"], "shape": item["shape"], "status": "done", "result": result}
        self.outcome = body
        head = await turn.append(state["head"], [Draft(item["to"], "result", body)])
        update = {"head": head, "work": [], "round": state["round"] + 1, "status": "done"}
        return Command(update=update, goto="__end__")


async def _think(state: LoopState, runtime: Runtime[Any]) -> Command[Node]:
    run: Run = runtime.context
    return await run.think(state)


async def _act(state: LoopState, runtime: Runtime[Any]) -> Command[Node]:
    run: Run = runtime.context
    return await run.act(state)


# A plain function would cost two thread hops.
async def _first(state: LoopState) -> str:
    return "act" if state["status"] == "act" else "think"


__all__ = ["HostTask", "LoopGraph", "LoopState", "Run", "build_graph", "first_state"]
