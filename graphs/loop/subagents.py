"""The `subagent` shape: it runs a worker by name, or the function that replaces the worker (T3, H8).

A worker runs on a child thread, named after its task. Its loop is in `worker`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import to_jsonable_python

from ...core import canonical_json
from ...harness import Function, Registry, Worker
from ...harness.journal import SUSPENDED
from ...harness.requests import gives_text, inputs_of, takes_text
from ...signatures import PredictorPool, Signature
from ...signatures.models import Models
from ..checkpoints import run_graph
from ..shape import SUBAGENT, Shape, ShapeRegistry
from ..tasks import TaskContext
from .loop import build_graph
from .tools import Tools, callable_by
from .worker import WorkerLoop

EXTRA_SUPERSTEPS = 8  # supersteps of LangGraph in addition to those of the loop


class SubagentParams(BaseModel):
    """What the `subagent` shape takes."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    worker: str = Field(description="the worker's name", min_length=1)
    request: str = Field(description="what it should do; all it needs to know", min_length=1)

    @field_validator("request", mode="before")
    @classmethod
    def _as_text(cls, given: object) -> object:
        """Params of a worker that declares some are stored as JSON, as its result is."""
        return given if not isinstance(given, Mapping) else canonical_json(to_jsonable_python(given))


class SubagentResult(BaseModel):
    """What the `subagent` shape gives."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    worker: str
    text: str = Field(description="what it gave; JSON where it declares another output than a text")


class Subagents:
    """The `subagent` shape over one agent's workers.

    Args:
        registry: The workers, and the functions that they can call.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._tools: dict[str, tuple[tuple[Function, ...], Tools]] = {}
        self._graph = build_graph(False)  # no checkpoints, also not those of a surrounding graph: the journal is enough

    def signatures(self, pool: PredictorPool, models: Models) -> None:
        """Register the Signatures of the workers, after all their functions are known.

        Raises:
            NameTaken: A worker has the name of another Signature.
            FunctionInvalid: A worker's Signature cannot be made.
            ModelNotConfigured: A worker names a model that cannot exist.
        """
        for worker in self.registry.workers.values():
            for name in (worker.model, *worker.fallbacks):
                if name is not None:
                    models.check(name, who=f"the worker {worker.name!r}")
            pool.add(self.tools(worker).signature)

    def shape(self) -> Shape[SubagentParams, SubagentResult]:
        """The shape to register."""
        return _SubagentShape(SUBAGENT, SubagentParams, SubagentResult, self._handle, subagents=self)

    def with_subagent(self, shapes: Iterable[Shape[Any, Any]]) -> ShapeRegistry:
        """This shape and the callable shapes of the agent. All are registered as functions.

        Raises:
            NameTaken: Two have the same name.
            FunctionInvalid: One is not a shape.
        """
        own = self.shape()
        every = ShapeRegistry([own, *shapes]).shapes.values()
        # It runs workers and is not a tool itself, so it exists whatever is allowed.
        return ShapeRegistry(shape for shape in every if self.registry.add_shape(shape.function, always=shape is own))

    def tools(self, worker: Worker) -> Tools:
        """The tools that a worker can call now."""
        functions = callable_by(worker, self.registry)
        found = self._tools.get(worker.name)
        if found is None or found[0] != functions:
            tools = Tools.of_worker(worker, functions)
            if found is not None and bool(found[0]) == bool(functions):  # its program is found by its Signature
                tools = replace(tools, signature=found[1].signature)
            found = self._tools[worker.name] = (functions, tools)
        return found[1]

    def params(self, params: SubagentParams) -> SubagentParams:
        """The same params, in the form that the worker declares.

        Raises:
            UnknownWorker: The worker does not exist.
            ParamsInvalid: The params are invalid.
        """
        function = self.registry.runnable(params.worker)
        if takes_text(function):
            return params
        return params.model_copy(update={"request": canonical_json(inputs_of(function, params.request))})

    async def _handle(self, params: SubagentParams, ctx: TaskContext) -> Any:
        worker, function = self.registry.worker(params.worker), self.registry.runnable(params.worker)
        ctx.calls.frame.mark_model_influenced()
        calls = replace(ctx.calls, caller=ctx.calls.caller.working(worker.name), tools=worker.tools)
        inputs = inputs_of(function, params.request)
        run = WorkerLoop(ctx.turn, calls, self.tools(worker), worker=worker, inputs=inputs)
        node = await run.find()
        if node != "__end__":
            state = {"worker": worker.name, "round": run.round, "status": node}
            most = (worker.max_steps + 1) * (worker.retries + 2) + EXTRA_SUPERSTEPS
            values = await run_graph(self._graph, state, turn=ctx.turn, context=run, steps=most)
            if values["status"] != "done":
                return SUSPENDED
        return SubagentResult(
            worker=worker.name, text=str(run.result) if gives_text(function) else canonical_json(run.result)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SubagentShape(Shape[SubagentParams, SubagentResult]):
    """The entry Signature of a task is that of its worker."""

    subagents: Subagents

    def entry_for(self, params: SubagentParams) -> tuple[Signature | None, tuple[Signature, ...]]:
        if self.subagents.registry.runnable(params.worker).kind != "worker":
            return None, ()
        return self.subagents.tools(self.subagents.registry.worker(params.worker)).signature, ()

    def callee(self, params: SubagentParams) -> Function:
        found = self.subagents.registry.runnable(params.worker)
        return replace(
            self.function,
            name=found.name,
            description=found.description,
            kind=found.kind,
            risk=found.risk,
            limits=found.limits,
            capture=found.capture,
        )

    def stand_in(self, params: SubagentParams) -> tuple[Function, Mapping[str, Any]] | None:
        found = self.subagents.registry.runnable(params.worker)
        return None if found.kind == "worker" else (found, inputs_of(found, params.request))

    def check_params(self, data: object) -> SubagentParams:
        return self.subagents.params(Shape.check_params(self, data))

    def read_params(self, data: Any) -> SubagentParams:
        return self.subagents.params(Shape.read_params(self, data))


__all__ = ["SubagentParams", "SubagentResult", "Subagents"]
