"""The worker's loop as a compiled graph, and the `subagent` shape that runs it by name (T3, D8).

A worker runs on a child thread of its own, named after its task. It has no tools yet: it thinks once and is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from pydantic import BaseModel, ConfigDict, Field

from ..harness import Registry
from ..signatures import PredictorPool, Signature
from ._checkpoints import run_graph
from ._context import TurnContext
from ._shape import Shape
from ._task import TaskContext

SUBAGENT = "subagent"


class SubagentParams(BaseModel):
    """What the `subagent` shape takes."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    worker: str = Field(description="the worker's name", min_length=1)
    request: str = Field(description="what it should do; all it needs to know", min_length=1)


class SubagentResult(BaseModel):
    """What the `subagent` shape gives."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    worker: str
    text: str


class WorkerState(TypedDict):
    """Where a worker's loop stands. Never the text of a role."""

    worker: str
    request: str
    text: NotRequired[str]


WorkerGraph = CompiledStateGraph[WorkerState, TurnContext, WorkerState, WorkerState]


class Subagents:
    """The `subagent` shape over one agent's workers.

    Args:
        registry: Where the workers are.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.signatures: Mapping[str, Signature] = {
            worker.name: PredictorPool.worker(worker.name, worker.instructions) for worker in registry.workers.values()
        }
        self._graph: WorkerGraph | None = None

    def compile(self, saver: Any) -> None:
        """Compile the loop over a checkpointer, or over none."""
        graph = StateGraph(WorkerState, context_schema=TurnContext)
        graph.add_node("think", self._think)
        graph.add_edge(START, "think")
        graph.add_edge("think", END)
        self._graph = graph.compile(checkpointer=saver if saver is not None else False)

    def shape(self) -> Shape[SubagentParams, SubagentResult]:
        """The shape to register."""
        return _SubagentShape(SUBAGENT, SubagentParams, SubagentResult, self._handle, subagents=self)

    def entry(self, name: str) -> Signature:
        """The entry Signature of the worker called `name`.

        Raises:
            UnknownWorker: There is none.
        """
        return self.signatures[self._registry.worker(name).name]

    async def _handle(self, params: SubagentParams, ctx: TaskContext) -> SubagentResult:
        assert self._graph is not None
        state = await run_graph(
            self._graph, {"worker": params.worker, "request": params.request}, turn=ctx.turn, suffix=ctx.id
        )
        return SubagentResult(worker=params.worker, text=state["text"])

    async def _think(self, state: WorkerState, runtime: Runtime[TurnContext]) -> dict[str, str]:
        turn = runtime.context
        signature = self.entry(state["worker"])
        predictor = turn.services.predictors.get(signature, turn.prompt)
        answer = await predictor(
            {"request": state["request"]},
            turn.services.caller,
            role=turn.role,
            listener=turn.listener(predictor.name),
        )
        return {"text": str(answer.fields["result"])}


@dataclass(frozen=True, slots=True, kw_only=True)
class _SubagentShape(Shape[SubagentParams, SubagentResult]):
    """The entry Signature of a task is its worker's."""

    subagents: Subagents

    def entry_for(self, params: SubagentParams) -> tuple[Signature | None, tuple[Signature, ...]]:
        return self.subagents.entry(params.worker), ()
