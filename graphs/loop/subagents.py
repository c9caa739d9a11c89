"""The `subagent` shape: it runs a worker by name, or the function that replaces the worker (T3, H8).

A worker runs on a child thread, named after its task. Its loop is in `worker`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.graph import END
from langgraph.types import Command
from pydantic import Field, field_validator
from pydantic_core import to_jsonable_python

from ...core import canonical_json
from ...core.errors import OutputInvalid, ParamsInvalid
from ...core.validation import ClosedModel
from ...harness import CallContext, Function, Registry, Worker
from ...harness.gate.labels import OWN, joined
from ...harness.journal import SUSPENDED, Step
from ...harness.worker import REQUEST, TEXT, gives_text, inputs_of, takes_text
from ...signatures import RESULT, ModelCaller, Predictor, PredictorPool, Signature, Thought
from ...signatures.adapter import answer_field
from ...signatures.models import Models
from ..context import TurnContext
from ..shape import OPERATOR, SUBAGENT, Shape, ShapeRegistry
from ..tasks import TaskContext
from .finding import ToolSearch
from .graph import ACT, THINK, composer_graph, worker_graph
from .loop import Loop, LoopState, run_graph
from .tools import Tools, callable_by


class WorkerLoop(Loop):
    """One run of a worker. The journal has its model calls and other calls, which are found again by their ids.

    Args:
        worker: The worker.
        inputs: Its params as JSON.
    """

    def __init__(
        self, turn: TurnContext, calls: CallContext, tools: Tools, *, worker: Worker, inputs: Mapping[str, Any]
    ) -> None:
        super().__init__(turn, calls, tools, guard=worker.guard or turn.guard)
        self.result: Any = None
        self._worker = worker
        self._inputs = inputs
        self._faults = 0
        self._predictor: Predictor | None = None

    @property
    def models(self) -> Sequence[str | None]:
        return (self._worker.model, *self._worker.fallbacks)

    def tuned(self, caller: ModelCaller) -> ModelCaller:
        own, models = self._worker.generation, self.turn.services.models
        return models.tuned(caller, name=self._worker.model, generation=own.sent(), headers=own.revealed_headers())

    def predictor(self, inputs: Mapping[str, Any]) -> Predictor:
        if self._predictor is None:  # its steps have the same one, even if the worker is removed meanwhile
            self._predictor = super().predictor(inputs)
        return self._predictor

    async def find(self) -> str:
        """Restore the steps from the journal, and return the node to continue at."""
        node: str | None = THINK
        if self.guard is not None and self.is_over(self.think_id):
            await self._given()  # what handles of these steps can name
        while node == THINK and self.is_over(self.think_id):
            node = await self._think()
            if node == ACT and all(self.is_over(call_id) for call_id in self.act_ids):
                node = await self._act()
        assert node is not None, "a finished step never waits for a person"
        return node

    async def think(self, state: LoopState) -> Command[str]:
        """Let the model call tools, or give its result. An unusable answer is reported to the model.

        Raises:
            OutputInvalid: The model used all retries of the worker.
            HostError: The model failed.
        """
        return self._goto(await self._think())

    async def act(self, node: str, state: LoopState) -> Command[str]:
        """Make the calls that the model requested."""
        return self._goto(await self._act(get_config()))

    async def ask_model(self, final: bool) -> Thought:
        inputs = await self._given()
        self.step = self.round
        field = answer_field(self.tools.signature) if self.tools.result is TEXT else None
        return await self.ask(inputs, final=final, notes=self.fault_notes(), field=field)

    async def _given(self) -> Mapping[str, Any]:
        """The input fields of its entry Signature, with what is remembered."""
        inputs = {REQUEST: self._worker.message(self._inputs)} if self._worker.prompt else self._inputs
        if (recall := self.turn.services.recall) is None:
            return inputs
        text = str(inputs[REQUEST]) if inputs.keys() == {REQUEST} else canonical_json(inputs)
        return {**inputs, **self.with_context(await self.recall(recall, text))}

    async def _think(self) -> str | None:
        """Let the model think once, and return the next node; None if the turn has to stop."""
        if (reading := self.turn.reading) is not None:
            reading.head = await self.read_words(reading.head, round=len(self.steps), step=self.round)
        if self.tools.functions:
            given = {"input": self._inputs, "step": self.round}
            name, path = self._worker.name, self.calls.path
            step = Step(
                id=self.think_id,
                parent=path,
                name=name,
                kind="model",
                input=given,
                body=self._think_once,
                version=self._worker.variant or None,
            )
            said = await self.calls.frame.direct(step)
        else:  # nothing would resume from it, because the task that it ends is recorded
            said = await self._think_once(None)
        if said is SUSPENDED:
            return None
        think_id, self.round = self.think_id, self.round + 1
        self._fault = said.get("fault", "")
        if not self._fault and "calls" in said:
            self._faults = 0
            self.on_step(think_id, said)
            return ACT
        if not self._fault and await self._answer(said["result"], think_id) is SUSPENDED:
            return None
        if self._fault:
            self._check_retries()
            return THINK
        return END

    async def _answer(self, said: Any, think_id: str) -> Any:
        """Set the result, or the fault if a reader, or what is put in the place of handles, does not fit.

        Args:
            said: The result as the model said it.
            think_id: The path id of the model call.
        """
        self.result = said
        if self.guard is None:
            return None
        try:
            read = await self.read(said, think_id)
            if read is SUSPENDED:
                return SUSPENDED
            self.result, _, labels = self.guard.answered(self.tools, read, {}, RESULT)
        except OutputInvalid as error:
            self._fault = error.problem
            return None
        if joined(label for _, label in labels) != OWN:
            self.result = (await self.without_role({RESULT: self.result}))[RESULT]
            self.turn.gate.take_note_of_answer()
        if isinstance(self.result, str):
            self.guard.finish(self.result)
        return None

    async def _think_once(self, _: Any) -> Any:
        said = await self.think_once(final=len(self.steps) >= self._worker.max_steps or self.limit_reached())
        if said is not SUSPENDED and "fault" not in said:
            self.keep_example()
        return said

    async def _act(self, within: RunnableConfig | None = None) -> str | None:
        return THINK if await self.acted(within) else None

    def _check_retries(self) -> None:
        self._faults += 1
        if self._faults > self._worker.retries:
            raise OutputInvalid(
                f"the worker {self._worker.name!r} gave nothing usable in {self._faults} tries: {self._fault}",
                remedy="use a larger model, or correct its instructions",
            )

    def _goto(self, node: str | None) -> Command[str]:
        return Command(update=self.state(node), goto=node or END)

    def state(self, node: str | None) -> LoopState:
        """The state of its graph: its position, and the node that is next; None if it waits."""
        status: Any = {END: "done", None: "waiting"}.get(node, node)
        return {"worker": self._worker.name, "round": self.round, "status": status}


_EXTRA_SUPERSTEPS = 8  # supersteps of LangGraph in addition to those of the loop


def _supersteps(worker: Worker) -> int:
    """The limit of supersteps of a worker's graph. The worker's own limits are reached before it."""
    return (worker.max_steps + 1) * (worker.retries + 2) + _EXTRA_SUPERSTEPS


class WorkerTasks(ABC):
    """The handler of a shape whose tasks are loops of workers."""

    @abstractmethod
    def begin(self, params: Any, ctx: TaskContext) -> tuple[WorkerLoop, Worker, Callable[[Any], Any]]:
        """The loop of a task, its worker, and what makes the task's result of that of the loop."""

    async def handle(self, params: Any, ctx: TaskContext) -> Any:
        """Run a task to its end; `SUSPENDED` if it waits."""
        run, worker, result = self.begin(params, ctx)
        node = await run.find()
        if node != END:
            most, within = _supersteps(worker), ctx.turn.node_above(ctx.id)
            state = run.state(node)
            values = await run_graph(
                worker_graph(), state, turn=run.turn, context=run, steps=most, within=within, name=worker.name
            )
            if values["status"] != "done":
                return SUSPENDED
        return result(run.result)


class ComposedTasks(WorkerTasks):
    """The same, with a graph that has one more node, `compose`: there the loop is made ready."""

    LIMITS: ClassVar[Worker]
    """A worker whose limits all its loops have: the graph needs them before it composes one."""

    async def handle(self, params: Any, ctx: TaskContext) -> Any:
        run, within = _Composing(partial(self.begin, params, ctx)), ctx.turn.node_above(ctx.id)
        most = _supersteps(self.LIMITS)
        values = await run_graph(composer_graph(), {}, turn=ctx.turn, context=run, steps=most, within=within)
        return run.result if values["status"] == "done" else SUSPENDED


class _Composing:
    """The context of a graph that composes a loop and then runs it. Prompt and role stay out of the graph's state.

    Args:
        begin: Makes the loop; see `WorkerTasks.begin`.
    """

    def __init__(self, begin: Callable[[], tuple[WorkerLoop, Worker, Callable[[Any], Any]]]) -> None:
        self._begin = begin
        self._run: WorkerLoop  # both are there once `compose` has run
        self._read: Callable[[Any], Any]

    async def compose(self, state: LoopState) -> Command[str]:
        """Make the loop ready, and continue at its place."""
        self._run, _, self._read = self._begin()
        node = await self._run.find()
        return Command(update=self._run.state(node), goto=node)

    async def think(self, state: LoopState) -> Command[str]:
        """Let its model think."""
        return await self._run.think(state)

    async def act(self, node: str, state: LoopState) -> Command[str]:
        """Make the calls that its model requested."""
        return await self._run.act(node, state)

    @property
    def result(self) -> Any:
        """The result of the task, once the loop has ended."""
        return self._read(self._run.result)


class SubagentParams(ClosedModel):
    """What the `subagent` shape takes."""

    worker: str = Field(description="the worker's name", min_length=1)
    request: str = Field(description="what it should do; all it needs to know", min_length=1)

    @field_validator("request", mode="before")
    @classmethod
    def _as_text(cls, given: object) -> object:
        """Params of a worker that declares some are stored as JSON, as its result is."""
        return given if not isinstance(given, Mapping) else canonical_json(to_jsonable_python(given))


class OperatorParams(SubagentParams):
    """What the `operator` shape takes."""

    review: bool = Field(default=False, description="whether a person must approve the run, whatever the policy says")


class SubagentResult(ClosedModel):
    """What the `subagent` shape gives."""

    worker: str
    text: str = Field(description="what it gave; JSON where it declares another output than a text")


class Subagents(WorkerTasks):
    """The `subagent` shape over one agent's workers.

    Args:
        registry: The workers, and the functions that they can call.
        memory: Whether the agent has memory.
        search: When a worker's tools are searched.
    """

    def __init__(self, registry: Registry, *, memory: bool = False, search: ToolSearch | None = None) -> None:
        self.registry = registry
        self._search = search
        self._memory = memory
        self._tools: dict[str, tuple[tuple[Function, ...], Tools]] = {}

    def signatures(self, pool: PredictorPool, models: Models) -> None:
        """Register the Signatures of the workers, after all their functions are known.

        Raises:
            NameTaken: A worker has the name of another Signature.
            FunctionInvalid: A worker's Signature cannot be made.
            ModelNotConfigured: A worker names a model that cannot exist.
        """
        for worker in self.registry.workers.values():
            self.add(worker, pool, models)

    def add(self, worker: Worker, pool: PredictorPool, models: Models) -> None:
        """Register the Signature of one worker; see `signatures`."""
        for name in (worker.model, *worker.fallbacks):
            if name is not None:
                models.check(name, who=f"the worker {worker.name!r}")
        pool.add(self.tools(worker).signature)

    def forget(self, name: str) -> None:
        """Forget the tools of a worker that was removed."""
        self._tools.pop(name, None)

    def shape(self) -> Shape[SubagentParams, SubagentResult]:
        """The shape to register."""
        return _SubagentShape(SUBAGENT, SubagentParams, SubagentResult, self.handle, subagents=self)

    def with_subagent(self, shapes: Iterable[Shape[Any, Any]], *, operators: bool = False) -> ShapeRegistry:
        """This shape and the callable shapes of the agent. All are registered as functions.

        Args:
            shapes: The shapes of the agent.
            operators: Whether the host can run operators of members. Models do not see that shape.

        Raises:
            NameTaken: Two have the same name.
            FunctionInvalid: One is not a shape.
        """
        own = self.shape()
        host = _SubagentShape(OPERATOR, OperatorParams, SubagentResult, self.handle, subagents=self)
        every = ShapeRegistry([own, *([host] if operators else []), *shapes]).shapes.values()
        # It runs workers and is not a tool itself, so it exists whatever is allowed.
        return ShapeRegistry(
            each for each in every if each is host or self.registry.add_shape(each.function, always=each is own)
        )

    def tools(self, worker: Worker, registry: Registry | None = None) -> Tools:
        """The tools that a worker can call now, in the turns of an account if `registry` is that of one."""
        functions = callable_by(worker, registry or self.registry)
        found = self._tools.get(worker.name)
        if found is None or found[0] != functions:
            tools = Tools.of_worker(worker, functions, memory=self._memory and worker.memory, search=self._search)
            same = found is not None and bool(found[1].functions) == bool(tools.functions)
            if found is not None and same:  # its program is found by its Signature
                tools = replace(tools, signature=found[1].signature)
            found = self._tools[worker.name] = (functions, tools)
        return found[1]

    def params(self, params: SubagentParams) -> SubagentParams:
        """The same params, in the form that the worker declares.

        Raises:
            UnknownWorker: The worker does not exist.
            ParamsInvalid: The params are invalid.
        """
        function = self.runs(params)
        if takes_text(function):
            return params
        return params.model_copy(update={"request": canonical_json(inputs_of(function, params.request))})

    def runs(self, params: SubagentParams) -> Function:
        """The worker, or the function that runs instead of one.

        Raises:
            UnknownWorker, UnknownFunction: It does not exist.
            ToolNotAllowed: The profile excludes it.
            ParamsInvalid: It is a shape.
        """
        if not isinstance(params, OperatorParams):
            return self.registry.runnable(params.worker)
        found = self.registry.function(params.worker)
        if found.kind == "shape":
            raise ParamsInvalid(f"the operator {found.name!r} is a shape", remedy="run the shape in a flow")
        return replace(found, approval=True) if params.review else found

    def begin(self, params: SubagentParams, ctx: TaskContext) -> tuple[WorkerLoop, Worker, Callable[[Any], Any]]:
        worker, function = self.registry.worker(params.worker), self.registry.runnable(params.worker)
        ctx.calls.frame.mark_model_influenced()
        calls = replace(ctx.calls, caller=ctx.calls.caller.working(worker.name), tools=worker.tools)
        inputs = inputs_of(function, params.request)
        run = WorkerLoop(ctx.turn, calls, self.tools(worker, calls.registry), worker=worker, inputs=inputs)
        return run, worker, partial(_result, function)


def _result(function: Function, result: Any) -> SubagentResult:
    text = str(result) if gives_text(function) else canonical_json(result)
    return SubagentResult(worker=function.name, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SubagentShape(Shape[SubagentParams, SubagentResult]):
    """The entry Signature of a task is that of its worker."""

    subagents: Subagents

    @property
    def subgraph(self) -> Any:
        return worker_graph()

    def entry_for(self, params: SubagentParams) -> tuple[Signature | None, tuple[Signature, ...]]:
        if self.subagents.runs(params).kind != "worker":
            return None, ()
        return self.subagents.tools(self.subagents.registry.worker(params.worker)).signature, ()

    def callee(self, params: SubagentParams) -> Function:
        found = self.subagents.runs(params)
        return replace(
            self.function,
            name=found.name,
            description=found.description,
            kind=found.kind,
            risk=found.risk,
            capabilities=found.capabilities,
            limits=found.limits,
            capture=found.capture,
            approval=found.approval,
            guard=found.guard,
            bounds=found.bounds,
        )

    def stand_in(self, params: SubagentParams) -> tuple[Function, Mapping[str, Any]] | None:
        found = self.subagents.runs(params)
        return None if found.kind == "worker" else (found, inputs_of(found, params.request))

    def check_params(self, data: object) -> SubagentParams:
        return self.subagents.params(Shape.check_params(self, data))

    def read_params(self, data: Any) -> SubagentParams:
        return self.subagents.params(Shape.read_params(self, data))
