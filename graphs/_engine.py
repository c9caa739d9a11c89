"""One agent's turns behind one face: what `agent` uses of this folder. It compiles once and runs many turns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ..core import Emitter, Scope
from ..core.errors import InvalidArgument, ParamsInvalid
from ..core.events import TurnKind
from ..core.validation import json_of
from ..harness import OnError, Registry
from ..memory import ConversationStore, Draft, Message
from ..role_resolution import ResolvedRole, RoleResolver
from ..signatures import ModelCaller, Planner, PredictorPool, Program
from ..storage import Lease
from ._checkpoints import WholeSaver, run_graph
from ._context import GraphOptions, Services, TokenCount, TurnContext
from ._plan import Work, roster
from ._shape import Shape, ShapeRegistry
from ._turn import build_turn_graph, first_state
from ._worker_loop import Subagents


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """What a surface asks for.

    Attributes:
        turn_id: The new turn's id.
        kind: Which surface.
        thread_key: The id of the checkpointed thread.
        scope: The ids the turn runs under.
        author: Who asks.
        body: What goes into the log as the turn's first message.
        work: The task that a task or skill turn runs.
        prompt: A skill's prompt.
    """

    turn_id: str
    kind: TurnKind
    thread_key: str
    scope: Scope
    author: str
    body: Mapping[str, Any]
    work: Work | None = None
    prompt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """What a turn gave.

    Attributes:
        text: The answer; empty for a task.
        result: A task's result.
        usage: Its tokens.
    """

    text: str = ""
    result: BaseModel | None = None
    usage: TokenCount = field(default_factory=TokenCount)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """What an engine is made of, besides its checkpoints."""

    caller: ModelCaller
    registry: Registry
    shapes: Iterable[Shape[Any, Any]]
    resolver: RoleResolver
    log: ConversationStore
    identity: str | None = None
    options: GraphOptions = field(default_factory=GraphOptions)
    programs: Mapping[str, Any] = field(default_factory=dict)
    on_error: OnError | None = None


class TurnEngine:
    """Runs the turns of one agent.

    Args:
        parts: Model, functions, shapes, stores.
        saver: Where checkpoints go; None keeps none, for measurements.

    Raises:
        NameTaken: Two shapes have one key, or a worker is called as the planner's Signature is.
        FunctionInvalid: A Signature cannot carry a role.
    """

    def __init__(self, parts: EngineParts, saver: WholeSaver | None) -> None:
        self._saver = saver
        subagents = Subagents(parts.registry)
        shapes = ShapeRegistry([subagents.shape(), *parts.shapes])
        planner = Planner(parts.identity, roster(parts.registry, shapes), plain=parts.caller.plain)
        predictors = PredictorPool()
        predictors.add(*planner.predictors)
        for signature in subagents.signatures.values():
            predictors.add(signature)
        for shape in shapes.shapes.values():
            for signature in shape.all_signatures():
                predictors.add(signature)
        predictors.use_programs(parts.programs)
        planner.use(predictors)
        self.services = Services(
            caller=parts.caller,
            registry=parts.registry,
            shapes=shapes,
            predictors=predictors,
            planner=planner,
            resolver=parts.resolver,
            log=parts.log,
            saver=saver,
            options=parts.options,
            on_error=parts.on_error,
        )
        subagents.compile(saver)
        self._graph = build_turn_graph(saver)

    @classmethod
    async def open(cls, parts: EngineParts, path: Path) -> TurnEngine:
        """Make an engine with its checkpoints in the database at `path`."""
        saver = await WholeSaver.open(path)
        try:
            return cls(parts, saver)
        except BaseException:  # cancelled, too: the checkpoints have a connection
            await saver.aclose()
            raise

    async def aclose(self) -> None:
        """Close the checkpoints."""
        if self._saver is not None:
            await self._saver.aclose()

    def work(self, shape: str, params: Mapping[str, Any] | BaseModel) -> Work:
        """Check a task before anything is written.

        Raises:
            UnknownShape, UnknownWorker, ParamsInvalid: The text names what does not fit.
        """
        found = self.services.shapes.get(shape)
        checked = found.check_params(params)
        found.entry_for(checked)
        params_json = json_of(checked, what=f"params of shape {shape!r}", error=ParamsInvalid)
        return {"to": shape, "shape": shape, "params": params_json}

    def signatures(self, work: Work | None) -> tuple[str, tuple[str, ...]]:
        """The names of a turn's entry Signature and of its others: the planner's, or the task's shape's."""
        if work is None:
            return Planner.NAME, ()
        shape = self.services.shapes.get(work["shape"])
        entry, others = shape.entry_for(shape.read_params(work["params"]))
        return entry.__name__ if entry is not None else shape.key, tuple(other.__name__ for other in others)

    def program(self, name: str) -> Program:
        """A copy of the role-free program of one Signature, to optimise and save.

        Raises:
            InvalidArgument: No Signature of this agent has this name.
        """
        found = self.services.predictors.named(name)
        if found is None:
            known = ", ".join(self.services.predictors.names)
            raise InvalidArgument(f"no Signature is called {name!r}", remedy=f"the Signatures are: {known}")
        return found.program()

    async def head(self, thread_key: str) -> str | None:
        """The head of a thread's log, or None for a new thread."""
        if self._saver is None:
            return None
        found = await self._saver.aget_tuple({"configurable": {"thread_id": thread_key}})
        return None if found is None else found.checkpoint["channel_values"].get("head")

    async def history(self, thread_key: str, *, before: str | None, limit: int) -> tuple[Message, ...]:
        """A page of a thread's log."""
        return await self.services.log.history(await self.head(thread_key), before=before, limit=limit)

    async def run(
        self, request: TurnRequest, *, role: ResolvedRole, emit: Emitter, lease: Lease | None, stream: bool
    ) -> TurnOutcome:
        """Run one turn to its end.

        Args:
            request: What is asked for.
            role: The turn's resolved role.
            emit: Where events go.
            lease: The ownership of the thread.
            stream: Whether anybody wants deltas.
        """
        log = self.services.log
        head = await log.append(
            await self.head(request.thread_key),
            [Draft(request.author, request.kind, request.body)],
            thread=request.thread_key,
            turn_id=request.turn_id,
            lease=lease,
        )
        turn = TurnContext(
            turn_id=request.turn_id,
            thread_key=request.thread_key,
            scope=request.scope,
            services=self.services,
            role=role,
            emit=emit,
            usage=TokenCount(),
            lease=lease,
            stream=stream,
            prompt=request.prompt,
        )
        work: Sequence[Work] = [request.work] if request.work is not None else []
        state = await run_graph(self._graph, first_state(request.turn_id, request.kind, head, work), turn=turn)
        [last] = await log.history(state["head"], limit=1)
        if request.work is None:
            return TurnOutcome(text=str(last.body["text"]), usage=turn.usage)
        shape = self.services.shapes.get(request.work["shape"])
        return TurnOutcome(result=shape.read_result(last.body["result"]), usage=turn.usage)
